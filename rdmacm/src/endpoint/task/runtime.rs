//! [`Runtime`], the services of an async runtime that tasks need here, and how one is found.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use nix::sys::epoll::Epoll;

use crate::sys::process::Process;

#[cfg(doc)]
use super::Connection;

#[cfg(feature = "smol")]
pub(in crate::endpoint) mod smol;
#[cfg(feature = "tokio")]
pub(in crate::endpoint) mod tokio;

/// The services of an async runtime that the types of this module use.
///
/// Implement it to use them on a runtime other than Tokio and smol, and pass it to [`Connection::connect_with`] and the
/// `from_blocking_with` functions. The runtime is called when a task waits, and when an object is created or destroyed.
/// It is not called for messages that have already arrived.
///
/// An [`io::Error`] that a method returns becomes the error of the call that waits. Its errno is kept, and so is the text
/// of an error of the kind [`Unsupported`](io::ErrorKind::Unsupported); any other error becomes ECANCELED.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use rdmacm::endpoint::Connector;
/// use rdmacm::endpoint::task::{Connection, Runtime};
///
/// /// Connects on a runtime of the program's own.
/// async fn connect(runtime: Arc<dyn Runtime>) -> rdmacm::Result<Connection> {
///     Connection::connect_with(&Connector::new(), "10.0.0.1:7471", runtime).await
/// }
/// ```
pub trait Runtime: Debug + Send + Sync + 'static {
    /// Begins to watch `descriptor` for readability.
    ///
    /// Dropping the registration ends that. No descriptor is registered twice at a time: if one is, the runtime may
    /// return an error (EEXIST).
    fn register(&self, descriptor: Descriptor) -> io::Result<Box<dyn RegisteredFd>>;

    /// Returns a future that is ready at `deadline`, or shortly afterwards.
    fn sleep_until(&self, deadline: Instant) -> io::Result<Sleep>;

    /// Runs `work` on a thread that may block.
    ///
    /// Returns `work` if there is no such thread; the caller then runs it.
    ///
    /// A runtime that has ended may drop `work` without running it.
    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork>;
}

/// A descriptor that a [`Runtime`] watches.
pub trait RegisteredFd: Debug + Send + Sync + 'static {
    /// Waits until the descriptor has become readable.
    ///
    /// Each call that returns [`Poll::Ready`] consumes the readiness. The caller reads the sources afterwards, so that
    /// it finds all earlier events. Later readiness must be reported again. The first call reports a descriptor that
    /// was readable when it was registered. Readiness may be reported without reason.
    ///
    /// If the call returns [`Poll::Pending`], the runtime must wake the waker of the latest call when the descriptor
    /// has become readable. The waker may differ from the one of the previous call. Several threads may call this at once.
    /// If several tasks wait, the caller passes one waker for all of them.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A registration that only the process that made it ends.
///
/// Runtimes register descriptors in an epoll instance, which a forked child shares with its parent. If the child ended the
/// registration, the parent's tasks would never wake.
#[derive(Debug)]
pub(super) struct Registration {
    /// Absent only during the drop.
    registered: Option<Box<dyn RegisteredFd>>,
    process: Process,
}

impl Registration {
    /// Makes `runtime` watch `epoll`.
    pub(super) fn new(runtime: &dyn Runtime, epoll: Arc<Epoll>) -> io::Result<Self> {
        runtime.register(Descriptor::new(epoll)).map(Self::of)
    }

    pub(super) fn of(registered: Box<dyn RegisteredFd>) -> Self {
        Self { registered: Some(registered), process: Process::current() }
    }

    /// Returns `false` in a forked child, which must use neither the descriptor nor its tasks.
    pub(super) fn is_owner(&self) -> bool {
        self.process.is_current()
    }

    /// See [`RegisteredFd::poll_readable`].
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.registered.as_ref().map_or(Poll::Pending, |registered| registered.poll_readable(cx))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.is_owner() {
            // The descriptor of the child stays open until the child ends.
            mem::forget(self.registered.take());
        }
    }
}

/// A future that is ready at a point in time.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that may block the thread that runs it.
pub type BlockingWork = Box<dyn FnOnce() + Send>;

/// The descriptor of a connection, socket, listener or poll group, which stays open as long as this.
///
/// It is an epoll instance and is watched for readability alone. Nothing may be read from it or changed in it.
/// [`Runtime::register`] receives it.
#[derive(Debug)]
pub struct Descriptor(Arc<Epoll>);

impl Descriptor {
    pub(super) fn new(epoll: Arc<Epoll>) -> Self {
        Self(epoll)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn into_epoll(self) -> Arc<Epoll> {
        self.0
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}
