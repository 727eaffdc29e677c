//! Software RoCE.
//!
//! Each queue is a [ring](queue) that the create command's response tells where to map. Sends and
//! arming need a command as a doorbell; receives and polling need none.
//! (`drivers/infiniband/sw/rxe`, uapi `rdma_user_rxe.h`.)
//!
//! # Safety
//!
//! See [`provider`](super). Unsafe are only the posts, which give memory to the device.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

mod queue;

use nix::errno::Errno;
use verbs_abi::rxe::{
    mminfo, rxe_create_ah_resp, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp,
    rxe_modify_srq_cmd, rxe_recv_wqe, rxe_send_wqe, rxe_send_wr_rdma, rxe_send_wr_ud,
};
use verbs_abi::{
    Command, ib_send_flags, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq,
    ib_uverbs_create_cq_resp, ib_uverbs_create_qp, ib_uverbs_create_qp_resp,
    ib_uverbs_create_srq_resp, ib_uverbs_destroy_ah, ib_uverbs_modify_srq, ib_uverbs_req_notify_cq,
    ib_uverbs_wr_opcode,
};
use zerocopy::{FromZeros, IntoBytes};

use self::queue::Queue;
use super::PostError;
use super::kernel::{Doorbell, discard_cq, discard_qp, discard_srq};
use super::request::{count, inline, total};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::Refused;
use crate::sys::uverbs::UverbsFile;
use crate::verbs::{
    Completion, Context, Payload, QpState, ReceiveRequest, SendOperation, SendRequest, Sge,
};

pub(super) fn create_cq(
    context: &Context,
    request: ib_uverbs_create_cq,
) -> Result<(ib_uverbs_create_cq_resp, CompletionRing)> {
    let (response, driver): (_, rxe_create_cq_resp) =
        context.driver_command("create", "a completion queue", request, ())?;
    match Queue::map(context.file(), &driver.mi, size_of::<Completion>()) {
        Ok(queue) => Ok((response, CompletionRing { queue })),
        Err(errno) => Err(discard_cq(context, response.cq_handle, errno)),
    }
}

pub(super) fn create_ah(
    context: &Context,
    request: ib_uverbs_create_ah,
) -> Result<(ib_uverbs_create_ah_resp, u32)> {
    const OPERATION: &str = "create";
    const WHAT: &str = "an address handle";
    let (response, driver): (_, rxe_create_ah_resp) =
        context.driver_command(OPERATION, WHAT, request, ())?;
    if driver.ah_num == 0 {
        // The driver would want the whole address in each send, its hardware's among it.
        let _ = context.file().command(ib_uverbs_destroy_ah { ah_handle: response.ah_handle });
        let what = "a kernel that does not number address handles";
        return Err(Error::new(OPERATION, WHAT, ErrorKind::Unsupported(what.into())));
    }
    Ok((response, driver.ah_num))
}

pub(super) fn create_qp(
    context: &Context,
    request: ib_uverbs_create_qp,
) -> Result<(ib_uverbs_create_qp_resp, SendRing, Option<ReceiveRing>)> {
    let shares = request.is_srq != 0;
    let (response, driver): (ib_uverbs_create_qp_resp, rxe_create_qp_resp) =
        context.driver_command("create", "a queue pair", request, ())?;
    let file = context.file();
    let sent = pieces(response.max_send_sge).max(response.max_inline_data as usize);
    let rings =
        Queue::map(file, &driver.sq_mi, SEND_PAYLOAD.saturating_add(sent)).and_then(|send| {
            let map = || ReceiveRing::map(file, &driver.rq_mi, response.max_recv_sge);
            Ok((send, (!shares).then(map).transpose()?))
        });
    let (send, receive) = match rings {
        Ok(rings) => rings,
        Err(errno) => return Err(discard_qp(context, response.qp_handle, errno)),
    };
    let send = SendRing {
        queue: send,
        max_sge: response.max_send_sge,
        max_inline: response.max_inline_data,
        owes_doorbell: false,
    };
    Ok((response, send, receive))
}

/// The length of `count` pieces of memory in an element.
fn pieces(count: u32) -> usize {
    (count as usize).saturating_mul(size_of::<Sge>())
}

pub(super) fn create_srq<C>(
    context: &Context,
    request: C,
) -> Result<(ib_uverbs_create_srq_resp, ReceiveRing)>
where
    C: Command<Response = ib_uverbs_create_srq_resp>,
{
    let (mut response, driver): (_, rxe_create_srq_resp) =
        context.driver_command("create", "a shared receive queue", request, ())?;
    match ReceiveRing::map(context.file(), &driver.mi, response.max_sge) {
        Ok(ring) => {
            // Linux 6.1 answers what was asked for.
            response.max_wr = ring.queue.capacity();
            Ok((response, ring))
        }
        Err(errno) => Err(discard_srq(context, response.srq_handle, errno)),
    }
}

/// Changes the limit of a shared receive queue. The driver wants a part of its own in every
/// MODIFY_SRQ.
pub(super) fn limit_srq(file: &UverbsFile, request: ib_uverbs_modify_srq) -> Result<(), Refused> {
    // SAFETY: the address in the driver's part is zero, to which it stores nothing.
    unsafe { file.modify_srq(request, rxe_modify_srq_cmd::default()) }
}

/// Changes the size of a shared receive queue; the ring that takes the place of its ring, with what
/// was posted to that.
pub(super) fn resize_srq(
    file: &UverbsFile,
    request: ib_uverbs_modify_srq,
) -> Result<mminfo, Refused> {
    let mut info = mminfo::default();
    let address = (&raw mut info).expose_provenance();
    let address = u64::try_from(address).expect("an address has at most 64 bits");
    let driver_request = rxe_modify_srq_cmd { mmap_info_addr: address.into() };
    // SAFETY: the driver stores an `mminfo` at the address, which is that of one that lives here.
    unsafe { file.modify_srq(request, driver_request) }?;
    Ok(info)
}

/// Arms a completion queue. `IB_USER_VERBS_CMD_REQ_NOTIFY_CQ`.
pub(super) fn request_notify(context: &Context, handle: u32, solicited_only: bool) -> Result<()> {
    let request =
        ib_uverbs_req_notify_cq { cq_handle: handle, solicited_only: u32::from(solicited_only) };
    context.command("arm", "a completion queue", request)
}

/// The consumer's end of a completion queue. An element begins with the completion.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    queue: Queue,
}

impl CompletionRing {
    #[inline]
    pub(super) fn poll(&mut self, into: &mut [Completion]) -> Result<usize, &'static str> {
        for (count, completion) in into.iter_mut().enumerate() {
            let slot = match self.queue.filled_slot() {
                Ok(Some(slot)) => slot,
                // What was taken before is the caller's; the next poll fails again.
                Err(broken) if count == 0 => return Err(broken),
                Ok(None) | Err(_) => return Ok(count),
            };
            slot.read(completion.0.as_mut_bytes());
            slot.pass_on();
        }
        Ok(into.len())
    }
}

/// The producer's end of a send queue.
#[derive(Debug)]
pub(crate) struct SendRing {
    queue: Queue,
    max_sge: u32,
    max_inline: u32,
    /// Something was stored since it was rung for.
    owes_doorbell: bool,
}

/// Where the pieces of memory, or the inline bytes, stand in an element: behind what precedes them.
const SEND_PAYLOAD: usize = size_of::<rxe_send_wqe>();
const RECEIVE_PAYLOAD: usize = size_of::<rxe_recv_wqe>();

impl SendRing {
    /// Stores a request.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    #[inline]
    pub(super) unsafe fn store(
        &mut self,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        // The doorbell would say so too, but only once the request stands in the ring for good.
        if state.0 < QpState::IB_QPS_RTS.0 {
            let reason = format!("the queue pair is in {state}, and sends need IB_QPS_RTS");
            return Err(PostError::Invalid(reason.into()));
        }
        let element = self.element(request)?;
        let slot = self.queue.free_slot().map_err(PostError::Malformed)?;
        let Some(mut slot) = slot else { return Err(PostError::Full(self.queue.capacity())) };
        slot.write(0, element.as_bytes());
        match request.payload {
            Payload::Gather(pieces) => slot.write(SEND_PAYLOAD, pieces.as_bytes()),
            Payload::Inline(bytes) => slot.write(SEND_PAYLOAD, bytes),
        }
        slot.pass_on();
        self.owes_doorbell = true;
        Ok(())
    }

    /// Rings for what was stored: POST_SEND without requests.
    #[inline]
    pub(super) fn ring(&mut self, doorbell: Doorbell<'_>) -> Result<(), PostError> {
        if self.owes_doorbell {
            doorbell.ring().map_err(PostError::Refused)?;
            self.owes_doorbell = false;
        }
        Ok(())
    }

    /// The element of `request`, less its payload. What only the kernel uses is zero, as it expects
    /// of a new request.
    fn element(&self, request: &SendRequest<'_>) -> Result<rxe_send_wqe, PostError> {
        let mut flags = ib_send_flags::from_bits_retain(request.flags.bits());
        let (length, pieces) = match request.payload {
            Payload::Gather(pieces) => (total(pieces)?, count(pieces, self.max_sge)?),
            Payload::Inline(bytes) => {
                flags |= ib_send_flags::IB_SEND_INLINE;
                (inline(bytes, request, self.max_inline)?, 0)
            }
        };
        let mut element = rxe_send_wqe::new_zeroed();
        let mut remote = |opcode, remote_addr: u64, rkey| {
            let memory = rxe_send_wr_rdma { remote_addr: remote_addr.into(), rkey, reserved: 0 };
            element.wr.wr = memory.into();
            element.iova = remote_addr.into();
            opcode
        };
        let opcode = match request.operation {
            SendOperation::Send => ib_uverbs_wr_opcode::IB_UVERBS_WR_SEND,
            SendOperation::Write { remote_addr, rkey } => {
                remote(ib_uverbs_wr_opcode::IB_UVERBS_WR_RDMA_WRITE, remote_addr, rkey)
            }
            SendOperation::Read { remote_addr, rkey } => {
                remote(ib_uverbs_wr_opcode::IB_UVERBS_WR_RDMA_READ, remote_addr, rkey)
            }
            SendOperation::SendTo { destination, imm_data } => {
                let datagram = rxe_send_wr_ud {
                    remote_qpn: destination.qp_num,
                    remote_qkey: destination.qkey,
                    ah_num: destination.address.number(),
                    ..rxe_send_wr_ud::default()
                };
                element.wr.wr = datagram.into();
                match imm_data {
                    None => ib_uverbs_wr_opcode::IB_UVERBS_WR_SEND,
                    Some(number) => {
                        element.wr.ex = number.to_be_bytes();
                        ib_uverbs_wr_opcode::IB_UVERBS_WR_SEND_WITH_IMM
                    }
                }
            }
        };
        element.wr.wr_id = request.wr_id.into();
        element.wr.opcode = opcode;
        element.wr.send_flags = flags;
        element.dma.length = length;
        element.dma.resid = length;
        element.dma.num_sge = pieces;
        Ok(element)
    }
}

/// The producer's end of a receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    queue: Queue,
    max_sge: u32,
}

impl ReceiveRing {
    /// Maps the ring that `info` tells of, for requests of up to `max_sge` pieces.
    fn map(file: &UverbsFile, info: &mminfo, max_sge: u32) -> Result<Self, Errno> {
        let element = RECEIVE_PAYLOAD.saturating_add(pieces(max_sge));
        Ok(Self { queue: Queue::map(file, info, element)?, max_sge })
    }

    /// Maps the ring that has taken the place of this one.
    pub(super) fn remap(&mut self, file: &UverbsFile, info: &mminfo) -> Result<(), Errno> {
        *self = Self::map(file, info, self.max_sge)?;
        Ok(())
    }

    /// Stores a request. The kernel looks when a message comes.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv).
    #[inline]
    pub(super) unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let length = total(request.scatter)?;
        let mut element = rxe_recv_wqe::new_zeroed();
        element.wr_id = request.wr_id.into();
        element.dma.length = length;
        element.dma.resid = length;
        element.dma.num_sge = count(request.scatter, self.max_sge)?;
        let slot = self.queue.free_slot().map_err(PostError::Malformed)?;
        let Some(mut slot) = slot else { return Err(PostError::Full(self.queue.capacity())) };
        slot.write(0, element.as_bytes());
        slot.write(RECEIVE_PAYLOAD, request.scatter.as_bytes());
        slot.pass_on();
        Ok(())
    }
}

/// That the kernel looks at what is posted in `state`.
#[inline]
pub(super) fn check_receive(state: QpState) -> Result<(), PostError> {
    if state == QpState::IB_QPS_RESET {
        let reason = "the queue pair is in IB_QPS_RESET, and receives need IB_QPS_INIT";
        return Err(PostError::Invalid(reason.into()));
    }
    Ok(())
}
