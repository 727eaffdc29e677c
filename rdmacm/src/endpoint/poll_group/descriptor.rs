//! The descriptor on which the owner of a group waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;

use crate::cm::EventChannel;
use crate::endpoint::shared::readiness::timeout;
use crate::endpoint::shared::timer::Timer;
use crate::error::{Error, Result};
use crate::verbs::CompletionChannel;

const EVENT: u64 = 0;
const COMPLETION: u64 = 1;
const WAKEUP: u64 = 2;
const ATTEMPTS: u64 = 3;
const KEEP_ALIVE: u64 = 4;

/// An epoll instance over the channels, the wakeup and the timers of a group.
#[derive(Debug)]
pub(super) struct Descriptor(Arc<Epoll>);

/// The sources that can be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) event: bool,
    /// `true` if a completion queue has raised an event, which is reported once and read later.
    pub(super) completion: bool,
    /// `true` if the device was removed: nothing completes any more.
    pub(super) device_removed: bool,
    pub(super) wakeup: bool,
    /// `true` if the deadlines of attempts must be checked.
    pub(super) attempts: bool,
    /// `true` if keep-alive writes are due.
    pub(super) keep_alive: bool,
}

impl Ready {
    pub(super) fn is_any(self) -> bool {
        self != Self::default()
    }
}

impl Descriptor {
    pub(super) fn new(
        channel: &EventChannel,
        completions: &CompletionChannel,
        wakeup: &EventFd,
    ) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let readable = |data| EpollEvent::new(EpollFlags::EPOLLIN, data);
        let once = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, COMPLETION);
        epoll.add(channel, readable(EVENT)).map_err(failed)?;
        epoll.add(completions, once).map_err(failed)?;
        epoll.add(wakeup, readable(WAKEUP)).map_err(failed)?;
        Ok(Self(Arc::new(epoll)))
    }

    /// Returns the epoll instance, for a runtime that watches it.
    pub(super) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.0)
    }

    /// Adds the timer of attempts. Dropping the timer removes it.
    pub(super) fn add_attempts(&self, timer: &Timer) -> Result<()> {
        self.0.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, ATTEMPTS)).map_err(failed)
    }

    /// Adds the timer of keep-alive writes.
    pub(super) fn add_keep_alive(&self, timer: &Timer) -> Result<()> {
        self.0.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, KEEP_ALIVE)).map_err(failed)
    }

    /// Sleeps until a source can be read, a signal arrives, or `deadline` passes.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<Ready> {
        let mut events = [EpollEvent::empty(); 5];
        let count = match self.0.wait(&mut events, timeout(deadline)) {
            Err(Errno::EINTR) => 0,
            waited => waited.map_err(|errno| Error::os("wait for", "a poll group", errno))?,
        };
        let mut ready = Ready::default();
        for event in events.iter().take(count) {
            match event.data() {
                EVENT => ready.event = true,
                COMPLETION => {
                    ready.completion = true;
                    ready.device_removed = event.events().contains(EpollFlags::EPOLLERR);
                }
                WAKEUP => ready.wakeup = true,
                ATTEMPTS => ready.attempts = true,
                _ => ready.keep_alive = true,
            }
        }
        Ok(ready)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

fn failed(errno: Errno) -> Error {
    Error::os("create", "the epoll instance of a poll group", errno)
}
