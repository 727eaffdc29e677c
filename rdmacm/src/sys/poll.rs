//! Waiting for descriptors, and whether they wait by themselves.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::command::Refused;

use crate::lock::unpoisoned;

/// How reads of one descriptor wait: by themselves, or by poll where some have a deadline.
///
/// A read with a deadline must not wait for what another reader has taken meanwhile, so the first
/// one makes the descriptor non-blocking.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The descriptor is in non-blocking mode for the sake of deadlines, and the program wants it
    /// to block. Locked while the mode changes.
    by_poll: Mutex<bool>,
}

impl Waiting {
    /// Makes [`read`](Self::read) return EAGAIN instead of waiting, or wait again.
    pub(crate) fn set_nonblocking(
        &self,
        fd: BorrowedFd<'_>,
        nonblocking: bool,
    ) -> Result<(), Refused> {
        let mut by_poll = self.by_poll();
        set_nonblocking(fd, nonblocking).map_err(Refused::Os)?;
        // Where the program wants it to block it may stay: a reader that has just found nothing in
        // non-blocking mode must not take the mode for the program's wish.
        if nonblocking {
            *by_poll = false;
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
                Err(Refused::Os(Errno::EAGAIN)) if *self.by_poll() => {
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
        self.poll_from_now_on(fd).map_err(Refused::Os)?;
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

    /// Makes the descriptor non-blocking, and remembers whether the program wants it to block.
    fn poll_from_now_on(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut by_poll = self.by_poll();
        if !is_nonblocking(fd)? {
            set_nonblocking(fd, true)?;
            *by_poll = true;
        }
        Ok(())
    }

    fn by_poll(&self) -> MutexGuard<'_, bool> {
        unpoisoned(self.by_poll.lock())
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
