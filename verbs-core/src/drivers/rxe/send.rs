//! The producer's end of a send queue of rxe.
//!
//! # Safety
//!
//! See [`driver`](crate::driver). Storing a request is unsafe, because it gives memory to the
//! device.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::mem::offset_of;

use nix::errno::Errno;
use verbs_abi::rxe::{
    mminfo, rxe_dma_info, rxe_send_wqe, rxe_send_wr_atomic, rxe_send_wr_flush, rxe_send_wr_mw,
    rxe_send_wr_rdma, rxe_send_wr_ud,
};
use verbs_abi::{
    AlignedU64, ib_send_flags, ib_uverbs_create_qp_resp,
    ib_uverbs_device_cap_flags as Capabilities, ib_uverbs_ex_query_device,
    ib_uverbs_wr_opcode as Opcode,
};

use super::queue::{Queue, Slot, sges_len};
use crate::driver::checks::{TOO_LONG, check_send, count, inline, signed_length};
use crate::driver::{Doorbell, PostError, Posted, SendOps};
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{Payload, QpState, QpType, SendOperation, SendRequest, Sge};

/// The producer's end of a send queue.
///
/// The scatter/gather entries or the inline data of an element follow it.
#[derive(Debug)]
pub struct SendRing {
    queue: Queue<rxe_send_wqe>,
    qp_type: QpType,
    max_sge: u32,
    /// The smallest length of a single entry that the fast path does not store.
    ///
    /// It is 0 if the queue takes no entry.
    too_long: u32,
    max_inline: u32,
    /// The operations that the kernel knows, once it was asked.
    capabilities: Option<Capabilities>,
    /// `true` if a request was stored since the last doorbell.
    owes_doorbell: bool,
}

/// The bytes of an atomic write, which an element carries in itself.
const ATOMIC: u32 = 8;

impl SendRing {
    /// Maps the ring that `info` describes, for the queue pair of `response`.
    pub(super) fn map(
        file: &UverbsFile,
        info: &mminfo,
        qp_type: QpType,
        response: &ib_uverbs_create_qp_resp,
    ) -> Result<Self, Errno> {
        let (max_sge, max_inline) = (response.max_send_sge, response.max_inline_data);
        let payload = sges_len(max_sge).max(max_inline.max(ATOMIC) as usize);
        let queue = Queue::map(file, info, payload, None)?;
        let too_long = if max_sge == 0 { 0 } else { TOO_LONG };
        Ok(Self {
            queue,
            qp_type,
            max_sge,
            too_long,
            max_inline,
            capabilities: None,
            owes_doorbell: false,
        })
    }

    /// Returns the mapping of the ring.
    pub(super) fn mapping(&mut self) -> &mut Mapping {
        self.queue.mapping()
    }

    /// Returns the number of requests that the ring holds.
    pub(super) fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    /// Asks the kernel which operations its driver knows, unless it was asked before.
    ///
    /// An older driver would end the queue pair at an unknown operation.
    #[cold]
    fn ask_kernel(&mut self, file: &UverbsFile) -> Posted {
        if self.capabilities.is_none() {
            let answer = file.command(ib_uverbs_ex_query_device::default());
            let answer =
                answer.map_err(|refused| PostError::PartiallyPosted { refused, unposted: 1 })?;
            let flags = answer.device_cap_flags_ex.get();
            self.capabilities = Some(Capabilities::from_bits_retain(flags));
        }
        Ok(())
    }

    /// Stores a request that the kernel is known to understand.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](SendOps::store).
    #[inline(always)]
    unsafe fn put(&mut self, state: QpState, request: &SendRequest<'_>) -> Posted {
        // The doorbell would return this error too, but only after the request is irrevocably in the ring.
        check_send(state)?;
        let mut slot = self.queue.free_slot()?;
        // The fields that only the kernel uses are zero, as it expects of a new request.
        slot.clear();
        let mut flags = ib_send_flags::from_bits_retain(request.flags.bits());
        let (carried, num_sge) = match request.payload {
            Payload::Gather(sges) => {
                let num_sge = count(sges, self.max_sge)?;
                (signed_length(slot.append_sges(sges))?, num_sge)
            }
            Payload::Inline(bytes) => {
                let carried = inline(bytes, self.max_inline)?;
                slot.append(bytes);
                flags |= ib_send_flags::IB_SEND_INLINE;
                (carried, 0)
            }
        };
        let known = self.capabilities.unwrap_or_default();
        let length = put(&mut slot, self.qp_type, known, &request.operation, carried)?;
        finish(slot, request.wr_id, flags, length, num_sge);
        self.owes_doorbell = true;
        Ok(())
    }

    /// Stores a request that the fast path does not support. Returns `true` if it was stored.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](SendOps::store).
    #[inline(never)]
    unsafe fn try_store_other(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(state, request) }.is_ok()
    }
}

impl SendOps for SendRing {
    unsafe fn store(
        &mut self,
        at: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        if let SendOperation::AtomicWrite { .. } | SendOperation::Flush { .. } = request.operation {
            self.ask_kernel(at.file)?;
        }
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(state, request) }
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        let Some(what) = Plain::of(&request.operation) else {
            // SAFETY: the contract of this function is that of the callee.
            return unsafe { self.try_store_other(state, request) };
        };
        let Ok(mut slot) = self.queue.free_slot() else { return false };
        if check_send(state).is_err() {
            return false;
        }
        // These stores precede the payload, so that no register keeps the values. If the fast path ends below, the
        // slot is filled again.
        slot.clear();
        what.put(&mut slot);
        let mut flags = ib_send_flags::from_bits_retain(request.flags.bits());
        let (length, num_sge) = match request.payload {
            Payload::Gather(&[Sge { addr, length, lkey }]) if length < self.too_long => {
                slot.append_sges(&[Sge { addr, length, lkey }]);
                (length, 1)
            }
            Payload::Inline(bytes) => match inline(bytes, self.max_inline) {
                Ok(length) if slot.append_if_short(bytes) => {
                    flags |= ib_send_flags::IB_SEND_INLINE;
                    (length, 0)
                }
                // SAFETY: as above.
                _ => return unsafe { self.try_store_other(state, request) },
            },
            // SAFETY: as above.
            Payload::Gather(_) => return unsafe { self.try_store_other(state, request) },
        };
        finish(slot, request.wr_id, flags, length, num_sge);
        self.owes_doorbell = true;
        true
    }

    /// Rings the doorbell for the stored requests: POST_SEND without requests.
    #[inline(always)]
    fn ring(&mut self, at: Doorbell<'_>) -> Posted {
        if self.owes_doorbell {
            at.command().map_err(PostError::Command)?;
            self.owes_doorbell = false;
        }
        Ok(())
    }
}

/// The fields of an element for an operation that moves a message and nothing else.
struct Plain {
    opcode: Opcode,
    remote_addr: u64,
    rkey: u32,
}

impl Plain {
    /// Returns the fields for `operation`, if it is such an operation.
    #[inline(always)]
    fn of(operation: &SendOperation<'_>) -> Option<Self> {
        match *operation {
            SendOperation::Send => Some(Self::SEND),
            SendOperation::Write { remote_addr, rkey } => Some(Self::write(remote_addr, rkey)),
            SendOperation::Read { remote_addr, rkey } => Some(Self::read(remote_addr, rkey)),
            _ => None,
        }
    }

    const SEND: Self = Self { opcode: Opcode::IB_UVERBS_WR_SEND, remote_addr: 0, rkey: 0 };

    #[inline(always)]
    fn write(remote_addr: u64, rkey: u32) -> Self {
        Self { opcode: Opcode::IB_UVERBS_WR_RDMA_WRITE, remote_addr, rkey }
    }

    #[inline(always)]
    fn read(remote_addr: u64, rkey: u32) -> Self {
        Self { opcode: Opcode::IB_UVERBS_WR_RDMA_READ, remote_addr, rkey }
    }

    #[inline(always)]
    fn put(self, slot: &mut Slot<'_, rxe_send_wqe>) {
        put_remote(slot, self.opcode, self.remote_addr, self.rkey);
    }
}

/// Stores the rest of an element, of a message of `length` bytes, and passes it on.
#[inline(always)]
fn finish(
    mut slot: Slot<'_, rxe_send_wqe>,
    wr_id: u64,
    flags: ib_send_flags,
    length: u32,
    num_sge: u32,
) {
    slot.put(offset_of!(rxe_send_wqe, wr.wr_id), &AlignedU64::new(wr_id));
    slot.put(offset_of!(rxe_send_wqe, wr.send_flags), &flags);
    let dma = rxe_dma_info { length, resid: length, num_sge, ..rxe_dma_info::default() };
    slot.put(offset_of!(rxe_send_wqe, dma), &dma);
    slot.publish();
}

/// Stores the fields of `operation` into an element, and returns the number of bytes that it names.
///
/// The queue pair has type `qp_type`, and the request carries `carried` bytes.
fn put(
    slot: &mut Slot<'_, rxe_send_wqe>,
    qp_type: QpType,
    known: Capabilities,
    operation: &SendOperation<'_>,
    carried: u32,
) -> Posted<u32> {
    match *operation {
        SendOperation::Send => Plain::SEND.put(slot),
        SendOperation::Write { remote_addr, rkey } => Plain::write(remote_addr, rkey).put(slot),
        SendOperation::Read { remote_addr, rkey } => Plain::read(remote_addr, rkey).put(slot),
        SendOperation::SendWithImm { imm_data } => {
            put_opcode(slot, Opcode::IB_UVERBS_WR_SEND_WITH_IMM);
            slot.put(EX, &imm_data.to_be_bytes());
        }
        SendOperation::SendWithInvalidate { rkey } => {
            check_invalidation(qp_type)?;
            put_opcode(slot, Opcode::IB_UVERBS_WR_SEND_WITH_INV);
            slot.put(EX, &rkey);
        }
        SendOperation::SendTo { destination, imm_data } => {
            put_opcode(slot, Opcode::IB_UVERBS_WR_SEND);
            if let Some(imm_data) = imm_data {
                put_opcode(slot, Opcode::IB_UVERBS_WR_SEND_WITH_IMM);
                slot.put(EX, &imm_data.to_be_bytes());
            }
            let datagram = rxe_send_wr_ud {
                remote_qpn: destination.qp_num,
                remote_qkey: destination.qkey,
                ah_num: destination.address.get(),
                ..rxe_send_wr_ud::default()
            };
            slot.put(WR, &datagram);
        }
        SendOperation::WriteWithImm { remote_addr, rkey, imm_data } => {
            put_remote(slot, Opcode::IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, remote_addr, rkey);
            slot.put(EX, &imm_data.to_be_bytes());
        }
        SendOperation::CompareSwap { remote_addr, rkey, compare, swap } => {
            put_opcode(slot, Opcode::IB_UVERBS_WR_ATOMIC_CMP_AND_SWP);
            put_atomic(slot, remote_addr, rkey, compare, swap);
        }
        SendOperation::FetchAdd { remote_addr, rkey, add } => {
            put_opcode(slot, Opcode::IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD);
            put_atomic(slot, remote_addr, rkey, add, 0);
        }
        SendOperation::AtomicWrite { remote_addr, rkey, bytes } => {
            check_kernel(known, Capabilities::IB_UVERBS_DEVICE_ATOMIC_WRITE)?;
            put_remote(slot, Opcode::IB_UVERBS_WR_ATOMIC_WRITE, remote_addr, rkey);
            slot.append(&bytes);
            return Ok(ATOMIC);
        }
        SendOperation::Flush { remote_addr, rkey, length, placement } => {
            check_kernel(known, Capabilities::IB_UVERBS_DEVICE_FLUSH_GLOBAL)?;
            let flush = rxe_send_wr_flush {
                remote_addr: remote_addr.into(),
                length: length.unwrap_or(0),
                rkey,
                r#type: placement.bits(),
                level: u8::from(length.is_none()),
                ..rxe_send_wr_flush::default()
            };
            put_opcode(slot, Opcode::IB_UVERBS_WR_FLUSH);
            slot.put(WR, &flush);
            slot.put(IOVA, &remote_addr);
            return Ok(length.unwrap_or(0));
        }
        SendOperation::LocalInvalidate { rkey } => {
            check_invalidation(qp_type)?;
            put_opcode(slot, Opcode::IB_UVERBS_WR_LOCAL_INV);
            slot.put(EX, &rkey);
        }
        SendOperation::BindWindow(binding) => {
            let bind = rxe_send_wr_mw {
                addr: binding.addr.into(),
                length: binding.length.into(),
                mr_lkey: binding.lkey,
                mw_rkey: binding.rkey,
                rkey: binding.new_rkey,
                access: binding.access,
            };
            put_opcode(slot, Opcode::IB_UVERBS_WR_BIND_MW);
            slot.put(WR, &bind);
        }
        SendOperation::AtSharedQueue { .. } => return Err(PostError::Unsupported("XRC by rxe")),
    }
    Ok(carried)
}

/// Offset of the fields of an element that depend on its opcode.
const WR: usize = offset_of!(rxe_send_wqe, wr.wr);
const EX: usize = offset_of!(rxe_send_wqe, wr.ex);
const IOVA: usize = offset_of!(rxe_send_wqe, iova);

#[inline]
fn put_opcode(slot: &mut Slot<'_, rxe_send_wqe>, opcode: Opcode) {
    slot.put(offset_of!(rxe_send_wqe, wr.opcode), &opcode);
}

#[inline]
fn put_remote(slot: &mut Slot<'_, rxe_send_wqe>, opcode: Opcode, remote_addr: u64, rkey: u32) {
    let remote_addr = remote_addr.into();
    put_opcode(slot, opcode);
    slot.put(WR, &rxe_send_wr_rdma { remote_addr, rkey, reserved: 0 });
    slot.put(IOVA, &remote_addr);
}

fn put_atomic(
    slot: &mut Slot<'_, rxe_send_wqe>,
    remote_addr: u64,
    rkey: u32,
    compare_add: u64,
    swap: u64,
) {
    let atomic = rxe_send_wr_atomic {
        remote_addr: remote_addr.into(),
        compare_add: compare_add.into(),
        swap: swap.into(),
        rkey,
        reserved: 0,
    };
    slot.put(WR, &atomic);
    slot.put(IOVA, &remote_addr);
}

/// Checks that the driver invalidates keys for queue pairs of type `qp_type`.
fn check_invalidation(qp_type: QpType) -> Posted {
    match qp_type {
        QpType::IB_UVERBS_QPT_UC => {
            Err(PostError::Unsupported("invalidation of keys by rxe on queue pairs of type UC"))
        }
        _ => Ok(()),
    }
}

/// Checks that the kernel's driver knows an operation.
fn check_kernel(known: Capabilities, capability: Capabilities) -> Posted {
    match known.contains(capability) {
        true => Ok(()),
        false => Err(PostError::Unsupported(
            "flush and atomic write by rxe before Linux 6.2 or on 32-bit machines",
        )),
    }
}
