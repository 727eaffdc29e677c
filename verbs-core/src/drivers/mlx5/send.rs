//! Send queues.
//!
//! An entry has segments of whole units: control, which says what follows; the remote address, or the address of a datagram;
//! and pointers to data, or the data itself. It takes as many blocks of 64 bytes as it needs.
//!
//! # Safety
//!
//! Storing a request gives its memory to the device: see [`SendOps::store`].
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::sync::Arc;

use super::geometry::{BLOCK, SendSize};
use super::memory::{Record, Ring, UNIT, Unit, Word, pair};
use super::opcode;
use super::queue_pair::Current;
use super::registers::Register;
use super::table::{KeyChange, Table};
use super::window;
use crate::driver::checks::{check_send, count, inline, signed_length};
use crate::driver::dma::store_barrier;
use crate::driver::{Doorbell, PostError, Posted, SendOps};
use crate::work::{Payload, QpState, SendFlags, SendOperation, SendRequest, Sge};

/// Flags of the control segment.
mod control {
    pub(super) const SOLICITED: u32 = 2;
    pub(super) const COMPLETION: u32 = 8;
    pub(super) const FENCE: u32 = 4 << 5;
    /// The fence of the request that follows the change of a key.
    pub(super) const SMALL_FENCE: u32 = 1 << 5;
}

/// The bit that distinguishes inline data from the length of a pointer.
const INLINE: u32 = 1 << 31;

/// The bit of a datagram's queue pair number that says that the address has a global route.
const EXTENDED_ADDRESS: u32 = 1 << 31;

/// Units of a block.
const UNITS_PER_BLOCK: u32 = 4;

/// The options of a send queue, set when it is created.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Each request has a completion.
    pub(super) signals_all: bool,
    /// The queue pair is an XRC initiator.
    pub(super) is_initiator: bool,
}

/// The end of a send queue that is posted to.
#[derive(Debug)]
pub struct SendRing {
    ring: Ring,
    record: Record,
    register: Register,
    current: Arc<Current>,
    /// The number of lives before that of `table`.
    life: u32,
    table: Arc<Table>,
    size: SendSize,
    max_sge: u32,
    options: Options,
    /// The number of blocks that were stored.
    next: u32,
    /// The number of requests that were stored.
    requests: u32,
    /// Requests that were stored since the doorbell was last rung.
    unrung: u32,
    /// The first block of the request that was stored last, and its units.
    last: (u32, u32),
    /// The fence of the next request, if it has none of its own.
    next_fence: u32,
}

/// An entry that is being stored, from its second unit on.
struct Entry<'a> {
    ring: &'a mut Ring,
    start: usize,
    units: u32,
}

impl Entry<'_> {
    #[inline(always)]
    fn put(&mut self, unit: Unit) {
        self.ring.put(self.start + self.units as usize * UNIT, unit);
        self.units += 1;
    }

    /// Stores pointers to data. Empty ones are left out.
    #[inline(always)]
    fn gather(&mut self, pieces: &[Sge]) {
        for Sge { addr, length, lkey } in pieces.iter().copied().filter(|piece| piece.length > 0) {
            self.put([pair(length, lkey), addr.get().to_be()]);
        }
    }

    /// Stores data, with its length in front of it. No data takes no unit.
    #[inline(always)]
    fn inline(&mut self, bytes: &[u8], length: u32) {
        if length == 0 {
            return;
        }
        let (first, rest) = bytes.split_at(bytes.len().min(UNIT - 4));
        let mut unit = [0; UNIT];
        unit[..4].copy_from_slice(&(INLINE | length).to_be_bytes());
        unit[4..4 + first.len()].copy_from_slice(first);
        self.put(words(unit));
        for chunk in rest.chunks(UNIT) {
            let mut unit = [0; UNIT];
            unit[..chunk.len()].copy_from_slice(chunk);
            self.put(words(unit));
        }
    }
}

#[inline(always)]
fn words(bytes: [u8; UNIT]) -> Unit {
    zerocopy::transmute!(bytes)
}

/// The facts of an operation in the control segment.
struct Control {
    opcode: u32,
    immediate: u32,
}

impl SendRing {
    pub(super) fn new(
        ring: Ring,
        record: Record,
        register: Register,
        current: Arc<Current>,
        size: SendSize,
        max_sge: u32,
        options: Options,
    ) -> Self {
        let (life, table) = current.get();
        Self {
            ring,
            record,
            register,
            current,
            life,
            table,
            size,
            max_sge,
            options,
            next: 0,
            requests: 0,
            unrung: 0,
            last: (0, 0),
            next_fence: 0,
        }
    }

    /// Takes the table of the next life, and returns to the first block, if the queue pair was moved to RESET.
    #[inline(always)]
    fn follow_reset(&mut self) {
        if self.current.has_changed(self.life) {
            (self.life, self.table) = self.current.get();
            (self.next, self.requests, self.unrung, self.next_fence) = (0, 0, 0, 0);
        }
    }

    /// Stores a request.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendOps::store`].
    #[inline(always)]
    unsafe fn put(&mut self, state: QpState, request: &SendRequest<'_>) -> Posted {
        check_send(state)?;
        self.follow_reset();
        if self.requests.wrapping_sub(self.table.sends_done()) >= self.size.requests {
            return Err(PostError::Full(self.size.requests));
        }
        // Before anything is stored: a request that is refused leaves the blocks free.
        let inline_length = match request.payload {
            Payload::Gather(pieces) => {
                count(pieces, self.max_sge)?;
                for piece in pieces {
                    signed_length(piece.length.into())?;
                }
                0
            }
            Payload::Inline(bytes) => inline(bytes, self.size.max_inline)?,
        };
        let index = self.next & (self.size.blocks - 1);
        let start = (index * BLOCK) as usize;
        let mut entry = Entry { ring: &mut self.ring, start, units: 1 };
        let operation = match self.options.is_initiator {
            true => put_srq_number(&mut entry, &request.operation, state)?,
            false => &request.operation,
        };
        let Control { opcode, immediate } =
            put_operation(&mut entry, operation, self.table.qp_num)?;
        match request.payload {
            Payload::Gather(pieces) => entry.gather(pieces),
            Payload::Inline(bytes) => entry.inline(bytes, inline_length),
        }
        let units = entry.units;
        let mut flags = 0;
        if self.options.signals_all || request.flags.contains(SendFlags::SIGNALED) {
            flags |= control::COMPLETION;
        }
        if request.flags.contains(SendFlags::SOLICITED) {
            flags |= control::SOLICITED;
        }
        flags |= match request.flags.contains(SendFlags::FENCE) {
            true => control::FENCE,
            false => self.next_fence,
        };
        self.next_fence = match opcode {
            opcode::CHANGE_KEY => control::SMALL_FENCE,
            _ => 0,
        };
        let first = pair((self.next & 0xffff) << 8 | opcode, self.table.qp_num << 8 | units);
        self.ring.put(start, [first, pair(flags, immediate)]);
        if opcode == opcode::CHANGE_KEY {
            let is_bind = matches!(request.operation, SendOperation::BindWindow(_));
            let change = if is_bind { KeyChange::Bind } else { KeyChange::Invalidation };
            self.table.set_key_change(index, change);
        }
        self.table.post_send(index, self.requests, request.wr_id);
        self.last = (index, units);
        self.next = self.next.wrapping_add(units.div_ceil(UNITS_PER_BLOCK));
        self.requests = self.requests.wrapping_add(1);
        self.unrung += 1;
        Ok(())
    }
}

/// Stores the segment of an XRC initiator's operation that names a shared receive queue. Returns the rest of the operation.
#[cold]
fn put_srq_number<'a>(
    entry: &mut Entry<'_>,
    operation: &'a SendOperation<'a>,
    state: QpState,
) -> Posted<&'a SendOperation<'a>> {
    let (srq_number, rest) = match operation {
        SendOperation::AtSharedQueue { srq_number, operation } => (*srq_number, *operation),
        // Keys are changed here, without the peer.
        SendOperation::BindWindow(_) | SendOperation::LocalInvalidate { .. } => {
            return Ok(operation);
        }
        // The device completes a request that way, and does not carry it out.
        _ if state == QpState::IB_QPS_ERR => (0, operation),
        _ => return Err(PostError::Invalid("an XRC initiator names a shared receive queue")),
    };
    entry.put([pair(srq_number, 0), 0]);
    Ok(rest)
}

/// Stores the segments of an operation before its data.
#[inline(always)]
fn put_operation(
    entry: &mut Entry<'_>,
    operation: &SendOperation<'_>,
    qp_num: u32,
) -> Posted<Control> {
    let plain = |opcode| Control { opcode, immediate: 0 };
    Ok(match *operation {
        SendOperation::Send => plain(opcode::SEND),
        SendOperation::SendWithImm { imm_data } => {
            Control { opcode: opcode::SEND_WITH_IMMEDIATE, immediate: imm_data }
        }
        SendOperation::SendWithInvalidate { rkey } => {
            Control { opcode: opcode::SEND_WITH_INVALIDATE, immediate: rkey }
        }
        SendOperation::SendTo { destination, imm_data } => {
            let [mut first, second, third]: [Unit; 3] = destination.address.get();
            let number = destination.qp_num | EXTENDED_ADDRESS;
            first[0] = pair(destination.qkey, 0);
            // The other half of the word has the rate and the source port.
            first[1] = pair(number, 0) | first[1] & pair(0, u32::MAX);
            [first, second, third].into_iter().for_each(|unit| entry.put(unit));
            match imm_data {
                None => plain(opcode::SEND),
                Some(immediate) => Control { opcode: opcode::SEND_WITH_IMMEDIATE, immediate },
            }
        }
        SendOperation::Write { remote_addr, rkey } => {
            entry.put([remote_addr.to_be(), pair(rkey, 0)]);
            plain(opcode::WRITE)
        }
        SendOperation::WriteWithImm { remote_addr, rkey, imm_data } => {
            entry.put([remote_addr.to_be(), pair(rkey, 0)]);
            Control { opcode: opcode::WRITE_WITH_IMMEDIATE, immediate: imm_data }
        }
        SendOperation::Read { remote_addr, rkey } => {
            entry.put([remote_addr.to_be(), pair(rkey, 0)]);
            plain(opcode::READ)
        }
        SendOperation::CompareSwap { remote_addr, rkey, compare, swap } => {
            entry.put([remote_addr.to_be(), pair(rkey, 0)]);
            entry.put([swap.to_be(), compare.to_be()]);
            plain(opcode::COMPARE_SWAP)
        }
        SendOperation::FetchAdd { remote_addr, rkey, add } => {
            entry.put([remote_addr.to_be(), pair(rkey, 0)]);
            entry.put([add.to_be(), 0]);
            plain(opcode::FETCH_ADD)
        }
        SendOperation::AtSharedQueue { .. } => {
            return Err(PostError::Invalid("only an XRC initiator names a shared receive queue"));
        }
        SendOperation::AtomicWrite { .. } | SendOperation::Flush { .. } => {
            return Err(PostError::Unsupported("flush and atomic write by mlx5"));
        }
        SendOperation::BindWindow(binding) => {
            window::bind(&binding, qp_num, |unit| entry.put(unit))?;
            Control { opcode: opcode::CHANGE_KEY, immediate: binding.rkey }
        }
        SendOperation::LocalInvalidate { rkey } => {
            window::invalidate(|unit| entry.put(unit));
            Control { opcode: opcode::CHANGE_KEY, immediate: rkey }
        }
    })
}

impl SendOps for SendRing {
    unsafe fn store(
        &mut self,
        _: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(state, request) }
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(state, request) }.is_ok()
    }

    /// Stores the number of blocks in the record, and then the beginning of the last entry in the register: or the whole entry,
    /// if it is the only one and short.
    #[inline(always)]
    fn ring(&mut self, _: Doorbell<'_>) -> Posted {
        if self.unrung == 0 {
            return Ok(());
        }
        store_barrier();
        self.record.store(Word::Second, self.next & 0xffff);
        let (index, units) = self.last;
        let start = (index * BLOCK) as usize;
        let ring = &self.ring;
        if self.unrung == 1 && units > 1 && units as usize * UNIT <= self.register.copied {
            let blocks = units.div_ceil(UNITS_PER_BLOCK) as usize;
            let block = |block: usize| ring.block(start + block * BLOCK as usize);
            self.register.write((0..blocks).flat_map(block));
        } else {
            self.register.write(std::iter::once(ring.block(start)[0]));
        }
        self.unrung = 0;
        Ok(())
    }
}
