//! The producer's end of a send queue of rxe.
//!
//! # Safety
//!
//! See [`provider`](crate::provider). Unsafe is only storing a request, which gives memory to the
//! device.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use nix::errno::Errno;
use verbs_abi::rxe::{
    mminfo, rxe_send_wqe, rxe_send_wr, rxe_send_wr_atomic, rxe_send_wr_flush, rxe_send_wr_mw,
    rxe_send_wr_rdma, rxe_send_wr_ud,
};
use verbs_abi::{
    ib_send_flags, ib_uverbs_create_qp_resp, ib_uverbs_device_cap_flags as Capabilities,
    ib_uverbs_wr_opcode as Opcode,
};
use zerocopy::{FromZeros, IntoBytes};

use super::pieces;
use super::queue::Queue;
use crate::provider::PostError;
use crate::provider::kernel::Doorbell;
use crate::provider::request::{count, inline, total};
use crate::sys::uverbs::UverbsFile;
use crate::verbs::{Context, Payload, QpState, QpType, SendOperation, SendRequest};

/// The producer's end of a send queue.
#[derive(Debug)]
pub(crate) struct SendRing {
    queue: Queue,
    qp_type: QpType,
    max_sge: u32,
    max_inline: u32,
    /// Something was stored since it was rung for.
    owes_doorbell: bool,
}

/// Where the pieces of memory, or the inline bytes, stand in an element: behind what precedes them.
const PAYLOAD: usize = size_of::<rxe_send_wqe>();

/// The bytes of an atomic write, which stand there too.
const ATOMIC: usize = 8;

impl SendRing {
    /// Maps the ring that `info` tells of, for a queue pair that `response` tells of.
    pub(super) fn map(
        file: &UverbsFile,
        info: &mminfo,
        qp_type: QpType,
        response: &ib_uverbs_create_qp_resp,
    ) -> Result<Self, Errno> {
        let (max_sge, max_inline) = (response.max_send_sge, response.max_inline_data);
        let payload = pieces(max_sge).max(max_inline as usize).max(ATOMIC);
        let queue = Queue::map(file, info, PAYLOAD.saturating_add(payload))?;
        Ok(Self { queue, qp_type, max_sge, max_inline, owes_doorbell: false })
    }

    /// How many requests it holds.
    pub(super) fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    /// Stores a request.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    #[inline]
    pub(in crate::provider) unsafe fn store(
        &mut self,
        doorbell: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        // The doorbell would say so too, but only once the request stands in the ring for good.
        if state.0 < QpState::IB_QPS_RTS.0 {
            let reason = format!("the queue pair is in {state}, and sends need IB_QPS_RTS");
            return Err(PostError::Invalid(reason.into()));
        }
        let mut flags = ib_send_flags::from_bits_retain(request.flags.bits());
        let (bytes, length, num_sge) = match request.payload {
            Payload::Gather(pieces) => {
                (pieces.as_bytes(), total(pieces)?, count(pieces, self.max_sge)?)
            }
            Payload::Inline(bytes) => {
                flags |= ib_send_flags::IB_SEND_INLINE;
                (bytes, inline(bytes, self.max_inline)?, 0)
            }
        };
        let Carried { wr, iova, bytes, length } =
            self.carried(doorbell.context, &request.operation, bytes, length)?;
        let slot = self.queue.free_slot().map_err(PostError::Malformed)?;
        let Some(mut slot) = slot else { return Err(PostError::Full(self.queue.capacity())) };
        // What only the kernel uses is zero, as it expects of a new request.
        let mut element = rxe_send_wqe::new_zeroed();
        element.wr = rxe_send_wr { wr_id: request.wr_id.into(), send_flags: flags, ..wr };
        element.iova = iova.into();
        element.dma.length = length;
        element.dma.resid = length;
        element.dma.num_sge = num_sge;
        slot.write(0, element.as_bytes());
        slot.write(PAYLOAD, bytes);
        slot.pass_on();
        self.owes_doorbell = true;
        Ok(())
    }

    /// Rings for what was stored: POST_SEND without requests.
    #[inline]
    pub(in crate::provider) fn ring(&mut self, doorbell: Doorbell<'_>) -> Result<(), PostError> {
        if self.owes_doorbell {
            doorbell.ring().map_err(PostError::Refused)?;
            self.owes_doorbell = false;
        }
        Ok(())
    }

    /// What an element says of `operation`, whose request has a payload of `bytes` and `length`.
    #[inline]
    fn carried<'a>(
        &self,
        context: &Context,
        operation: &'a SendOperation<'_>,
        bytes: &'a [u8],
        length: u32,
    ) -> Result<Carried<'a>, PostError> {
        let of = |opcode| Carried { wr: wr(opcode), iova: 0, bytes, length };
        let with = |opcode, ex| Carried { wr: rxe_send_wr { ex, ..wr(opcode) }, ..of(opcode) };
        let remote = |opcode, remote_addr: u64, rkey| {
            let memory = rxe_send_wr_rdma { remote_addr: remote_addr.into(), rkey, reserved: 0 };
            let wr = rxe_send_wr { wr: memory.into(), ..wr(opcode) };
            Carried { wr, iova: remote_addr, ..of(opcode) }
        };
        let atomic = |opcode, remote_addr: u64, rkey, compare_add: u64, swap: u64| {
            let atomic = rxe_send_wr_atomic {
                remote_addr: remote_addr.into(),
                compare_add: compare_add.into(),
                swap: swap.into(),
                rkey,
                reserved: 0,
            };
            let wr = rxe_send_wr { wr: atomic.into(), ..wr(opcode) };
            Carried { wr, iova: remote_addr, ..of(opcode) }
        };
        Ok(match *operation {
            SendOperation::Send => of(Opcode::IB_UVERBS_WR_SEND),
            SendOperation::SendWithImm { imm_data } => {
                with(Opcode::IB_UVERBS_WR_SEND_WITH_IMM, imm_data.to_be_bytes())
            }
            SendOperation::SendWithInvalidate { rkey } => {
                self.check_invalidation()?;
                with(Opcode::IB_UVERBS_WR_SEND_WITH_INV, rkey.to_ne_bytes())
            }
            SendOperation::SendTo { destination, imm_data } => {
                let datagram = rxe_send_wr_ud {
                    remote_qpn: destination.qp_num,
                    remote_qkey: destination.qkey,
                    ah_num: destination.address.number(),
                    ..rxe_send_wr_ud::default()
                };
                let mut carried = match imm_data {
                    None => of(Opcode::IB_UVERBS_WR_SEND),
                    Some(number) => with(Opcode::IB_UVERBS_WR_SEND_WITH_IMM, number.to_be_bytes()),
                };
                carried.wr.wr = datagram.into();
                carried
            }
            SendOperation::Write { remote_addr, rkey } => {
                remote(Opcode::IB_UVERBS_WR_RDMA_WRITE, remote_addr, rkey)
            }
            SendOperation::WriteWithImm { remote_addr, rkey, imm_data } => {
                let opcode = Opcode::IB_UVERBS_WR_RDMA_WRITE_WITH_IMM;
                let mut carried = remote(opcode, remote_addr, rkey);
                carried.wr.ex = imm_data.to_be_bytes();
                carried
            }
            SendOperation::Read { remote_addr, rkey } => {
                remote(Opcode::IB_UVERBS_WR_RDMA_READ, remote_addr, rkey)
            }
            SendOperation::CompareSwap { remote_addr, rkey, compare, swap } => {
                let opcode = Opcode::IB_UVERBS_WR_ATOMIC_CMP_AND_SWP;
                atomic(opcode, remote_addr, rkey, compare, swap)
            }
            SendOperation::FetchAdd { remote_addr, rkey, add } => {
                let opcode = Opcode::IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD;
                atomic(opcode, remote_addr, rkey, add, 0)
            }
            SendOperation::AtomicWrite { remote_addr, rkey, ref bytes } => {
                check_kernel(context, Capabilities::IB_UVERBS_DEVICE_ATOMIC_WRITE)?;
                let length = u32::try_from(ATOMIC).expect("8 fits");
                let remote = remote(Opcode::IB_UVERBS_WR_ATOMIC_WRITE, remote_addr, rkey);
                Carried { bytes, length, ..remote }
            }
            SendOperation::Flush { remote_addr, rkey, length, placement } => {
                check_kernel(context, Capabilities::IB_UVERBS_DEVICE_FLUSH_GLOBAL)?;
                let flush = rxe_send_wr_flush {
                    remote_addr: remote_addr.into(),
                    length: length.unwrap_or(0),
                    rkey,
                    r#type: placement.bits(),
                    level: u8::from(length.is_none()),
                    ..rxe_send_wr_flush::default()
                };
                let wr = rxe_send_wr { wr: flush.into(), ..wr(Opcode::IB_UVERBS_WR_FLUSH) };
                Carried { wr, iova: remote_addr, bytes, length: length.unwrap_or(0) }
            }
            SendOperation::LocalInvalidate { rkey } => {
                self.check_invalidation()?;
                with(Opcode::IB_UVERBS_WR_LOCAL_INV, rkey.to_ne_bytes())
            }
            SendOperation::BindWindow { window, region, offset, length, access } => {
                let number = |bytes| u64::try_from(bytes).expect("it has at most 64 bits");
                let bind = rxe_send_wr_mw {
                    addr: (region.addr() + number(offset)).into(),
                    length: number(length).into(),
                    mr_lkey: region.lkey(),
                    mw_rkey: window.rkey(),
                    rkey: window.next_rkey(),
                    access,
                };
                let wr = rxe_send_wr { wr: bind.into(), ..wr(Opcode::IB_UVERBS_WR_BIND_MW) };
                Carried { wr, ..of(Opcode::IB_UVERBS_WR_BIND_MW) }
            }
        })
    }

    /// That the driver invalidates keys for this queue pair.
    fn check_invalidation(&self) -> Result<(), PostError> {
        match self.qp_type {
            QpType::IB_UVERBS_QPT_UC => Err(PostError::Unsupported(
                "invalidation by rxe's queue pairs of unreliable connections",
            )),
            _ => Ok(()),
        }
    }
}

/// What an element says of an operation.
struct Carried<'a> {
    wr: rxe_send_wr,
    iova: u64,
    /// What stands at [`PAYLOAD`].
    bytes: &'a [u8],
    length: u32,
}

fn wr(opcode: Opcode) -> rxe_send_wr {
    let mut wr = rxe_send_wr::new_zeroed();
    wr.opcode = opcode;
    wr
}

/// That the kernel's driver knows an operation: an older one would end the queue pair.
fn check_kernel(context: &Context, capability: Capabilities) -> Result<(), PostError> {
    match context.capabilities().map_err(PostError::Refused)?.contains(capability) {
        true => Ok(()),
        false => Err(PostError::Unsupported(
            "flush and atomic write, which rxe has since Linux 6.2, on 64 bits",
        )),
    }
}
