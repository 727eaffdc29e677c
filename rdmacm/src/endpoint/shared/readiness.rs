//! The descriptor of an endpoint.
//!
//! It is an epoll instance over its two channels, its timer, and an eventfd that wakes it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::timer::Timer;
use crate::cm::EventChannel;
use crate::error::{Error, Result};
use crate::lock::ignore_poison;
use crate::sys::per_process::PerProcess;
use crate::verbs::CompletionChannel;

/// The eventfd of the latest endpoints.
///
/// The eventfd is always readable. Each endpoint watches it only while the wakeup of the endpoint is enabled.
static WAKEUP_FD: PerProcess<Mutex<Weak<EventFd>>> = PerProcess::new();

/// The number of endpoints that share an eventfd.
///
/// The kernel limits the paths from one descriptor to the epoll instances that watch it. The limit is 500 paths through
/// an instance that is added to another one, and 100 paths if that one is added to a third one. The endpoints of a
/// program in one event loop must stay below these limits.
const CONNECTIONS_PER_WAKEUP_FD: usize = 64;

const EVENT: u64 = 0;
const COMPLETION: u64 = 1;
const WAKEUP: u64 = 2;
const TIMER: u64 = 3;

/// A descriptor that is readable if a channel or the timer is readable, or if its wakeup is enabled.
#[derive(Debug)]
pub(in crate::endpoint) struct Readiness {
    pub(in crate::endpoint) epoll: Arc<Epoll>,
    wakeup: Arc<EventFd>,
    /// A second epoll instance over the same descriptors, for threads only.
    ///
    /// It is created when a thread blocks beside an event loop for the first time.
    thread_epoll: OnceLock<Epoll>,
}

/// The sources that the descriptor reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::endpoint) struct Ready {
    pub(in crate::endpoint) event: bool,
    /// `true` if there is a completion event, which is reported once and read later.
    pub(in crate::endpoint) completion: bool,
    /// `true` if the device was removed: there will be no more completions.
    pub(in crate::endpoint) device_removed: bool,
    pub(in crate::endpoint) timer: bool,
}

impl Readiness {
    /// Creates the descriptor, which reports the events on `channel`.
    pub(in crate::endpoint) fn new(channel: &EventChannel) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(channel, event()).map_err(failed)?;
        // Added here, because adding may fail, and enabled later.
        let wakeup = wakeup_fd().map_err(failed)?;
        epoll.add(&*wakeup, disabled()).map_err(failed)?;
        Ok(Self { epoll: Arc::new(epoll), wakeup, thread_epoll: OnceLock::new() })
    }

    /// Adds another event channel. Closing the first one removes it from the epoll instance.
    pub(in crate::endpoint) fn add_channel(&self, channel: &EventChannel) -> Result<()> {
        self.epoll.add(channel, event()).map_err(failed)
    }

    /// Adds the events on `completions`, which need not be read: each is reported once.
    pub(in crate::endpoint) fn add_completions(
        &self,
        completions: &CompletionChannel,
    ) -> Result<()> {
        self.epoll.add(completions, completion()).map_err(failed)
    }

    /// Adds `timer`.
    pub(in crate::endpoint) fn add_timer(&self, timer: &Timer) -> Result<()> {
        self.epoll.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map_err(failed)
    }

    /// Enables or disables the wakeup: enabled, the descriptor is readable, and no thread sleeps on it.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_ctl`, which a filter of system calls may refuse.
    pub(in crate::endpoint) fn set_wakeup(&self, is_enabled: bool) -> Result<()> {
        let mut event = if is_enabled { enabled() } else { disabled() };
        self.epoll.modify(&*self.wakeup, &mut event).map_err(not_woken)
    }

    /// Creates the thread epoll instance, unless it was created before.
    pub(in crate::endpoint) fn create_thread_epoll(
        &self,
        channel: &EventChannel,
        completions: Option<&CompletionChannel>,
        timer: Option<&Timer>,
    ) -> Result<()> {
        if self.thread_epoll.get().is_some() {
            return Ok(());
        }
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(channel, event()).map_err(failed)?;
        if let Some(completions) = completions {
            epoll.add(completions, completion()).map_err(failed)?;
        }
        if let Some(timer) = timer {
            epoll.add(timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map_err(failed)?;
        }
        epoll.add(&*self.wakeup, disabled()).map_err(failed)?;
        // One thread at a time creates it: the state is locked.
        let _ = self.thread_epoll.set(epoll);
        Ok(())
    }

    /// Sleeps like [`wait`](Self::wait), but on the thread epoll instance.
    ///
    /// It takes no events from the descriptor.
    ///
    /// Only [`wake_thread_epoll`](Self::wake_thread_epoll) wakes the thread, and not the wakeup of the descriptor.
    pub(in crate::endpoint) fn wait_on_thread_epoll(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Ready> {
        poll(self.thread_epoll.get().unwrap_or(&self.epoll), timeout(deadline))
    }

    /// Wakes the thread that waits on the thread epoll instance.
    ///
    /// If no thread [waits](Self::wait_on_thread_epoll), it wakes the next one that does.
    pub(in crate::endpoint) fn wake_thread_epoll(&self) -> Result<()> {
        let Some(thread_epoll) = self.thread_epoll.get() else { return Ok(()) };
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        thread_epoll.modify(&*self.wakeup, &mut EpollEvent::new(flags, WAKEUP)).map_err(not_woken)
    }

    /// Sleeps until an event can be read, the wakeup is enabled, a signal arrives, or `deadline` passes.
    pub(in crate::endpoint) fn wait(&self, deadline: Option<Instant>) -> Result<Ready> {
        poll(&self.epoll, timeout(deadline))
    }

    /// Returns the sources that can be read now.
    pub(in crate::endpoint) fn now(&self) -> Result<Ready> {
        poll(&self.epoll, EpollTimeout::ZERO)
    }
}

/// Returns the time until `deadline`, rounded up, for `epoll_wait`.
pub(in crate::endpoint) fn timeout(deadline: Option<Instant>) -> EpollTimeout {
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

fn poll(epoll: &Epoll, timeout: EpollTimeout) -> Result<Ready> {
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
        ready.device_removed |= is_of_completions && event.events().contains(EpollFlags::EPOLLERR);
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
    Error::os("create", "the epoll instance of a connection", errno)
}

fn not_woken(errno: Errno) -> Error {
    Error::os("wake", "the waiters of a connection", errno)
}

/// Returns the registration of an event channel.
fn event() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, EVENT)
}

fn completion() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, COMPLETION)
}

fn enabled() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, WAKEUP)
}

fn disabled() -> EpollEvent {
    EpollEvent::new(EpollFlags::empty(), WAKEUP)
}

/// Returns an eventfd of this process for one more endpoint.
fn wakeup_fd() -> Result<Arc<EventFd>, Errno> {
    let mut latest = ignore_poison(WAKEUP_FD.lock());
    let shared = latest.upgrade().filter(|fd| Arc::strong_count(fd) <= CONNECTIONS_PER_WAKEUP_FD);
    if let Some(fd) = shared {
        return Ok(fd);
    }
    let created = Arc::new(EventFd::from_value_and_flags(1, EfdFlags::EFD_CLOEXEC)?);
    *latest = Arc::downgrade(&created);
    Ok(created)
}

#[cfg(all(test, feature = "null", not(loom)))]
mod tests;
