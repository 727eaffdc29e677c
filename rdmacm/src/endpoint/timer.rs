//! The timer of the keep-alive writes.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::error::{Error, Result};

/// Longer than any program runs, and accepted by the kernel.
const MAX_INTERVAL: Duration = Duration::from_secs(u32::MAX as u64);

/// A descriptor that becomes readable periodically, until this is dropped.
#[derive(Debug)]
pub(super) struct Timer(TimerFd);

impl Timer {
    pub(super) fn new(interval: Duration) -> Result<Self> {
        let failed = |errno| Error::os("create", "the keep-alive timer of a connection", errno);
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(failed)?;
        let interval = Expiration::Interval(TimeSpec::from(interval.min(MAX_INTERVAL)));
        timer.set(interval, TimerSetTimeFlags::empty()).map_err(failed)?;
        Ok(Self(timer))
    }

    /// Reads the timer, so that it becomes readable again with its next expiration.
    ///
    /// Returns `false` if another thread has read it before.
    pub(super) fn clear(&self) -> bool {
        self.0.wait().is_ok()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A forked child has another descriptor of the timer, with which it would stay in the epoll instance. If the kernel
        // refuses, the timer wakes the connection's threads for nothing until that descriptor is closed.
        let _ = self.0.unset();
    }
}
