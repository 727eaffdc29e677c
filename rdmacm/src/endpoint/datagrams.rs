//! A socket for datagrams.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use super::Connection;
use super::buffer::{Buffer, Message};
use super::core::Outgoing;
use super::counters::Counters;
use super::group::{Group, Joining};
use super::kernel_objects::{KernelObjects, NewEndpoint};
use super::peer::{Home, Mark, Peer, Senders};
use super::readiness::Readiness;
use super::remote_operation::RemoteOperation;
use super::rendezvous::Rendezvous;
use super::resolving::Resolving;
use super::settings::Settings;
use super::shared::{Operation, Shared};
use super::state::{Arrived, State};
use super::trace::Trace;
use super::wait::Patience;
use crate::addr::{Address, IbAddress};
use crate::cm::{CmId, EventChannel, Membership, PortSpace};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::verbs::{GRH_LENGTH, Mtu, QpState};

const BIND: &str = "bind a datagram socket to";

/// What a [`DatagramSocket`] is to have.
///
/// Made from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramSettings {
    /// Buffers for sending: as many datagrams may be under way, or in the program's hands.
    pub send_buffers: u32,
    /// Buffers for receiving: as many datagrams may arrive before the program looks at them. One
    /// that finds none is lost, and nobody is told.
    pub receive_buffers: u32,
    /// How many senders are remembered. To answer another one takes some system calls and a kernel
    /// object again.
    pub known_senders: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for DatagramSettings {
    /// Sixteen buffers for sending, 64 for receiving, and 256 senders.
    fn default() -> Self {
        Self {
            send_buffers: 16,
            receive_buffers: 64,
            known_senders: 256,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// Sends and receives datagrams: messages that need no connection, may be lost, may come in another
/// order, and can go to many at once.
///
/// `Send + Sync`: any thread may call anything at any time. Where several receive, each datagram
/// goes to one of them.
///
/// ```no_run
/// use rdmacm::endpoint::{DatagramSettings, DatagramSocket};
/// use std::net::SocketAddr;
///
/// let local: SocketAddr = "10.0.0.1:0".parse()?;
/// let socket = DatagramSocket::bind(local, &DatagramSettings::default())?;
/// let server = socket.resolve_peer("10.0.0.7:7174".parse::<SocketAddr>()?)?;
/// socket.post_bytes_to(b"who is there?", &server)?;
/// let (answer, sender) = socket.recv_from()?;
/// println!("{sender:?} says {:?}", &*answer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Peers
///
/// An address and a port are not enough to send a datagram to: the peer's queue pair has to be
/// known. [`resolve_peer`](Self::resolve_peer) asks for it where the peer listens, once; whoever has sent a
/// datagram [comes with that](Self::recv_from); a [`Group`] has one for all that are in it. All
/// are a [`Peer`], to send to as often as one likes.
///
/// The socket listens on its port, and tells peers that ask for it its queue pair, without the
/// program's doing. It does so inside of the calls that wait or have `try_` in their names, and the
/// descriptor becomes readable for it: a peer that asks a socket which nobody calls waits, and asks
/// again for up to a minute.
///
/// Anybody who has the number of the queue pair can send there, and the `Q_Key` of the connection
/// manager (0x01234567), which all programs share, keeps nobody away.
///
/// # What is lost
///
/// A datagram is as long as [`mtu`](Self::mtu) at most. It is lost without a word where the receiver
/// has no buffer posted, where the peer's queue pair is gone, where the network loses it, and where
/// the port's MTU was made smaller after this socket was bound.
///
/// A send that fails on this side, as when there is no route to the peer any more, does not end the
/// socket, unlike a [`Connection`]: it is an error of [`send_to`](Self::send_to), or of the next
/// [`flush`](Self::flush). It takes the datagrams along that were posted behind it, and those that
/// arrive until a next call has set the socket up again.
///
/// # Waiting
///
/// As with a [`Connection`](Connection#waiting). Waiting for an answer that may have been lost is
/// for [`recv_from_timeout`](Self::recv_from_timeout).
///
/// # The end
///
/// Dropping the socket is [`abort`](Self::abort): there is nobody to tell. What was posted and is
/// not sent yet is lost, unless it is [`flush`](Self::flush)ed.
pub struct DatagramSocket {
    pub(super) shared: Arc<Shared>,
    address: Option<SocketAddr>,
    qp_num: u32,
    pub(super) mark: Mark,
}

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
        let rendezvous = Rendezvous::new(listener, source, home);
        let state = State::new(endpoint, Some(Box::new(rendezvous)));
        let readiness = Arc::new(Readiness::new(&channel)?);
        let shared = Shared::new(state, channel, readiness, name, mtu)?;
        let trace = Trace::socket(token, bound);
        trace.is("listening");
        Ok(Self { shared: Arc::new(shared.traced(trace)), address: bound, qp_num, mark })
    }

    /// The address that it is bound to; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The number of the socket's queue pair, by which its peers know it.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// The bytes of the longest datagram: the MTU that the port had when the socket was bound, from
    /// 256 to 4096. With RoCE the network device's own has to be larger by the headers: 1500 make it
    /// 1024, and 4200 make it 4096.
    pub fn mtu(&self) -> usize {
        self.shared.longest
    }

    /// Asks the socket or other program that listens at `address` for its queue pair, and waits for the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`start_resolve_peer`](Self::start_resolve_peer) and [`RemoteOperation::wait`].
    #[doc(alias = "rdma_connect")]
    pub fn resolve_peer(&self, address: impl Into<Address>) -> Result<Peer> {
        self.start_resolve_peer(address)?.wait()
    }

    /// Starts to ask the socket or other program that listens at `address` for its queue pair. Ask again if the peer may
    /// have been restarted. Dropping the operation cancels it.
    ///
    /// [`CmId::resolve_addr`], [`CmId::resolve_route`], and the request by [`CmId::connect`] in the
    /// port space UDP, in C `rdma_connect` on an id for datagrams.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] if `address` is of another family than the socket's.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] if the socket has ended.
    /// - [`ErrorKind::WrongProcess`] after a fork.
    ///
    /// Errors of the operation:
    /// - [`ErrorKind::Unreachable`] if no program listens at `address`, or the peer refuses or does not answer within a
    ///   minute.
    /// - [`ErrorKind::TimedOut`] if the address or the route is not found within two seconds.
    pub fn start_resolve_peer(&self, address: impl Into<Address>) -> Result<RemoteOperation<Peer>> {
        Ok(Resolving::start(&self.shared, address.into())?.into())
    }

    /// What it has done so far.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn counters(&self) -> Result<Counters> {
        self.shared.counters()
    }

    /// A buffer to send; waits until there is one.
    ///
    /// There are [`DatagramSettings::send_buffers`], of [`mtu`](Self::mtu) bytes, which come back
    /// when their datagrams have been sent, and where they are dropped. What is in it is what it had
    /// last, or zero. Where a send has failed, this waits until the socket is set up again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] where the socket has ended;
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn buffer(&self) -> Result<Buffer> {
        self.shared.take(Patience::FOREVER)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer), and [`ErrorKind::TimedOut`].
    pub fn buffer_timeout(&self, timeout: Duration) -> Result<Buffer> {
        self.shared.take(Patience::within(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer), and [`ErrorKind::WouldBlock`].
    pub fn try_buffer(&self) -> Result<Buffer> {
        self.shared.take(Patience::None)
    }

    /// Sends the datagram in `buffer` to `peer`, without waiting until that is done.
    ///
    /// The buffer goes back to the socket when it is. That it could not be sent is what the next
    /// [`flush`](Self::flush) says. There is always room for it, as there are no more buffers than
    /// that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a buffer or a peer of another socket; ENOENT, for a peer that has
    /// sent a datagram, where the port has lost the address that it came to; ENOMEM;
    /// [`ErrorKind::Failed`] where a send has failed since this buffer was taken, and the socket is
    /// not set up again yet;
    /// [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] where the socket has ended;
    /// [`ErrorKind::WrongProcess`] after a fork. The buffer goes back then.
    pub fn post_to(&self, buffer: Buffer, peer: &Peer) -> Result<()> {
        let operation = self.operation(&buffer, peer)?;
        self.shared.start(Operation::Send, buffer, operation)
    }

    /// Sends `bytes` to `peer` as a datagram, without waiting until that is done: copies them into a
    /// [buffer](Self::buffer), waiting until there is one, and [posts](Self::post_to) that, which is
    /// less work than both calls.
    ///
    /// # Errors
    ///
    /// Those of [`buffer`](Self::buffer) and [`post_to`](Self::post_to); [`ErrorKind::Invalid`] with
    /// EMSGSIZE for more than [`mtu`](Self::mtu) bytes. Then, and where there is no buffer in time,
    /// nothing is sent.
    pub fn post_bytes_to(&self, bytes: &[u8], peer: &Peer) -> Result<()> {
        self.shared.post_bytes(bytes, self.send_to_peer(peer, None)?, Patience::FOREVER)
    }

    /// Posts `bytes` as a datagram to `peer` if a buffer is free.
    ///
    /// # Errors
    ///
    /// As [`post_bytes_to`](Self::post_bytes_to), and [`ErrorKind::WouldBlock`] as of
    /// [`try_buffer`](Self::try_buffer).
    pub fn try_post_bytes_to(&self, bytes: &[u8], peer: &Peer) -> Result<()> {
        self.shared.post_bytes(bytes, self.send_to_peer(peer, None)?, Patience::None)
    }

    /// Sends the datagram in `buffer` to `peer`, waits until the device has sent it, and returns the buffer. The datagram
    /// may be lost after that.
    ///
    /// # Errors
    ///
    /// The errors of [`post_to`](Self::post_to) and [`RemoteOperation::wait`].
    pub fn send_to(&self, buffer: Buffer, peer: &Peer) -> Result<Buffer> {
        self.start_send_to(buffer, peer)?.wait()
    }

    /// Posts the datagram in `buffer` to `peer` and returns the operation, which returns the buffer when the device has
    /// sent the datagram.
    ///
    /// # Errors
    ///
    /// The errors of [`post_to`](Self::post_to).
    pub fn start_send_to(&self, buffer: Buffer, peer: &Peer) -> Result<RemoteOperation<Buffer>> {
        let operation = self.operation(&buffer, peer)?;
        let length = buffer.capacity();
        let wanted = self.shared.start_wanted(Operation::Send, buffer, operation)?;
        Ok(RemoteOperation::posted(Operation::Send, wanted, length, |buffer| buffer))
    }

    /// What sends `buffer` to `peer`.
    pub(super) fn operation<'a>(&self, buffer: &Buffer, peer: &'a Peer) -> Result<Outgoing<'a>> {
        self.send_to_peer(peer, buffer.datagram_imm_data()?)
    }

    pub(super) fn send_to_peer<'a>(
        &self,
        peer: &'a Peer,
        imm_data: Option<u32>,
    ) -> Result<Outgoing<'a>> {
        let address = peer.address(Operation::Send.name(), &self.mark)?;
        Ok(Outgoing::Datagram { address, qp_num: peer.qp_num(), qkey: peer.qkey(), imm_data })
    }

    /// Waits until what was posted has been sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Failed`], once, where something that was posted since the last call could not
    /// be sent; [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] where the socket has ended
    /// before; [`ErrorKind::WrongProcess`] after a fork.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush_with(Patience::FOREVER)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush), and [`ErrorKind::TimedOut`].
    pub fn flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.shared.flush_with(Patience::within(timeout))
    }

    /// Whether what was posted has been sent.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush), and [`ErrorKind::WouldBlock`] where it has not.
    pub fn try_flush(&self) -> Result<()> {
        self.shared.flush_with(Patience::None)
    }

    /// The next datagram, and who has sent it; waits for one. Dropping the message makes its buffer
    /// receive another one.
    ///
    /// The sender can be answered by sending to it, also where the datagram came to a group.
    ///
    /// # Errors
    ///
    /// Once for each [`Group`] that the network has taken the socket out of, what
    /// [`Group::check`] says; [`ErrorKind::Disconnected`] where the socket was
    /// [ended](Self::abort); [`ErrorKind::DeviceGone`]; [`ErrorKind::WrongProcess`] after a fork.
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn recv_from(&self) -> Result<(Message, Peer)> {
        self.recv_with(Patience::FOREVER)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from), and [`ErrorKind::TimedOut`].
    pub fn recv_from_timeout(&self, timeout: Duration) -> Result<(Message, Peer)> {
        self.recv_with(Patience::within(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from), and [`ErrorKind::WouldBlock`].
    pub fn try_recv_from(&self) -> Result<(Message, Peer)> {
        self.recv_with(Patience::None)
    }

    fn recv_with(&self, patience: Patience) -> Result<(Message, Peer)> {
        let arrived = self.shared.until(Operation::Receive, patience, State::datagram)??;
        Ok(self.received(arrived))
    }

    /// A datagram that has arrived, and who has sent it.
    pub(super) fn received(&self, mut arrived: Arrived) -> (Message, Peer) {
        let sender = arrived.sender.take().expect("a datagram has one");
        (Message::new(arrived, &self.shared), sender)
    }

    /// Joins a multicast group, and waits until the socket is in it.
    ///
    /// # Errors
    ///
    /// The errors of [`start_join_multicast`](Self::start_join_multicast) and [`RemoteOperation::wait`].
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(
        &self,
        group: impl Into<Address>,
        membership: Membership,
    ) -> Result<Group> {
        self.start_join_multicast(group, membership)?.wait()
    }

    /// Starts to join a multicast group. The socket is in it until the [`Group`] is dropped. Dropping the operation
    /// leaves the group.
    ///
    /// [`CmId::join_multicast`], which describes memberships and groups.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] with EADDRINUSE if the socket is in the group already, or joins it.
    /// - The errors of [`CmId::join_multicast`], and, of the operation, those of its event.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] if the socket has ended.
    /// - [`ErrorKind::WrongProcess`] after a fork.
    pub fn start_join_multicast(
        &self,
        group: impl Into<Address>,
        membership: Membership,
    ) -> Result<RemoteOperation<Group>> {
        Ok(Joining::start(&self.shared, group.into(), membership)?.into())
    }

    /// Ends the socket at once: what is on its way is cut off, and datagrams that nobody has
    /// received are gone. It leaves its groups.
    ///
    /// The kernel's objects are gone when this returns, but for what [`Buffer`]s, [`Message`]s and
    /// [`Peer`]s keep. Threads that wait in other calls return with [`ErrorKind::Disconnected`].
    pub fn abort(&self) {
        self.shared.abort();
    }
}

impl fmt::Debug for DatagramSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSocket")
            .field("address", &self.address)
            .field("qp_num", &self.qp_num)
            .finish_non_exhaustive()
    }
}

impl AsFd for DatagramSocket {
    /// The descriptor that becomes readable: see [waiting](Connection#waiting).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.readiness.as_fd()
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        self.shared.abort();
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
