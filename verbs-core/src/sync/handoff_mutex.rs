//! A fair mutex with deadlines that detects a thread that would wait for itself.
//!
//! The standard library's mutex has no deadline. It lets a thread that locks it again at once overtake sleeping
//! threads, and blocks a thread that holds it already. Three uses need other properties:
//!
//! - A thread may keep the guard of a ring for many posts or polls, and lets waiting threads in between two of them.
//! - Polls with a timeout keep their deadline, regardless of the thread that holds the ring.
//! - A program that polls a queue while the same thread holds its poller gets an error instead of a deadlock.
//!
//! The word that is locked is the [mark](thread_mark) of the thread that holds the mutex. An uncontended lock and
//! unlock are one compare-and-swap each: this is the path of every post and poll. A waiting thread sets a bit in that
//! word and enters a queue. The thread that unlocks then makes the first thread of the queue the holder, so that no
//! thread is overtaken.
//!
//! `parking_lot` has timed locks, fair unlocking and `MutexGuard::bump`. It was not chosen for these reasons:
//!
//! - It does not record the thread that holds a lock, so every post and poll would store the mark beside it. Locking,
//!   storing the mark and unlocking then take 14 instructions. They take 19 with the standard library's mutex, and 6
//!   with this one.
//! - It keeps the waiting threads in one table of the process, whose locks a forked child may inherit locked.
//! - Loom cannot check it.
//! - It adds five more crates.
//!
//! # Safety
//!
//! The value is accessed only through a guard. A guard exists only in the thread whose mark is in the word, and only
//! one guard exists. The reason is that the word is changed from zero by a compare-and-swap or under the lock of the
//! queue. It is passed on only by a guard that is dropped or borrowed exclusively. Loom checks this.
#![expect(unsafe_code, reason = "gives the thread that holds the mutex access to its value")]

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{AtomicUsize, Condvar, Mutex, MutexGuard, reads, thread_mark, wait_until, writes};
use crate::lock::ignore_poison;

/// Set in the word of the holder while threads may be in the queue. Marks are even.
const WAITED_FOR: usize = 1;

/// A fair mutex with deadlines that detects a thread that would wait for itself.
#[derive(Debug, Default)]
pub struct HandoffMutex<T> {
    /// The mark of the thread that holds the mutex, with [`WAITED_FOR`] or without, or 0.
    ///
    /// While it has [`WAITED_FOR`], it is changed only under the lock of the queue.
    holder: AtomicUsize,
    /// The threads that wait, in the order of their arrival.
    ///
    /// Boxed, because few mutexes ever have one and an idle connection has several mutexes.
    queue: Mutex<Queue>,
    value: UnsafeCell<T>,
}

// SAFETY: a shared mutex gives access to its value to one thread at a time, which may be another thread than the one
// that created it. `Send` permits that.
unsafe impl<T: Send> Sync for HandoffMutex<T> {}

// A panic never leaves the guarded value half changed: see `crate::lock`.
impl<T> UnwindSafe for HandoffMutex<T> {}
impl<T> RefUnwindSafe for HandoffMutex<T> {}

/// `None` until a first thread waits.
type Queue = Option<Box<VecDeque<Waiter>>>;

/// A thread that waits.
#[derive(Debug)]
struct Waiter {
    mark: usize,
    /// Signaled when the thread has become the holder.
    granted: Arc<Condvar>,
}

/// Access to the value of a [`HandoffMutex`], until it is dropped.
#[derive(Debug)]
pub struct HandoffGuard<'a, T> {
    mutex: &'a HandoffMutex<T>,
    /// Makes the guard like that of the standard library.
    ///
    /// It does not leave its thread, and is shared only if the value may be.
    marker: PhantomData<MutexGuard<'a, T>>,
}

/// The thread that asks for a mutex holds it.
#[derive(Debug)]
pub struct HeldByThisThread;

impl<T> HandoffMutex<T> {
    /// Creates a mutex that is not locked.
    pub fn new(value: T) -> Self {
        Self { holder: AtomicUsize::new(0), queue: Mutex::new(None), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds the mutex.
    #[inline]
    pub fn lock(&self) -> Result<HandoffGuard<'_, T>, HeldByThisThread> {
        if let Some(guard) = self.try_lock() {
            return Ok(guard);
        }
        self.lock_slow(None)?;
        Ok(self.guard())
    }

    /// Waits until no other thread holds the mutex. Returns `None` if one still does at `deadline`.
    pub fn lock_until(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<HandoffGuard<'_, T>>, HeldByThisThread> {
        if let Some(guard) = self.try_lock() {
            return Ok(Some(guard));
        }
        let is_locked = self.lock_slow(deadline)?;
        Ok(is_locked.then(|| self.guard()))
    }

    /// Locks the mutex if no thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<HandoffGuard<'_, T>> {
        let locked =
            self.holder.compare_exchange(0, thread_mark(), Ordering::Acquire, Ordering::Relaxed);
        locked.is_ok().then(|| self.guard())
    }

    /// Returns `true` if this thread holds the mutex.
    pub fn is_held_by_this_thread(&self) -> bool {
        // Only this thread stores its mark, or takes it away.
        self.holder.load(Ordering::Relaxed) & !WAITED_FOR == thread_mark()
    }

    /// Returns the guard of this thread, which has just become the holder.
    #[inline]
    fn guard(&self) -> HandoffGuard<'_, T> {
        HandoffGuard { mutex: self, marker: PhantomData }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        ignore_poison(self.queue.lock())
    }

    /// Returns the number of threads that wait.
    #[cfg(test)]
    fn waiters(&self) -> usize {
        self.queue().as_ref().map_or(0, |queue| queue.len())
    }

    /// Waits in the queue.
    ///
    /// Returns `true` when this thread has become the holder, `false` if it has not at `deadline`.
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: Option<Instant>) -> Result<bool, HeldByThisThread> {
        if self.is_held_by_this_thread() {
            return Err(HeldByThisThread);
        }
        let queue = self.queue();
        if self.holder.fetch_or(WAITED_FOR, Ordering::Acquire) == 0 {
            // The mutex was unlocked meanwhile, and no thread waits: a thread that unlocks makes the first thread of
            // the queue the holder.
            self.holder.store(thread_mark(), Ordering::Relaxed);
            return Ok(true);
        }
        Ok(self.wait(queue, deadline))
    }

    /// Enters the queue and waits there until this thread is the holder, or until `deadline`.
    ///
    /// Returns `true` if this thread is the holder.
    fn wait(&self, mut queue: MutexGuard<'_, Queue>, deadline: Option<Instant>) -> bool {
        let (mark, granted) = (thread_mark(), Arc::new(Condvar::new()));
        queue.get_or_insert_default().push_back(Waiter { mark, granted: Arc::clone(&granted) });
        loop {
            let is_over;
            (queue, is_over) = wait_until(&granted, queue, deadline);
            if self.is_held_by_this_thread() {
                return true;
            }
            if is_over {
                let waiters = queue.get_or_insert_default();
                waiters.retain(|waiter| waiter.mark != mark);
                if waiters.is_empty() {
                    // From here on the holder unlocks without the queue, unless it is about to look into the queue.
                    self.holder.fetch_and(!WAITED_FOR, Ordering::Relaxed);
                }
                return false;
            }
        }
    }

    /// Makes the first thread of the queue the holder in place of this one.
    #[cold]
    #[inline(never)]
    fn hand_off(&self) {
        let mut queue = self.queue();
        let waiters = queue.get_or_insert_default();
        match waiters.pop_front() {
            Some(next) => self.grant(&next, !waiters.is_empty()),
            // The waiting threads have timed out.
            None => self.holder.store(0, Ordering::Release),
        }
    }

    /// Makes `next`, which has left the queue, the holder in place of this thread.
    fn grant(&self, next: &Waiter, others_wait: bool) {
        let others = if others_wait { WAITED_FOR } else { 0 };
        self.holder.store(next.mark | others, Ordering::Release);
        next.granted.notify_one();
    }
}

impl<T> HandoffGuard<'_, T> {
    /// Passes the mutex to the thread that has waited longest, if any, and locks it again in turn.
    #[inline]
    pub fn yield_to_waiter(&mut self) {
        if self.is_waited_for() {
            self.yield_slow();
        }
    }

    /// Returns `true` if other threads wait for the mutex.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.mutex.holder.load(Ordering::Relaxed) & WAITED_FOR != 0
    }

    #[cold]
    #[inline(never)]
    fn yield_slow(&mut self) {
        let mut queue = self.mutex.queue();
        if let Some(next) = queue.get_or_insert_default().pop_front() {
            // This thread waits after all others.
            self.mutex.grant(&next, true);
            self.mutex.wait(queue, None);
        }
    }

    fn at(&self) -> NonNull<u8> {
        NonNull::from(&self.mutex.value).cast()
    }
}

impl<T> Deref for HandoffGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        reads(self.at());
        // SAFETY: this thread is the holder while the guard exists, and there is only one guard. Exclusive references
        // to the value come from an exclusive borrow of the guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for HandoffGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        writes(self.at());
        // SAFETY: as in `deref`, and this is an exclusive borrow of the guard.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for HandoffGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let holder = &self.mutex.holder;
        let unlocked =
            holder.compare_exchange(thread_mark(), 0, Ordering::Release, Ordering::Relaxed);
        if unlocked.is_err() {
            self.mutex.hand_off();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests;
