//! Waiting for descriptors, and whether they wait by themselves.

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
    /// The descriptor is non-blocking, and the program wants it to block. Locked while either
    /// changes.
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

    /// Reads with `read`, waiting for something to read if the program wants that.
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

    /// Makes the descriptor non-blocking, and remembers whether the program wants it to block.
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
mod tests {
    use super::*;

    use std::fs;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::mpsc;
    use std::thread;

    use nix::unistd::{Pid, gettid};

    fn pipe() -> (OwnedFd, OwnedFd) {
        nix::unistd::pipe().expect("pipe")
    }

    fn byte(from: &OwnedFd) -> Result<usize, CommandError> {
        nix::unistd::read(from, &mut [0]).map_err(CommandError::Os)
    }

    /// Returns a deadline that has passed.
    fn over() -> Option<Instant> {
        Some(Instant::now())
    }

    #[test]
    fn timed_read_does_not_wait_in_blocking_read() {
        let (from, to) = pipe();
        let (fd, waiting) = (from.as_fd(), Waiting::default());
        let read = || {
            // As of another thread, just before.
            waiting.set_nonblocking(fd, false)?;
            assert!(is_nonblocking(fd).expect("fcntl"), "the read would wait");
            byte(&from)
        };
        assert_eq!(waiting.read_by(fd, over(), read), Ok(None));
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            let says_and_reads = || {
                tx.send(()).expect("the test listens");
                byte(&from)
            };
            let reader = scope.spawn(move || waiting.read(fd, says_and_reads));
            rx.recv().expect("it finds nothing");
            nix::unistd::write(&to, &[1]).expect("write");
            assert_eq!(reader.join().expect("the reader lives"), Ok(1));
        });
    }

    /// Waits until a thread of this process sleeps.
    fn asleep(thread: Pid) {
        let asleep = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("stat");
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
        };
        while !asleep() {
            thread::yield_now();
        }
    }

    #[test]
    fn mode_and_its_record_change_together() {
        let (from, _to) = pipe();
        let (fd, waiting) = (from.as_fd(), &Waiting::default());
        let has_deadline = || waiting.read_by(fd, over(), || byte(&from)).map(drop);
        let wants_no_waiting = || waiting.set_nonblocking(fd, true);
        let changes: [&(dyn Fn() -> Result<(), CommandError> + Sync); 2] =
            [&has_deadline, &wants_no_waiting];
        for change in changes {
            let held = waiting.by_poll();
            let (tx, rx) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(move || {
                    tx.send(gettid()).expect("the test listens");
                    change().expect("no failure");
                });
                asleep(rx.recv().expect("the thread tx who it is"));
                assert!(!is_nonblocking(fd).expect("fcntl"), "another thread knows it to block");
                drop(held);
            });
            assert!(is_nonblocking(fd).expect("fcntl"));
            let blocking = flags(fd).expect("fcntl") - OFlag::O_NONBLOCK;
            fcntl(fd, FcntlArg::F_SETFL(blocking)).expect("fcntl");
        }
    }
}
