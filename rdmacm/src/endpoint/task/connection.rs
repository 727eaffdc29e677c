//! [`Connection`], a reliable connection whose calls are awaited.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::blocking_pool::{DropOnBlockingPool, run_blocking};
use super::deadline::until_deadline;
use super::default_runtime::default_runtime;
use super::establish::Established;
use super::failure::{cancelled, refused};
use super::runtime::Runtime;
use super::waiting::until;
use super::watch::Watch;
use crate::endpoint::core::EndReason;
use crate::endpoint::deadline::within;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::state::State;
use crate::endpoint::{self, EndpointStats};
use crate::error::{ErrorKind, Result};

/// A reliable connection that carries messages in both directions, in order, for tasks.
///
/// Unlike a TCP stream, it keeps the boundaries of messages: each message is received complete and once.
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
/// closed the connection, [`recv`](Self::recv) returns `None` after the last message. After the end all calls fail with
/// one reason: see [`endpoint::Connection`](endpoint::Connection#closing-and-failures).
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
    /// It waits at most `timeout` in total.
    ///
    /// Then the connection ends: see [`endpoint::Connection::close`].
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint::Connection::close`].
    /// - [`ErrorKind::Unsupported`] if it is awaited in a context without timers: for example outside of Tokio's
    ///   runtime.
    ///
    /// The connection has ended in these cases too.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing happens. If it is dropped while it waits for the messages
    /// or for the peer, the peer is or will be disconnected. Messages are still received, but none can be posted. The
    /// connection may be closed again, or aborted. If the future is dropped later, the [abort](Self::abort) at the end
    /// continues.
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        let runtime = &**self.runtime();
        let closed = match until_deadline(runtime, within(timeout), self.end()).await {
            Ok(Some(closed)) => closed,
            Ok(None) => Err(self.shared().error(Operation::Close, ErrorKind::TimedOut)),
            Err(error) => Err(refused(Operation::Close.name(), self.shared().name.clone(), &error)),
        };
        self.abort().await;
        closed
    }

    async fn end(&self) -> Result<()> {
        if self.until(Operation::Close, State::close).await? {
            let shared = Arc::clone(self.shared());
            let announced = self.run_blocking(move || shared.announce_close()).await;
            let name = || self.shared().name.clone();
            announced.ok_or_else(|| cancelled(Operation::Close.name(), name()))??;
        }
        self.until(Operation::Close, State::closed).await
    }

    /// Ends the connection at once and waits until its kernel objects are destroyed.
    ///
    /// See [`endpoint::Connection::abort`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing happens. If it is dropped later, the end continues.
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

    /// Returns the private data of the peer: see [`endpoint::Connection::private_data`].
    pub fn private_data(&self) -> &[u8] {
        self.blocking().private_data()
    }

    /// Returns the number of reads and atomics that this side may have in flight.
    ///
    /// See [`endpoint::Connection::initiator_depth`].
    pub fn initiator_depth(&self) -> Option<u8> {
        self.handle.connection.initiator_depth()
    }

    /// Returns the number of reads and atomics of the peer that this side serves at a time.
    ///
    /// See [`endpoint::Connection::responder_resources`].
    pub fn responder_resources(&self) -> Option<u8> {
        self.handle.connection.responder_resources()
    }

    /// Returns the statistics of the connection: see [`endpoint::Connection::stats`].
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
    /// The errors of [`from_blocking_with`](Self::from_blocking_with), and:
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    pub fn from_blocking(connection: endpoint::Connection) -> Result<Self> {
        Self::from_blocking_with(connection, default_runtime()?)
    }

    /// Converts an [`endpoint::Connection`] into one for tasks of `runtime`.
    ///
    /// # Errors
    ///
    /// The errors of [`Runtime::register`]. Of Tokio and smol:
    /// - EEXIST if the runtime watches another clone of `connection` already.
    /// - ENOMEM, ENOSPC or EINVAL if the runtime cannot watch as many descriptors.
    /// - [`ErrorKind::Unsupported`] if the Tokio runtime has no I/O or no time.
    pub fn from_blocking_with(
        connection: endpoint::Connection,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        Self::established((DropOnBlockingPool::new(connection, &runtime), None))
    }

    /// Makes a handle of a connection whose descriptor may be watched already.
    pub(super) fn established((connection, watch): Established) -> Result<Self> {
        let watch = match watch {
            Some(watch) => watch,
            None => {
                let shared = &connection.shared;
                let epoll = Arc::clone(&shared.readiness.epoll);
                let watch = Watch::new(&**connection.runtime(), epoll);
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

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.handle.connection.runtime()
    }

    pub(super) fn blocking(&self) -> &endpoint::Connection {
        &self.handle.connection
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.blocking().shared
    }

    pub(super) async fn until<T>(
        &self,
        operation: Operation,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        until(self.shared(), &self.handle.watch, operation, done).await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.blocking(), f)
    }
}
