//! Descriptors that a tokio runtime watches.
//!
//! # Safety
//!
//! The runtime knows a descriptor by its number, which therefore has to stay open, and the same,
//! for as long as it watches: here it has a share in it.
#![expect(unsafe_code, reason = "the runtime keeps the number of a descriptor")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use nix::sys::epoll::Epoll;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// An epoll descriptor that the runtime watches: whether it has become readable.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<Descriptor>);

/// What is watched. Nobody has it mutably, so that it is always the same one.
#[derive(Debug)]
struct Descriptor(Arc<Epoll>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

/// That it has become readable, until somebody has looked and says that it is not.
#[derive(Debug)]
pub(crate) struct Readable<'a>(AsyncFdReadyGuard<'a, Descriptor>);

impl Watched {
    /// Has the runtime watch it that this is called in.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and in one without I/O.
    #[track_caller]
    pub(crate) fn new(epoll: Arc<Epoll>) -> io::Result<Self> {
        // SAFETY: the descriptor is open, and stays so and the same until this is dropped: it is
        // owned by the `Epoll`, of which there is a share in here that nobody can take or exchange.
        let watched =
            unsafe { AsyncFd::register_with_interest(Descriptor(epoll), Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Waits until it has become readable since somebody has last [said](Readable::used_up) that it
    /// is not.
    pub(crate) async fn readable(&self) -> io::Result<Readable<'_>> {
        self.0.readable().await.map(Readable)
    }
}

impl Readable<'_> {
    /// There was nothing more to read, after this was had. Where it has become readable meanwhile
    /// that counts.
    pub(crate) fn used_up(mut self) {
        self.0.clear_ready();
    }
}
