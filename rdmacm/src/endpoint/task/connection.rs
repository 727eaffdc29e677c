//! A connection of tasks.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time;

use super::off::{Slow, cancelled, off, refused};
use super::waiting::until;
#[cfg(doc)]
use crate::endpoint;
use crate::endpoint::Connection as Blocking;
use crate::endpoint::Counters;
use crate::endpoint::buffer::{Buffer, Message};
use crate::endpoint::core::EndReason;
use crate::endpoint::sending::AT_ONCE;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::state::State;
use crate::error::{ErrorKind, Result};
use crate::sys::reactor::Watched;
use crate::verbs::SendOperation;

/// A reliable connection that carries messages both ways, in the order in which they are sent: for
/// tasks.
///
/// Of [`connect`](Self::connect) or [`accept`](Self::accept). In all but waiting it is as an
/// [`endpoint::Connection`], which says more. `Send + Sync`: any task may call anything at any time.
/// Where several receive, each message goes to one of them.
///
/// A clone is another handle of the connection, for another task: see
/// [`endpoint::Connection`](endpoint::Connection#clones). Dropping the last handle is
/// [`abort`](Self::abort), for which nobody waits.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

/// A connection that a runtime watches.
struct Handle {
    // First: nobody watches what is closed.
    watched: Watched,
    connection: Slow<Blocking>,
}

impl Connection {
    /// One of tasks of the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// - EEXIST if the runtime watches another clone of `connection` already.
    /// - ENOMEM, ENOSPC and EINVAL if the runtime cannot watch as many descriptors.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and in one without I/O.
    #[track_caller]
    pub fn from_blocking(connection: Blocking) -> Result<Self> {
        Self::of(Slow::new(connection), None)
    }

    /// That of a connection whose descriptor may be watched already.
    #[track_caller]
    pub(super) fn of(connection: Slow<Blocking>, watched: Option<Watched>) -> Result<Self> {
        let watched = match watched {
            Some(watched) => watched,
            None => {
                let shared = &connection.shared;
                let watched = Watched::new(Arc::clone(&shared.readiness.epoll));
                watched.map_err(|error| refused("watch", shared.name.clone(), &error))?
            }
        };
        Ok(Self { handle: Arc::new(Handle { watched, connection }) })
    }

    /// Converts this handle into one for threads. Other clones stay handles of tasks.
    pub fn into_blocking(self) -> Blocking {
        match Arc::try_unwrap(self.handle) {
            Ok(handle) => handle.connection.into_inner(),
            Err(handle) => Blocking::clone(&handle.connection),
        }
    }

    /// The local address; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.blocking().local_addr()
    }

    /// The peer's address; `None` for one of InfiniBand.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.blocking().peer_addr()
    }

    /// What the peer's program sent along: see [`endpoint::Connection::private_data`].
    pub fn private_data(&self) -> &[u8] {
        self.blocking().private_data()
    }

    /// What it has done so far: see [`endpoint::Connection::counters`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn counters(&self) -> Result<Counters> {
        self.blocking().counters()
    }

    /// A buffer to send, when there is one: see [`endpoint::Connection::buffer`].
    ///
    /// Dropped before, it has taken none.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::buffer`].
    pub async fn buffer(&self) -> Result<Buffer> {
        let memory = self.until(Operation::Take, State::buffer).await?;
        Ok(Buffer::new(memory, self.shared()))
    }

    /// Sends the message in `buffer`, without waiting until that is done:
    /// [`endpoint::Connection::post`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    #[doc(alias = "rdma_post_send")]
    pub fn post(&self, buffer: Buffer) -> Result<()> {
        self.blocking().post(buffer)
    }

    /// Sends `bytes` as a message, when there is a buffer to copy them into: see
    /// [`endpoint::Connection::post_bytes`].
    ///
    /// Dropped before, it has sent nothing.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::post_bytes`].
    pub async fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared().check_length(bytes.len())?;
        if bytes.len() > AT_ONCE {
            let mut buffer = self.buffer().await?;
            buffer.copy_from(bytes)?;
            return self.post(buffer);
        }
        self.until(Operation::Take, |state| state.post_bytes(bytes, SendOperation::Send.into()))
            .await?
            .map_err(|error| self.shared().not_posted(Operation::Send, error))
    }

    /// Sends the message in `buffer`, and gives the buffer back when that is done: see
    /// [`endpoint::Connection::send`].
    ///
    /// Dropped before it is polled, it sends nothing, and the buffer goes back to the connection;
    /// later, the message is on its way, as one that was [posted](Self::post).
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::send`].
    pub async fn send(&self, buffer: Buffer) -> Result<Buffer> {
        let operation = buffer.operation();
        self.carry_out(Operation::Send, buffer, operation).await
    }

    /// Posts a buffer, and waits until it is back. Dropped before, the buffer goes to the connection
    /// then.
    pub(super) async fn carry_out(
        &self,
        what: Operation,
        buffer: Buffer,
        operation: SendOperation<'_>,
    ) -> Result<Buffer> {
        let mut wanted = self.shared().start_wanted(what, buffer, operation)?;
        let memory = self.until(what, |state| state.sent(wanted.index)).await?;
        Ok(wanted.back(memory))
    }

    /// Waits until what was posted has been sent: see [`endpoint::Connection::flush`].
    ///
    /// It may be dropped at any time.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::flush`].
    pub async fn flush(&self) -> Result<()> {
        self.until(Operation::Flush, State::flushed).await
    }

    /// The next message, or `None` where the peer has ended the connection: see
    /// [`endpoint::Connection::recv`].
    ///
    /// Dropped before, it has taken none.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::recv`].
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub async fn recv(&self) -> Result<Option<Message>> {
        let arrived = self.until(Operation::Receive, State::message).await?;
        Ok(arrived.map(|arrived| Message::new(arrived, self.shared())))
    }

    /// Ends the connection in good order, within `timeout`: see [`endpoint::Connection::close`].
    ///
    /// Dropped before it is polled, it does nothing. Dropped while it waits until all is sent, or for
    /// the peer's answer, the connection is there still, but the peer may have been told of its end,
    /// or be told yet: then messages are received, and none sent. It may be closed again, or aborted.
    /// Dropped later, in the [abort](Self::abort) that is the end of it, that goes on.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::close`].
    ///
    /// # Panics
    ///
    /// Where it is awaited outside of a runtime, or in one without time, as all that waits for time.
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        let late = |_| Err(self.shared().error(Operation::Close, ErrorKind::TimedOut));
        let closed = time::timeout(timeout, self.end()).await.unwrap_or_else(late);
        self.abort().await;
        closed
    }

    async fn end(&self) -> Result<()> {
        if self.until(Operation::Close, State::close).await? {
            let shared = Arc::clone(self.shared());
            let told = off(move || shared.announce_close()).await;
            let name = || self.shared().name.clone();
            told.ok_or_else(|| cancelled(Operation::Close.name(), name()))??;
        }
        self.until(Operation::Close, State::closed).await
    }

    /// Ends the connection at once, as [`endpoint::Connection::abort`], and waits until the kernel's
    /// objects are gone.
    ///
    /// Dropped before it is polled, it does nothing; later, the end goes on.
    pub async fn abort(&self) {
        let shared = Arc::clone(self.shared());
        if off(move || shared.abort()).await.is_none() {
            self.blocking().abort();
        }
    }

    /// The connection without the runtime.
    pub(super) fn blocking(&self) -> &Blocking {
        &self.handle.connection
    }

    /// The core of it.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.blocking().shared
    }

    /// Waits until `done` finds the state as it wants it.
    pub(super) async fn until<T>(
        &self,
        operation: Operation,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        until(self.shared(), &self.handle.watched, operation, done).await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.blocking(), f)
    }
}
