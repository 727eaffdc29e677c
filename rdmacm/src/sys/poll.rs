//! Waiting for descriptors, and whether they wait by themselves.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

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
pub(crate) fn is_nonblocking(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(flags(fd)?.contains(OFlag::O_NONBLOCK))
}

/// Makes calls on the descriptor return EAGAIN instead of waiting, or wait again.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> Result<(), Errno> {
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
