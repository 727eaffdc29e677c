//! Receive queues: that of a queue pair, and a shared one.
//!
//! # Safety
//!
//! Storing a request gives its memory to the device: see [`RecvOps::store`].
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::sync::Arc;

use super::geometry::ReceiveSize;
use super::memory::{Record, Ring, UNIT, Word, pair};
use super::queue_pair::Current;
use super::table::{SharedTable, Table};
use crate::driver::checks::{TOO_LONG, count, signed_length};
use crate::driver::dma::store_barrier;
use crate::driver::{CommandContext, CreateError, PostError, Posted, RecvOps};
use crate::sys::uverbs::UverbsFile;
use crate::work::{ReceiveRequest, Sge};

/// The key in the pointer that ends a list, which no region has.
const END: u32 = 0x100;

/// The posting side of a receive queue.
#[derive(Debug)]
pub struct RecvRing {
    ring: Ring,
    record: Record,
    size: ReceiveSize,
    /// The number of requests that were stored.
    requests: u32,
    entries: Entries,
}

/// The order in which entries are used.
#[derive(Debug)]
enum Entries {
    /// One after the other.
    Own { current: Arc<Current>, generation: u32, table: Arc<Table> },
    /// A list.
    Shared { table: Arc<SharedTable>, head: u16, most: u32 },
}

impl RecvRing {
    /// Takes the receive queue of a queue pair.
    pub(super) fn own(
        ring: Ring,
        record: Record,
        size: ReceiveSize,
        current: Arc<Current>,
    ) -> Self {
        let (generation, table) = current.get();
        Self {
            ring,
            record,
            size,
            requests: 0,
            entries: Entries::Own { current, generation, table },
        }
    }

    /// Takes a shared receive queue, which holds `most` requests.
    pub(super) fn shared(
        ring: Ring,
        record: Record,
        size: ReceiveSize,
        table: Arc<SharedTable>,
        most: u32,
    ) -> Self {
        Self { ring, record, size, requests: 0, entries: Entries::Shared { table, head: 0, most } }
    }

    /// Stores a request.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`RecvOps::store`].
    unsafe fn put(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        count(request.scatter, self.size.max_sge)?;
        for sge in request.scatter {
            signed_length(sge.length.into())?;
        }
        match &mut self.entries {
            Entries::Own { current, generation, table } => {
                if current.recv.has_ended(*generation) {
                    (*generation, *table) = current.get();
                    self.requests = 0;
                }
                if self.requests.wrapping_sub(table.receives_done()) >= self.size.entries {
                    return Err(PostError::Full(self.size.entries));
                }
                let index = self.requests & (self.size.entries - 1);
                let start = (index as usize) << self.size.shift;
                scatter(&mut self.ring, start, request.scatter, self.size.max_sge);
                table.post_receive(self.requests, request.wr_id);
            }
            Entries::Shared { table, head, most } => {
                let next = table.next_head(*head).ok_or(PostError::Full(*most))?;
                // Behind the link.
                let start = (usize::from(*head) << self.size.shift) + UNIT;
                scatter(&mut self.ring, start, request.scatter, self.size.max_sge);
                table.post(*head, request.wr_id);
                *head = next;
            }
        }
        self.requests = self.requests.wrapping_add(1);
        Ok(())
    }

    /// Stores the number of requests in the record, unless the generation has ended.
    #[inline(always)]
    fn ring_doorbell(&self) {
        let ringing = match &self.entries {
            Entries::Own { current, generation, .. } => match current.recv.ring(*generation) {
                // The device must not take the entries of the earlier generation.
                None => return,
                ringing => ringing,
            },
            Entries::Shared { .. } => None,
        };
        store_barrier();
        self.record.store(Word::First, self.requests & 0xffff);
        drop(ringing);
    }
}

/// Stores pointers to memory from `start` on, with an end behind them if there is room for more.
///
/// Empty ones are left out: the device takes a length of zero for 2 GiB.
#[inline(always)]
fn scatter(ring: &mut Ring, start: usize, sges: &[Sge], max_sge: u32) {
    let mut stored = 0;
    for Sge { addr, length, lkey } in sges.iter().copied().filter(|sge| sge.length > 0) {
        ring.put(start + stored as usize * UNIT, [pair(length, lkey), addr.get().to_be()]);
        stored += 1;
    }
    if stored < max_sge {
        ring.put(start + stored as usize * UNIT, [pair(0, END), 0]);
    }
}

impl RecvOps for RecvRing {
    #[inline(always)]
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(request) }
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, wr_id: u64, sge: Sge) -> bool {
        let Entries::Own { current, generation, table } = &self.entries else {
            // SAFETY: the contract of this function is that of the callee.
            let stored = unsafe { self.put(&ReceiveRequest { wr_id, scatter: &[sge] }) };
            if stored.is_ok() {
                self.ring_doorbell();
            }
            return stored.is_ok();
        };
        let has_room = self.requests.wrapping_sub(table.receives_done()) < self.size.entries;
        if current.recv.has_ended(*generation) || !has_room || sge.length >= TOO_LONG {
            return false;
        }
        let start = ((self.requests & (self.size.entries - 1)) as usize) << self.size.shift;
        self.ring.put(start, [pair(sge.length, sge.lkey), sge.addr.get().to_be()]);
        if self.size.max_sge > 1 {
            self.ring.put(start + UNIT, [pair(0, END), 0]);
        }
        table.post_receive(self.requests, wr_id);
        self.requests = self.requests.wrapping_add(1);
        self.ring_doorbell();
        true
    }

    #[inline]
    fn ring(&mut self, _: &UverbsFile, _: u32) -> Posted {
        self.ring_doorbell();
        Ok(())
    }

    fn resize(
        &mut self,
        _: CommandContext<'_>,
        _: verbs_abi::ib_uverbs_modify_srq,
    ) -> Result<(), CreateError> {
        Err(CreateError::Unsupported("resizing a shared receive queue by mlx5"))
    }
}

#[cfg(test)]
mod entry_tests;

#[cfg(test)]
mod tests {
    use super::super::memory::QueueMemory;
    use super::super::table::{Table, UserIndex};
    use super::*;

    #[test]
    fn doorbell_of_ended_generation_is_not_stored() {
        let memory = QueueMemory::new([256]).expect("memory");
        let table = Table::new(7, 0, 4, None, Arc::new(UserIndex::NONE));
        let current = Current::new(table, memory.record.clone());
        let size = ReceiveSize { entries: 4, shift: 6, max_sge: 1 };
        let [ring] = memory.rings;
        let mut queue = RecvRing::own(ring, memory.record.clone(), size, Arc::clone(&current));
        let request = ReceiveRequest { wr_id: 1, scatter: &[] };
        // SAFETY: the request has no memory.
        unsafe { queue.put(&request) }.expect("there is room");
        current.reset(&[]);
        queue.ring_doorbell();
        assert_eq!(memory.record.load(Word::First), 0);
        // SAFETY: as above.
        unsafe { queue.put(&request) }.expect("there is room");
        queue.ring_doorbell();
        assert_eq!(memory.record.load(Word::First), 1);
    }
}
