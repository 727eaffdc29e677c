//! A datagram socket of tasks.

use std::net::SocketAddr;
use std::sync::Arc;

use super::off::{Slow, cancelled, off, refused};
use super::waiting::until;
use crate::addr::Address;
use crate::cm::Membership;
use crate::endpoint::buffer::{Buffer, Message};
use crate::endpoint::core::EndReason;
use crate::endpoint::group::Joining;
use crate::endpoint::resolving::Resolving;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::state::State;
use crate::endpoint::{Counters, DatagramSettings, DatagramSocket as Blocking, Group, Peer};
use crate::error::Result;
use crate::sys::reactor::Watched;
#[cfg(doc)]
use crate::{endpoint, error::ErrorKind};

/// Sends and receives datagrams: for tasks.
///
/// In all but waiting it is as an [`endpoint::DatagramSocket`], which says more. `Send + Sync`: any
/// task may call anything at any time. Where several receive, each datagram goes to one of them.
///
/// Peers that ask for the socket are answered while a task waits in one of its calls: one that
/// [receives](Self::recv_from) does.
///
/// Dropping it is [`abort`](Self::abort), for which nobody waits.
#[derive(Debug)]
pub struct DatagramSocket {
    // First: nobody watches what is closed.
    watched: Watched,
    socket: Slow<Blocking>,
}

impl DatagramSocket {
    /// Makes a socket on a local address: see [`endpoint::DatagramSocket::bind`].
    ///
    /// Dropped before, it leaves nothing.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::bind`], and of [`from_blocking`](Self::from_blocking);
    /// ECANCELED where the runtime ends.
    ///
    /// # Panics
    ///
    /// As [`from_blocking`](Self::from_blocking).
    #[doc(alias = "rdma_bind_addr")]
    pub async fn bind(address: impl Into<Address>, settings: &DatagramSettings) -> Result<Self> {
        let (address, settings) = (address.into(), settings.clone());
        let bound = off(move || Blocking::bind(address, &settings).map(Slow::new)).await;
        let late = || cancelled("bind a datagram socket to", address.to_string());
        Self::of(bound.ok_or_else(late)??)
    }

    /// One of tasks of the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// ENOMEM, ENOSPC and EINVAL where the runtime cannot watch as many descriptors.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and in one without I/O.
    #[track_caller]
    pub fn from_blocking(socket: Blocking) -> Result<Self> {
        Self::of(Slow::new(socket))
    }

    #[track_caller]
    fn of(socket: Slow<Blocking>) -> Result<Self> {
        let shared = &socket.shared;
        let watched = Watched::new(Arc::clone(&shared.readiness.epoll));
        let watched = watched.map_err(|error| refused("watch", shared.name.clone(), &error))?;
        Ok(Self { watched, socket })
    }

    /// One of threads.
    pub fn into_blocking(self) -> Blocking {
        self.socket.into_inner()
    }

    /// The address that it is bound to; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    /// The number of the socket's queue pair, by which its peers know it.
    pub fn qp_num(&self) -> u32 {
        self.socket.qp_num()
    }

    /// The bytes of the longest datagram: see [`endpoint::DatagramSocket::mtu`].
    pub fn mtu(&self) -> usize {
        self.socket.mtu()
    }

    /// What it has done so far: see [`endpoint::DatagramSocket::counters`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn counters(&self) -> Result<Counters> {
        self.socket.counters()
    }

    /// Asks at `address` where to send: see [`endpoint::DatagramSocket::resolve_peer`].
    ///
    /// Dropped before, the question is given up.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::resolve_peer`].
    #[doc(alias = "rdma_connect")]
    pub async fn resolve_peer(&self, address: impl Into<Address>) -> Result<Peer> {
        let resolving = Resolving::start(self.shared(), address.into())?;
        let outcome = |state: &mut State| resolving.outcome(state, false);
        self.until(Operation::Resolve, outcome).await?.into_outcome()
    }

    /// A buffer to send, when there is one: see [`endpoint::DatagramSocket::buffer`].
    ///
    /// Dropped before, it has taken none.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::buffer`].
    pub async fn buffer(&self) -> Result<Buffer> {
        let memory = self.until(Operation::Take, State::buffer).await?;
        Ok(Buffer::new(memory, self.shared()))
    }

    /// Sends the datagram in `buffer` to `peer`, without waiting until that is done: see
    /// [`endpoint::DatagramSocket::post_to`].
    ///
    /// Waits only with the first datagram to a peer, for which the kernel makes an address handle, and
    /// on RoCE looks for the way. Dropped before, nothing is sent, and the buffer goes back to the
    /// socket.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::post_to`]; ECANCELED where the runtime ends.
    pub async fn post_to(&self, buffer: Buffer, peer: &Peer) -> Result<()> {
        self.prepare(peer).await?;
        self.socket.post_to(buffer, peer)
    }

    /// Sends `bytes` to `peer` as a datagram, when there is a buffer to copy them into: see
    /// [`endpoint::DatagramSocket::post_bytes_to`].
    ///
    /// Waits with the first datagram to a peer as [`post_to`](Self::post_to). Dropped before, it has
    /// sent nothing.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::post_bytes_to`]; ECANCELED where the runtime ends.
    pub async fn post_bytes_to(&self, bytes: &[u8], peer: &Peer) -> Result<()> {
        self.shared().check_length(bytes.len())?;
        self.prepare(peer).await?;
        let operation = self.socket.send_to_peer(peer, None)?;
        self.until(Operation::Take, |state| state.post_bytes(bytes, operation)).await?
    }

    /// Sends the datagram in `buffer` to `peer`, and gives the buffer back when the device has sent it:
    /// see [`endpoint::DatagramSocket::send_to`].
    ///
    /// Dropped before it is polled, it sends nothing, and neither does it before the kernel has made
    /// an address handle for a first datagram: the buffer goes back to the socket. Later, the datagram
    /// is on its way, as one that was [posted](Self::post_to).
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::send_to`]; ECANCELED where the runtime ends.
    pub async fn send_to(&self, buffer: Buffer, peer: &Peer) -> Result<Buffer> {
        self.prepare(peer).await?;
        let operation = self.socket.operation(&buffer, peer)?;
        let mut wanted = self.shared().start_wanted(Operation::Send, buffer, operation)?;
        let memory = self.until(Operation::Send, |state| state.sent(wanted.index)).await?;
        Ok(wanted.back(memory))
    }

    /// Has the address handle of `peer` made, if it is not there.
    async fn prepare(&self, peer: &Peer) -> Result<()> {
        const OPERATION: &str = Operation::Send.name();
        if peer.is_ready() {
            return Ok(());
        }
        let (peer, mark) = (peer.clone(), Arc::clone(&self.socket.mark));
        let made = off(move || peer.address(OPERATION, &mark).map(drop)).await;
        made.ok_or_else(|| cancelled(OPERATION, self.shared().name.clone()))?
    }

    /// Waits until what was posted has been sent: see [`endpoint::DatagramSocket::flush`].
    ///
    /// It may be dropped at any time; that something was lost the next call says then.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::flush`].
    pub async fn flush(&self) -> Result<()> {
        self.until(Operation::Flush, State::flushed).await
    }

    /// The next datagram, and who has sent it: see [`endpoint::DatagramSocket::recv_from`].
    ///
    /// Dropped before, it has taken none.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::recv_from`].
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub async fn recv_from(&self) -> Result<(Message, Peer)> {
        let arrived = self.until(Operation::Receive, State::datagram).await??;
        Ok(self.socket.received(arrived))
    }

    /// Joins a multicast group: see [`endpoint::DatagramSocket::join_multicast`]. Dropping the [`Group`] leaves
    /// it, with a command to the kernel: [`leave`](Self::leave) is for tasks.
    ///
    /// Dropped before, the group is left, if it was joined.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::DatagramSocket::join_multicast`].
    #[doc(alias = "rdma_join_multicast")]
    pub async fn join_multicast(
        &self,
        group: impl Into<Address>,
        membership: Membership,
    ) -> Result<Group> {
        let mut joining = Joining::start(self.shared(), group.into(), membership)?;
        let answer = |state: &mut State| joining.answer(state, false);
        let peer = self.until(Operation::Join, answer).await??;
        Ok(joining.joined(peer))
    }

    /// Leaves a multicast group, of whichever socket: see [`Group::leave`].
    ///
    /// Dropped before it is polled, the group is left by who drops it; later, that goes on.
    ///
    /// # Errors
    ///
    /// Those of [`Group::leave`]; ECANCELED where the runtime ends, with which it is left too.
    #[doc(alias = "rdma_leave_multicast")]
    pub async fn leave(group: Group) -> Result<()> {
        let address = group.address();
        let left = off(move || group.leave()).await;
        left.ok_or_else(|| cancelled("leave", format!("the group {address}")))?
    }

    /// Ends the socket at once, as [`endpoint::DatagramSocket::abort`], and waits until the kernel's
    /// objects are gone.
    ///
    /// Dropped before it is polled, it does nothing; later, the end goes on.
    pub async fn abort(&self) {
        let shared = Arc::clone(self.shared());
        if off(move || shared.abort()).await.is_none() {
            self.socket.abort();
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }

    /// Waits until `done` finds the state as it wants it.
    async fn until<T>(
        &self,
        operation: Operation,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        until(self.shared(), &self.watched, operation, done).await
    }
}
