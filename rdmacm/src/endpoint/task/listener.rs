//! [`Listener`], which waits for connection requests, for tasks.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

#[cfg(feature = "futures-core")]
use futures_core::Stream;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::blocking_pool::DropOnBlockingPool;
use super::budget::{poll_budget, reset_budget};
use super::default_runtime::default_runtime;
use super::failure::refused;
use super::incoming::Incoming;
use super::runtime::{ProcessRuntime, Runtime};
#[cfg(feature = "futures-core")]
use super::stream::Repeat;
use super::watch::Watch;
use crate::endpoint;
use crate::endpoint::to_addresses::ToAddresses;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::ignore_poison;

/// A listener for connection requests on a local address, for tasks.
///
/// [`accept`](Self::accept) returns an [`Incoming`] request, which is not answered yet. The program looks at its peer and
/// private data, and then accepts or rejects it. Accepting waits for the peer, so a server does it in another task.
///
/// All methods take `&self` and may be called by any task at any time. Several tasks may wait at once, and each request
/// is delivered to one of them. Apart from waiting, it behaves as an [`endpoint::Listener`].
///
/// # Examples
///
/// A server on Tokio (feature `tokio`) with a task for each connection:
///
#[cfg_attr(feature = "tokio", doc = "```no_run")]
#[cfg_attr(not(feature = "tokio"), doc = "```text")]
/// use std::time::Duration;
///
/// use rdmacm::endpoint::ConnectionConfig;
/// use rdmacm::endpoint::task::{Incoming, Listener};
///
/// const TIMEOUT: Duration = Duration::from_secs(5);
///
/// /// Sends messages back until the client closes the connection.
/// async fn serve(incoming: Incoming) -> rdmacm::Result<()> {
///     let connection = incoming.accept(&ConnectionConfig::new(), &[], TIMEOUT).await?;
///     while let Some(message) = connection.recv().await? {
///         connection.post_bytes(&message).await?;
///     }
///     connection.close(TIMEOUT).await
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> rdmacm::Result<()> {
///     let listener = Listener::bind("0.0.0.0:7471")?;
///     loop {
///         let incoming = listener.accept().await?;
///         tokio::spawn(async {
///             if let Err(error) = serve(incoming).await {
///                 eprintln!("{error}");
///             }
///         });
///     }
/// }
/// ```
///
/// # Closing
///
/// Dropping the listener rejects the requests that were not taken, and does not wait until it has stopped listening.
/// Connections and [`Incoming`] requests that it has returned are not affected.
#[derive(Debug)]
pub struct Listener {
    // Declared first: the runtime forgets the descriptor before it is closed.
    watch: Watch,
    listener: DropOnBlockingPool<endpoint::Listener>,
    /// Held by the task that reads the channel.
    ///
    /// Without this lock, the listener would treat a second reader as one that waits, and return `WouldBlock`.
    reading: Mutex<()>,
}

const WATCH: (&str, &str) = ("watch", "a listener");

impl Listener {
    /// Listens on a local address, on the [default runtime](super#runtimes).
    ///
    /// This call is not `async`.
    ///
    /// The unspecified address means all addresses, and so does a loopback address, which no RDMA device owns: a listener
    /// on 127.0.0.1 is reachable from other machines. With port 0 the kernel chooses a port, which
    /// [`local_addr`](Self::local_addr) returns. If `address` names several addresses, the first that can be listened on
    /// is used. The lookup of a name blocks.
    ///
    /// # Errors
    ///
    /// - ENODEV if no device has the address.
    /// - EADDRNOTAVAIL if this machine does not have the address.
    /// - EADDRINUSE if the port is in use.
    /// - The other errors of [`endpoint::Listener::bind`].
    /// - The errors of [`from_blocking`](Self::from_blocking).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::task::Listener;
    ///
    /// # fn f() -> rdmacm::Result<()> {
    /// let listener = Listener::bind("10.0.0.1:0")?;
    /// println!("listening on {:?}", listener.local_addr());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_listen")]
    pub fn bind(address: impl ToAddresses) -> Result<Self> {
        Self::from_blocking(endpoint::Listener::bind(address)?)
    }

    /// Waits for the next connection request and returns it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device of the listener was removed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    /// - ECANCELED if the runtime ends.
    ///
    /// A peer that ends its attempt causes no error here: [accepting](Incoming::accept) its request fails, and the
    /// listener continues.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no request was taken.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::task::Listener;
    ///
    /// # async fn f(listener: Listener) -> rdmacm::Result<()> {
    /// let incoming = listener.accept().await?;
    /// println!("a request from {:?}", incoming.peer_addr());
    /// // Accepts the request with the default configuration.
    /// let connection = incoming.await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_get_request")]
    pub async fn accept(&self) -> Result<Incoming> {
        let mut sleeper = self.watch.sleeper();
        let failed = |error| refused("wait for", "a connection request", &error);
        poll_fn(|context| {
            loop {
                ready!(poll_budget(context));
                sleeper.set_awake();
                match self.next() {
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
                    found => return Poll::Ready(found),
                }
                match sleeper.poll_readable(context) {
                    Poll::Ready(readable) => readable.map_err(failed)?,
                    Poll::Pending => {
                        reset_budget();
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }

    /// Returns a stream of the connection requests (feature `futures-core`).
    ///
    /// The stream does not end.
    ///
    /// # Errors
    ///
    /// An item is an error of [`accept`](Self::accept). Further items follow it, because each item is another call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the stream is dropped, no request was taken that it has not returned.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::pin::pin;
    ///
    /// // The crates `futures` and `tokio-stream` have the trait too.
    /// use smol::stream::StreamExt;
    ///
    /// # async fn f(listener: &rdmacm::endpoint::task::Listener) -> rdmacm::Result<()> {
    /// let mut requests = pin!(listener.incoming());
    /// while let Some(incoming) = requests.next().await {
    ///     println!("a request from {:?}", incoming?.peer_addr());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "futures-core")]
    pub fn incoming(&self) -> impl Stream<Item = Result<Incoming>> + Send + '_ {
        Repeat::new(|| async { Some(self.accept().await) })
    }

    /// Returns the address of the listener, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// Converts an [`endpoint::Listener`] into one for tasks of the [default runtime](super#runtimes).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`from_blocking_with`](Self::from_blocking_with):
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    pub fn from_blocking(listener: endpoint::Listener) -> Result<Self> {
        Self::from_blocking_with(listener, default_runtime()?)
    }

    /// Converts an [`endpoint::Listener`] into one for tasks of `runtime`.
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
        let runtime = ProcessRuntime::new(runtime);
        let listener = DropOnBlockingPool::new(listener, &runtime);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(&*listener, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed)?;
        let watch = Watch::new(&runtime, Arc::new(epoll));
        let watch = watch.map_err(|error| refused(WATCH.0, WATCH.1, &error))?;
        Ok(Self { watch, listener, reading: Mutex::default() })
    }

    /// Converts this into an [`endpoint::Listener`].
    pub fn into_blocking(self) -> endpoint::Listener {
        self.listener.into_inner()
    }

    fn next(&self) -> Result<Incoming> {
        let _reading = ignore_poison(self.reading.lock());
        let incoming = self.listener.try_accept()?;
        Ok(Incoming::new(DropOnBlockingPool::new(incoming, self.listener.runtime())))
    }
}
