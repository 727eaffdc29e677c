//! Waiting for descriptors, and their blocking mode.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::command::CommandError;

use crate::lock::ignore_poison;

/// The way in which reads of a descriptor wait: in the read itself, or with poll.
///
/// A read with a deadline must not block if another reader has taken the data. So the first such read makes the
/// descriptor non-blocking. The descriptor stays non-blocking, because other threads may be about to read.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// `true` if the descriptor is non-blocking although the program has requested blocking reads.
    ///
    /// Locked while this value or the mode of the descriptor changes.
    by_poll: Mutex<bool>,
}

impl Waiting {
    /// Makes [`read`](Self::read) return EAGAIN instead of waiting, or wait again.
    pub(crate) fn set_nonblocking(
        &self,
        fd: BorrowedFd<'_>,
        nonblocking: bool,
    ) -> Result<(), CommandError> {
        let mut by_poll = self.by_poll();
        if nonblocking {
            make_nonblocking(fd).map_err(CommandError::Os)?;
        }
        *by_poll = !nonblocking && is_nonblocking(fd).map_err(CommandError::Os)?;
        Ok(())
    }

    /// Reads with `read`, and waits for data if the program has requested blocking reads.
    pub(crate) fn read<T>(
        &self,
        fd: BorrowedFd<'_>,
        mut read: impl FnMut() -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        loop {
            match read() {
                Err(CommandError::Os(Errno::EAGAIN)) if *self.by_poll() => {
                    readable(fd, None).map_err(CommandError::Os)?;
                }
                done => return done,
            }
        }
    }

    /// Reads with `read`; `None` if there was nothing to read until `deadline`.
    pub(crate) fn read_by<T>(
        &self,
        fd: BorrowedFd<'_>,
        deadline: Option<Instant>,
        mut read: impl FnMut() -> Result<T, CommandError>,
    ) -> Result<Option<T>, CommandError> {
        self.poll_from_now_on(fd).map_err(CommandError::Os)?;
        loop {
            match read() {
                Err(CommandError::Os(Errno::EAGAIN)) => {
                    if !readable(fd, deadline).map_err(CommandError::Os)? {
                        return Ok(None);
                    }
                }
                done => return done.map(Some),
            }
        }
    }

    /// Makes a blocking descriptor non-blocking, and records that reads must wait with `poll`.
    fn poll_from_now_on(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut by_poll = self.by_poll();
        if !is_nonblocking(fd)? {
            make_nonblocking(fd)?;
            *by_poll = true;
        }
        Ok(())
    }

    fn by_poll(&self) -> MutexGuard<'_, bool> {
        ignore_poison(self.by_poll.lock())
    }
}

/// Waits until `fd` is readable or `deadline` has passed, and returns `true` if it is readable.
///
/// A descriptor in error counts as readable; a read returns the error. EINTR is returned to the caller, which decides
/// how to handle a signal.
pub(crate) fn readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool, Errno> {
    loop {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                // Rounded up: a poll that returns early would spin through its last millisecond.
                let rest = deadline.saturating_duration_since(Instant::now());
                let rest = rest + Duration::from_micros(999);
                PollTimeout::try_from(rest.as_millis()).unwrap_or(PollTimeout::MAX)
            }
        };
        let ready = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout)?;
        if ready > 0 {
            return Ok(true);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
    }
}

/// Returns `true` if calls on the descriptor return EAGAIN instead of waiting.
fn is_nonblocking(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(flags(fd)?.contains(OFlag::O_NONBLOCK))
}

/// Makes calls on the descriptor return EAGAIN instead of waiting.
fn make_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_SETFL(flags(fd)? | OFlag::O_NONBLOCK)).map(drop)
}

fn flags(fd: BorrowedFd<'_>) -> Result<OFlag, Errno> {
    Ok(OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?))
}

#[cfg(test)]
mod tests;
