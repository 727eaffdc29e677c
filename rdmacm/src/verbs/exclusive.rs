//! What one thread holds at a time, for one operation or for many.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::lock::unpoisoned;

/// A value that the thread holding it has for itself.
///
/// A lock with two more properties: the thread that holds it is told so instead of waiting for
/// itself, and one that holds it for long can let others in.
#[derive(Debug)]
pub(super) struct Exclusive<T> {
    value: Mutex<T>,
    /// The [`mark`] of the thread that holds it, 0 while none does.
    holder: AtomicUsize,
    /// How many threads wait for it, and how many that waited have got it so far.
    waiting: AtomicU32,
    served: AtomicU32,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a, T> {
    exclusive: &'a Exclusive<T>,
    /// Only ever absent while another thread is let in.
    value: Option<MutexGuard<'a, T>>,
}

/// The thread that asks for a value holds it.
#[derive(Debug)]
pub(super) struct HeldHere;

/// What tells the running thread from all others: the address of something of its own.
#[inline]
fn mark() -> usize {
    thread_local! { static MARK: u8 = const { 0 } }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl<T> Exclusive<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            holder: AtomicUsize::new(0),
            waiting: AtomicU32::new(0),
            served: AtomicU32::new(0),
        }
    }

    /// Waits until no other thread holds the value.
    #[inline]
    pub(super) fn hold(&self) -> Result<Held<'_, T>, HeldHere> {
        if self.is_held_here() {
            return Err(HeldHere);
        }
        if let Some(held) = self.hold_if_free() {
            return Ok(held);
        }
        let value = Some(self.wait());
        self.holder.store(mark(), Ordering::Relaxed);
        Ok(Held { exclusive: self, value })
    }

    /// The same, or `None` if another thread still holds the value at `deadline`.
    pub(super) fn hold_by(&self, deadline: Instant) -> Result<Option<Held<'_, T>>, HeldHere> {
        if self.is_held_here() {
            return Err(HeldHere);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let held = loop {
            if let Some(held) = self.hold_if_free() {
                self.served.fetch_add(1, Ordering::Relaxed);
                break Some(held);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break None;
            }
            // The lock has no deadline.
            thread::sleep(rest.min(Duration::from_micros(100)));
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(held)
    }

    /// The value, if no thread holds it.
    #[inline]
    pub(super) fn hold_if_free(&self) -> Option<Held<'_, T>> {
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.holder.store(mark(), Ordering::Relaxed);
        Some(Held { exclusive: self, value: Some(value) })
    }

    /// Whether this thread holds the value.
    #[inline]
    pub(super) fn is_held_here(&self) -> bool {
        // Whatever else is stored there meanwhile: this thread's mark only by itself.
        self.holder.load(Ordering::Relaxed) == mark()
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let value = unpoisoned(self.value.lock());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        value
    }
}

impl<T> Held<'_, T> {
    #[inline]
    pub(super) fn get(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("it is there but within `let_in`")
    }

    /// Lets one of those in that wait, if some do.
    #[inline]
    pub(super) fn give_way(&mut self) {
        if self.exclusive.waiting.load(Ordering::Relaxed) > 0 {
            self.let_in();
        }
    }

    #[cold]
    fn let_in(&mut self) {
        let Exclusive { holder, waiting, served, .. } = self.exclusive;
        let before = served.load(Ordering::Relaxed);
        holder.store(0, Ordering::Relaxed);
        self.value = None;
        // A lock that is taken again at once is seldom taken by those who sleep.
        while served.load(Ordering::Relaxed) == before && waiting.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        self.value = Some(self.exclusive.wait());
        holder.store(mark(), Ordering::Relaxed);
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Before the lock is given back, which is when the fields are dropped.
        self.exclusive.holder.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_is_told_and_others_wait() {
        let exclusive = Exclusive::new(0);
        let mut held = exclusive.hold().expect("nobody has it");
        exclusive.hold().expect_err("this thread has it");
        thread::scope(|scope| {
            let other = scope.spawn(|| *exclusive.hold().expect("another thread").get());
            while exclusive.waiting.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            *held.get() = 7;
            drop(held);
            assert_eq!(other.join().expect("the thread lives"), 7);
        });
        exclusive.hold().expect("nobody has it any more");
    }

    #[test]
    fn who_waits_is_let_in_by_one_who_stays() {
        let exclusive = Exclusive::new(0);
        let mut held = exclusive.hold().expect("nobody has it");
        held.give_way();
        thread::scope(|scope| {
            let others = [(); 2]
                .map(|()| scope.spawn(|| *exclusive.hold().expect("another thread").get() += 1));
            while *held.get() < 2 {
                held.give_way();
            }
            others.into_iter().for_each(|other| other.join().expect("the thread lives"));
            exclusive.hold().expect_err("it is this thread's again");
        });
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let exclusive = &Exclusive::new(0);
        let mut held = exclusive.hold().expect("nobody has it");
        exclusive.hold_by(Instant::now()).expect_err("this thread has it");
        let later = || Instant::now() + Duration::from_millis(1);
        let is_held = |deadline| exclusive.hold_by(deadline).expect("another thread").is_none();
        thread::scope(|scope| {
            let other = scope.spawn(|| is_held(Instant::now()) && is_held(later()));
            assert!(other.join().expect("the thread lives"));
            // One that waits is let in as any other.
            let long = Instant::now() + Duration::from_secs(60);
            scope.spawn(move || {
                let mut held = exclusive.hold_by(long).expect("another thread").expect("let in");
                *held.get() += 1;
            });
            while *held.get() == 0 {
                held.give_way();
            }
        });
        drop(held);
        assert!(exclusive.hold_by(Instant::now()).expect("nobody has it").is_some());
    }

    #[test]
    fn one_that_is_never_given_back_is_told_of_too() {
        let exclusive = Exclusive::new(());
        std::mem::forget(exclusive.hold().expect("nobody has it"));
        exclusive.hold().expect_err("this thread has it for ever");
    }
}
