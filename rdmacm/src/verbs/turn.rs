//! One thread at a time.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::lock::unpoisoned;

/// What one thread has at a time, while the others wait for it or until a deadline.
#[derive(Debug, Default)]
pub(super) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A thread's turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    turn: &'a Turn,
}

impl Turn {
    /// Waits for this thread's turn; `None` if it did not come until `deadline`.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<Taken<'_>> {
        let mut taken = self.lock();
        while *taken {
            let Some(deadline) = deadline else {
                taken = unpoisoned(self.free.wait(taken));
                continue;
            };
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return None;
            }
            let waited = self.free.wait_timeout(taken, rest);
            taken = unpoisoned(waited).0;
        }
        *taken = true;
        Some(Taken { turn: self })
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        unpoisoned(self.taken.lock())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.turn.lock() = false;
        self.turn.free.notify_one();
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
