//! Waiting until a descriptor becomes readable, by any number of tasks.
//!
//! A runtime wakes one waker for a descriptor: the waker of [`Sleepers`]. This waker wakes one task, which becomes the
//! *watcher*. No readiness is lost:
//!
//! - A task joins the list before it polls the runtime for readiness, so that a concurrent wakeup finds the task.
//! - A watcher consumes the readiness and checks the endpoint after that. It finds all earlier events, and later ones
//!   are reported again.
//! - A watcher remains one until the runtime has promised to wake the sleeping tasks (it returned `Pending`). If the
//!   watcher leaves before that, because it found its result or was dropped, it wakes another task, which becomes the
//!   watcher.
//! - If no task sleeps then, a task that began its check before the watcher left may fall asleep later. It checks again
//!   first.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use nix::sys::epoll::Epoll;

use super::runtime::{ProcessRuntime, Registration};
use crate::lock::ignore_poison;
use crate::sync::{AtomicU32, Mutex};

/// A descriptor that a runtime watches for tasks.
#[derive(Debug)]
pub(super) struct Watch {
    registration: Registration,
    sleepers: Arc<Sleepers>,
    /// The waker of the sleeping tasks.
    waker: Waker,
}

/// The tasks that sleep until the descriptor becomes readable, in the order in which they fell asleep.
#[derive(Debug, Default)]
struct Sleepers {
    list: Mutex<SleeperList>,
    /// The number of wakeups for which no task slept. Changed while the list is locked.
    unclaimed: AtomicU32,
}

#[derive(Debug, Default)]
struct SleeperList {
    next: u64,
    asleep: VecDeque<(u64, Waker)>,
}

impl Sleepers {
    /// Adds a sleeping task, unless the number of unclaimed wakeups exceeds `seen`.
    fn add(&self, waker: Waker, seen: u32) -> Option<u64> {
        let mut list = ignore_poison(self.list.lock());
        if self.unclaimed.load(Ordering::Relaxed) != seen {
            return None;
        }
        let id = list.next;
        list.next += 1;
        list.asleep.push_back((id, waker));
        Some(id)
    }

    /// Returns the number of unclaimed wakeups.
    ///
    /// Call this before a check: the check then sees all events that were left by the tasks that sent these wakeups.
    fn unclaimed(&self) -> u32 {
        self.unclaimed.load(Ordering::Acquire)
    }

    /// Removes a sleeping task. Returns `false` if it was woken.
    fn remove(&self, id: u64) -> bool {
        let mut list = ignore_poison(self.list.lock());
        let found = list.asleep.iter().position(|(sleeper, _)| *sleeper == id);
        let removed = found.and_then(|index| list.asleep.remove(index));
        // The waker, which may belong to the program, is dropped after this.
        drop(list);
        removed.is_some()
    }

    fn wake_one(&self) {
        let mut list = ignore_poison(self.list.lock());
        let woken = list.asleep.pop_front();
        if woken.is_none() {
            self.unclaimed.fetch_add(1, Ordering::Release);
        }
        drop(list);
        // The list is unlocked first, because a waker may call the endpoint.
        if let Some((_, waker)) = woken {
            waker.wake();
        }
    }
}

impl Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        self.wake_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_one();
    }
}

impl Watch {
    /// Makes `runtime` watch `epoll`.
    pub(super) fn new(runtime: &ProcessRuntime, epoll: Arc<Epoll>) -> io::Result<Self> {
        runtime.register(epoll).map(Self::of)
    }

    fn of(registration: Registration) -> Self {
        let sleepers = Arc::new(Sleepers::default());
        let waker = Waker::from(Arc::clone(&sleepers));
        Self { registration, sleepers, waker }
    }

    /// Returns a task that may sleep, and is awake.
    pub(super) fn sleeper(&self) -> Sleeper<'_> {
        Sleeper { watch: self, id: None, is_watcher: false, seen: self.sleepers.unclaimed() }
    }

    /// Waits until the descriptor has become readable.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it was woken, another task is woken.
    pub(super) async fn readable(&self) -> io::Result<()> {
        let mut sleeper = self.sleeper();
        poll_fn(|context| sleeper.poll_readable(context)).await
    }

    fn poll_registered(&self) -> Poll<io::Result<()>> {
        self.registration.poll_readable(&mut Context::from_waker(&self.waker))
    }
}

/// A task that sleeps until the descriptor becomes readable, or is awake and checks for its result.
#[derive(Debug)]
pub(super) struct Sleeper<'a> {
    watch: &'a Watch,
    /// The number of the sleeping task in the list.
    id: Option<u64>,
    is_watcher: bool,
    /// The number of unclaimed wakeups before its last check.
    seen: u32,
}

impl Sleeper<'_> {
    /// Records that the task is awake, for any reason.
    ///
    /// Call this before the task checks for its result.
    pub(super) fn set_awake(&mut self) {
        if self.leave_list() {
            // If another task has consumed the readiness, that task handles the new events.
            let _ = self.watch.poll_registered();
        }
        self.seen = self.watch.sleepers.unclaimed();
    }

    /// Returns ready if there may be a new result. Otherwise the task sleeps.
    pub(super) fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.watch.registration.is_owner() {
            return self.watch.poll_registered();
        }
        self.leave_list();
        self.id = self.watch.sleepers.add(context.waker().clone(), self.seen);
        if self.id.is_none() {
            self.is_watcher = true;
            return Poll::Ready(Ok(()));
        }
        let polled = self.watch.poll_registered();
        if polled.is_ready() {
            self.leave_list();
        }
        self.is_watcher = polled.is_ready();
        polled
    }

    /// Takes the task out of the list.
    ///
    /// Returns `true` if the runtime, or another task, has woken it as the watcher. A forked child has a copy of the
    /// list, which may stay locked, so it leaves the list alone.
    fn leave_list(&mut self) -> bool {
        let Self { watch, id, .. } = self;
        let is_woken =
            id.take().is_some_and(|id| watch.registration.is_owner() && !watch.sleepers.remove(id));
        self.is_watcher |= is_woken;
        is_woken
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        // A forked child has no task of the runtime.
        if !self.watch.registration.is_owner() {
            return;
        }
        self.leave_list();
        if self.is_watcher {
            self.watch.sleepers.wake_one();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;
