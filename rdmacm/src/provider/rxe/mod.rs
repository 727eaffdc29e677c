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

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod queue;
mod send;

use nix::errno::Errno;
use verbs_abi::rxe::{
    mminfo, rxe_create_ah_resp, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp,
    rxe_dma_info, rxe_modify_srq_cmd, rxe_recv_wqe, rxe_resize_cq_resp,
};
use verbs_abi::{
    Command, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq,
    ib_uverbs_create_cq_resp, ib_uverbs_create_qp_resp, ib_uverbs_create_srq_resp,
    ib_uverbs_destroy_ah, ib_uverbs_ex_create_qp, ib_uverbs_modify_srq, ib_uverbs_resize_cq,
    ib_uverbs_resize_cq_resp, ib_uverbs_wc,
};

use self::queue::Queue;
pub(crate) use self::send::SendRing;
use super::Posted;
use super::kernel::{self, discard_cq, discard_qp, discard_srq};
use super::request::{count, signed_length};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::Refused;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::verbs::{Completion, Context, ReceiveRequest, Sge};

pub(super) fn create_cq(
    context: &Context,
    request: ib_uverbs_create_cq,
) -> Result<(ib_uverbs_create_cq_resp, CompletionRing)> {
    let (response, driver): (_, rxe_create_cq_resp) =
        context.driver_command("create", "a completion queue", request, ())?;
    match Queue::map(context.file(), &driver.mi, 0, None) {
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
    request: ib_uverbs_ex_create_qp,
) -> Result<(ib_uverbs_create_qp_resp, SendRing, Option<ReceiveRing>)> {
    let (shares, qp_type) = (request.is_srq != 0, request.qp_type);
    let (mut response, driver): (_, rxe_create_qp_resp) = kernel::create_qp(context, request)?;
    let file = context.file();
    let rings = SendRing::map(file, &driver.sq_mi, qp_type, &response).and_then(|mut send| {
        let beside = Some(send.mapping());
        let map = || ReceiveRing::map(file, &driver.rq_mi, response.max_recv_sge, beside);
        let receive = (!shares).then(map).transpose()?;
        Ok((send, receive))
    });
    let (send, receive) = match rings {
        Ok(rings) => rings,
        Err(errno) => return Err(discard_qp(context, response.qp_handle, errno)),
    };
    // Linux 6.1 answers what was asked for.
    response.max_send_wr = send.capacity();
    response.max_recv_wr = receive.as_ref().map_or(0, |receive| receive.queue.capacity());
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
    match ReceiveRing::map(context.file(), &driver.mi, response.max_sge, None) {
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

/// Resizes a completion queue; where its ring is then.
pub(super) fn resize_cq(
    file: &UverbsFile,
    request: ib_uverbs_resize_cq,
) -> Result<(ib_uverbs_resize_cq_resp, mminfo), Refused> {
    let (response, driver): (_, rxe_resize_cq_resp) = file.driver_command(request, ())?;
    Ok((response, driver.mi))
}

/// The consumer's end of a completion queue. An element begins with the completion.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    queue: Queue<ib_uverbs_wc>,
}

impl CompletionRing {
    /// Maps the ring that has taken the place of this one.
    pub(super) fn remap(&mut self, file: &UverbsFile, info: &mminfo) -> Result<(), Errno> {
        self.queue = Queue::map(file, info, 0, None)?;
        Ok(())
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, into: &mut [Completion]) -> Result<usize, &'static str> {
        self.queue.take(into, Completion)
    }
}

/// The producer's end of a receive queue. Behind each element are its pieces of memory.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    queue: Queue<rxe_recv_wqe>,
    max_sge: u32,
}

impl ReceiveRing {
    /// Maps the ring that `info` tells of, for requests of up to `max_sge` pieces, beside `neighbour`.
    fn map(
        file: &UverbsFile,
        info: &mminfo,
        max_sge: u32,
        neighbour: Option<&mut Mapping>,
    ) -> Result<Self, Errno> {
        Ok(Self { queue: Queue::map(file, info, pieces(max_sge), neighbour)?, max_sge })
    }

    /// Maps the ring that has taken the place of this one.
    pub(super) fn remap(&mut self, file: &UverbsFile, info: &mminfo) -> Result<(), Errno> {
        *self = Self::map(file, info, self.max_sge, None)?;
        Ok(())
    }

    /// Stores a request. The kernel looks when a message comes.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv).
    #[inline(always)]
    pub(super) unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        let num_sge = count(request.scatter, self.max_sge)?;
        let mut slot = self.queue.free_slot()?;
        let length = signed_length(slot.append_pieces(request.scatter))?;
        let dma = rxe_dma_info { length, resid: length, num_sge, ..rxe_dma_info::default() };
        let wr_id = request.wr_id.into();
        slot.put(0, &rxe_recv_wqe { wr_id, dma, ..rxe_recv_wqe::default() });
        slot.pass_on();
        Ok(())
    }
}
