//! Software iWARP.
//!
//! Each queue is a [ring](queue) that the create command's response tells where to map. A send
//! needs a command as a doorbell where the kernel may have gone to sleep before it; receives,
//! polling and arming need none. (`drivers/infiniband/sw/siw`, uapi `siw-abi.h`.)
//!
//! The kernel copies an element before it looks at what it says, and refuses it then: an element
//! that it refuses stays where it is, and nothing behind it is ever done. So what it could refuse is
//! refused here, but for a read on a connection that was made without: only the doorbell tells.
//! Behind a request that the kernel is busy with there is none, and it ends the connection when it
//! comes to the read.
//!
//! # Safety
//!
//! See [`provider`](super). Unsafe are only registration and posts, which give memory to the device.
#![expect(unsafe_code, reason = "registering and posting give memory to the device")]

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod queue;

use std::mem::{self, offset_of};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use verbs_abi::siw::{
    SIW_MAX_INLINE, SIW_MAX_SGE, siw_cqe, siw_opcode, siw_rqe, siw_sge, siw_sqe, siw_ureq_reg_mr,
    siw_uresp_create_cq, siw_uresp_create_qp, siw_uresp_create_srq, siw_uresp_reg_mr,
    siw_wc_status, siw_wqe_flags,
};
use verbs_abi::{
    AlignedU64, Command, ib_uverbs_create_cq, ib_uverbs_create_cq_resp, ib_uverbs_create_qp_resp,
    ib_uverbs_create_srq_resp, ib_uverbs_ex_create_qp, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp,
    ib_uverbs_wc,
};

pub(crate) use self::queue::{Arming, Leftovers};
use self::queue::{Free, Ring};
use super::kernel::{self, Doorbell, discard_cq, discard_qp, discard_srq};
use super::request::{count, inline, signed_length, total};
use super::{PostError, Posted};
use crate::error::Result;
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::uverbs::UverbsFile;
use crate::verbs::{
    Completion, Context, Payload, QpState, ReceiveRequest, SendFlags, SendOperation, SendRequest,
    Sge, WcOpcode, WcStatus,
};

/// The most pieces of memory in an element.
#[expect(clippy::cast_possible_truncation, reason = "6 fits")]
const MAX_SGE: u32 = SIW_MAX_SGE as u32;

/// The low byte of the next steering tag: the program's to choose, and different each time so that a
/// key of a region that is gone is not likely to fit the next one.
static NEXT_KEY: AtomicU8 = AtomicU8::new(1);

/// Registers memory.
///
/// # Safety
///
/// That of [`MemoryRegion::register`](crate::verbs::MemoryRegion::register), for the range of
/// addresses in `request`.
pub(super) unsafe fn register_memory(
    file: &UverbsFile,
    request: ib_uverbs_reg_mr,
) -> Result<ib_uverbs_reg_mr_resp, Refused> {
    let driver_request = siw_ureq_reg_mr {
        stag_key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
        ..siw_ureq_reg_mr::default()
    };
    // SAFETY: the contract of this function is that of the callee.
    let registered: Result<(_, siw_uresp_reg_mr), _> =
        unsafe { file.register_memory(request, driver_request) };
    registered.map(|(response, _)| response)
}

// The header has a key that stands for none. A response never holds it for that reason: it is an
// offset like any other, and the one of the 145th page that a context maps.

pub(super) fn create_cq(
    context: &Context,
    request: ib_uverbs_create_cq,
) -> Result<(ib_uverbs_create_cq_resp, CompletionRing, Arming)> {
    let (response, driver): (_, siw_uresp_create_cq) =
        context.driver_command("create", "a completion queue", request, ())?;
    let ring = Ring::of_completions(context.file(), driver.cq_key.get(), driver.num_cqe);
    match ring.and_then(|ring| Ok((ring.arming().ok_or(Errno::EPROTO)?, ring))) {
        Ok((arming, ring)) => Ok((response, CompletionRing { ring }, arming)),
        Err(errno) => Err(discard_cq(context, response.cq_handle, errno)),
    }
}

pub(super) fn create_qp(
    context: &Context,
    request: ib_uverbs_ex_create_qp,
) -> Result<(ib_uverbs_create_qp_resp, SendRing, Option<ReceiveRing>)> {
    let (signal_all, shares) = (request.sq_sig_all != 0, request.is_srq != 0);
    let (mut response, driver): (_, siw_uresp_create_qp) = kernel::create_qp(context, request)?;
    let file = context.file();
    let send = Ring::of_work(file, driver.sq_key.get(), driver.num_sqe, None);
    let rings = send.and_then(|mut send| {
        // Without receives of its own there is no ring, and the key is another object's.
        let beside = send.mapping();
        let map = || Ring::of_work(file, driver.rq_key.get(), driver.num_rqe, beside);
        let receive = (driver.num_rqe > 0 && !shares).then(map).transpose()?;
        Ok((send, receive))
    });
    let (send, receive) = match rings {
        Ok(rings) => rings,
        Err(errno) => return Err(discard_qp(context, response.qp_handle, errno)),
    };
    // The kernel answers what was asked for, and means these.
    response.max_send_wr = driver.num_sqe;
    response.max_recv_wr = driver.num_rqe;
    let max_inline = u32::try_from(SIW_MAX_INLINE).expect("80 fits");
    let send = SendRing {
        ring: send,
        max_sge: response.max_send_sge.min(MAX_SGE),
        max_inline: response.max_inline_data.min(max_inline),
        signal_all,
        connected: false,
        owes_doorbell: false,
        stored: 0,
    };
    let receive = ReceiveRing { ring: receive, max_sge: response.max_recv_sge.min(MAX_SGE) };
    Ok((response, send, (!shares).then_some(receive)))
}

pub(super) fn create_srq<C>(
    context: &Context,
    request: C,
) -> Result<(ib_uverbs_create_srq_resp, ReceiveRing)>
where
    C: Command<Response = ib_uverbs_create_srq_resp>,
{
    let (mut response, driver): (ib_uverbs_create_srq_resp, siw_uresp_create_srq) =
        context.driver_command("create", "a shared receive queue", request, ())?;
    match Ring::of_work(context.file(), driver.srq_key.get(), driver.num_rqe, None) {
        Ok(ring) => {
            // The kernel answers what was asked for, and means this.
            response.max_wr = driver.num_rqe;
            let max_sge = response.max_sge.min(MAX_SGE);
            Ok((response, ReceiveRing { ring: Some(ring), max_sge }))
        }
        Err(errno) => Err(discard_srq(context, response.srq_handle, errno)),
    }
}

/// The consumer's end of a completion queue.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    ring: Ring<siw_cqe>,
}

impl CompletionRing {
    /// Whether there is none.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, into: &mut [Completion]) -> usize {
        let mut count = 0;
        for completion in into {
            let Some(element) = self.ring.take() else { break };
            *completion = Completion(translated(&element));
            count += 1;
        }
        count
    }
}

/// A completion as the other drivers have it. siw says nothing of keys that a peer invalidated to
/// programs, and has no immediate data.
#[inline]
fn translated(element: &siw_cqe) -> ib_uverbs_wc {
    let opcode = match element.opcode {
        siw_opcode::SIW_OP_WRITE => WcOpcode::IB_UVERBS_WC_RDMA_WRITE,
        siw_opcode::SIW_OP_READ | siw_opcode::SIW_OP_READ_LOCAL_INV => {
            WcOpcode::IB_UVERBS_WC_RDMA_READ
        }
        siw_opcode::SIW_OP_SEND
        | siw_opcode::SIW_OP_SEND_WITH_IMM
        | siw_opcode::SIW_OP_SEND_REMOTE_INV => WcOpcode::IB_UVERBS_WC_SEND,
        siw_opcode::SIW_OP_RECEIVE => WcOpcode::IB_WC_RECV,
        // Not posted here. The status says that something is wrong.
        _ => WcOpcode(u32::MAX),
    };
    let status = match element.status {
        _ if opcode == WcOpcode(u32::MAX) => WcStatus::IB_WC_GENERAL_ERR,
        siw_wc_status::SIW_WC_SUCCESS => WcStatus::IB_WC_SUCCESS,
        siw_wc_status::SIW_WC_LOC_LEN_ERR => WcStatus::IB_WC_LOC_LEN_ERR,
        siw_wc_status::SIW_WC_LOC_PROT_ERR => WcStatus::IB_WC_LOC_PROT_ERR,
        siw_wc_status::SIW_WC_LOC_QP_OP_ERR => WcStatus::IB_WC_LOC_QP_OP_ERR,
        siw_wc_status::SIW_WC_WR_FLUSH_ERR => WcStatus::IB_WC_WR_FLUSH_ERR,
        siw_wc_status::SIW_WC_BAD_RESP_ERR => WcStatus::IB_WC_BAD_RESP_ERR,
        siw_wc_status::SIW_WC_LOC_ACCESS_ERR => WcStatus::IB_WC_LOC_ACCESS_ERR,
        siw_wc_status::SIW_WC_REM_ACCESS_ERR => WcStatus::IB_WC_REM_ACCESS_ERR,
        siw_wc_status::SIW_WC_REM_INV_REQ_ERR => WcStatus::IB_WC_REM_INV_REQ_ERR,
        _ => WcStatus::IB_WC_GENERAL_ERR,
    };
    ib_uverbs_wc {
        wr_id: element.id,
        status,
        opcode,
        byte_len: element.bytes,

        // Numbers have 32 bits.
        qp_num: u32::try_from(element.qp_id.get()).unwrap_or(u32::MAX),
        ..ib_uverbs_wc::default()
    }
}

/// The producer's end of a send queue.
#[derive(Debug)]
pub(crate) struct SendRing {
    ring: Ring<siw_sqe>,
    max_sge: u32,
    max_inline: u32,
    /// The kernel leaves it to the poster to mark every request.
    signal_all: bool,
    /// The kernel has brought the queue pair to RTS, which only it knows of.
    connected: bool,
    /// The kernel may not know of the element put last.
    owes_doorbell: bool,
    /// How many elements were put since it was rung for them.
    stored: u32,
}

/// Rings. While the kernel changes anything about the queue pair it turns doorbells away, and says the
/// same as where there is no connection: what it says counts when no change is under way.
#[inline]
fn ring(doorbell: Doorbell<'_>) -> Result<(), Refused> {
    doorbell.ring().or_else(|refused| ring_again(doorbell, refused))
}

#[cold]
fn ring_again(doorbell: Doorbell<'_>, refused: Refused) -> Result<(), Refused> {
    match refused {
        Refused::Os(Errno::ENOTCONN) => {
            let _unchanged = unpoisoned(doorbell.changing.lock());
            doorbell.ring()
        }
        refused => Err(refused),
    }
}

/// Where inline bytes stand in an element.
const INLINE: usize = offset_of!(siw_sqe, sge) + size_of::<siw_sge>();
const _: () = assert!(INLINE + SIW_MAX_INLINE == size_of::<siw_sqe>());

impl SendRing {
    /// Stores a request, at which the kernel may look before it is rung for.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    pub(super) unsafe fn store(
        &mut self,
        doorbell: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        self.check_connected(doorbell, state)?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(request) }
    }

    /// The same where the kernel is known to take sends; whether it is stored.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    // A function of its own, which the processor's registers suffice for.
    #[inline(never)]
    pub(super) unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        let takes = self.connected && state != QpState::IB_QPS_RESET;
        // SAFETY: the contract of this function is that of the callee.
        takes && unsafe { self.put(request) }.is_ok()
    }

    /// Stores a request in a ring of which the kernel takes it.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    #[inline(always)]
    unsafe fn put(&mut self, request: &SendRequest<'_>) -> Posted {
        let (opcode, raddr, rkey) = match request.operation {
            SendOperation::Send => (siw_opcode::SIW_OP_SEND, 0, 0),
            SendOperation::SendWithInvalidate { rkey } => {
                (siw_opcode::SIW_OP_SEND_REMOTE_INV, 0, rkey)
            }
            SendOperation::Write { remote_addr, rkey } => {
                (siw_opcode::SIW_OP_WRITE, remote_addr, rkey)
            }
            SendOperation::Read { remote_addr, rkey } => {
                (siw_opcode::SIW_OP_READ, remote_addr, rkey)
            }
            ref other => return lacks(other),
        };
        let is_read = opcode == siw_opcode::SIW_OP_READ;
        let mut flags = siw_wqe_flags::empty();
        if self.signal_all || request.flags.contains(SendFlags::SIGNALED) {
            flags |= siw_wqe_flags::SIW_WQE_SIGNALLED;
        }
        if request.flags.contains(SendFlags::SOLICITED) {
            flags |= siw_wqe_flags::SIW_WQE_SOLICITED;
        }
        if request.flags.contains(SendFlags::FENCE) {
            if is_read {
                return Err(PostError::Invalid("siw cannot fence a read"));
            }
            flags |= siw_wqe_flags::SIW_WQE_READ_FENCE;
        }
        let mut element = self.ring.free()?;
        let num_sge = match request.payload {
            Payload::Gather(pieces) => {
                let most = if is_read { self.max_sge.min(1) } else { self.max_sge };
                gather(&mut element, offset_of!(siw_sqe, sge), pieces, most)?
            }
            Payload::Inline(bytes) => {
                if opcode == siw_opcode::SIW_OP_SEND_REMOTE_INV {
                    return Err(PostError::Unsupported(
                        "bytes inline in a send that invalidates by siw",
                    ));
                }
                let length = inline(bytes, self.max_inline)?;
                element.put(offset_of!(siw_sqe, sge), &siw_sge { length, ..siw_sge::default() });
                element.write(INLINE, bytes);
                flags |= siw_wqe_flags::SIW_WQE_INLINE;
                1
            }
        };
        element.put(offset_of!(siw_sqe, id), &AlignedU64::new(request.wr_id));
        element.put(offset_of!(siw_sqe, num_sge), &num_sge);
        element.put(offset_of!(siw_sqe, opcode), &opcode);
        element.put(offset_of!(siw_sqe, rkey), &rkey);
        element.put(offset_of!(siw_sqe, raddr), &AlignedU64::new(raddr));
        element.hand_over(flags);
        self.stored += 1;
        // Asked of each: behind one that the kernel has to be told of, so it has to be of all.
        self.owes_doorbell = self.owes_doorbell || self.ring.must_be_told();
        Ok(())
    }

    /// That the kernel takes sends in `state`.
    fn check_connected(&mut self, doorbell: Doorbell<'_>, state: QpState) -> Posted {
        check_state(state)?;
        if self.connected || state == QpState::IB_QPS_ERR {
            return Ok(());
        }
        // Before RTS a doorbell is refused, and its request stays in the ring. Where there is
        // none, a doorbell does nothing.
        match ring(doorbell) {
            Ok(()) => {
                self.connected = true;
                Ok(())
            }
            Err(Refused::Os(Errno::ENOTCONN)) => Err(PostError::Invalid(
                "the queue pair is not connected, and sends need IB_QPS_RTS",
            )),
            Err(refused) => Err(PostError::unposted(doorbell.context, refused, 1)),
        }
    }

    /// Rings for what was stored where the kernel may be asleep: POST_SEND without requests.
    #[inline]
    pub(super) fn ring(&mut self, doorbell: Doorbell<'_>) -> Posted {
        let stored = mem::take(&mut self.stored);
        if !self.owes_doorbell {
            return Ok(());
        }
        match ring(doorbell) {
            Ok(()) => {
                self.owes_doorbell = false;
                Ok(())
            }
            Err(refused) => self.refused(refused, stored),
        }
    }

    /// What it means that the doorbell of the last `stored` requests was refused.
    #[cold]
    fn refused(&mut self, refused: Refused, stored: u32) -> Posted {
        match refused {
            // The connection is on its way down, and the kernel flushes when it is there, or the
            // library does.
            Refused::Os(Errno::ENOTCONN) => Ok(()),
            Refused::Os(Errno::EINVAL) => {
                // Of the first that it had not come to, where it has stayed.
                let back = (0..stored).take_while(|_| self.ring.take_back()).count();
                self.owes_doorbell = false;
                match back {
                    // Those who flush have them, or the kernel.
                    0 => Err(PostError::Refused(refused)),
                    requests => Err(PostError::TakenBack {
                        requests,
                        reason: "reads need an initiator depth of the connection",
                    }),
                }
            }
            refused => Err(PostError::Refused(refused)),
        }
    }

    pub(super) fn leftovers(&self) -> Leftovers {
        self.ring.leftovers()
    }
}

/// Says that siw does not do `operation`.
fn lacks(operation: &SendOperation<'_>) -> Posted {
    Err(PostError::Unsupported(match operation {
        SendOperation::Send
        | SendOperation::SendWithInvalidate { .. }
        | SendOperation::Write { .. }
        | SendOperation::Read { .. } => unreachable!("siw does it"),
        SendOperation::SendTo { .. } => "datagrams by siw",
        SendOperation::SendWithImm { .. } | SendOperation::WriteWithImm { .. } => {
            "immediate data by siw"
        }
        SendOperation::CompareSwap { .. }
        | SendOperation::FetchAdd { .. }
        | SendOperation::AtomicWrite { .. } => "atomics by siw",
        SendOperation::Flush { .. } => "flush by siw",
        SendOperation::LocalInvalidate { .. } => {
            "local invalidation by siw, which is the kernel's own there"
        }
        SendOperation::BindWindow { .. } => "memory windows by siw",
    }))
}

/// The producer's end of a receive queue; without a ring where it is to hold nothing.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    ring: Option<Ring<siw_rqe>>,
    max_sge: u32,
}

impl ReceiveRing {
    /// Stores a request. The kernel looks when a message comes.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv).
    #[inline(always)]
    pub(super) unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        let Some(ring) = &mut self.ring else { return Err(PostError::Full(0)) };
        let mut element = ring.free()?;
        let into = offset_of!(siw_rqe, sge);
        let num_sge = gather(&mut element, into, request.scatter, self.max_sge)?;
        element.put(offset_of!(siw_rqe, id), &AlignedU64::new(request.wr_id));
        element.put(offset_of!(siw_rqe, num_sge), &num_sge);
        element.hand_over(siw_wqe_flags::empty());
        Ok(())
    }

    pub(super) fn leftovers(&self) -> Option<Leftovers> {
        self.ring.as_ref().map(Ring::leftovers)
    }
}

/// That requests can be posted in `state`. The kernel flushes when the queue pair goes to ERR, and
/// what is posted after that stays in the ring: a leftover.
pub(super) fn check_state(state: QpState) -> Posted {
    match state {
        QpState::IB_QPS_RESET => Err(PostError::Invalid(
            "the queue pair is in IB_QPS_RESET, and posting needs IB_QPS_INIT",
        )),
        _ => Ok(()),
    }
}

/// Copies the pieces of memory into an element, from `offset` on; their number.
///
/// Without the empty ones: the kernel does not look up their keys, and crashes over that when it
/// comes to them.
#[inline(always)]
fn gather<E>(element: &mut Free<'_, E>, offset: usize, pieces: &[Sge], most: u32) -> Posted<u8> {
    count(pieces, most)?;
    let (number, length) = match pieces {
        // Most have one. A loop over one is longer than the rest.
        [piece] if piece.length > 0 => {
            element.put(offset, &translated_piece(piece));
            (1, u64::from(piece.length))
        }
        pieces => {
            let (list, number) = filled(pieces);
            element.put(offset, &list);
            (number, total(pieces))
        }
    };
    signed_length(length).map(|_| number)
}

/// The pieces with something in them; their number. Those behind are empty: of a read the kernel looks
/// at the first one and not at their number.
#[inline(never)]
fn filled(pieces: &[Sge]) -> ([siw_sge; SIW_MAX_SGE], u8) {
    let mut list = [siw_sge::default(); SIW_MAX_SGE];
    let mut number = 0;
    let filled = pieces.iter().filter(|piece| piece.length > 0);
    for (place, piece) in list.iter_mut().zip(filled) {
        *place = translated_piece(piece);
        number += 1;
    }
    (list, number)
}

#[inline]
fn translated_piece(piece: &Sge) -> siw_sge {
    siw_sge { laddr: piece.addr, length: piece.length, lkey: piece.lkey }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_and_status_is_translated() {
        const UNKNOWN: WcOpcode = WcOpcode(u32::MAX);
        let opcodes = [
            (siw_opcode::SIW_OP_WRITE, WcOpcode::IB_UVERBS_WC_RDMA_WRITE),
            (siw_opcode::SIW_OP_READ, WcOpcode::IB_UVERBS_WC_RDMA_READ),
            (siw_opcode::SIW_OP_READ_LOCAL_INV, WcOpcode::IB_UVERBS_WC_RDMA_READ),
            (siw_opcode::SIW_OP_SEND, WcOpcode::IB_UVERBS_WC_SEND),
            (siw_opcode::SIW_OP_SEND_WITH_IMM, WcOpcode::IB_UVERBS_WC_SEND),
            (siw_opcode::SIW_OP_SEND_REMOTE_INV, WcOpcode::IB_UVERBS_WC_SEND),
            (siw_opcode::SIW_OP_FETCH_AND_ADD, UNKNOWN),
            (siw_opcode::SIW_OP_COMP_AND_SWAP, UNKNOWN),
            (siw_opcode::SIW_OP_RECEIVE, WcOpcode::IB_WC_RECV),
            (siw_opcode::SIW_OP_READ_RESPONSE, UNKNOWN),
            (siw_opcode::SIW_OP_INVAL_STAG, UNKNOWN),
            (siw_opcode::SIW_OP_REG_MR, UNKNOWN),
            (siw_opcode(u8::MAX), UNKNOWN),
        ];
        let statuses = [
            (siw_wc_status::SIW_WC_SUCCESS, WcStatus::IB_WC_SUCCESS),
            (siw_wc_status::SIW_WC_LOC_LEN_ERR, WcStatus::IB_WC_LOC_LEN_ERR),
            (siw_wc_status::SIW_WC_LOC_PROT_ERR, WcStatus::IB_WC_LOC_PROT_ERR),
            (siw_wc_status::SIW_WC_LOC_QP_OP_ERR, WcStatus::IB_WC_LOC_QP_OP_ERR),
            (siw_wc_status::SIW_WC_WR_FLUSH_ERR, WcStatus::IB_WC_WR_FLUSH_ERR),
            (siw_wc_status::SIW_WC_BAD_RESP_ERR, WcStatus::IB_WC_BAD_RESP_ERR),
            (siw_wc_status::SIW_WC_LOC_ACCESS_ERR, WcStatus::IB_WC_LOC_ACCESS_ERR),
            (siw_wc_status::SIW_WC_REM_ACCESS_ERR, WcStatus::IB_WC_REM_ACCESS_ERR),
            (siw_wc_status::SIW_WC_REM_INV_REQ_ERR, WcStatus::IB_WC_REM_INV_REQ_ERR),
            (siw_wc_status::SIW_WC_GENERAL_ERR, WcStatus::IB_WC_GENERAL_ERR),
            (siw_wc_status(u16::MAX), WcStatus::IB_WC_GENERAL_ERR),
        ];
        for (opcode, expected) in opcodes {
            for (status, due) in statuses {
                let due = if expected == UNKNOWN { WcStatus::IB_WC_GENERAL_ERR } else { due };
                let element = siw_cqe {
                    id: 7.into(),
                    opcode,
                    status,
                    bytes: 9,
                    qp_id: 11.into(),
                    ..siw_cqe::default()
                };
                let wc = translated(&element);
                assert_eq!((wc.opcode, wc.status), (expected, due), "{opcode:?} {status:?}");
                assert_eq!((wc.wr_id.get(), wc.byte_len, wc.qp_num), (7, 9, 11));
            }
        }
    }
}
