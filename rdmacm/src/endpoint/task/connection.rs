//! [`Connection`], a reliable connection whose calls are awaited.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::blocking_pool::{DropOnBlockingPool, run_blocking};
use super::deadline::until_deadline;
use super::default_runtime::default_runtime;
use super::establish::Established;
use super::failure::{canceled, refused};
use super::runtime::{ProcessRuntime, Runtime};
use super::waiting::wait_for;
use super::watch::Watch;
#[cfg(doc)]
use crate::endpoint::ConnectionConfig;
use crate::endpoint::core::EndReason;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::wait::deadline::deadline_after;
use crate::endpoint::{self, EndpointStats};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A reliable connection that carries messages in both directions, in order, for tasks.
///
/// Unlike a TCP stream, it keeps the boundaries of messages: each message is received complete and once. A message must
/// fit into a [receive buffer](endpoint::ConnectionConfig::receive_buffer_size) of the peer, which has 4,096 bytes by
/// default: a longer one ends the connection.
///
/// Created by [`connect`](Self::connect) or [`Incoming::accept`](super::Incoming::accept). All methods take `&self` and
/// may be called by any task at any time. If several tasks receive, each message is delivered to one of them. Apart
/// from waiting, it behaves as an [`endpoint::Connection`], which is documented in more detail.
///
/// # Examples
///
/// A program on Tokio (feature `tokio`). A timeout of the runtime limits a call:
///
#[cfg_attr(feature = "tokio", doc = "```no_run")]
#[cfg_attr(not(feature = "tokio"), doc = "```text")]
/// use std::{error::Error, time::Duration};
///
/// use rdmacm::endpoint::{Connector, task::Connection};
/// use tokio::time;
///
/// const TIMEOUT: Duration = Duration::from_secs(5);
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), Box<dyn Error>> {
///     let connector = Connector::new().total_timeout(TIMEOUT);
///     let connection = Connection::connect(&connector, "10.0.0.1:7471").await?;
///     connection.post_bytes(b"hello").await?;
///     if let Some(answer) = time::timeout(TIMEOUT, connection.recv()).await?? {
///         println!("{}", String::from_utf8_lossy(&answer));
///     }
///     Ok(connection.close(TIMEOUT).await?)
/// }
/// ```
///
/// One task sends, and another one receives. Each has a handle of the connection:
///
#[cfg_attr(feature = "tokio", doc = "```no_run")]
#[cfg_attr(not(feature = "tokio"), doc = "```text")]
/// use rdmacm::endpoint::task::Connection;
///
/// async fn exchange(connection: Connection) -> rdmacm::Result<()> {
///     let sender = connection.clone();
///     let sending = tokio::spawn(async move {
///         for number in 0..1000_u32 {
///             sender.post_bytes(&number.to_be_bytes()).await?;
///         }
///         sender.flush().await
///     });
///     while let Some(message) = connection.recv().await? {
///         println!("{} bytes", message.len());
///     }
///     sending.await.expect("the task does not panic")
/// }
/// ```
///
/// # Waiting
///
/// A call without a deadline waits until it has a result. Dropping its future ends the wait; the section "Cancel
/// safety" of each call describes the effect, and the [module](super#waiting) describes the rules.
///
/// # Closing and failures
///
/// [`close`](Self::close) waits until all posted requests are sent, and then disconnects. [`abort`](Self::abort)
/// disconnects at once, and dropping the last handle is [`abort`](Self::abort) without waiting for it. If the peer has
/// closed the connection, [`recv`](Self::recv) returns `None` after the last message. After the end, calls that take or
/// post a buffer fail with the reason: see [`endpoint::Connection`](endpoint::Connection#closing-and-failures).
///
/// # Clones
///
/// A clone is another handle of the connection, for another task: see
/// [`endpoint::Connection`](endpoint::Connection#clones).
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

/// A connection whose descriptor a runtime watches.
struct Handle {
    // Declared first: the runtime forgets the descriptor before it is closed.
    watch: Watch,
    connection: DropOnBlockingPool<endpoint::Connection>,
}

/// The end of the connection, its properties, and conversions.
impl Connection {
    /// Waits until all posted requests are sent, disconnects, and waits for the peer's answer.
    ///
    /// All of these waits end after `timeout`. When the call returns, also with an error, the connection has ended.
    /// Messages that this side has not received are discarded. The kernel objects are destroyed, except for the memory
    /// of buffers and messages that the program holds.
    ///
    /// The peer answers in its next call that waits, or when it closes or drops the connection. If it does neither, the
    /// call times out on InfiniBand and RoCE, although all messages were sent. On iWARP the peer does not answer,
    /// and messages arrive as far as TCP delivers them. See [`endpoint::Connection::close`] for details.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses, also if only the peer's answer is missing. The
    ///   [hint](crate::Error::hint) names the missing part, if it is known. To distinguish the two cases, await
    ///   [`flush`](Self::flush) with a timeout first.
    /// - [`ErrorKind::Disconnected`], [`ErrorKind::WorkRequestFailed`] and other [reasons](Self#closing-and-failures)
    ///   if the connection ended before all posted requests were sent.
    /// - [`ErrorKind::Unsupported`] if it is awaited in a context without timers: for example outside of Tokio's
    ///   runtime.
    /// - [`ErrorKind::NotOwner`] after a fork.
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before all messages are sent, the connection stays open. If it is dropped while it
    /// waits for the peer, the peer is or will be disconnected: messages are still received, but none can be posted. In
    /// both cases the connection may be closed again, or aborted. If the future is dropped later, the
    /// [abort](Self::abort) at the end continues.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::{ErrorKind, endpoint::task::Connection};
    ///
    /// # async fn f(connection: Connection) -> rdmacm::Result<()> {
    /// match connection.close(Duration::from_secs(5)).await {
    ///     Err(error) if *error.kind() == ErrorKind::TimedOut => eprintln!("{error}"),
    ///     closed => closed?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        let runtime = self.runtime();
        let closed = match until_deadline(runtime, deadline_after(timeout), self.end()).await {
            Ok(Some(closed)) => closed,
            Ok(None) => Err(self.shared().close_timeout_error()),
            Err(error) => Err(refused(Operation::Close.name(), self.shared().name.clone(), &error)),
        };
        self.abort().await;
        closed
    }

    async fn end(&self) -> Result<()> {
        if self.wait_for(Operation::Close, State::close).await? {
            let shared = Arc::clone(self.shared());
            let announced = self.run_blocking(move || shared.announce_close()).await;
            let name = || self.shared().name.clone();
            announced.ok_or_else(|| canceled(Operation::Close.name(), name()))??;
        }
        self.wait_for(Operation::Close, State::closed).await
    }

    /// Ends the connection at once and waits until its kernel objects are destroyed.
    ///
    /// Posted messages that are not sent yet and messages that were not received are discarded. The peer is notified.
    /// Other calls that wait return [`ErrorKind::Disconnected`]. The memory of buffers and messages that the program
    /// holds remains.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing happens. If it is dropped later, the end continues.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::task::Connection;
    ///
    /// /// Ends a connection that has sent an invalid request.
    /// async fn refuse(connection: Connection, request: &[u8]) {
    ///     eprintln!("an invalid request of {} bytes", request.len());
    ///     connection.abort().await;
    /// }
    /// ```
    pub async fn abort(&self) {
        let shared = Arc::clone(self.shared());
        if self.run_blocking(move || shared.abort()).await.is_none() {
            self.blocking().abort();
        }
    }

    /// Returns the local address, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.blocking().local_addr()
    }

    /// Returns the peer's address, or `None` for an InfiniBand address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.blocking().peer_addr()
    }

    /// Returns the private data that the peer's program sent when it connected or accepted.
    ///
    /// On InfiniBand and RoCE the data is padded with zeros to the length of the message's field: 56 bytes in a
    /// request, 196 in an answer. On iWARP it has the length that was sent.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::task::Connection;
    ///
    /// /// Returns the version of the protocol that the server has sent when it accepted.
    /// fn version(connection: &Connection) -> Option<u8> {
    ///     connection.private_data().first().copied()
    /// }
    /// ```
    pub fn private_data(&self) -> &[u8] {
        self.blocking().private_data()
    }

    /// Returns the negotiated number of reads and atomics of this side that may be in flight.
    ///
    /// It is at most [`ConnectionConfig::initiator_depth`]. Further operations wait in the send queue. Returns `None`
    /// on iWARP, where the driver does not report it.
    pub fn initiator_depth(&self) -> Option<u8> {
        self.handle.connection.initiator_depth()
    }

    /// Returns the negotiated number of reads and atomics of the peer that this side serves at a time.
    ///
    /// It is at most [`ConnectionConfig::responder_resources`]. Returns `None` on iWARP, where the driver does not
    /// report it.
    pub fn responder_resources(&self) -> Option<u8> {
        self.handle.connection.responder_resources()
    }

    /// Returns the numbers of messages and operations so far, also after the end.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn stats(&self) -> Result<EndpointStats> {
        self.blocking().stats()
    }

    /// Converts an [`endpoint::Connection`] into one for tasks of the [default runtime](super#runtimes).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`from_blocking_with`](Self::from_blocking_with):
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{self, task};
    ///
    /// # async fn f(connection: endpoint::Connection) -> rdmacm::Result<()> {
    /// let connection = task::Connection::from_blocking(connection)?;
    /// connection.post_bytes(b"sent by a task").await?;
    /// // The connection can be used by threads again.
    /// let connection: endpoint::Connection = connection.into_blocking();
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_blocking(connection: endpoint::Connection) -> Result<Self> {
        Self::from_blocking_with(connection, default_runtime()?)
    }

    /// Converts an [`endpoint::Connection`] into one for tasks of `runtime`.
    ///
    /// # Errors
    ///
    /// The errors of [`Runtime::register`]. Tokio and smol return:
    /// - EEXIST if the runtime watches another clone of `connection` already.
    /// - ENOMEM, ENOSPC or EINVAL if the runtime cannot watch as many descriptors.
    /// - [`ErrorKind::Unsupported`] if the Tokio runtime has no I/O or no time. In this case Tokio prints the message
    ///   of a panic first; with `panic = "abort"` the program ends.
    pub fn from_blocking_with(
        connection: endpoint::Connection,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        Self::established((
            DropOnBlockingPool::new(connection, &ProcessRuntime::new(runtime)),
            None,
        ))
    }

    /// Makes a handle of a connection whose descriptor may be watched already.
    pub(super) fn established((connection, watch): Established) -> Result<Self> {
        let watch = match watch {
            Some(watch) => watch,
            None => {
                let shared = &connection.shared;
                let epoll = Arc::clone(&shared.readiness.epoll);
                let watch = Watch::new(connection.runtime(), epoll);
                watch.map_err(|error| refused("watch", shared.name.clone(), &error))?
            }
        };
        Ok(Self { handle: Arc::new(Handle { watch, connection }) })
    }

    /// Converts this handle into an [`endpoint::Connection`]. Other clones stay handles for tasks.
    pub fn into_blocking(self) -> endpoint::Connection {
        match Arc::try_unwrap(self.handle) {
            Ok(handle) => handle.connection.into_inner(),
            Err(handle) => endpoint::Connection::clone(&handle.connection),
        }
    }

    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        run_blocking(self.runtime(), work).await
    }

    pub(super) fn runtime(&self) -> &ProcessRuntime {
        self.handle.connection.runtime()
    }

    pub(super) fn blocking(&self) -> &endpoint::Connection {
        &self.handle.connection
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.blocking().shared
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.handle.watch
    }

    pub(super) async fn wait_for<T>(
        &self,
        operation: Operation,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        wait_for(self.shared(), self.watch(), operation, done).await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.blocking(), f)
    }
}
