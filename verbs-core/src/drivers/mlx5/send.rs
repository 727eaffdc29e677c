//! Send queues.
//!
//! An entry has segments of whole units: control, with the operation; the remote address, or the address of a datagram;
//! and pointers to data, or the data itself. It takes as many blocks of 64 bytes as it needs.
//!
//! # Safety
//!
//! Storing a request gives its memory to the device: see [`SendOps::store`].
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::sync::Arc;

use super::geometry::{BLOCK, INLINE_HEADER, SendSize};
use super::memory::{Record, Ring, UNIT, UNITS_PER_BLOCK, Unit, Word, pair};
use super::opcode;
use super::queue_pair::Current;
use super::register::Register;
use super::table::{KeyChange, Table};
use super::window;
use crate::driver::checks::{TOO_LONG, check_send, count, inline};
use crate::driver::dma::store_barrier;
use crate::driver::{Doorbell, PostError, Posted, SendOps};
use crate::work::{Payload, QpState, SendFlags, SendOperation, SendRequest, Sge};

/// Flags of the control segment.
mod control {
    use crate::work::SendFlags;

    pub(super) const SOLICITED: u32 = 2;
    pub(super) const COMPLETION: u32 = 8;
    pub(super) const FENCE: u32 = 4 << 5;
    /// The fence of the request that follows the change of a key.
    pub(super) const SMALL_FENCE: u32 = 1 << 5;

    /// The flags for each combination of a request's flags.
    pub(super) const FLAGS: [u32; 8] = {
        let mut flags = [0; 8];
        let mut bits = 0_u32;
        while bits < 8 {
            let request = SendFlags::from_bits_truncate(bits);
            let solicited = if request.contains(SendFlags::SOLICITED) { SOLICITED } else { 0 };
            let signaled = if request.contains(SendFlags::SIGNALED) { COMPLETION } else { 0 };
            let fence = if request.contains(SendFlags::FENCE) { FENCE } else { 0 };
            flags[bits as usize] = solicited | signaled | fence;
            bits += 1;
        }
        flags
    };
}

/// The bit that distinguishes inline data from the length of a pointer.
const INLINE: u32 = 1 << 31;

/// The bit of a datagram's queue pair number that marks an address with a global route.
const EXTENDED_ADDRESS: u32 = 1 << 31;

/// The options of a send queue, set when it is created.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Flags of the control segment that each request has.
    always: u32,
    /// A mask for the units of a request without inline data: zero if it is not copied to the register.
    gathered_units: u32,
    /// `true` if the queue pair is an XRC initiator.
    is_initiator: bool,
}

impl Options {
    pub(super) fn new(signals_all: bool, is_initiator: bool, copies_inline_only: bool) -> Self {
        Self {
            always: if signals_all { control::COMPLETION } else { 0 },
            gathered_units: if copies_inline_only { 0 } else { u32::MAX },
            is_initiator,
        }
    }

    /// Returns [`SendRing::common_requests`].
    fn common_requests(self, size: SendSize, next_fence: u32) -> u32 {
        if self.is_initiator || next_fence != 0 { 0 } else { size.requests }
    }
}

/// The posting side of a send queue.
#[derive(Debug)]
pub struct SendRing {
    ring: Ring,
    record: Record,
    register: Register,
    current: Arc<Current>,
    /// The number of the generation to which `table` belongs.
    generation: u32,
    table: Arc<Table>,
    size: SendSize,
    /// One less than the number of blocks, which is a power of two.
    mask: u32,
    /// The capacity for requests that [`put_common`](Self::put_common) stores: none if the queue pair is an XRC
    /// initiator, or if the next request needs a fence.
    common_requests: u32,
    max_sge: u32,
    options: Options,
    /// The number of blocks that were stored.
    next: u32,
    /// The queue pair number, as the control segment has it.
    qp_bits: u32,
    /// The number of requests that were stored.
    requests: u32,
    /// Requests that were stored since the doorbell was last rung.
    unrung: usize,
    /// The offset of the request that was stored last, and its units if it may be copied to the register.
    last: (usize, u32),
    /// The fence of the next request, if it has none of its own.
    next_fence: u32,
}

/// An entry that is being stored, from its second unit on.
struct Entry<'a> {
    ring: &'a mut Ring,
    /// The offset behind the units that were stored.
    end: usize,
}

impl Entry<'_> {
    fn put(&mut self, unit: Unit) {
        self.ring.put(self.end, unit);
        self.end += UNIT;
    }
}

/// Stores pointers to data at `offset`. Empty ones are left out.
///
/// Returns the offset behind them, or the length of an entry that is too long.
#[inline(always)]
fn gather(ring: &mut Ring, mut offset: usize, sges: &[Sge]) -> Result<usize, u32> {
    for Sge { addr, length, lkey } in sges.iter().copied() {
        if length >= TOO_LONG {
            return Err(length);
        }
        if length > 0 {
            ring.put(offset, [pair(length, lkey), addr.get().to_be()]);
            offset += UNIT;
        }
    }
    Ok(offset)
}

/// Returns the offset behind inline data of `length` bytes that are stored at `offset`.
///
/// `offset` is a multiple of 16. Empty data takes no unit.
#[inline(always)]
fn inline_end(offset: usize, length: u32) -> usize {
    match length {
        0 => offset,
        length => (offset + INLINE_HEADER as usize + length as usize + UNIT - 1) & !(UNIT - 1),
    }
}

/// Stores data at `offset`, a multiple of 16, with its length in front of it.
#[inline(never)]
fn put_inline(ring: &mut Ring, offset: usize, bytes: &[u8]) {
    #[expect(clippy::cast_possible_truncation, reason = "the length is at most that of a queue")]
    let header = (INLINE | bytes.len() as u32).to_be_bytes();
    if !bytes.is_empty() {
        ring.put_bytes(offset, header, bytes);
    }
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
        let (generation, table) = current.get();
        let qp_bits = table.qp_num << 8;
        Self {
            ring,
            record,
            register,
            current,
            generation,
            table,
            size,
            mask: size.blocks.wrapping_sub(1),
            common_requests: options.common_requests(size, 0),
            max_sge,
            options,
            next: 0,
            qp_bits,
            requests: 0,
            unrung: 0,
            last: (0, 0),
            next_fence: 0,
        }
    }

    /// Switches to the current generation if the queue pair was moved to RESET.
    ///
    /// Takes the table of the generation, and returns to the first block.
    #[inline(always)]
    fn follow_reset(&mut self) {
        if self.current.send.has_ended(self.generation) {
            (self.generation, self.table) = self.current.get();
            (self.next, self.requests, self.unrung) = (0, 0, 0);
            self.set_next_fence(0);
        }
    }

    fn set_next_fence(&mut self, fence: u32) {
        self.next_fence = fence;
        self.common_requests = self.options.common_requests(self.size, fence);
    }

    /// Stores a request of the frequent operations with memory, in few instructions.
    ///
    /// Returns `false`, and stores nothing that the device sees, for other requests and for those that are refused.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendOps::store`].
    #[inline(always)]
    unsafe fn put_common(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        let has_room = self.requests.wrapping_sub(self.table.sends_done()) < self.common_requests;
        if check_send(state).is_err() || self.current.send.has_ended(self.generation) || !has_room {
            return false;
        }
        let index = self.next & self.mask;
        let start = (index * BLOCK) as usize;
        let stored = put_frequent(&mut self.ring, start + UNIT, &request.operation);
        let Some((control, end)) = stored else { return false };
        match request.payload {
            Payload::Gather(sges) => {
                if sges.len() > self.max_sge as usize {
                    return false;
                }
                let Ok(end) = gather(&mut self.ring, end, sges) else { return false };
                self.finish(request, &control, 0, index, end);
            }
            Payload::Inline(bytes) => {
                let Ok(length) = inline(bytes, self.size.max_inline) else { return false };
                self.finish(request, &control, 0, index, inline_end(end, length));
                // A call at the end needs no registers to be kept.
                put_inline(&mut self.ring, end, bytes);
            }
        }
        true
    }

    /// Stores the control segment of the entry from block `index` to `end`, and records the request.
    ///
    /// `end` is an offset. `fence` is the flag of a fence that the request does not have itself, or 0.
    #[inline(always)]
    fn finish(
        &mut self,
        request: &SendRequest<'_>,
        control: &Control,
        fence: u32,
        index: u32,
        end: usize,
    ) {
        let Control { opcode, immediate } = *control;
        let start = (index * BLOCK) as usize;
        #[expect(clippy::cast_possible_truncation, reason = "an entry has at most 63 units")]
        let units = ((end - start) / UNIT) as u32;
        let flags = control::FLAGS[(request.flags.bits() & 7) as usize];
        let flags = flags | self.options.always | fence;
        let first = pair((self.next & 0xffff) << 8 | opcode, self.qp_bits | units);
        self.ring.put(start, [first, pair(flags, immediate)]);
        self.table.post_send(index, self.requests, request.wr_id);
        let copied_units = match request.payload {
            Payload::Gather(_) => units & self.options.gathered_units,
            Payload::Inline(_) => units,
        };
        self.last = (start, copied_units);
        #[expect(clippy::manual_div_ceil, reason = "`div_ceil` takes more instructions")]
        let blocks = (units + UNITS_PER_BLOCK - 1) / UNITS_PER_BLOCK;
        self.next = self.next.wrapping_add(blocks);
        self.requests = self.requests.wrapping_add(1);
        self.unrung += 1;
    }

    /// Stores a request.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendOps::store`].
    unsafe fn put(&mut self, state: QpState, request: &SendRequest<'_>) -> Posted {
        check_send(state)?;
        self.follow_reset();
        if self.requests.wrapping_sub(self.table.sends_done()) >= self.size.requests {
            return Err(PostError::Full(self.size.requests));
        }
        // A request that is refused from here on leaves its blocks free, because only `finish` takes them.
        let index = self.next & self.mask;
        let start = (index * BLOCK) as usize;
        let mut entry = Entry { ring: &mut self.ring, end: start + UNIT };
        let operation = match self.options.is_initiator {
            true => put_srq_number(&mut entry, &request.operation, state)?,
            false => &request.operation,
        };
        let control = put_operation(&mut entry, operation, self.table.qp_num)?;
        let Entry { ring, end } = entry;
        let end = match request.payload {
            Payload::Gather(sges) => {
                count(sges, self.max_sge)?;
                gather(ring, end, sges).map_err(|length| PostError::Long(length.into()))?
            }
            Payload::Inline(bytes) => {
                let length = inline(bytes, self.size.max_inline)?;
                put_inline(ring, end, bytes);
                inline_end(end, length)
            }
        };
        let fence = match request.flags.contains(SendFlags::FENCE) {
            true => 0,
            false => self.next_fence,
        };
        self.set_next_fence(0);
        self.finish(request, &control, fence, index, end);
        if control.opcode == opcode::CHANGE_KEY {
            let is_bind = matches!(operation, SendOperation::BindWindow(_));
            let change = if is_bind { KeyChange::Bind } else { KeyChange::Invalidation };
            self.table.set_key_change(index, change);
            self.set_next_fence(control::SMALL_FENCE);
        }
        Ok(())
    }

    /// Stores the number of blocks in the record, and then the doorbell in the register.
    ///
    /// The doorbell is the beginning of the last entry, or the whole entry if it is the only one and short.
    #[inline(always)]
    fn ring_doorbell(&mut self) {
        if self.unrung == 0 {
            return;
        }
        // After a step to RESET, the device must not read the entries of the earlier generation.
        let Some(_ringing) = self.current.send.ring(self.generation) else { return };
        store_barrier();
        self.record.store(Word::Second, self.next & 0xffff);
        let (start, units) = self.last;
        self.register.ring(&self.ring, start, units, self.unrung == 1);
        self.unrung = 0;
    }
}

/// Stores the segment of an XRC initiator's operation that names a shared receive queue.
///
/// Returns the rest of the operation.
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
        // In ERR the device completes a request with the number 0, and does not execute it.
        _ if state == QpState::IB_QPS_ERR => (0, operation),
        _ => {
            return Err(PostError::Invalid(
                "an XRC initiator has to name a shared receive queue: use `AtSharedQueue`",
            ));
        }
    };
    entry.put([pair(srq_number, 0), 0]);
    Ok(rest)
}

/// Returns the segment that names memory of the peer.
#[inline(always)]
fn remote(remote_addr: u64, rkey: u32) -> Unit {
    [remote_addr.to_be(), pair(rkey, 0)]
}

/// Stores the segment of a frequent operation before its data at `offset`.
///
/// Returns the facts of the operation and the offset behind the segment, or `None` if the operation is another one.
#[inline(always)]
fn put_frequent(
    ring: &mut Ring,
    offset: usize,
    operation: &SendOperation<'_>,
) -> Option<(Control, usize)> {
    match *operation {
        SendOperation::Send => Some((Control { opcode: opcode::SEND, immediate: 0 }, offset)),
        SendOperation::Write { remote_addr, rkey } => {
            ring.put(offset, remote(remote_addr, rkey));
            Some((Control { opcode: opcode::WRITE, immediate: 0 }, offset + UNIT))
        }
        _ => put_less_frequent(ring, offset, operation),
    }
}

/// Stores the segment of a frequent operation other than a send and a write.
///
/// It is a separate function, so that `put_frequent` finds sends and writes by comparisons. These take fewer
/// instructions than a table of branches.
#[inline(never)]
fn put_less_frequent(
    ring: &mut Ring,
    offset: usize,
    operation: &SendOperation<'_>,
) -> Option<(Control, usize)> {
    let (opcode, immediate, segment) = match *operation {
        SendOperation::SendWithImm { imm_data } => (opcode::SEND_WITH_IMMEDIATE, imm_data, None),
        SendOperation::WriteWithImm { remote_addr, rkey, imm_data } => {
            (opcode::WRITE_WITH_IMMEDIATE, imm_data, Some(remote(remote_addr, rkey)))
        }
        SendOperation::Read { remote_addr, rkey } => {
            (opcode::READ, 0, Some(remote(remote_addr, rkey)))
        }
        _ => return None,
    };
    let end = match segment {
        None => offset,
        Some(unit) => {
            ring.put(offset, unit);
            offset + UNIT
        }
    };
    Some((Control { opcode, immediate }, end))
}

/// Stores the segments of an operation before its data.
fn put_operation(
    entry: &mut Entry<'_>,
    operation: &SendOperation<'_>,
    qp_num: u32,
) -> Posted<Control> {
    let plain = |opcode| Control { opcode, immediate: 0 };
    Ok(match *operation {
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
        SendOperation::CompareSwap { remote_addr, rkey, compare, swap } => {
            entry.put(remote(remote_addr, rkey));
            entry.put([swap.to_be(), compare.to_be()]);
            plain(opcode::COMPARE_SWAP)
        }
        SendOperation::FetchAdd { remote_addr, rkey, add } => {
            entry.put(remote(remote_addr, rkey));
            entry.put([add.to_be(), 0]);
            plain(opcode::FETCH_ADD)
        }
        SendOperation::Send
        | SendOperation::SendWithImm { .. }
        | SendOperation::Write { .. }
        | SendOperation::WriteWithImm { .. }
        | SendOperation::Read { .. } => {
            let Some((control, end)) = put_frequent(entry.ring, entry.end, operation) else {
                return Err(PostError::Unsupported("this operation by mlx5"));
            };
            entry.end = end;
            control
        }
        SendOperation::AtSharedQueue { .. } => {
            return Err(PostError::Invalid("only XRC initiators support `AtSharedQueue`"));
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
        unsafe { self.put_common(state, request) }
    }

    #[inline(always)]
    fn ring(&mut self, _: Doorbell<'_>) -> Posted {
        self.ring_doorbell();
        Ok(())
    }
}

#[cfg(test)]
mod entry_tests;

#[cfg(test)]
mod tests;
