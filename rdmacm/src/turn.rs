//! One thread at a time.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::lock::unpoisoned;

/// What one thread has at a time, while the others wait for it or until a deadline.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    /// How many threads wait. Waking nobody would cost a system call.
    waiting: u32,
}

/// A thread's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    turn: &'a Turn,
}

impl Turn {
    /// Waits for this thread's turn; `None` if it did not come until `deadline`.
    pub(crate) fn take(&self, deadline: Option<Instant>) -> Option<Taken<'_>> {
        let mut state = self.lock();
        while state.taken {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return None;
            }
            state.waiting += 1;
            state = match rest {
                None => unpoisoned(self.free.wait(state)),
                Some(rest) => unpoisoned(self.free.wait_timeout(state, rest)).0,
            };
            state.waiting -= 1;
        }
        state.taken = true;
        Some(Taken { turn: self })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.turn.lock();
        state.taken = false;
        if state.waiting > 0 {
            self.turn.free.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_deadline_ends_the_wait_for_a_turn() {
        let turn = Turn::default();
        let taken = turn.take(None).expect("nobody has it");
        assert!(turn.take(Some(Instant::now())).is_none());
        assert!(turn.take(Some(Instant::now() + Duration::from_millis(1))).is_none());
        drop(taken);
        assert!(turn.take(Some(Instant::now())).is_some());
    }

    #[test]
    fn everybody_has_a_turn() {
        let (turn, count) = (Turn::default(), Mutex::new(0));
        let taken = turn.take(None);
        thread::scope(|scope| {
            for round in 0..8 {
                let (turn, count) = (&turn, &count);
                let deadline = Instant::now() + Duration::from_secs(60);
                let deadline = (round % 2 == 0).then_some(deadline);
                scope.spawn(move || {
                    let _taken = turn.take(deadline).expect("it comes");
                    *count.try_lock().expect("one at a time") += 1;
                });
            }
            drop(taken);
        });
        assert_eq!(count.into_inner().expect("nobody panicked"), 8);
    }
}
