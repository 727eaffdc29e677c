//! [`Connection`], the handle of a reliable connection.

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use super::buffer::{Buffer, Message};
use super::counters::Counters;
use super::operation::Operation;
use super::readiness::Readiness;
use super::shared::Shared;
use super::state::State;
use super::trace::Trace;
use super::wait::WaitMode;
#[cfg(doc)]
use super::{Connector, Incoming, Settings};
#[cfg(doc)]
use crate::cm::CmId;
use crate::cm::EventChannel;
use crate::error::{ErrorKind, Result};

/// A reliable connection that carries messages both ways, in the order in which they are sent.
///
/// Of [`Connector::connect`] or [`Incoming::accept`]. `Send + Sync`: any thread may call anything
/// at any time. Where several receive, each message goes to one of them.
///
/// To send, take a [`buffer`](Self::buffer), fill it, and [`post`](Self::post) it, or
/// [`send`](Self::send) it and have it back when the message has been sent; or have bytes [copied and
/// posted](Self::post_bytes). Messages are [received](Self::recv) into buffers that wait for them from
/// the beginning.
///
/// # Waiting
///
/// Calls that wait do so without end, or with `_timeout` in their names for so long; a signal ends
/// none of them. Those with `try_` do not wait. When one of those has said
/// [`ErrorKind::WouldBlock`], the descriptor ([`AsFd`]) becomes readable, and stays so, when it is
/// worth trying again: sleep on that, level-triggered, and then try again all that has said so. It
/// may be readable for nothing. What there is to do between the two, arming, polling again, reading
/// the channels, is done inside. A connection in an event loop is for that loop's thread: what
/// other threads wait for in blocking calls, they read away. Of each call it remembers what it has said at the last:
/// where two parts of a loop want buffers, who gets one tries on, or has the other one try.
///
/// # Clones
///
/// A clone is another handle of the connection, not another connection; cloning allocates nothing. Each
/// thread may have its own, as one that sends and one that receives. [`close`](Self::close) and
/// [`abort`](Self::abort) end the connection for all handles, whose further calls return
/// [`ErrorKind::Disconnected`]. Dropping a handle changes nothing as long as there is another one.
///
/// # The end
///
/// [`close`](Self::close) ends the connection in good order, [`abort`](Self::abort) at once, and
/// dropping its last handle is `abort`. When the peer has closed it, [`recv`](Self::recv) says so after the last
/// message. However it has ended, calls after that fail alike: with [`ErrorKind::Disconnected`],
/// [`ErrorKind::Failed`], [`ErrorKind::DeviceGone`], or, where messages of the peer may be lost on iWARP,
/// [`ErrorKind::Overrun`]; [`flush`](Self::flush) and [`close`](Self::close) only where something was not sent.
///
/// An idle connection does not hear that its peer is gone (see
/// [`cm`](crate::cm#what-nobody-hears-of)), unless it is [kept alive](Settings::keep_alive). What is
/// sent then fails after [`Settings::retry_count`].
#[derive(Clone)]
pub struct Connection {
    // Beside the handle, which has it too: a call on the data path reaches it by one pointer less.
    pub(super) shared: Arc<Shared>,
    handle: Arc<Handle>,
}

/// The part of a connection that its clones share and its buffers and messages do not: dropping it ends the connection.
struct Handle {
    shared: Arc<Shared>,
    addresses: [Option<SocketAddr>; 2],
    private_data: Box<[u8]>,
    may_read: bool,
}

impl Connection {
    pub(super) fn new(
        state: State,
        channel: EventChannel,
        readiness: Arc<Readiness>,
        private_data: Vec<u8>,
        trace: &mut Trace,
    ) -> Result<Self> {
        let parts = state.parts.as_ref().expect("a new state has them");
        parts.set_min_rnr_timer();
        let may_read = parts.allows_reads()?;
        let addresses = [parts.id.local_addr()?, parts.id.peer_addr()?];
        let name = match addresses[1] {
            Some(peer) => format!("the connection to {peer}"),
            None => format!("the connection of id {}", parts.id.token()),
        };
        let max_message_len = parts.send_buffer_size;
        let shared = Shared::new(state, channel, readiness, name, max_message_len)?;
        trace.local(addresses[0]);
        trace.is("connected");
        let shared = Arc::new(shared.traced(mem::take(trace)));
        let owner = Arc::clone(&shared);
        let private_data = private_data.into_boxed_slice();
        let handle = Handle { shared: owner, addresses, private_data, may_read };
        Ok(Self { shared, handle: Arc::new(handle) })
    }

    /// The local address; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.handle.addresses[0]
    }

    /// The peer's address; `None` for one of InfiniBand.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.handle.addresses[1]
    }

    /// What the peer's program sent along when it connected or accepted. On InfiniBand and RoCE as
    /// long as the message's field (56 bytes of a request, 196 of an answer), and zero where the
    /// peer did not fill it; on iWARP as long as it was sent.
    pub fn private_data(&self) -> &[u8] {
        &self.handle.private_data
    }

    /// What it has done so far: also when it has ended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn counters(&self) -> Result<Counters> {
        self.shared.counters()
    }

    /// Ends the connection in good order: waits until what was posted has been sent, tells the
    /// peer, and waits until it has answered, which it does when its program hears of the end; all
    /// within `timeout`. Messages that nobody has received are gone.
    ///
    /// [`CmId::disconnect`], `Disconnected`. In any case the connection is ended and the kernel's
    /// objects are gone when this returns, but for the memory that [`Buffer`]s and [`Message`]s
    /// have. Of several threads that close a connection all wait; closing it once more is no error.
    ///
    /// On iWARP the peer does not answer. What was sent arrives as far as TCP has it delivered: not
    /// for certain where the peer has sent something that this side has not received.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`]; [`ErrorKind::Disconnected`], [`ErrorKind::Failed`],
    /// [`ErrorKind::Overrun`] or [`ErrorKind::DeviceGone`] where something that was posted could not be
    /// sent any more; [`ErrorKind::WrongProcess`] after a fork. Of messages of the peer, and how they
    /// ended, it says nothing.
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub fn close(&self, timeout: Duration) -> Result<()> {
        self.close_with(WaitMode::timeout(timeout))
    }

    /// The same, without waiting: to be tried again until it says something else than
    /// [`ErrorKind::WouldBlock`]. Until then the connection is there, for messages too as long as
    /// those that were posted are on their way.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close), but [`ErrorKind::WouldBlock`] in place of
    /// [`ErrorKind::TimedOut`].
    pub fn try_close(&self) -> Result<()> {
        self.close_with(WaitMode::NonBlocking)
    }

    fn close_with(&self, mode: WaitMode) -> Result<()> {
        let finished = self.shared.finish(mode);
        let closed =
            finished.and_then(|()| self.shared.wait_for(Operation::Close, mode, State::closed));
        if !matches!(&closed, Err(error) if *error.kind() == ErrorKind::WouldBlock) {
            self.shared.abort();
        }
        closed
    }

    /// Ends the connection at once: what is on its way is cut off, and messages that nobody has
    /// received are gone. The peer hears of the end.
    ///
    /// The kernel's objects are gone when this returns, but for the memory that [`Buffer`]s and
    /// [`Message`]s have. Threads that wait in other calls return with [`ErrorKind::Disconnected`].
    pub fn abort(&self) {
        self.shared.abort();
    }

    /// Returns `true` if the two sides have settled on reads and atomics of this side at all.
    pub(super) fn may_read(&self) -> bool {
        self.handle.may_read
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [local, peer] = &self.handle.addresses;
        f.debug_struct("Connection")
            .field("local", local)
            .field("peer", peer)
            .finish_non_exhaustive()
    }
}

impl AsFd for Connection {
    /// The descriptor that becomes readable: see [waiting](Self#waiting).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.readiness.as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.abort();
    }
}
