//! A periodic timer: of keep-alive writes, and of attempts to connect.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::error::{Error, Result};
use crate::sys::process::Process;

/// The longest interval: longer than any program runs, and accepted by the kernel.
const MAX_INTERVAL: Duration = Duration::from_secs(u32::MAX as u64);

/// A descriptor that becomes readable periodically, until this is dropped.
#[derive(Debug)]
pub(in crate::endpoint) struct Timer {
    fd: TimerFd,
    /// The process whose drop stops the timer.
    process: Process,
}

impl Timer {
    /// Creates a timer, which errors call `name`.
    pub(in crate::endpoint) fn new(interval: Duration, name: &'static str) -> Result<Self> {
        let failed = |errno| Error::os("create", name, errno);
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(failed)?;
        let interval = Expiration::Interval(TimeSpec::from(interval.min(MAX_INTERVAL)));
        timer.set(interval, TimerSetTimeFlags::empty()).map_err(failed)?;
        Ok(Self { fd: timer, process: Process::current() })
    }

    /// Reads the timer, so that it becomes readable again with its next expiration.
    ///
    /// Returns `false` if another thread has read it before.
    pub(in crate::endpoint) fn clear(&self) -> bool {
        self.fd.wait().is_ok()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A forked child shares the timer with its parent, which may still use it.
        if self.process.is_current() {
            // The child has another descriptor of the timer, with which it stays in the epoll instance. If the kernel
            // refuses, the timer wakes the connection's threads for nothing until that descriptor is closed.
            let _ = self.fd.unset();
        }
    }
}

#[cfg(test)]
mod tests;
