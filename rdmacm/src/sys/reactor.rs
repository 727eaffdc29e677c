//! Descriptors that a Tokio runtime watches.
//!
//! # Safety
//!
//! The runtime identifies a descriptor by its number. So the descriptor must stay open, and keep its number, as long as
//! the runtime watches it. A [`AsyncEpoll`] shares ownership of the descriptor.
#![expect(unsafe_code, reason = "the runtime keeps the number of a descriptor")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nix::sys::epoll::Epoll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An epoll instance whose readability the runtime watches.
#[derive(Debug)]
pub(crate) struct AsyncEpoll(AsyncFd<Descriptor>);

/// The descriptor that is watched. It is never borrowed mutably, so that its number stays.
#[derive(Debug)]
struct Descriptor(Arc<Epoll>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

impl AsyncEpoll {
    /// Makes the runtime of the calling context watch `epoll`.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and in a runtime without I/O.
    #[track_caller]
    pub(crate) fn new(epoll: Arc<Epoll>) -> io::Result<Self> {
        // SAFETY: the descriptor is open, and stays open with its number until the `AsyncFd` is dropped. The `Epoll`
        // owns the descriptor and the `AsyncFd` shares ownership of the `Epoll`. No code takes that share out or
        // replaces it. So `as_raw_fd` returns the same number each time.
        let watched =
            unsafe { AsyncFd::register_with_interest(Descriptor(epoll), Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Waits until the descriptor has become readable since the last call that returned ready.
    ///
    /// Only the waker of the last call is woken.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut readable = ready!(self.0.poll_read_ready(context))?;
        // This clears the readiness that was observed above. If the descriptor has become readable since, the next call
        // is ready at once.
        readable.clear_ready();
        Poll::Ready(Ok(()))
    }
}
