//! Sleeping until one of the two channels of a connection has something, it is time to look after
//! the peer, or another thread rings.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::timer::Timer;
use crate::cm::EventChannel;
use crate::error::{Error, Result};
use crate::lock::unpoisoned;
use crate::sys::per_process::PerProcess;
use crate::verbs::CompletionChannel;

/// What is always readable: the bell of the latest connections, which each listens to only while it
/// rings for it.
static BELL: PerProcess<Mutex<Weak<EventFd>>> = PerProcess::new();

/// How many connections share a bell. The kernel bounds the ways from one descriptor to those that
/// wait for it: 500 where what it is added to is added to another one itself, and 100 through one
/// more. The connections that a program has in one loop must not come near that.
const SHARING: usize = 64;

const EVENT: u64 = 0;
const COMPLETION: u64 = 1;
const RINGING: u64 = 2;
const TIMER: u64 = 3;

/// One descriptor that is readable when one of the channels or the timer is, or the bell rings.
#[derive(Debug)]
pub(super) struct Readiness {
    pub(super) epoll: Arc<Epoll>,
    bell: Arc<EventFd>,
    /// A second epoll instance over the same descriptors, made when a thread first blocks beside an event loop.
    apart: OnceLock<Epoll>,
}

/// What is to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) event: bool,
    /// Once for each event: that one is read later.
    pub(super) completion: bool,
    /// The device is: there will be no more completions.
    pub(super) gone: bool,
    pub(super) timer: bool,
}

impl Readiness {
    /// For the events on `channel`.
    pub(super) fn new(channel: &EventChannel) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, EVENT)).map_err(failed)?;
        // Added here, as that may fail, and listened to later.
        let bell = bell().map_err(failed)?;
        epoll.add(&*bell, silence()).map_err(failed)?;
        Ok(Self { epoll: Arc::new(epoll), bell, apart: OnceLock::new() })
    }

    /// For those on `completions` too, whose events need not be read: each tells once.
    pub(super) fn add_completions(&self, completions: &CompletionChannel) -> Result<()> {
        self.epoll.add(completions, completion()).map_err(failed)
    }

    /// For `timer` too.
    pub(super) fn add_timer(&self, timer: &Timer) -> Result<()> {
        self.epoll.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map_err(failed)
    }

    /// Has the bell ring, which wakes who sleeps and who will, or not any more.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl`, which a filter of system calls may refuse.
    pub(super) fn ring(&self, rings: bool) -> Result<()> {
        let mut event = if rings { ringing() } else { silence() };
        self.epoll.modify(&*self.bell, &mut event).map_err(not_woken)
    }

    /// Makes the epoll instance of [`wait_apart`](Self::wait_apart), unless it was made before.
    pub(super) fn make_apart(
        &self,
        channel: &EventChannel,
        completions: Option<&CompletionChannel>,
        timer: Option<&Timer>,
    ) -> Result<()> {
        if self.apart.get().is_some() {
            return Ok(());
        }
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, EVENT)).map_err(failed)?;
        if let Some(completions) = completions {
            epoll.add(completions, completion()).map_err(failed)?;
        }
        if let Some(timer) = timer {
            epoll.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map_err(failed)?;
        }
        epoll.add(&*self.bell, silence()).map_err(failed)?;
        // One thread at a time makes it: the state is locked.
        let _ = self.apart.set(epoll);
        Ok(())
    }

    /// Sleeps as [`wait`](Self::wait) does, without taking events from the descriptor. The bell wakes it only by
    /// [`wake_apart`](Self::wake_apart).
    pub(super) fn wait_apart(&self, deadline: Option<Instant>) -> Result<Ready> {
        look(self.apart.get().unwrap_or(&self.epoll), timeout(deadline))
    }

    /// Wakes the thread that [waits apart](Self::wait_apart), or the next one that does.
    pub(super) fn wake_apart(&self) -> Result<()> {
        let Some(apart) = self.apart.get() else { return Ok(()) };
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        apart.modify(&*self.bell, &mut EpollEvent::new(flags, RINGING)).map_err(not_woken)
    }

    /// Sleeps until there is something to read, the bell rings, a signal comes, or `deadline` has
    /// passed.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<Ready> {
        look(&self.epoll, timeout(deadline))
    }

    /// What there is to read now.
    pub(super) fn now(&self) -> Result<Ready> {
        look(&self.epoll, EpollTimeout::ZERO)
    }
}

/// Returns the time until `deadline`, rounded up, for `epoll_wait`.
pub(super) fn timeout(deadline: Option<Instant>) -> EpollTimeout {
    match deadline {
        None => EpollTimeout::NONE,
        Some(deadline) => {
            // Rounded up: a wait that ends early would spin through its last millisecond.
            let rest = deadline.saturating_duration_since(Instant::now());
            let rest = rest.saturating_add(Duration::from_micros(999)).as_millis();
            EpollTimeout::try_from(rest).unwrap_or(EpollTimeout::MAX)
        }
    }
}

fn look(epoll: &Epoll, timeout: EpollTimeout) -> Result<Ready> {
    let mut events = [EpollEvent::empty(); 4];
    let count = match epoll.wait(&mut events, timeout) {
        Err(Errno::EINTR) => 0,
        other => other.map_err(|errno| Error::os("wait for", "a connection", errno))?,
    };
    let mut ready = Ready::default();
    for event in events.iter().take(count) {
        ready.event |= event.data() == EVENT;
        let is_of_completions = event.data() == COMPLETION;
        ready.completion |= is_of_completions;
        ready.gone |= is_of_completions && event.events().contains(EpollFlags::EPOLLERR);
        ready.timer |= event.data() == TIMER;
    }
    Ok(ready)
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

fn failed(errno: Errno) -> Error {
    Error::os("make", "what wakes a connection", errno)
}

fn not_woken(errno: Errno) -> Error {
    Error::os("wake", "those that wait for a connection", errno)
}

fn completion() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, COMPLETION)
}

fn ringing() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, RINGING)
}

fn silence() -> EpollEvent {
    EpollEvent::new(EpollFlags::empty(), RINGING)
}

/// A bell of this process for one more connection.
fn bell() -> Result<Arc<EventFd>, Errno> {
    let mut latest = unpoisoned(BELL.lock());
    let shared = latest.upgrade().filter(|bell| Arc::strong_count(bell) <= SHARING);
    if let Some(bell) = shared {
        return Ok(bell);
    }
    let made = Arc::new(EventFd::from_value_and_flags(1, EfdFlags::EFD_CLOEXEC)?);
    *latest = Arc::downgrade(&made);
    Ok(made)
}
