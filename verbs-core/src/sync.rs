//! Atomics, locks and threads of the protocols that loom checks.
//!
//! These protocols are the rings that the kernel shares, and the count of events.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p verbs-core -p rdmacm --lib loom_` runs the modules named `loom_model`, with
//! loom's types instead of the standard library's. Loom runs the models in every order that it supports, which
//! includes most of the orders that the memory model of the language allows. A processor that keeps stores in order
//! does not show all of these orders. Models with too many threads for every order (`check_bounded`) run in the
//! orders with few interruptions.

mod handoff_mutex;
#[cfg(loom)]
mod modeled;

#[cfg(not(loom))]
mod real {
    pub use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub use std::sync::{Condvar, Mutex, MutexGuard};
    pub use std::thread;

    use std::ptr::{self, NonNull};
    use std::time::{Duration, Instant};

    use crate::lock::ignore_poison;

    /// Returns an even number other than zero that no other running thread has.
    #[inline]
    pub fn thread_mark() -> usize {
        // The address of a thread-local value.
        thread_local! { static MARK: u16 = const { 0 } }
        MARK.with(|mark| ptr::from_ref(mark).addr())
    }

    /// Waits until `condvar` is notified, or until `deadline`.
    ///
    /// Returns the guard, and `true` if the deadline has passed.
    pub fn wait_until<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        let Some(deadline) = deadline else { return (ignore_poison(condvar.wait(guard)), false) };
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return (guard, true);
        }
        let (guard, _) = ignore_poison(condvar.wait_timeout(guard, rest));
        (guard, false)
    }

    /// Sleeps for 10 µs, so that a thread with a lower priority can run.
    pub fn pause() {
        thread::sleep(Duration::from_micros(10));
    }

    /// Reports a read of the element at this address to loom.
    #[inline(always)]
    pub fn reads(_: NonNull<u8>) {}

    /// Reports a write to the element at this address to loom.
    #[inline(always)]
    pub fn writes(_: NonNull<u8>) {}
}

pub use self::handoff_mutex::{HandoffGuard, HandoffMutex, HeldByThisThread};
#[cfg(loom)]
pub use self::modeled::*;
#[cfg(not(loom))]
pub use self::real::*;
