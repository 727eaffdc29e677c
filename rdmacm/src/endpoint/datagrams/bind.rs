//! [`DatagramSocket::bind`]: the creation of datagram sockets.

use std::sync::Arc;

use super::socket::DatagramSocket;
use crate::addr::{Address, IbAddress};
use crate::cm::{CmId, EventChannel, PortSpace};
use crate::device::Transport;
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::datagram_config::DatagramConfig;
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::datagram_cm::DatagramCm;
use crate::endpoint::shared::datagram_peer::{PeerCache, PeerContext, SocketId};
use crate::endpoint::shared::kernel_objects::{KernelObjects, NewEndpoint};
use crate::endpoint::shared::readiness::Readiness;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::to_addresses::{Target, ToAddresses, first_success};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{GRH_LENGTH, Mtu, QpState};

const BIND: &str = "bind a datagram socket to";

/// Binding a socket.
impl DatagramSocket {
    /// Binds a socket to a local address, which selects the device and the port of the queue pair.
    ///
    /// Unlike a `UdpSocket`, it cannot be bound to the unspecified address, because its queue pair is on one device.
    /// With port 0 the kernel chooses a port, which [`local_addr`](Self::local_addr) returns. If `address` names
    /// several addresses, the first that the socket can be bound to is used.
    ///
    /// Calls [`CmId::bind`] and [`CmId::listen`] in the port space UDP, and [`CmId::create_qp`]; the receives are
    /// posted. The queue pair belongs to a second id on the device, because an id that listens cannot join groups.
    ///
    /// # Errors
    ///
    /// The errors of the lookup of a name and of [`CmId::bind`], for the last address:
    /// - [`ErrorKind::Unsupported`] on iWARP, which has no datagrams.
    /// - [`ErrorKind::InvalidInput`] for the unspecified address, and if `config` has no buffer.
    /// - ENODEV if no device has the address.
    /// - EADDRNOTAVAIL if this machine does not have the address.
    /// - EADDRINUSE if the port is in use.
    /// - EINVAL or ENOMEM if `config` exceeds the limits of the device.
    /// - EMFILE if the process has too many descriptors.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{DatagramConfig, DatagramSocket};
    ///
    /// let socket = DatagramSocket::bind("10.0.0.1:0", &DatagramConfig::default())?;
    /// println!("bound to {:?}, for datagrams of {} bytes", socket.local_addr(), socket.mtu());
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(address: impl ToAddresses, config: &DatagramConfig) -> Result<Self> {
        Self::bind_to(address.to_target(), config)
    }

    /// Binds a socket to the first address of `target` that it can be bound to.
    pub(in crate::endpoint) fn bind_to(target: Target, config: &DatagramConfig) -> Result<Self> {
        first_success(target.resolve()?, |address| Self::bind_one(address, config))
    }

    fn bind_one(address: Address, config: &DatagramConfig) -> Result<Self> {
        let refuse = |reason: String| Err(Error::invalid(BIND, address.to_string(), reason));
        for (count, name) in [(config.send_buffers, "send"), (config.receive_buffers, "receive")] {
            if count == 0 {
                return refuse(format!("the number of {name} buffers is 0; the smallest is 1"));
            }
        }
        if address.ip().is_some_and(|address| address.ip().is_unspecified()) {
            return refuse("a datagram socket needs the address of one device".to_owned());
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
        // The listening id joins no groups, so the queue pair belongs to another id.
        let source = with_any_port(address);
        let id = CmId::new(&channel, PortSpace::Udp)?;
        id.bind(source)?;
        let route = id.route()?;
        let port = context.query_port(route.port_num)?;
        let bytes =
            |mtu: Mtu| usize::try_from(mtu.bytes().unwrap_or(256)).expect("an MTU fits into usize");
        let mtu = bytes(port.active_mtu);
        // Buffers have the largest length that a datagram can ever have, because the MTU of the port can grow.
        let send_buffer_size = bytes(port.max_mtu).max(mtu);
        let receive_buffer_size = GRH_LENGTH + send_buffer_size;
        let (send_buffers, receive_buffers) = (config.send_buffers, config.receive_buffers);
        let endpoint_config = ConnectionConfig::new()
            .send_buffers(send_buffers)
            .receive_buffers(receive_buffers)
            .send_buffer_size(send_buffer_size)
            .receive_buffer_size(receive_buffer_size);
        let mut endpoint = NewEndpoint::create(id, &endpoint_config, false)?;
        let KernelObjects { id, queues, .. } = &endpoint.objects;
        let qp = queues.qp();
        let socket_id = SocketId::default();
        let context = PeerContext::new(qp.pd(), &socket_id);
        let (qp_num, qkey) = (qp.number(), id.init_qp_attr(QpState::IB_QPS_INIT)?.qkey);
        let (number, gid) = (route.port_num, route.local.gid);
        let senders = PeerCache::new(context.clone(), number, gid, qkey, config.max_cached_peers);
        endpoint.objects.senders = Some(Box::new(senders));
        let bound = listener.local_addr()?;
        // The socket listens last, so that a peer that resolves it gets a queue pair that receives.
        listener.listen(0)?;
        let token = listener.token();
        let name = match bound {
            Some(bound) => format!("the datagram socket at {bound}"),
            None => format!("the datagram socket of id {token}"),
        };
        let cm = DatagramCm::new(listener, source, context);
        let state = State::new(endpoint, Some(Box::new(cm)));
        let readiness = Arc::new(Readiness::new(&channel)?);
        let shared = Shared::new(state, channel, readiness, name, mtu)?;
        let trace = Trace::socket(token, bound);
        trace.set_state("listening");
        Ok(Self { shared: Arc::new(shared.traced(trace)), address: bound, qp_num, socket_id })
    }
}

/// Returns `address` without its port, for another id on its device.
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
