//! [`Listener`], which waits for connection requests, for tasks.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

#[cfg(feature = "futures-core")]
use futures_core::Stream;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::blocking_pool::DropOnBlockingPool;
use super::default_runtime::default_runtime;
use super::failure::refused;
use super::incoming::Incoming;
use super::runtime::Runtime;
#[cfg(feature = "futures-core")]
use super::stream::Repeat;
use super::turn::{end_turn, poll_turn};
use super::watch::Watch;
use crate::endpoint;
use crate::endpoint::to_addresses::ToAddresses;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::ignore_poison;

/// Waits for connection requests, for tasks.
///
/// Several tasks may wait at once, and each request is delivered to one of them. Apart from waiting, it behaves as an
/// [`endpoint::Listener`], which is documented in more detail. Dropping it does not wait until it has stopped listening.
#[derive(Debug)]
pub struct Listener {
    // Declared first: the runtime forgets the descriptor before it is closed.
    watch: Watch,
    listener: DropOnBlockingPool<endpoint::Listener>,
    /// Held by the task that reads the channel.
    ///
    /// Without it, the listener would treat a second reader as one that waits, and return `WouldBlock` to it.
    reading: Mutex<()>,
}

const WATCH: (&str, &str) = ("watch", "a listener");

impl Listener {
    /// Listens on a local address, on the [default runtime](super#runtimes): see [`endpoint::Listener::bind`].
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint::Listener::bind`].
    /// - The errors of [`from_blocking`](Self::from_blocking).
    #[doc(alias = "rdma_listen")]
    pub fn bind(address: impl ToAddresses) -> Result<Self> {
        Self::from_blocking(endpoint::Listener::bind(address)?)
    }

    /// Waits for the next connection request: see [`endpoint::Listener::accept`].
    ///
    /// # Errors
    ///
    /// The errors of [`endpoint::Listener::accept`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no request was taken.
    #[doc(alias = "rdma_get_request")]
    pub async fn accept(&self) -> Result<Incoming> {
        let mut sleeper = self.watch.sleeper();
        let failed = |error| refused("wait for", "a connection request", &error);
        poll_fn(|context| {
            loop {
                ready!(poll_turn(context));
                sleeper.is_awake();
                match self.next() {
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
                    found => return Poll::Ready(found),
                }
                match sleeper.poll_readable(context) {
                    Poll::Ready(readable) => readable.map_err(failed)?,
                    Poll::Pending => {
                        end_turn();
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }

    /// Returns a stream of the connection requests. It does not end: after an error it waits again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the stream is dropped, no request was taken that it has not returned.
    #[cfg(feature = "futures-core")]
    pub fn incoming(&self) -> impl Stream<Item = Result<Incoming>> + Send + '_ {
        Repeat::new(|| async { Some(self.accept().await) })
    }

    /// Returns the address that it listens on, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// Converts a listener into one for tasks of the [default runtime](super#runtimes).
    ///
    /// # Errors
    ///
    /// The errors of [`from_blocking_with`](Self::from_blocking_with), and:
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    pub fn from_blocking(listener: endpoint::Listener) -> Result<Self> {
        Self::from_blocking_with(listener, default_runtime()?)
    }

    /// Converts a listener into one for tasks of `runtime`.
    ///
    /// # Errors
    ///
    /// - EMFILE or ENFILE if there is no descriptor left: the listener needs one more.
    /// - The errors of [`Runtime::register`]. Tokio and smol return ENOMEM or ENOSPC if the runtime cannot watch as
    ///   many descriptors. Tokio returns [`ErrorKind::Unsupported`] if the runtime has no I/O or no time.
    pub fn from_blocking_with(
        listener: endpoint::Listener,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        let failed = |errno| Error::os(WATCH.0, WATCH.1, errno);
        let listener = DropOnBlockingPool::new(listener, &runtime);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(&*listener, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed)?;
        let watch = Watch::new(&*runtime, Arc::new(epoll));
        let watch = watch.map_err(|error| refused(WATCH.0, WATCH.1, &error))?;
        Ok(Self { watch, listener, reading: Mutex::default() })
    }

    /// Converts this into a blocking listener.
    pub fn into_blocking(self) -> endpoint::Listener {
        self.listener.into_inner()
    }

    fn next(&self) -> Result<Incoming> {
        let _reading = ignore_poison(self.reading.lock());
        let incoming = self.listener.try_accept()?;
        Ok(Incoming::new(DropOnBlockingPool::new(incoming, self.listener.runtime())))
    }
}
