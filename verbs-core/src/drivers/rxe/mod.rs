//! Software RoCE.
//!
//! Each queue is a ring, and the response of the create command has its offset for mapping. Sends and arming need a
//! command as a doorbell; receives and polling need none. (`drivers/infiniband/sw/rxe`, uapi `rdma_user_rxe.h`.)
//!
//! # Safety
//!
//! See [`driver`](crate::driver). Only the posts are unsafe, because they give memory to the device.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

#[cfg(fuzzing)]
pub mod fuzzing;
mod queue;
mod send;

use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::rxe::{
    mminfo, rxe_create_ah_resp, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp,
    rxe_dma_info, rxe_modify_srq_cmd, rxe_recv_wqe, rxe_resize_cq_resp,
};
use verbs_abi::{
    ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_destroy_ah,
    ib_uverbs_ex_create_qp, ib_uverbs_modify_srq, ib_uverbs_resize_cq, ib_uverbs_wc,
    rdma_driver_id,
};

use self::queue::{Queue, sges_len};
use self::send::SendRing;
use crate::driver::checks::{count, signed_length};
use crate::driver::commands::{
    self, ArmedByCommand, discard_cq, discard_qp, discard_srq, get_context,
};
use crate::driver::{
    BuiltIn, Capabilities, CommandContext, CqControls, CqOps, CreateError, CreateSrq, CreatedCq,
    CreatedQp, CreatedSrq, DeviceInfo, Driver, Opened, PollError, Posted, RecvOps,
};
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, Completion, PdNumber, ReceiveRequest, Sge, WcStatus};

/// The driver of software RoCE.
#[derive(Debug)]
pub struct Rxe;

impl BuiltIn for Rxe {
    fn supports(device: &DeviceInfo, _: &UverbsFile) -> bool {
        device.is(rdma_driver_id::RDMA_DRIVER_RXE, 2)
    }

    fn open(_: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError> {
        Ok((Self, get_context::<()>(file)?))
    }
}

// SAFETY: the kernel completes a request when the device no longer uses its memory, and each slot of a
// ring is taken once.
unsafe impl Driver for Rxe {
    // Boxed: these rings are larger than the rings of other drivers, and an object has room for the largest, even while
    // its rings are elsewhere.
    type CqRing = Box<CqRing>;
    type CqControl = ArmedByCommand;
    type SendRing = Box<SendRing>;
    type RecvRing = Box<RecvRing>;
    type QpData = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mw_type2_can_crash_kernel: true,
            oversize_status: WcStatus::IB_WC_LOC_QP_OP_ERR,
            ..Capabilities::default()
        }
    }

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        let (response, driver): (_, rxe_create_cq_resp) = cx.command(request)?;
        match Queue::map(cx.file(), &driver.mi, 0, None) {
            Ok(queue) => Ok(CreatedCq {
                response,
                ring: Box::new(CqRing { queue }),
                control: ArmedByCommand,
                memory: None,
            }),
            Err(errno) => Err(discard_cq(cx, response.cq_handle, None, errno)),
        }
    }

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        _: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        let (shares, qp_type) = (request.is_srq != 0, request.qp_type);
        let (mut response, driver): (_, rxe_create_qp_resp) = commands::create_qp(cx, request)?;
        let file = cx.file();
        let rings = SendRing::map(file, &driver.sq_mi, qp_type, &response).and_then(|mut send| {
            let beside = Some(send.mapping());
            let map = || RecvRing::map(file, &driver.rq_mi, response.max_recv_sge, beside);
            let recv = (!shares).then(map).transpose()?;
            Ok((send, recv))
        });
        let (send, recv) = match rings {
            Ok(rings) => rings,
            Err(errno) => return Err(discard_qp(cx, response.qp_handle, None, errno)),
        };
        // Linux 6.1 returns the requested number.
        response.max_send_wr = send.capacity();
        response.max_recv_wr = recv.as_ref().map_or(0, |recv| recv.queue.capacity());
        let (send, recv) = (Box::new(send), recv.map(Box::new));
        Ok(CreatedQp { response, send, recv, data: (), ece_options: 0, memory: None })
    }

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        _: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        let (mut response, driver): (_, rxe_create_srq_resp) = commands::create_srq(cx, request)?;
        match RecvRing::map(cx.file(), &driver.mi, response.max_sge, None) {
            Ok(ring) => {
                // Linux 6.1 returns the requested number.
                response.max_wr = ring.queue.capacity();
                let ring = Box::new(ring);
                Ok(CreatedSrq { response, ring, on_destroyed: None, memory: None })
            }
            Err(errno) => Err(discard_srq(cx, response.srq_handle, None, errno)),
        }
    }

    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        let (response, driver): (ib_uverbs_create_ah_resp, rxe_create_ah_resp) =
            cx.command(request)?;
        if driver.ah_num == 0 {
            // The driver would need the whole address in each send, with the hardware addresses.
            let _ = cx.file().command(ib_uverbs_destroy_ah { ah_handle: response.ah_handle });
            let what = "a kernel that does not number address handles";
            return Err(CreateError::Unsupported(what));
        }
        Ok((response, AddressVector::new(pd, &driver.ah_num)))
    }

    /// Sets the limit; the driver requires its own part in every MODIFY_SRQ.
    fn set_srq_limit(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CommandError> {
        // SAFETY: the address in the driver's part is zero, to which it stores nothing.
        unsafe { cx.file().modify_srq(request, rxe_modify_srq_cmd::default()) }
    }
}

/// Changes the size of a shared receive queue.
///
/// Returns the new ring, which has the requests that were posted to the old ring.
fn resize_srq(file: &UverbsFile, request: ib_uverbs_modify_srq) -> Result<mminfo, CommandError> {
    let mut info = mminfo::default();
    let address = (&raw mut info).expose_provenance();
    let address = u64::try_from(address).expect("an address has at most 64 bits");
    let driver_request = rxe_modify_srq_cmd { mmap_info_addr: address.into() };
    // SAFETY: the driver stores an `mminfo` at the address, which is the address of a local `mminfo`.
    unsafe { file.modify_srq(request, driver_request) }?;
    Ok(info)
}

/// The consumer's end of a completion queue. An element begins with the completion.
#[derive(Debug)]
pub struct CqRing {
    queue: Queue<ib_uverbs_wc>,
}

impl CqOps for CqRing {
    #[inline(always)]
    fn poll(&mut self, _: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        self.queue.take(into, Completion).map_err(PollError::Malformed)
    }

    #[inline(always)]
    fn try_poll(&mut self, into: &mut [Completion]) -> Option<usize> {
        self.queue.try_take(into, Completion)
    }

    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        request: ib_uverbs_resize_cq,
        _: &mut Option<Arc<Mapping>>,
    ) -> Result<u32, CreateError> {
        let (response, driver): (_, rxe_resize_cq_resp) = cx.file().driver_command(request, ())?;
        self.queue = Queue::map(cx.file(), &driver.mi, 0, None).map_err(CreateError::Map)?;
        Ok(response.cqe)
    }
}

/// The producer's end of a receive queue. The scatter/gather entries of an element follow it.
#[derive(Debug)]
pub struct RecvRing {
    queue: Queue<rxe_recv_wqe>,
    max_sge: u32,
}

impl RecvRing {
    /// Maps the ring that `info` describes, beside `neighbor`.
    ///
    /// Its requests have up to `max_sge` scatter/gather entries.
    fn map(
        file: &UverbsFile,
        info: &mminfo,
        max_sge: u32,
        neighbor: Option<&mut Mapping>,
    ) -> Result<Self, Errno> {
        Ok(Self { queue: Queue::map(file, info, sges_len(max_sge), neighbor)?, max_sge })
    }
}

impl RecvOps for RecvRing {
    /// Stores a request. The kernel checks the ring when a message arrives.
    #[inline(always)]
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        let num_sge = count(request.scatter, self.max_sge)?;
        let mut slot = self.queue.free_slot()?;
        let length = signed_length(slot.append_sges(request.scatter))?;
        let dma = rxe_dma_info { length, resid: length, num_sge, ..rxe_dma_info::default() };
        let wr_id = request.wr_id.into();
        slot.put(0, &rxe_recv_wqe { wr_id, dma, ..rxe_recv_wqe::default() });
        slot.publish();
        Ok(())
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, wr_id: u64, sge: Sge) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.store(&ReceiveRequest { wr_id, scatter: &[sge] }) }.is_ok()
    }

    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CreateError> {
        let info = resize_srq(cx.file(), request)?;
        *self = Self::map(cx.file(), &info, self.max_sge, None).map_err(CreateError::Map)?;
        Ok(())
    }
}
