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

use verbs_abi::rxe::{
    rxe_create_ah_resp, rxe_create_cq_resp, rxe_create_qp_resp, rxe_recv_wqe, rxe_send_wqe,
    rxe_send_wr_rdma, rxe_send_wr_ud,
};
use verbs_abi::{
    ib_send_flags, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq,
    ib_uverbs_create_cq_resp, ib_uverbs_create_qp, ib_uverbs_create_qp_resp, ib_uverbs_destroy_ah,
    ib_uverbs_req_notify_cq, ib_uverbs_wr_opcode,
};
use zerocopy::{FromZeros, IntoBytes};

use self::queue::Queue;
use super::PostError;
use super::kernel::{discard_cq, discard_qp, doorbell};
use super::request::{count, inline, total};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{
    Completion, Context, Payload, QpState, ReceiveRequest, SendOperation, SendRequest, Sge,
};

pub(super) fn create_cq(
    context: &Context,
    request: ib_uverbs_create_cq,
) -> Result<(ib_uverbs_create_cq_resp, CompletionRing)> {
    let (response, driver): (_, rxe_create_cq_resp) =
        context.driver_command("create", "a completion queue", request, &())?;
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
        context.driver_command(OPERATION, WHAT, request, &())?;
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
) -> Result<(ib_uverbs_create_qp_resp, SendRing, ReceiveRing)> {
    let (response, driver): (_, rxe_create_qp_resp) =
        context.driver_command("create", "a queue pair", request, &())?;
    let pieces = |count: u32| (count as usize).saturating_mul(size_of::<Sge>());
    let sent = pieces(response.max_send_sge).max(response.max_inline_data as usize);
    let send_element = SEND_PAYLOAD.saturating_add(sent);
    let receive_element = RECEIVE_PAYLOAD.saturating_add(pieces(response.max_recv_sge));
    let rings = Queue::map(context.file(), &driver.sq_mi, send_element)
        .and_then(|send| Ok((send, Queue::map(context.file(), &driver.rq_mi, receive_element)?)));
    let (send, receive) = match rings {
        Ok(rings) => rings,
        Err(errno) => return Err(discard_qp(context, response.qp_handle, errno)),
    };
    let send = SendRing {
        queue: send,
        max_sge: response.max_send_sge,
        max_inline: response.max_inline_data,
    };
    let receive = ReceiveRing { queue: receive, max_sge: response.max_recv_sge };
    Ok((response, send, receive))
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
}

/// Where the pieces of memory, or the inline bytes, stand in an element: behind what precedes them.
const SEND_PAYLOAD: usize = size_of::<rxe_send_wqe>();
const RECEIVE_PAYLOAD: usize = size_of::<rxe_recv_wqe>();

impl SendRing {
    /// Posts a request and rings: POST_SEND without requests.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    #[inline]
    pub(super) unsafe fn post(
        &mut self,
        context: &Context,
        handle: u32,
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
        doorbell(context, handle).map_err(PostError::Refused)
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
    /// Posts a request. The kernel looks when a message comes.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv).
    #[inline]
    pub(super) unsafe fn post(
        &mut self,
        state: QpState,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if state == QpState::IB_QPS_RESET {
            let reason = "the queue pair is in IB_QPS_RESET, and receives need IB_QPS_INIT";
            return Err(PostError::Invalid(reason.into()));
        }
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
