//! The part of a queue pair that its queues and completion queues share.

use std::sync::{Arc, Mutex};

use super::completion::CqControl;
use super::memory::{Record, Word};
use super::table::Table;
use crate::driver::queue_generation::QueueGeneration;
use crate::lock::ignore_poison;

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

#[cfg(test)]
mod tests;
