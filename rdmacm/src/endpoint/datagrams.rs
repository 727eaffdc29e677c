//! [`DatagramSocket`], which sends and receives datagrams.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

#[cfg(doc)]
use super::Connection;
#[cfg(doc)]
use super::buffer::{Buffer, Message};
use super::counters::Counters;
use super::group::{Group, Joining};
use super::peer::{Mark, Peer};
use super::remote_operation::RemoteOperation;
use super::resolving::Resolving;
use super::shared::Shared;
use crate::addr::Address;
#[cfg(doc)]
use crate::cm::CmId;
use crate::cm::Membership;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

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
    pub(super) address: Option<SocketAddr>,
    pub(super) qp_num: u32,
    pub(super) mark: Mark,
}

impl DatagramSocket {
    /// The address that it is bound to; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The number of the socket's queue pair, by which its peers know it.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// The bytes of the max_message_len datagram: the MTU that the port had when the socket was bound, from
    /// 256 to 4096. With RoCE the network device's own has to be larger by the headers: 1500 make it
    /// 1024, and 4200 make it 4096.
    pub fn mtu(&self) -> usize {
        self.shared.max_message_len
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
