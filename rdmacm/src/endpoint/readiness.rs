//! Sleeping until one of the two channels of a connection has something, it is time to look after
//! the peer, or another thread rings.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::timerfd::TimerFd;

use crate::cm::EventChannel;
use crate::error::{Error, Result};
use crate::sys::per_process::PerProcess;
use crate::verbs::CompletionChannel;

/// What is always readable: the one bell of all connections, which each listens to only while it
/// rings for it.
static BELL: PerProcess<OnceLock<EventFd>> = PerProcess::new();

const EVENT: u64 = 0;
const COMPLETION: u64 = 1;
const RINGING: u64 = 2;
const TIMER: u64 = 3;

/// One descriptor that is readable when one of the channels or the timer is, or the bell rings.
#[derive(Debug)]
pub(super) struct Readiness {
    epoll: Epoll,
}

/// What is to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) event: bool,
    pub(super) completion: bool,
    pub(super) timer: bool,
}

impl Readiness {
    /// For the events on `channel`.
    pub(super) fn new(channel: &EventChannel) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, EVENT)).map_err(failed)?;
        // Added here, as that may fail, and listened to later.
        epoll.add(bell().map_err(failed)?, silence()).map_err(failed)?;
        Ok(Self { epoll })
    }

    /// For those on `completions` too.
    pub(super) fn add_completions(&self, completions: &CompletionChannel) -> Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, COMPLETION);
        self.epoll.add(completions, event).map_err(failed)
    }

    /// For `timer` too.
    pub(super) fn add_timer(&self, timer: &TimerFd) -> Result<()> {
        self.epoll.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map_err(failed)
    }

    /// Has the bell ring, which wakes who sleeps and who will, or not any more.
    pub(super) fn ring(&self, rings: bool) {
        let mut event = if rings { ringing() } else { silence() };
        let bell = bell().expect("it was made with the connection");
        self.epoll.modify(bell, &mut event).expect("it was added, and changing needs no memory");
    }

    /// Sleeps until there is something to read, the bell rings, a signal comes, or `deadline` has
    /// passed.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<Ready> {
        let timeout = match deadline {
            None => EpollTimeout::NONE,
            Some(deadline) => {
                // Rounded up: a wait that ends early would spin through its last millisecond.
                let rest = deadline.saturating_duration_since(Instant::now());
                let rest = (rest + Duration::from_micros(999)).as_millis();
                EpollTimeout::try_from(rest).unwrap_or(EpollTimeout::MAX)
            }
        };
        self.look(timeout)
    }

    /// What there is to read now.
    pub(super) fn now(&self) -> Result<Ready> {
        self.look(EpollTimeout::ZERO)
    }

    fn look(&self, timeout: EpollTimeout) -> Result<Ready> {
        let mut events = [EpollEvent::empty(); 4];
        let count = match self.epoll.wait(&mut events, timeout) {
            Err(Errno::EINTR) => 0,
            other => other.map_err(|errno| Error::os("wait for", "a connection", errno))?,
        };
        let mut ready = Ready::default();
        for event in &events[..count] {
            ready.event |= event.data() == EVENT;
            ready.completion |= event.data() == COMPLETION;
            ready.timer |= event.data() == TIMER;
        }
        Ok(ready)
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

fn failed(errno: Errno) -> Error {
    Error::os("make", "what wakes a connection", errno)
}

fn ringing() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, RINGING)
}

fn silence() -> EpollEvent {
    EpollEvent::new(EpollFlags::empty(), RINGING)
}

/// The bell of this process.
fn bell() -> Result<&'static EventFd, Errno> {
    let bell: &'static OnceLock<EventFd> = &BELL;
    if let Some(bell) = bell.get() {
        return Ok(bell);
    }
    let made = EventFd::from_value_and_flags(1, EfdFlags::EFD_CLOEXEC)?;
    Ok(bell.get_or_init(|| made))
}
