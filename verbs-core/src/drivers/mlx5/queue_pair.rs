//! The part of a queue pair that its queues and completion queues share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::completion::CqControl;
use super::memory::{Record, Word};
use super::table::Table;
use crate::lock::ignore_poison;
use crate::sync::{AtomicU32, pause};

/// The generation of one queue of a queue pair. The next one begins with a step to RESET.
///
/// The generation does not change while the queue rings its doorbell. So the device never takes entries of an earlier
/// generation for those of the current one, even if one thread posts while another moves the queue pair to RESET and back
/// to RTS.
///
/// The word is the number of the generation, or that number plus one while the queue rings.
#[derive(Debug, Default)]
pub(super) struct QueueGeneration(AtomicU32);

impl QueueGeneration {
    /// The difference between the word while the queue rings and the number of the generation, which is even.
    const RINGS: u32 = 1;

    /// The difference between the numbers of two generations.
    const STEP: u32 = 2;

    /// Returns `true` if `generation` has ended. The caller must not be ringing the queue.
    #[inline(always)]
    pub(super) fn has_ended(&self, generation: u32) -> bool {
        self.0.load(Ordering::Acquire) != generation
    }

    /// Keeps `generation` from ending until the guard is dropped. Returns `None` if `generation` has ended.
    ///
    /// A step to RESET waits until the guard is dropped. The thread that holds the guard may therefore take no lock except
    /// that of the register.
    #[inline(always)]
    pub(super) fn ring(&self, generation: u32) -> Option<DoorbellGuard<'_>> {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.0
            .compare_exchange(generation, generation.wrapping_add(Self::RINGS), success, failure)
            .ok()?;
        Some(DoorbellGuard { queue: self, generation })
    }

    /// Ends `generation`, the current one, as soon as the queue does not ring, and begins the next one.
    fn end(&self, generation: u32) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let next = generation.wrapping_add(Self::STEP);
        while self.0.compare_exchange(generation, next, success, failure).is_err() {
            pause();
        }
    }
}

/// Guard of a doorbell that is being rung: the generation of the queue does not end before it is dropped.
#[derive(Debug)]
pub(super) struct DoorbellGuard<'a> {
    queue: &'a QueueGeneration,
    generation: u32,
}

impl Drop for DoorbellGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.0.store(self.generation, Ordering::Release);
    }
}

/// The current generation of a queue pair.
#[derive(Debug)]
pub struct Current {
    pub(super) send: QueueGeneration,
    pub(super) recv: QueueGeneration,
    /// The number of the generation, and its table.
    generation: Mutex<(u32, Arc<Table>)>,
    record: Record,
}

impl Current {
    pub(super) fn new(table: Table, record: Record) -> Arc<Self> {
        let (send, recv) = (QueueGeneration::default(), QueueGeneration::default());
        Arc::new(Self { send, recv, generation: Mutex::new((0, Arc::new(table))), record })
    }

    /// Returns the number of the current generation, and its table.
    pub(super) fn get(&self) -> (u32, Arc<Table>) {
        let generation = ignore_poison(self.generation.lock());
        (generation.0, Arc::clone(&generation.1))
    }

    /// Ends the generation on the completion queues, and begins the next one.
    pub(super) fn reset(&self, cqs: &[&CqControl]) {
        let mut generation = ignore_poison(self.generation.lock());
        let (number, table) = &mut *generation;
        let next = Arc::new(table.emptied());
        for cq in cqs {
            cq.0.end(table);
            cq.0.add(&next);
        }
        *table = next;
        // From here on no thread stores a number of the earlier generation in the record.
        self.send.end(*number);
        self.recv.end(*number);
        *number = number.wrapping_add(QueueGeneration::STEP);
        self.record.store(Word::First, 0);
        self.record.store(Word::Second, 0);
    }

    /// Ends the last generation.
    pub(super) fn end(&self, cqs: &[&CqControl]) {
        let (_, table) = self.get();
        cqs.iter().for_each(|cq| cq.0.end(&table));
    }
}

/// Returns each completion queue of a queue pair once.
pub(super) fn distinct<'a>(send: &'a CqControl, recv: &'a CqControl) -> Vec<&'a CqControl> {
    match Arc::ptr_eq(&send.0, &recv.0) {
        true => vec![send],
        false => vec![send, recv],
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(test)]
mod tests;
