//! [`Runtime`]: the services of an async runtime that tasks need.

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
/// Implement this trait to use the types on a runtime other than Tokio and smol. Pass the runtime to
/// [`Connection::connect_with`] and the `from_blocking_with` functions. The runtime is called when a task waits, and
/// when an object is created or destroyed. Messages that have already arrived cause no call. After a fork, the child
/// does not call the runtime of its parent.
///
/// An [`io::Error`] that a method returns becomes the error of the call that waits. Its errno is kept, and so is the
/// text of an error of the kind [`Unsupported`](io::ErrorKind::Unsupported); any other error becomes ECANCELED.
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
    /// Dropping the registration ends the watch. No descriptor is registered twice at a time; a runtime may return an
    /// error (EEXIST) for a descriptor that is registered already.
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
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "tokio")]
/// # mod example {
/// use std::io;
/// use std::task::{Context, Poll, ready};
///
/// use rdmacm::endpoint::task::{Descriptor, RegisteredFd};
/// use tokio::io::unix::AsyncFd;
///
/// /// A descriptor that the event loop of Tokio watches.
/// #[derive(Debug)]
/// struct Watched(AsyncFd<Descriptor>);
///
/// impl RegisteredFd for Watched {
///     fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
///         let mut readiness = ready!(self.0.poll_read_ready(cx))?;
///         readiness.clear_ready();
///         Poll::Ready(Ok(()))
///     }
/// }
/// # }
/// ```
pub trait RegisteredFd: Debug + Send + Sync + 'static {
    /// Waits until the descriptor has become readable.
    ///
    /// Each call that returns [`Poll::Ready`] consumes the readiness. The caller reads the sources afterwards, so that
    /// it finds all earlier events. Later readiness must be reported again. The first call reports a descriptor that
    /// was readable when it was registered. Readiness may be reported without reason.
    ///
    /// If the call returns [`Poll::Pending`], the runtime must wake the waker of the latest call when the descriptor
    /// has become readable. The waker may differ from the one of the previous call. Several threads may call this at
    /// once. If several tasks wait, the caller passes one waker for all of them.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A runtime that is used only in the process that passed it to this library.
///
/// A forked child has a copy of the runtime without its threads. A lock of the copy may stay locked, and its epoll
/// instance is that of the parent.
#[derive(Debug, Clone)]
pub(super) struct ProcessRuntime(ProcessPart<Arc<dyn Runtime>>);

impl ProcessRuntime {
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self(ProcessPart::new(runtime))
    }

    /// Makes the runtime watch `epoll`.
    pub(super) fn register(&self, epoll: Arc<Epoll>) -> io::Result<Registration> {
        self.0.get()?.register(Descriptor::new(epoll)).map(Registration::of)
    }

    /// Starts a timer that elapses at `deadline`.
    pub(super) fn start_timer(&self, deadline: Instant) -> io::Result<RuntimeTimer> {
        self.0.get()?.sleep_until(deadline).map(|sleep| RuntimeTimer(ProcessPart::new(sleep)))
    }

    /// Runs `work` as [`Runtime::run_blocking`] does. A forked child gets `work` back.
    pub(super) fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        match self.0.get() {
            Ok(runtime) => runtime.run_blocking(work),
            Err(_) => Err(work),
        }
    }
}

fn parent_runtime_error() -> io::Error {
    let reason = "a forked child cannot use the runtime of its parent";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// A runtime or a part of it, which a forked child neither uses nor drops: see [`ProcessRuntime`].
///
/// The child keeps the memory and the descriptors of the part until it ends.
#[derive(Debug, Clone)]
struct ProcessPart<T> {
    /// Absent only during the drop.
    part: Option<T>,
    process: Process,
}

impl<T> ProcessPart<T> {
    fn new(part: T) -> Self {
        Self { part: Some(part), process: Process::current() }
    }

    fn is_owner(&self) -> bool {
        self.process.is_current()
    }

    /// Returns the part. A forked child gets an error.
    fn get(&self) -> io::Result<&T> {
        let part = self.part.as_ref().filter(|_| self.is_owner());
        part.ok_or_else(parent_runtime_error)
    }
}

impl<T> Drop for ProcessPart<T> {
    fn drop(&mut self) {
        if !self.is_owner() {
            mem::forget(self.part.take());
        }
    }
}

/// A registration that is removed only in the process that made it.
///
/// Runtimes register descriptors in an epoll instance, which a forked child shares with its parent. If the child ended
/// the registration, the parent's tasks would never wake.
#[derive(Debug)]
pub(super) struct Registration(ProcessPart<Box<dyn RegisteredFd>>);

impl Registration {
    pub(super) fn of(registered: Box<dyn RegisteredFd>) -> Self {
        Self(ProcessPart::new(registered))
    }

    /// Returns `true` if this process made the registration.
    ///
    /// A forked child must use neither the descriptor nor its tasks.
    pub(super) fn is_owner(&self) -> bool {
        self.0.is_owner()
    }

    /// Waits as [`RegisteredFd::poll_readable`] does. A forked child gets an error.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.get() {
            Ok(registered) => registered.poll_readable(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// A timer that is used only in the process that started it.
pub(super) struct RuntimeTimer(ProcessPart<Sleep>);

impl RuntimeTimer {
    /// Waits until the timer has elapsed. In a forked child it counts as elapsed.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_owner = self.0.is_owner();
        match &mut self.0.part {
            Some(sleep) if is_owner => sleep.as_mut().poll(cx),
            _ => Poll::Ready(()),
        }
    }
}

/// A future that is ready at a point in time.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that may block the thread that runs it.
pub type BlockingWork = Box<dyn FnOnce() + Send>;

/// The descriptor of a connection, socket, listener or poll group.
///
/// It stays open as long as this value exists. It is an epoll instance, and is watched for readability alone. A runtime
/// must not read from it or change it. [`Runtime::register`] receives it; [`RegisteredFd`](RegisteredFd#examples) has
/// an example.
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

#[cfg(test)]
mod tests;
