//! A connection.

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::buffer::{Buffer, Message};
use super::counters::Counters;
use super::readiness::Readiness;
use super::remote_operation::RemoteOperation;
use super::shared::{Operation, Shared};
use super::state::State;
use super::trace::Trace;
use super::wait::Patience;
#[cfg(doc)]
use super::{Connector, Incoming, Settings};
#[cfg(doc)]
use crate::cm::CmId;
use crate::cm::EventChannel;
use crate::error::{ErrorKind, Result};
use crate::verbs::SendOperation;

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
        let longest = parts.send_buffer_size;
        let shared = Shared::new(state, channel, readiness, name, longest)?;
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

    /// A buffer to send; waits until there is one.
    ///
    /// There are [`Settings::send_buffers`], which come back when their messages have been sent,
    /// and where they are dropped. What is in it is what it had last, or zero.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Failed`], [`ErrorKind::Overrun`] or
    /// [`ErrorKind::DeviceGone`] where the connection has ended; [`ErrorKind::WrongProcess`] after a fork.
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

    /// Sends the message in `buffer`, without waiting until that is done.
    ///
    /// The buffer goes back to the connection when it is. That it could not be sent ends the
    /// connection, and is what later calls say; [`flush`](Self::flush) waits until it is known.
    /// There is always room for it, as there are no more buffers than that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Failed`], [`ErrorKind::Overrun`] or
    /// [`ErrorKind::DeviceGone`] where the connection has ended; [`ErrorKind::Invalid`] for a buffer of another connection;
    /// [`ErrorKind::Unsupported`] for immediate data on iWARP; [`ErrorKind::WrongProcess`] after a
    /// fork. The buffer goes back then.
    #[doc(alias = "rdma_post_send")]
    pub fn post(&self, buffer: Buffer) -> Result<()> {
        let operation = buffer.operation();
        self.shared.start(Operation::Send, buffer, operation)
    }

    /// Sends `bytes` as a message, without waiting until that is done: copies them into a
    /// [buffer](Self::buffer), waiting until there is one, and [posts](Self::post) that, which is
    /// less work than both calls. What is long is better written into a buffer in the first place.
    ///
    /// # Errors
    ///
    /// Those of [`buffer`](Self::buffer) and [`post`](Self::post); [`ErrorKind::Invalid`] with
    /// EMSGSIZE for more than a [buffer](Settings::send_buffer_size) holds. Then, and where there is no buffer in time,
    /// nothing is sent.
    pub fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared.post_bytes(bytes, SendOperation::Send, Patience::FOREVER)
    }

    /// Posts `bytes` as a message if a buffer is free.
    ///
    /// # Errors
    ///
    /// As [`post_bytes`](Self::post_bytes), and [`ErrorKind::WouldBlock`] as of
    /// [`try_buffer`](Self::try_buffer).
    pub fn try_post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared.post_bytes(bytes, SendOperation::Send, Patience::None)
    }

    /// Sends the message in `buffer`, waits until it is sent, and returns the buffer. On InfiniBand and RoCE the peer's
    /// device has the message then; on iWARP this side's TCP.
    ///
    /// # Errors
    ///
    /// The errors of [`start_send`](Self::start_send) and [`RemoteOperation::wait`].
    pub fn send(&self, buffer: Buffer) -> Result<Buffer> {
        self.start_send(buffer)?.wait()
    }

    /// Posts the message in `buffer` and returns the operation, which returns the buffer when the message is sent. If
    /// the buffer is not needed, [`post`](Self::post) does less work.
    ///
    /// # Errors
    ///
    /// The errors of [`post`](Self::post).
    pub fn start_send(&self, buffer: Buffer) -> Result<RemoteOperation<Buffer>> {
        let (operation, length) = (buffer.operation(), buffer.capacity());
        self.start(Operation::Send, buffer, operation, length, |buffer| buffer)
    }

    /// Posts `operation` with `buffer`, which is returned with `length` bytes and made the result.
    pub(super) fn start<T>(
        &self,
        what: Operation,
        buffer: Buffer,
        operation: SendOperation<'_>,
        length: usize,
        result: fn(Buffer) -> T,
    ) -> Result<RemoteOperation<T>> {
        let wanted = self.shared.start_wanted(what, buffer, operation)?;
        Ok(RemoteOperation::posted(what, wanted, length, result))
    }

    /// Waits until what was posted has been sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Failed`], [`ErrorKind::Overrun`] or
    /// [`ErrorKind::DeviceGone`] where the connection ended before; [`ErrorKind::WrongProcess`] after a fork.
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

    /// The next message; waits for one. `None` where the peer has ended the connection, after the
    /// last message that it sent before. Its kernel does that too, when its process has died: who
    /// has to know says farewell in a message. On iWARP the side that has sent a message for which there
    /// was [no buffer](Settings::receive_buffers), or that was too long, hears of the end alone (siw).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Failed`] where the connection failed: with EMSGSIZE where the peer has sent a
    /// message longer than a [buffer](Settings::receive_buffer_size); [`ErrorKind::Overrun`] on iWARP, where
    /// there may have been [no buffer](Settings::receive_buffers) for a message, after those that had
    /// one; [`ErrorKind::DeviceGone`]; [`ErrorKind::Disconnected`] where this side has closed it first; [`ErrorKind::WrongProcess`] after
    /// a fork.
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn recv(&self) -> Result<Option<Message>> {
        self.recv_with(Patience::FOREVER)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and [`ErrorKind::TimedOut`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.recv_with(Patience::within(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and [`ErrorKind::WouldBlock`].
    pub fn try_recv(&self) -> Result<Option<Message>> {
        self.recv_with(Patience::None)
    }

    fn recv_with(&self, patience: Patience) -> Result<Option<Message>> {
        let arrived = self.shared.until(Operation::Receive, patience, State::message)?;
        Ok(arrived.map(|arrived| Message::new(arrived, &self.shared)))
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
        self.close_with(Patience::within(timeout))
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
        self.close_with(Patience::None)
    }

    fn close_with(&self, patience: Patience) -> Result<()> {
        let finished = self.shared.finish(patience);
        let closed =
            finished.and_then(|()| self.shared.until(Operation::Close, patience, State::closed));
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

    /// Whether the two sides have settled on reads and atomics of this side at all.
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
