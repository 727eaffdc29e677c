//! [`DatagramSocket`], which sends and receives datagrams.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use crate::addr::Address;
#[cfg(doc)]
use crate::cm::CmId;
use crate::cm::Membership;
use crate::endpoint::core::stats::EndpointStats;
#[cfg(doc)]
use crate::endpoint::memory::buffer::{Buffer, Message};
use crate::endpoint::operations::multicast_group::{Joining, MulticastGroup};
use crate::endpoint::operations::remote_operation::RemoteOperation;
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::datagram_peer::SocketId;
#[cfg(doc)]
use crate::endpoint::{Connection, DatagramPeer};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A socket for datagrams: messages without a connection.
///
/// Datagrams may be lost or reordered, and can be [multicast](Self::start_join_multicast). As with a `UdpSocket`, one
/// socket communicates with many others. Its datagrams go to a [`DatagramPeer`], which is resolved once or received,
/// instead of an address: see [peers](#peers).
///
/// Created by [`bind`](Self::bind). All methods take `&self` and may be called from any thread at any time, so an
/// [`Arc`] shares the socket. If several threads receive, each datagram is delivered to one of them. Tasks use
/// [`task::DatagramSocket`](crate::endpoint::task::DatagramSocket).
///
/// [`post_bytes_to`](Self::post_bytes_to) sends a copy of a slice. To send without a copy, [acquire a
/// buffer](Self::acquire_buffer), fill it and [post](Self::post_send_to) it.
///
/// # Examples
///
/// A server that sends every datagram back:
///
/// ```no_run
/// use rdmacm::endpoint::{DatagramConfig, DatagramSocket};
///
/// let socket = DatagramSocket::bind("10.0.0.7:7174", &DatagramConfig::default())?;
/// loop {
///     let (message, sender) = socket.recv_from()?;
///     socket.post_bytes_to(&message, &sender)?;
/// }
/// # Ok::<(), rdmacm::Error>(())
/// ```
///
/// Its client:
///
/// ```no_run
/// use rdmacm::endpoint::{DatagramConfig, DatagramSocket};
///
/// let socket = DatagramSocket::bind("10.0.0.1:0", &DatagramConfig::default())?;
/// let server = socket.start_resolve_peer("10.0.0.7:7174")?.wait()?;
/// socket.post_bytes_to(b"who is there?", &server)?;
/// let (answer, sender) = socket.recv_from()?;
/// println!("{sender:?} sent {:?}", &*answer);
/// # Ok::<(), rdmacm::Error>(())
/// ```
///
/// One thread sends, and another one receives:
///
/// ```no_run
/// use std::{sync::Arc, thread};
///
/// use rdmacm::endpoint::{DatagramConfig, DatagramSocket};
///
/// let socket = Arc::new(DatagramSocket::bind("10.0.0.1:0", &DatagramConfig::default())?);
/// let server = socket.start_resolve_peer("10.0.0.7:7174")?.wait()?;
/// let receiver = Arc::clone(&socket);
/// thread::spawn(move || {
///     while let Ok((message, sender)) = receiver.recv_from() {
///         println!("{} bytes of {sender:?}", message.len());
///     }
/// });
/// for number in 0..1000_u32 {
///     socket.post_bytes_to(&number.to_be_bytes(), &server)?;
/// }
/// socket.flush()?;
/// // The other thread returns from its call.
/// socket.abort();
/// # Ok::<(), rdmacm::Error>(())
/// ```
///
/// # Peers
///
/// A datagram is sent to a queue pair, which an address and a port do not name.
/// [`start_resolve_peer`](Self::start_resolve_peer) asks the peer for its queue pair once. A received datagram [has its
/// sender](Self::recv_from). A [`MulticastGroup`] has a peer that reaches all members. Each is a [`DatagramPeer`], to
/// which any number of datagrams can be sent.
///
/// The socket listens on its port and answers peers that resolve it, inside the calls that wait or are named `try_*`;
/// the descriptor becomes readable for it. While no such call is made, a peer that resolves the socket waits and
/// retries for up to a minute.
///
/// Any program that has the number of the queue pair can send datagrams to it. The `Q_Key` of the connection manager
/// (0x01234567), which all programs share, protects nothing.
///
/// # Loss
///
/// A datagram has at most [`mtu`](Self::mtu) bytes. It is lost without a report in these cases:
///
/// - The receiver has no posted buffer.
/// - The peer's queue pair no longer exists.
/// - The network drops the datagram.
/// - The MTU of the port was reduced after this socket was bound.
///
/// A send that fails on this side, for example because there is no route to the peer any more, does not end the socket,
/// unlike a [`Connection`]. The error is returned by [`RemoteOperation::wait`], or by the next [`flush`](Self::flush).
/// Datagrams that were posted after it, and datagrams that arrive before the next call has reset the queue pair, are
/// lost too.
///
/// # Waiting
///
/// The rules of a [`Connection`](Connection#waiting) apply. Use [`recv_from_timeout`](Self::recv_from_timeout) for an
/// answer that may be lost.
///
/// # Closing
///
/// Dropping the socket is [`abort`](Self::abort). Posted datagrams that are not sent yet are lost, unless the program
/// calls [`flush`](Self::flush) before.
pub struct DatagramSocket {
    pub(in crate::endpoint) shared: Arc<Shared>,
    pub(in crate::endpoint) address: Option<SocketAddr>,
    pub(in crate::endpoint) qp_num: u32,
    pub(in crate::endpoint) socket_id: SocketId,
}

/// Multicast groups, the end of the socket, and its properties.
impl DatagramSocket {
    /// Starts to join a multicast group.
    ///
    /// A multicast group has no port, so the port of `group` is 0. `"239.1.1.1:0".parse::<Address>()` parses text.
    ///
    /// The membership lasts until the [`MulticastGroup`] is dropped. Its documentation has an example. Dropping the
    /// operation leaves the group.
    ///
    /// Calls [`CmId::join_multicast`], which describes memberships and groups.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] with EADDRINUSE if the socket is in the group already, or joins it.
    /// - The errors of [`CmId::join_multicast`]; the operation also returns the errors of its event.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - [`ErrorKind::NotOwner`] after a fork.
    #[doc(alias = "rdma_join_multicast")]
    pub fn start_join_multicast(
        &self,
        group: impl Into<Address>,
        membership: Membership,
    ) -> Result<RemoteOperation<MulticastGroup>> {
        Ok(Joining::start(&self.shared, group.into(), membership)?.into())
    }

    /// Ends the socket at once.
    ///
    /// Posted datagrams are flushed, datagrams that were not received are discarded, and the socket leaves its groups.
    ///
    /// When this returns, the kernel objects are destroyed, except for those that [`Buffer`]s, [`Message`]s and
    /// [`DatagramPeer`]s use. Threads that wait in other calls return with [`ErrorKind::Disconnected`].
    pub fn abort(&self) {
        self.shared.abort();
    }

    /// Returns the address that the socket is bound to, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the number of the socket's queue pair, by which its peers know it.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Returns the maximum length of a datagram, in bytes.
    ///
    /// It is the MTU of the port when the socket was bound, from 256 to 4096.
    ///
    /// On RoCE the MTU of the network device must be larger by the headers: an MTU of 1500 results in 1024, and an MTU
    /// of 4200 in 4096.
    pub fn mtu(&self) -> usize {
        self.shared.max_message_len
    }

    /// Returns the numbers of datagrams so far.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn stats(&self) -> Result<EndpointStats> {
        self.shared.stats()
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
    /// Returns the descriptor that becomes readable: see [waiting](Connection#waiting).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.readiness.as_fd()
    }
}

impl AsRawFd for DatagramSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        self.shared.abort();
    }
}
