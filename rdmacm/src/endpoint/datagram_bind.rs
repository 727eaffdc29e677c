//! [`DatagramSocket::bind`]: the creation of datagram sockets.

use std::sync::Arc;

use super::datagram_cm::DatagramCm;
use super::datagram_settings::DatagramSettings;
use super::datagrams::DatagramSocket;
use super::kernel_objects::{KernelObjects, NewEndpoint};
use super::peer::{Home, Mark, Senders};
use super::readiness::Readiness;
use super::settings::Settings;
use super::shared::Shared;
use super::state::State;
use super::trace::Trace;
use crate::addr::{Address, IbAddress};
use crate::cm::{CmId, EventChannel, PortSpace};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{GRH_LENGTH, Mtu, QpState};

const BIND: &str = "bind a datagram socket to";

impl DatagramSocket {
    /// Makes a socket on a local address, which has to be one: the queue pair is on the port of the
    /// device that has it. With port 0 the kernel chooses one.
    ///
    /// [`CmId::bind`] and [`CmId::listen`] in the port space UDP, and [`CmId::create_qp`]; the
    /// receives are posted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] on iWARP, which has no datagrams; [`ErrorKind::Invalid`] for the
    /// unspecified address and for [`DatagramSettings`] without a buffer; those of [`CmId::bind`]:
    /// ENODEV where no device has the address, EADDRNOTAVAIL where this machine does not have it,
    /// EADDRINUSE; EINVAL and ENOMEM for more than the device has.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(address: impl Into<Address>, settings: &DatagramSettings) -> Result<Self> {
        let address = address.into();
        let refuse = |reason| Err(Error::invalid(BIND, address.to_string(), reason));
        if settings.send_buffers == 0 || settings.receive_buffers == 0 {
            return refuse("there must be a buffer for each direction");
        }
        if address.ip().is_some_and(|address| address.ip().is_unspecified()) {
            return refuse("the queue pair is on one device: name an address of that");
        }
        let channel = EventChannel::new()?;
        channel.set_nonblocking(true)?;
        let listener = CmId::new(&channel, PortSpace::Udp)?;
        listener.bind(address)?;
        let context = listener.context()?;
        if context.transport() == Transport::Iwarp {
            let kind = ErrorKind::Unsupported("iWARP has no datagrams".into());
            return Err(Error::new(BIND, address.to_string(), kind));
        }
        // What listens joins no groups, so that the queue pair is another id's.
        let source = with_any_port(address);
        let id = CmId::new(&channel, PortSpace::Udp)?;
        id.bind(source)?;
        let route = id.route()?;
        let port = context.query_port(route.port_num)?;
        let bytes = |mtu: Mtu| usize::try_from(mtu.bytes().unwrap_or(256)).expect("it fits");
        let mtu = bytes(port.active_mtu);
        // As long as a datagram may ever be: the port's MTU can grow.
        let send_buffer_size = bytes(port.max_mtu).max(mtu);
        let receive_buffer_size = GRH_LENGTH + send_buffer_size;
        let (send_buffers, receive_buffers) = (settings.send_buffers, settings.receive_buffers);
        let made_of = Settings {
            send_buffers,
            receive_buffers,
            send_buffer_size,
            receive_buffer_size,
            ..Settings::default()
        };
        let mut endpoint = NewEndpoint::create(id, &made_of, false)?;
        let KernelObjects { id, queues, .. } = &endpoint.objects;
        let qp = queues.qp();
        let mark = Mark::default();
        let home = Home::new(qp.pd(), &mark);
        let (qp_num, qkey) = (qp.number(), id.init_qp_attr(QpState::IB_QPS_INIT)?.qkey);
        let (number, gid) = (route.port_num, route.local.gid);
        let senders = Senders::new(home.clone(), number, gid, qkey, settings.known_senders);
        endpoint.objects.senders = Some(Box::new(senders));
        let bound = listener.local_addr()?;
        // Last: who asks is told of a queue pair that receives.
        listener.listen(0)?;
        let token = listener.token();
        let name = match bound {
            Some(bound) => format!("the datagram socket at {bound}"),
            None => format!("the datagram socket of id {token}"),
        };
        let cm = DatagramCm::new(listener, source, home);
        let state = State::new(endpoint, Some(Box::new(cm)));
        let readiness = Arc::new(Readiness::new(&channel)?);
        let shared = Shared::new(state, channel, readiness, name, mtu)?;
        let trace = Trace::socket(token, bound);
        trace.is("listening");
        Ok(Self { shared: Arc::new(shared.traced(trace)), address: bound, qp_num, mark })
    }
}

/// The same address, for another id on its device.
fn with_any_port(address: Address) -> Address {
    match address {
        Address::Ip(mut address) => {
            address.set_port(0);
            Address::Ip(address)
        }
        Address::Ib(address) => {
            let any = IbAddress::new(address.gid, PortSpace::Udp, 0);
            Address::Ib(IbAddress { pkey: address.pkey, scope_id: address.scope_id, ..any })
        }
    }
}
