//! What one thread holds at a time, for one operation or for many.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};
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
    /// How many threads wait for it.
    waiting: AtomicU32,
    /// How many that waited have got it so far, and who sleeps until that or `waiting` changes.
    served: Mutex<u32>,
    changed: Condvar,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a, T> {
    exclusive: &'a Exclusive<T>,
    /// Absent once it was given back, and while another thread is let in.
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
            served: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// Waits until no other thread holds the value.
    #[inline]
    pub(super) fn hold(&self) -> Result<Held<'_, T>, HeldHere> {
        match self.hold_if_free() {
            Some(held) => Ok(held),
            None => self.hold_later(),
        }
    }

    #[cold]
    fn hold_later(&self) -> Result<Held<'_, T>, HeldHere> {
        if self.is_held_here() {
            return Err(HeldHere);
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
                break Some(held);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break None;
            }
            // The lock has no deadline.
            thread::sleep(rest.min(Duration::from_micros(100)));
        };
        self.waited(held.is_some());
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
    pub(super) fn is_held_here(&self) -> bool {
        // Whatever else is stored there meanwhile: this thread's mark only by itself.
        self.holder.load(Ordering::Relaxed) == mark()
    }

    fn wait(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let value = unpoisoned(self.value.lock());
        self.waited(true);
        value
    }

    /// A thread waits no more, and has the value or not.
    fn waited(&self, has_it: bool) {
        let mut served = unpoisoned(self.served.lock());
        *served = served.wrapping_add(u32::from(has_it));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

impl<T> Held<'_, T> {
    #[inline]
    pub(super) fn get(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("it is there but within `let_in`, and at the end")
    }

    /// Lets one of those in that wait, if some do.
    #[inline]
    pub(super) fn give_way(&mut self) {
        if self.is_awaited() {
            self.let_in();
        }
    }

    /// Gives the value back to one of those that wait, if some do. Only to be dropped afterwards.
    #[inline]
    pub(super) fn pass_on(&mut self) {
        if self.is_awaited() {
            self.give();
        }
    }

    /// Whether others wait for it.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.exclusive.waiting.load(Ordering::Relaxed) > 0
    }

    #[cold]
    fn let_in(&mut self) {
        self.give();
        self.value = Some(self.exclusive.wait());
        self.exclusive.holder.store(mark(), Ordering::Relaxed);
    }

    /// Gives the value back until one of those that wait has it.
    #[cold]
    fn give(&mut self) {
        let Exclusive { holder, waiting, served, changed, .. } = self.exclusive;
        let guard = unpoisoned(served.lock());
        let before = *guard;
        holder.store(0, Ordering::Relaxed);
        self.value = None;
        // A lock that is taken again at once is seldom taken by those who sleep. Nor would a thread
        // that goes before them let them run by yielding.
        let nobody_yet = |now: &mut u32| *now == before && waiting.load(Ordering::Relaxed) > 0;
        drop(unpoisoned(changed.wait_while(guard, nobody_yet)));
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Unless it was given back. Before the lock is, which is when the fields are dropped.
        if self.value.is_some() {
            self.exclusive.holder.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::sync::mpsc;

    use nix::unistd::gettid;

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
    fn who_passes_it_on_waits_until_another_has_it_and_no_longer() {
        let exclusive = &Exclusive::new(0);
        let (says, hears) = mpsc::channel();
        let mut held = exclusive.hold().expect("nobody has it");
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut held = exclusive.hold().expect("another thread");
                *held.get() += 1;
                hears.recv().expect("it is told to go on");
                exclusive.hold().expect_err("it is known who has it");
            });
            while exclusive.waiting.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            held.pass_on();
            assert!(exclusive.hold_if_free().is_none(), "the other thread has it");
            says.send(()).expect("it listens");
            other.join().expect("the thread lives");
        });
        assert_eq!(*exclusive.hold().expect("nobody has it any more").get(), 1);
    }

    #[test]
    fn who_lets_others_in_sleeps_until_one_has_it() {
        let exclusive = &Exclusive::new(0);
        // One that waits, and has yet to run.
        exclusive.waiting.fetch_add(1, Ordering::Relaxed);
        let (says, hears) = mpsc::channel();
        let slept = thread::scope(|scope| {
            scope.spawn(move || {
                let mut held = exclusive.hold().expect("nobody has it");
                says.send(gettid()).expect("the test listens");
                held.give_way();
            });
            let stat = format!("/proc/self/task/{}/stat", hears.recv().expect("it runs"));
            let asleep = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
            let deadline = Instant::now() + Duration::from_secs(10);
            // It may sleep for a moment while it starts.
            let is_free = || exclusive.value.try_lock().is_ok();
            while !(is_free() && asleep()) && Instant::now() < deadline {
                thread::yield_now();
            }
            let slept = asleep();
            exclusive.waited(true);
            slept
        });
        assert!(slept, "it runs in place of the one that waits");
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
