//! Waiting for descriptors, and whether they wait by themselves.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::command::Refused;

/// How reads of one descriptor wait: by themselves, or by poll where some have a deadline.
///
/// A read with a deadline must not wait for what another reader has taken meanwhile, so the first
/// one makes the descriptor non-blocking.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The descriptor is in non-blocking mode for the sake of deadlines, and the program wants it
    /// to block.
    by_poll: AtomicBool,
}

impl Waiting {
    /// Makes [`read`](Self::read) return EAGAIN instead of waiting, or wait again.
    pub(crate) fn set_nonblocking(
        &self,
        fd: BorrowedFd<'_>,
        nonblocking: bool,
    ) -> Result<(), Refused> {
        set_nonblocking(fd, nonblocking).map_err(Refused::Os)?;
        // Where the program wants it to block it may stay: a reader that has just found nothing in
        // non-blocking mode must not take the mode for the program's wish.
        if nonblocking {
            self.by_poll.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Reads with `read`, waiting for something to read if the program wants that.
    pub(crate) fn read<T>(
        &self,
        fd: BorrowedFd<'_>,
        read: impl Fn() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        loop {
            match read() {
                Err(Refused::Os(Errno::EAGAIN)) if self.by_poll.load(Ordering::Acquire) => {
                    readable(fd, None).map_err(Refused::Os)?;
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
        read: impl Fn() -> Result<T, Refused>,
    ) -> Result<Option<T>, Refused> {
        if !is_nonblocking(fd).map_err(Refused::Os)? {
            self.by_poll.store(true, Ordering::Release);
            set_nonblocking(fd, true).map_err(Refused::Os)?;
        }
        loop {
            match read() {
                Err(Refused::Os(Errno::EAGAIN)) => {
                    if !readable(fd, deadline).map_err(Refused::Os)? {
                        return Ok(None);
                    }
                }
                done => return done.map(Some),
            }
        }
    }
}

/// Waits until `fd` is readable or `deadline` has passed; `true` if it is readable (or in error,
/// which a read will tell).
///
/// EINTR is returned to the caller: a signal is the caller's business.
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

/// Whether calls on the descriptor return EAGAIN instead of waiting.
fn is_nonblocking(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(flags(fd)?.contains(OFlag::O_NONBLOCK))
}

/// Makes calls on the descriptor return EAGAIN instead of waiting, or wait again.
fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> Result<(), Errno> {
    let flags = flags(fd)?;
    let mut wanted = flags;
    wanted.set(OFlag::O_NONBLOCK, nonblocking);
    if wanted != flags {
        fcntl(fd, FcntlArg::F_SETFL(wanted))?;
    }
    Ok(())
}

fn flags(fd: BorrowedFd<'_>) -> Result<OFlag, Errno> {
    Ok(OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?))
}
