//! Counters of acknowledged events, for comparison with the number of events that the kernel reported.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::lock::ignore_poison;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{AtomicU32, Condvar, Mutex, MutexGuard};
use crate::sys::process::Process;

/// The events of one object that were handed to the program, and those that it has acknowledged.
///
/// The kernel counts the events that it reports, and returns their number when the object is destroyed. A waiting
/// destroy returns when as many events are acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    state: Mutex<State>,
    /// Number of events that were handed out.
    ///
    /// Changed while `state` is locked.
    events_read: AtomicU32,
    /// Changed while `state` is locked; wraps around with the kernel's counter.
    acknowledged: AtomicU32,
    risen: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of acknowledged events that arrived after the object's last move.
    recent: u32,
    /// Number of moves of the object.
    moves: u32,
    /// The receivers of the events that are not acknowledged yet.
    outstanding: Receivers,
    /// Number of threads that wait for `Acks::acknowledged` to rise.
    ///
    /// A wakeup without waiters would cost a system call.
    waiting: u32,
}

/// The receiving thread of each event.
///
/// Usually there is one event at a time, which needs no allocation.
#[derive(Debug, Default)]
struct Receivers {
    one: Option<ThreadId>,
    #[expect(clippy::box_collection, reason = "each idle connection has several of these")]
    more: Option<Box<Vec<ThreadId>>>,
}

impl Receivers {
    fn push(&mut self, receiver: ThreadId) {
        if let Some(earlier) = self.one.replace(receiver) {
            self.more.get_or_insert_default().push(earlier);
        }
    }

    fn remove(&mut self, receiver: ThreadId) {
        if self.one == Some(receiver) {
            self.one = self.more.as_mut().and_then(|more| more.pop());
        } else if let Some(more) = &mut self.more {
            if let Some(place) = more.iter().position(|id| *id == receiver) {
                more.swap_remove(place);
            }
        }
    }

    fn contains(&self, receiver: ThreadId) -> bool {
        let is_in_more = || self.more.as_ref().is_some_and(|more| more.contains(&receiver));
        self.one == Some(receiver) || is_in_more()
    }
}

/// An object whose events are counted.
pub(crate) trait Counted: Send + Sync + 'static {
    /// Returns the counters of the object's events.
    fn acks(&self) -> &Acks;

    /// Counts an event as handed to this thread, until the result is dropped.
    ///
    /// The event is `recent` unless it comes from the place where the object was before its last move.
    fn track(self: &Arc<Self>, recent: bool) -> Unacknowledged
    where
        Self: Sized,
    {
        let receiver = thread::current().id();
        let mut state = self.acks().lock();
        state.outstanding.push(receiver);
        self.acks().events_read.fetch_add(1, Ordering::Relaxed);
        let moves = if recent { state.moves } else { state.moves.wrapping_sub(1) };
        drop(state);
        let object = Arc::downgrade(self);
        Unacknowledged { object, receiver, moves, process: Process::current() }
    }
}

impl Counted for Acks {
    fn acks(&self) -> &Acks {
        self
    }
}

impl Acks {
    /// Returns the number of events that were handed out.
    pub(crate) fn events_read(&self) -> &AtomicU32 {
        &self.events_read
    }

    /// Counts an event as handed out, and as acknowledged at once.
    pub(crate) fn acknowledge_now(&self) {
        let mut state = self.lock();
        self.events_read.fetch_add(1, Ordering::Relaxed);
        self.count(&mut state, true);
    }

    /// Counts an outstanding event as acknowledged.
    fn count(&self, state: &mut State, recent: bool) {
        self.acknowledged.fetch_add(1, Ordering::Release);
        if recent {
            state.recent = state.recent.wrapping_add(1);
        }
        if state.waiting > 0 {
            self.risen.notify_all();
        }
    }

    /// Records that the object has moved: every event so far is an earlier one.
    pub(crate) fn moved(&self) {
        let mut state = self.lock();
        state.moves = state.moves.wrapping_add(1);
        state.recent = 0;
    }

    /// Returns `true` if an event that this thread received is not acknowledged yet.
    ///
    /// Waiting for that event here would be a deadlock.
    pub(crate) fn held_by_this_thread(&self) -> bool {
        // The order matters: every acknowledged event was handed out before, and so was every event that this thread
        // holds. So the numbers are equal only if the thread holds none.
        let acknowledged = self.acknowledged();
        acknowledged != self.events_read.load(Ordering::Relaxed)
            && self.lock().outstanding.contains(thread::current().id())
    }

    /// Waits until `reported` events are acknowledged.
    pub(crate) fn wait(&self, reported: u32) {
        // Usually all events are acknowledged, and the lock is not needed.
        if self.acknowledged() != reported {
            self.wait_for(reported, |acknowledged, _| acknowledged);
        }
    }

    /// Waits until `reported` events from before the object's last move are acknowledged.
    pub(crate) fn wait_for_earlier(&self, reported: u32) {
        self.wait_for(reported, |acknowledged, recent| acknowledged.wrapping_sub(recent));
    }

    fn wait_for(&self, reported: u32, counted: fn(u32, u32) -> u32) {
        let behind = |state: &State| {
            // Both counters wrap; they are never 2^31 apart.
            let missing = reported.wrapping_sub(counted(self.acknowledged(), state.recent));
            missing != 0 && missing < 1 << 31
        };
        let mut state = self.lock();
        state.waiting += 1;
        while behind(&state) {
            state = ignore_poison(self.risen.wait(state));
        }
        state.waiting -= 1;
    }

    /// Locks the counters, so that all other threads wait.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.lock()
    }

    fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }
}

/// An event that was handed out. Dropping it acknowledges the event.
#[derive(Debug)]
pub(crate) struct Unacknowledged {
    /// The object.
    ///
    /// If it no longer exists, no thread waits for the event.
    object: Weak<dyn Counted>,
    receiver: ThreadId,
    /// Number of the object's moves when the event was handed out.
    moves: u32,
    /// The process that received it.
    process: Process,
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        // A child inherits the lock, which may be held in its parent; no thread of the child unlocks it.
        if !self.process.is_current() {
            return;
        }
        let Some(object) = self.object.upgrade() else { return };
        let acks = object.acks();
        let mut state = acks.lock();
        state.outstanding.remove(self.receiver);
        let recent = self.moves == state.moves;
        acks.count(&mut state, recent);
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests;
