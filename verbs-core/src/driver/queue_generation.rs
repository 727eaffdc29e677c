//! Steps to RESET of a queue pair whose doorbell another thread may be ringing.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicU32, pause};

/// The generation of one queue of a queue pair. The next one begins with a step to RESET.
///
/// The generation does not change while the queue rings its doorbell. So the device never takes entries of an earlier
/// generation for entries of the current one. This holds even if one thread posts while another moves the queue pair
/// to RESET and back to RTS.
///
/// The word is the number of the generation, or that number plus one while the doorbell is being rung.
#[derive(Debug, Default)]
pub(crate) struct QueueGeneration(AtomicU32);

impl QueueGeneration {
    /// The increment of the even number of the generation while the doorbell is being rung.
    const RINGS: u32 = 1;

    /// The difference between the numbers of two generations.
    pub(crate) const STEP: u32 = 2;

    /// Returns `true` if `generation` has ended. The caller must not be ringing the doorbell of the queue.
    #[inline(always)]
    pub(crate) fn has_ended(&self, generation: u32) -> bool {
        self.0.load(Ordering::Acquire) != generation
    }

    /// Keeps `generation` from ending until the guard is dropped. Returns `None` if `generation` has ended.
    ///
    /// A step to RESET waits until the guard is dropped. The thread that holds the guard may therefore take no lock
    /// except that of the register.
    #[inline(always)]
    pub(crate) fn ring(&self, generation: u32) -> Option<DoorbellGuard<'_>> {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.0
            .compare_exchange(generation, generation.wrapping_add(Self::RINGS), success, failure)
            .ok()?;
        Some(DoorbellGuard { queue: self, generation })
    }

    /// Ends the current `generation` once the doorbell is not being rung, and begins the next one.
    pub(crate) fn end(&self, generation: u32) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let next = generation.wrapping_add(Self::STEP);
        while self.0.compare_exchange(generation, next, success, failure).is_err() {
            pause();
        }
    }
}

/// Guard of a doorbell that is being rung: the generation of the queue does not end before it is dropped.
#[derive(Debug)]
pub(crate) struct DoorbellGuard<'a> {
    queue: &'a QueueGeneration,
    generation: u32,
}

impl Drop for DoorbellGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.0.store(self.generation, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_model;
