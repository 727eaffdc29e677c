//! [`Connection`], the handle of a reliable connection.

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use crate::cm::CmId;
use crate::cm::EventChannel;
use crate::endpoint::core::operation::Operation;
use crate::endpoint::core::stats::EndpointStats;
#[cfg(doc)]
use crate::endpoint::memory::buffer::{Buffer, Message};
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::kernel_objects::Depths;
use crate::endpoint::shared::readiness::Readiness;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::wait::WaitMode;
#[cfg(doc)]
use crate::endpoint::{ConnectionConfig, Connector, Incoming};
use crate::error::{Error, ErrorKind, Result};

/// A reliable connection that carries messages in both directions, in order.
///
/// Unlike a TCP stream, it keeps the boundaries of messages: each message is received complete and once. A message must
/// fit into one [buffer](ConnectionConfig::receive_buffer_size) of its receiver, which has 4096 bytes by default. A
/// longer message ends the connection.
///
/// Created by [`Connector::connect`] or [`Incoming::accept`]. All methods take `&self` and may be called from any
/// thread at any time. If several threads receive, each message is delivered to one of them. Tasks use
/// [`task::Connection`](crate::endpoint::task::Connection).
///
/// [`post_bytes`](Self::post_bytes) sends a copy of a slice. To send without a copy, [acquire a
/// buffer](Self::acquire_buffer), fill it and [post](Self::post_send) it. To get the buffer back, use
/// [`start_send`](Self::start_send): the operation returns the buffer when the message is sent. Messages are
/// [received](Self::recv) into buffers that are posted from the beginning.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use rdmacm::endpoint::Connector;
///
/// let connection = Connector::new().connect("10.0.0.1:7471")?;
/// connection.post_bytes(b"ping")?;
/// if let Some(answer) = connection.recv_timeout(Duration::from_secs(5))? {
///     println!("{} bytes", answer.len());
/// }
/// connection.close(Duration::from_secs(5))?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
///
/// One thread sends, and another one receives. Each has a [handle](#clones) of the connection:
///
/// ```no_run
/// use std::{thread, time::Duration};
///
/// use rdmacm::endpoint::Connector;
///
/// let connection = Connector::new().connect("10.0.0.1:7471")?;
/// let sender = connection.clone();
/// let sending = thread::spawn(move || {
///     for number in 0..1000_u32 {
///         sender.post_bytes(&number.to_be_bytes())?;
///     }
///     sender.flush()
/// });
/// for message in connection.messages().take(1000) {
///     println!("{} bytes", message?.len());
/// }
/// sending.join().expect("the thread does not panic")?;
/// connection.close(Duration::from_secs(5))?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
///
/// # Waiting
///
/// Calls named `start_*` return an operation without waiting for the peer; its
/// [`wait`](crate::endpoint::RemoteOperation::wait) returns the result. Calls that wait have a deadline only if their name ends in
/// `_timeout` or if they take a `timeout`. A signal does not end them. To end the wait of another thread, call
/// [`close`](Self::close) or [`abort`](Self::abort) on a clone.
///
/// Calls named `try_*` never block. After one has returned [`ErrorKind::WouldBlock`], wait until the descriptor
/// ([`AsFd`]) is readable, then retry every call that returned it. The descriptor is level-triggered: it stays readable
/// until then. A wakeup may be spurious. The library arms the completion queues, polls again and reads the event
/// channels inside these calls.
///
/// Use the descriptor from one thread only: blocking calls on other threads may consume the readiness. The readiness is
/// tracked for each kind of call and not for each caller. If two parts of an event loop wait for buffers, the part that
/// gets one must retry, or let the other part retry.
///
/// # Clones
///
/// A clone is another handle of the same connection; cloning allocates nothing. Each thread may have its own handle,
/// such as one that sends and one that receives. [`close`](Self::close) and [`abort`](Self::abort) end the connection
/// for all handles, whose further calls return [`ErrorKind::Disconnected`]. Dropping a handle has no effect while there
/// is another one.
///
/// # Closing and failures
///
/// [`close`](Self::close) waits until all posted requests are sent, and then disconnects. [`abort`](Self::abort)
/// disconnects at once, and so does dropping the last handle. If the peer has closed the connection,
/// [`recv`](Self::recv) returns `None` after the last message. A program that must know that the peer has handled its
/// last message waits for a response before it closes the connection: see
/// [services](crate::guide::services#reconnecting).
///
/// After the end, [`recv`](Self::recv) returns the messages that had arrived, unless [`close`](Self::close) or
/// [`abort`](Self::abort) has discarded them. Then it returns `None` if the peer has ended the connection, and the
/// reason otherwise. Calls that take or post a buffer fail with the reason:
///
/// - [`ErrorKind::Disconnected`]: one of the two sides has closed or dropped the connection.
/// - [`ErrorKind::WorkRequestFailed`]: a posted request failed, for example because the peer does not answer.
/// - [`ErrorKind::PeerRequestFailed`]: the device refused an access of the peer to memory of this side.
/// - [`ErrorKind::ReceiveOverrun`]: messages of the peer found no buffer and may be lost (on iWARP).
/// - [`ErrorKind::DeviceRemoved`]: the device was removed.
/// - [`ErrorKind::MalformedResponse`]: a completion of the device does not follow the ABI.
/// - [`ErrorKind::UnreportedCause`]: an error ended the connection, and the device reports no cause.
///
/// [`flush`](Self::flush) and [`close`](Self::close) then fail only if a posted request was not completed: a message, a
/// write, a read or an atomic operation. There is no separate call that checks if the connection has ended:
/// [`recv`](Self::recv) returns when it ends.
///
/// An idle connection does not notice that its peer has vanished (see [`cm`](crate::cm#detecting-dead-peers)), unless
/// it is [kept alive](ConnectionConfig::keep_alive_interval). A message that is sent then fails after
/// [`ConnectionConfig::retry_count`] attempts.
#[derive(Clone)]
pub struct Connection {
    // A copy of the one in `handle`, which saves a pointer dereference on the data path.
    pub(in crate::endpoint) shared: Arc<Shared>,
    handle: Arc<Handle>,
}

/// The part of a connection that its clones share, but not its buffers and messages.
///
/// Dropping it ends the connection.
struct Handle {
    shared: Arc<Shared>,
    addresses: [Option<SocketAddr>; 2],
    private_data: Box<[u8]>,
    depths: Option<Depths>,
}

/// The end of the connection, and its properties.
impl Connection {
    pub(in crate::endpoint) fn new(
        state: State,
        channel: EventChannel,
        readiness: Arc<Readiness>,
        private_data: Vec<u8>,
        trace: &mut Trace,
    ) -> Result<Self> {
        let objects = state.objects.as_ref().expect("a new state should have kernel objects");
        objects.set_min_rnr_timer();
        let depths = objects.depths();
        let addresses = objects.id.addresses()?;
        let name = match addresses[1] {
            Some(peer) => format!("the connection to {peer}"),
            None => format!("the connection of id {}", objects.id.token()),
        };
        let max_message_len = objects.send_buffer_size;
        let shared = Shared::new(state, channel, readiness, name, max_message_len)?;
        trace.local(addresses[0]);
        trace.set_state("connected");
        let shared = Arc::new(shared.traced(mem::take(trace)));
        Ok(Self::of(shared, addresses, private_data.into_boxed_slice(), depths))
    }

    /// Creates the first handle of a connection.
    pub(in crate::endpoint) fn of(
        shared: Arc<Shared>,
        addresses: [Option<SocketAddr>; 2],
        private_data: Box<[u8]>,
        depths: Option<Depths>,
    ) -> Self {
        let handle = Handle { shared: Arc::clone(&shared), addresses, private_data, depths };
        Self { shared, handle: Arc::new(handle) }
    }

    /// Waits until all posted requests are sent, then disconnects, and waits for the peer's answer.
    ///
    /// All of this happens within `timeout`.
    ///
    /// The peer answers in its next call that waits, such as [`recv`](Self::recv), or that is named `try_*`. It also
    /// answers when it closes or drops the connection. If the peer makes no such call, `close` times out on RoCE and
    /// InfiniBand, although all messages were sent.
    ///
    /// Messages that this side has not received are discarded. When this returns, also with an error, the connection
    /// has ended. Its kernel objects are destroyed, except for the memory of [`Buffer`]s and [`Message`]s that the
    /// program holds. If several threads close a connection, all wait; closing it again is no error.
    ///
    /// Calls [`CmId::disconnect`] and waits for the event `Disconnected`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses, also if only the peer's answer is missing. The
    ///   [hint](crate::Error::hint) names the missing part, if it is known. To distinguish the two cases, call
    ///   [`flush_timeout`](Self::flush_timeout) first.
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures) before all posted requests were completed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// The call does not report the outcome of the peer's messages.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::ErrorKind;
    ///
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// match connection.close(Duration::from_secs(5)) {
    ///     Err(error) if *error.kind() == ErrorKind::TimedOut => eprintln!("{error}"),
    ///     closed => closed?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Driver notes
    ///
    /// On iWARP the peer does not answer. Sent messages arrive as far as TCP delivers them: delivery is not certain if
    /// the peer has sent messages that this side has not received.
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub fn close(&self, timeout: Duration) -> Result<()> {
        self.close_with(WaitMode::timeout(timeout))
    }

    /// Closes the connection without blocking.
    ///
    /// Retry until the call returns another result than [`ErrorKind::WouldBlock`]. When the call succeeds, the
    /// connection has ended as after [`close`](Self::close). Until then the connection exists. It still carries
    /// messages while posted requests are in flight.
    ///
    /// # Errors
    ///
    /// The errors of [`close`](Self::close), with [`ErrorKind::WouldBlock`] in place of [`ErrorKind::TimedOut`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::{ErrorKind, endpoint::Connection};
    ///
    /// /// Returns `true` if the connection has ended, and `false` if the descriptor must become readable first.
    /// fn closes(connection: &Connection) -> rdmacm::Result<bool> {
    ///     match connection.try_close() {
    ///         Ok(()) => Ok(true),
    ///         Err(error) if *error.kind() == ErrorKind::WouldBlock => Ok(false),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    pub fn try_close(&self) -> Result<()> {
        self.close_with(WaitMode::NonBlocking)
    }

    fn close_with(&self, mode: WaitMode) -> Result<()> {
        let finished = self.shared.finish(mode);
        let mut closed =
            finished.and_then(|()| self.shared.wait_for(Operation::Close, mode, State::closed));
        match closed.as_ref().map_err(Error::kind) {
            Err(ErrorKind::WouldBlock) => return closed,
            Err(ErrorKind::TimedOut) => closed = Err(self.shared.close_timeout_error()),
            _ => {}
        }
        self.shared.abort();
        closed
    }

    /// Ends the connection at once.
    ///
    /// Posted messages that are not sent yet and messages that were not received are discarded.
    ///
    /// The peer is notified. When this returns, the kernel objects are destroyed, except for the memory of [`Buffer`]s
    /// and [`Message`]s that the program holds. Threads that wait in other calls return with
    /// [`ErrorKind::Disconnected`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::thread;
    ///
    /// use rdmacm::endpoint::Connection;
    ///
    /// /// Ends the wait of a thread that receives.
    /// fn stop(connection: &Connection, receiver: thread::JoinHandle<rdmacm::Result<()>>) {
    ///     connection.abort();
    ///     if let Ok(Err(error)) = receiver.join() {
    ///         println!("the thread has ended: {error}");
    ///     }
    /// }
    /// ```
    pub fn abort(&self) {
        self.shared.abort();
    }

    /// Returns the local address, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.handle.addresses[0]
    }

    /// Returns the peer's address, or `None` for an InfiniBand address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.handle.addresses[1]
    }

    /// Returns the private data that the peer's program sent when it connected or accepted.
    ///
    /// On InfiniBand and RoCE the data has the length of the message's field (56 bytes in a request, 196 in an answer),
    /// and is padded with zeros. On iWARP the data has the length that was sent.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::Connection;
    ///
    /// /// Returns the version of the protocol that the server has sent when it accepted.
    /// fn version(connection: &Connection) -> Option<u8> {
    ///     connection.private_data().first().copied()
    /// }
    /// ```
    pub fn private_data(&self) -> &[u8] {
        &self.handle.private_data
    }

    /// Returns the negotiated number of reads and atomics of this side that may be in flight.
    ///
    /// It is at most [`ConnectionConfig::initiator_depth`]. Further operations wait in the send queue. Returns
    /// `None` on iWARP, where the driver does not report the number.
    pub fn initiator_depth(&self) -> Option<u8> {
        self.handle.depths.map(|depths| depths.initiator)
    }

    /// Returns the negotiated number of reads and atomics of the peer that this side serves at a time.
    ///
    /// It is at most [`ConnectionConfig::responder_resources`]. Returns `None` on iWARP, where the driver does
    /// not report the number.
    pub fn responder_resources(&self) -> Option<u8> {
        self.handle.depths.map(|depths| depths.responder)
    }

    /// Returns the numbers of messages and operations so far, also after the end.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn stats(&self) -> Result<EndpointStats> {
        self.shared.stats()
    }

    /// Returns `true` if both sides have agreed on reads and atomics of this side.
    ///
    /// Without an agreement, rxe never executes such an operation, and on iWARP the driver refuses it.
    pub(in crate::endpoint) fn allows_reads(&self) -> bool {
        self.handle.depths.is_none_or(|depths| depths.initiator > 0)
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
    /// Returns the descriptor that an event loop watches: see [waiting](Self#waiting).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.readiness.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.abort();
    }
}
