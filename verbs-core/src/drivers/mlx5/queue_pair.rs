//! The part of a queue pair that its queues and completion queues share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::completion::CqControl;
use super::memory::{Record, Word};
use super::table::Table;
use crate::lock::ignore_poison;
use crate::sync::AtomicU32;

/// The current life of a queue pair.
#[derive(Debug)]
pub struct Current {
    /// The number of lives before this one.
    life: AtomicU32,
    table: Mutex<Arc<Table>>,
    record: Record,
}

impl Current {
    pub(super) fn new(table: Table, record: Record) -> Arc<Self> {
        let (life, table) = (AtomicU32::new(0), Mutex::new(Arc::new(table)));
        Arc::new(Self { life, table, record })
    }

    /// Returns `true` if `life` is not the current life any more.
    #[inline(always)]
    pub(super) fn has_changed(&self, life: u32) -> bool {
        self.life.load(Ordering::Acquire) != life
    }

    /// Returns the number of lives before the current one, and the current table.
    pub(super) fn get(&self) -> (u32, Arc<Table>) {
        let table = ignore_poison(self.table.lock());
        (self.life.load(Ordering::Acquire), Arc::clone(&table))
    }

    /// Ends the life on the completion queues, and begins the next one.
    pub(super) fn reset(&self, cqs: &[&CqControl]) {
        let mut table = ignore_poison(self.table.lock());
        let next = Arc::new(table.emptied());
        for cq in cqs {
            cq.0.end(&table);
            cq.0.add(&next);
        }
        *table = next;
        // A post that has seen the change stores nothing in the record.
        self.life.fetch_add(1, Ordering::AcqRel);
        self.record.store(Word::First, 0);
        self.record.store(Word::Second, 0);
    }

    /// Ends the last life.
    pub(super) fn end(&self, cqs: &[&CqControl]) {
        let table = ignore_poison(self.table.lock());
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
