//! Counting acknowledged events against the number that the kernel says it reported.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The events of one object that were handed to the program, and those that it is done with.
///
/// The kernel counts what it has reported and tells the number when the object is destroyed; a
/// waiting destroy returns when as many are acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    state: Mutex<State>,
    acknowledged: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Wraps around with the kernel's counter.
    acknowledged: u32,
    /// Who received the events that are still out.
    outstanding: Vec<ThreadId>,
    /// How many threads wait for `acknowledged` to rise. Waking nobody would cost a system call.
    waiting: usize,
}

impl Acks {
    /// Counts an event as handed to this thread, until the result is dropped.
    pub(crate) fn hand_out(self: &Arc<Self>) -> Unacknowledged {
        let receiver = thread::current().id();
        self.lock().outstanding.push(receiver);
        Unacknowledged { acks: Arc::clone(self), receiver }
    }

    /// Counts an event that the program never saw.
    pub(crate) fn swallow(&self) {
        self.acknowledge(&mut self.lock());
    }

    /// Whether an event that this thread received is still out: waiting for it here would be
    /// waiting for oneself.
    pub(crate) fn held_by_this_thread(&self) -> bool {
        self.lock().outstanding.contains(&thread::current().id())
    }

    /// Waits until `reported` events are acknowledged.
    pub(crate) fn wait(&self, reported: u32) {
        let behind = |state: &mut State| {
            // Both counters wrap; they are never 2^31 apart.
            let missing = reported.wrapping_sub(state.acknowledged);
            missing != 0 && missing < 1 << 31
        };
        let mut state = self.lock();
        state.waiting += 1;
        let waited = self.acknowledged.wait_while(state, behind);
        waited.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }

    fn acknowledge(&self, state: &mut State) {
        state.acknowledged = state.acknowledged.wrapping_add(1);
        if state.waiting > 0 {
            self.acknowledged.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that is out. Dropping it acknowledges the event.
#[derive(Debug)]
pub(crate) struct Unacknowledged {
    acks: Arc<Acks>,
    receiver: ThreadId,
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        let mut state = self.acks.lock();
        if let Some(place) = state.outstanding.iter().position(|id| *id == self.receiver) {
            state.outstanding.swap_remove(place);
        }
        self.acks.acknowledge(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_another_thread_to_acknowledge() {
        let acks = Arc::new(Acks::default());
        let event = acks.hand_out();
        assert!(acks.held_by_this_thread());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(!acks.held_by_this_thread());
                acks.wait(1);
            });
            drop(event);
            waiter.join().expect("the waiter returns");
        });
        assert!(!acks.held_by_this_thread());
    }

    #[test]
    fn counts_past_the_end_of_the_counter() {
        let acks = Arc::new(Acks::default());
        acks.lock().acknowledged = u32::MAX;
        acks.swallow();
        acks.wait(0);
        acks.wait(u32::MAX);
    }

    #[test]
    fn a_swallowed_event_counts() {
        let acks = Arc::new(Acks::default());
        acks.swallow();
        acks.wait(1);
    }
}
