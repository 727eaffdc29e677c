//! Tables of identifiers: a post stores the identifier of its request, and the completion finds it.
//!
//! A queue pair has one table for each of its generations. A generation begins with the creation of the queue pair or
//! a step to RESET, and ends with the next such step or the destruction. So a completion of an earlier generation
//! never names a request of a later one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::Links;
use crate::lock::ignore_poison;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Mutex};
use crate::sys::process::Process;

/// The request number of a block at which no request has begun.
///
/// It precedes the first number, so no completion matches it before nearly all 2^32 numbers were used. After that, only
/// a faulty device names such a block; the poll then returns a request that was not posted.
const BEFORE_FIRST: u32 = u32::MAX;

/// A block of a send queue at which a request may begin.
#[derive(Debug)]
struct Block {
    wr_id: AtomicU64,
    /// The number of the request among those of its table.
    number: AtomicU32,
    /// A [`KeyChange`], if the operation of the request is one.
    key_change: AtomicU8,
}

/// The operation of a request that changes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyChange {
    Bind,
    Invalidation,
}

/// The identifiers of the requests of a queue pair.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) qp_num: u32,
    blocks: Box<[Block]>,
    /// The number of the request that follows those that have completed.
    sends_done: AtomicU32,
    receives: Box<[AtomicU64]>,
    receives_posted: AtomicU32,
    receives_done: AtomicU32,
    /// The shared receive queue, if the queue pair has one.
    pub(super) srq: Option<Arc<SharedTable>>,
    /// The index is free again when no table has it.
    pub(super) user_index: Arc<UserIndex>,
}

impl Table {
    /// Creates the table of a queue pair with `blocks` blocks and `receives` receives.
    ///
    /// Each number is a power of two or zero.
    pub(super) fn new(
        qp_num: u32,
        blocks: u32,
        receives: u32,
        srq: Option<Arc<SharedTable>>,
        user_index: Arc<UserIndex>,
    ) -> Self {
        let block = || Block {
            wr_id: AtomicU64::new(0),
            number: AtomicU32::new(BEFORE_FIRST),
            key_change: AtomicU8::new(0),
        };
        Self {
            qp_num,
            blocks: (0..blocks).map(|_| block()).collect(),
            sends_done: AtomicU32::new(0),
            receives: (0..receives).map(|_| AtomicU64::new(0)).collect(),
            receives_posted: AtomicU32::new(0),
            receives_done: AtomicU32::new(0),
            srq,
            user_index,
        }
    }

    /// The queue pair number in the table of a shared receive queue.
    pub(super) const NO_QP: u32 = 0;

    /// Creates the table of a shared receive queue whose completions name no queue pair of this process.
    pub(super) fn of_shared(srq: Arc<SharedTable>, user_index: Arc<UserIndex>) -> Self {
        Self::new(Self::NO_QP, 0, 0, Some(srq), user_index)
    }

    /// Returns an empty table for the next generation of the queue pair.
    pub(super) fn emptied(&self) -> Self {
        let count = |length: usize| u32::try_from(length).expect("the length was made of 32 bits");
        let (blocks, receives) = (count(self.blocks.len()), count(self.receives.len()));
        Self::new(self.qp_num, blocks, receives, self.srq.clone(), Arc::clone(&self.user_index))
    }

    /// Returns the number of the first send that has not completed.
    #[inline(always)]
    pub(super) fn sends_done(&self) -> u32 {
        self.sends_done.load(Ordering::Acquire)
    }

    /// Records the send number `number`, which begins at block `index`.
    #[inline(always)]
    pub(super) fn post_send(&self, index: u32, number: u32, wr_id: u64) {
        let Some(block) = self.blocks.get(index as usize) else { return };
        block.wr_id.store(wr_id, Ordering::Relaxed);
        block.number.store(number, Ordering::Relaxed);
    }

    /// Records which change of a key the request that begins at block `index` is.
    pub(super) fn set_key_change(&self, index: u32, change: KeyChange) {
        let Some(block) = self.blocks.get(index as usize) else { return };
        block.key_change.store(u8::from(change == KeyChange::Invalidation), Ordering::Relaxed);
    }

    /// Returns which change of a key the request that begins at block `index` is.
    pub(super) fn key_change(&self, index: u16) -> KeyChange {
        let mask = self.blocks.len().wrapping_sub(1);
        let block = self.blocks.get(usize::from(index) & mask);
        match block.map_or(0, |block| block.key_change.load(Ordering::Relaxed)) {
            0 => KeyChange::Bind,
            _ => KeyChange::Invalidation,
        }
    }

    /// Completes the send that begins at block `index`, with all sends before it.
    ///
    /// Returns `None` if none begins there.
    #[inline(always)]
    pub(super) fn complete_send(&self, index: u16) -> Option<u64> {
        let mask = self.blocks.len().wrapping_sub(1);
        let block = self.blocks.get(usize::from(index) & mask)?;
        let number = block.number.load(Ordering::Relaxed);
        let done = self.sends_done.load(Ordering::Relaxed);
        // An earlier number is that of a request that has completed.
        if number.wrapping_sub(done) > u32::from(u16::MAX) {
            return None;
        }
        let wr_id = block.wr_id.load(Ordering::Relaxed);
        self.sends_done.store(number.wrapping_add(1), Ordering::Release);
        Some(wr_id)
    }

    /// Returns the number of receives that have completed.
    #[inline(always)]
    pub(super) fn receives_done(&self) -> u32 {
        self.receives_done.load(Ordering::Acquire)
    }

    /// Records the receive number `number`.
    #[inline(always)]
    pub(super) fn post_receive(&self, number: u32, wr_id: u64) {
        let mask = self.receives.len().wrapping_sub(1);
        let Some(receive) = self.receives.get(number as usize & mask) else { return };
        receive.store(wr_id, Ordering::Relaxed);
        self.receives_posted.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Completes the first receive that has not completed. Returns `None` if there is none.
    #[inline(always)]
    pub(super) fn complete_receive(&self) -> Option<u64> {
        let done = self.receives_done.load(Ordering::Relaxed);
        if done == self.receives_posted.load(Ordering::Acquire) {
            return None;
        }
        let mask = self.receives.len().wrapping_sub(1);
        let wr_id = self.receives.get(done as usize & mask)?.load(Ordering::Relaxed);
        self.receives_done.store(done.wrapping_add(1), Ordering::Release);
        Some(wr_id)
    }
}

/// The entries of a shared receive queue: a list, from which posts take entries at its head, and to whose tail
/// completions return them.
#[derive(Debug)]
pub(super) struct SharedTable {
    links: Links,
    entries: Box<[SharedEntry]>,
    /// The last entry of the list, which stays in it.
    tail: AtomicU32,
    /// Held while an entry is returned: several completion queues may complete receives.
    returning: Mutex<()>,
}

#[derive(Debug)]
struct SharedEntry {
    wr_id: AtomicU64,
    is_posted: AtomicU8,
}

impl SharedTable {
    /// Creates the table of a queue with `entries` entries, and links the first `listed` of them.
    pub(super) fn new(links: Links, entries: u32, listed: u32) -> Self {
        let index = |index: u32| u16::try_from(index).expect("there are at most 65536 entries");
        for at in 0..listed.saturating_sub(1) {
            links.set_next(index(at), index(at + 1));
        }
        let entry = || SharedEntry { wr_id: AtomicU64::new(0), is_posted: AtomicU8::new(0) };
        Self {
            links,
            entries: (0..entries).map(|_| entry()).collect(),
            tail: AtomicU32::new(listed.saturating_sub(1)),
            returning: Mutex::new(()),
        }
    }

    /// Returns the entry that becomes the head after `head`, or `None` if `head` is the last one.
    #[inline(always)]
    pub(super) fn next_head(&self, head: u16) -> Option<u16> {
        let is_last = u32::from(head) == self.tail.load(Ordering::Acquire);
        (!is_last).then(|| self.links.next(head))
    }

    /// Records the receive that is posted in the entry `index`.
    #[inline(always)]
    pub(super) fn post(&self, index: u16, wr_id: u64) {
        let Some(entry) = self.entries.get(usize::from(index)) else { return };
        entry.wr_id.store(wr_id, Ordering::Relaxed);
        entry.is_posted.store(1, Ordering::Release);
    }

    /// Completes the receive in the entry `index`, and returns the entry to the list.
    ///
    /// Returns `None` if none is posted there.
    pub(super) fn complete(&self, index: u16) -> Option<u64> {
        let entry = self.entries.get(usize::from(index))?;
        let _returning = ignore_poison(self.returning.lock());
        if entry.is_posted.load(Ordering::Acquire) == 0 {
            return None;
        }
        let wr_id = entry.wr_id.load(Ordering::Relaxed);
        entry.is_posted.store(0, Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        self.links.set_next(u16::try_from(tail).expect("an entry has 16 bits"), index);
        self.tail.store(u32::from(index), Ordering::Release);
        Some(wr_id)
    }
}

/// The user indices of a context that are not in use.
#[derive(Debug)]
pub(super) struct UserIndices {
    free: Mutex<Free>,
    /// The process that opened the device.
    process: Process,
}

#[derive(Debug, Default)]
struct Free {
    /// Every index from here on is free.
    from: u32,
    /// Free indices below `from`.
    below: BTreeSet<u32>,
}

/// The kernel's value for no index. Valid indices are smaller.
pub(super) const NO_INDEX: u32 = 0xff_ffff;

impl UserIndices {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(Free::default()), process: Process::current() })
    }

    /// Takes the lowest free index. Returns `None` if there is none.
    pub(super) fn take(self: &Arc<Self>) -> Option<UserIndex> {
        let mut free = ignore_poison(self.free.lock());
        let index = match free.below.pop_first() {
            Some(index) => index,
            None if free.from == NO_INDEX => return None,
            None => {
                free.from += 1;
                free.from - 1
            }
        };
        Some(UserIndex { index, owner: Some(Arc::clone(self)) })
    }
}

/// A user index that is in use: the number by which completions name a queue pair.
#[derive(Debug)]
pub(super) struct UserIndex {
    pub(super) index: u32,
    owner: Option<Arc<UserIndices>>,
}

impl UserIndex {
    /// The index of queue pairs whose completions name them by queue pair number.
    pub(super) const NONE: Self = Self { index: NO_INDEX, owner: None };
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        // In a forked child, the lock may never be released: the thread that held it exists only in the parent.
        if let Some(owner) = self.owner.as_ref().filter(|owner| owner.process.is_current()) {
            ignore_poison(owner.free.lock()).below.insert(self.index);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(test)]
mod tests;
