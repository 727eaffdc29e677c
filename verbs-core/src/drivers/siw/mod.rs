//! Software iWARP.
//!
//! Each queue is a ring, and the response of the create command has its offset for mapping. A send needs a command as a
//! doorbell if the kernel may be idle. Receives, polling and arming need none. (`drivers/infiniband/sw/siw`, uapi
//! `siw-abi.h`.)
//!
//! The kernel copies an element before it checks the contents. A refused element stays in the ring, and no later
//! element is ever executed. So this driver refuses everything that the kernel could refuse. The only exception is a
//! read on a connection without reads, which only the doorbell reports. While the kernel executes another request there
//! is no doorbell, and the kernel ends the connection when it processes the read.
//!
//! # Safety
//!
//! See [`driver`](crate::driver). Only registration and posts are unsafe, because they give memory to the device.
#![expect(unsafe_code, reason = "registering and posting give memory to the device")]

mod completion;
mod element;
#[cfg(fuzzing)]
pub mod fuzzing;
mod queue;
mod send;

use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use verbs_abi::siw::{
    SIW_MAX_INLINE, SIW_MAX_SGE, siw_cqe, siw_rqe, siw_ureq_reg_mr, siw_uresp_alloc_ctx,
    siw_uresp_create_cq, siw_uresp_create_qp, siw_uresp_create_srq, siw_uresp_reg_mr,
    siw_wqe_flags,
};
use verbs_abi::{
    AlignedU64, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq,
    ib_uverbs_create_srq_resp, ib_uverbs_ex_create_qp, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp,
    rdma_driver_id,
};

use self::completion::{translate_completion, translate_success};
use self::element::{check_state, gather};
use self::queue::{Arming, OrphanedElements, Ring};
use self::send::SendRing;
use crate::driver::commands::{self, discard_cq, discard_qp, discard_srq, get_context};
use crate::driver::{
    Arm, BuiltIn, Capabilities, CommandContext, CqControlOps, CqControls, CqOps, CreateError,
    CreateSrq, CreatedCq, CreatedQp, CreatedSrq, DeviceInfo, Driver, FlushMode, Opened,
    OrphanedRequests, PollError, PostError, Posted, RecvOps,
};
use crate::sys::command::CommandError;
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, Completion, PdNumber, QpState, ReceiveRequest, Sge, WcStatus};

/// Maximum number of scatter/gather entries in an element.
#[expect(clippy::cast_possible_truncation, reason = "6 fits")]
const MAX_SGE: u32 = SIW_MAX_SGE as u32;

/// The low byte of the next steering tag, which the program chooses.
///
/// It is different each time, so that a key of a deregistered region is unlikely to match the next one.
static NEXT_KEY: AtomicU8 = AtomicU8::new(1);

/// The driver of software iWARP.
#[derive(Debug)]
pub struct Siw;

impl BuiltIn for Siw {
    fn supports(device: &DeviceInfo, _: &UverbsFile) -> bool {
        device.is(rdma_driver_id::RDMA_DRIVER_SIW, 1)
    }

    fn open(_: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError> {
        Ok((Self, get_context::<siw_uresp_alloc_ctx>(file)?))
    }
}

// The header defines a value that means no key. No response uses the value with that meaning: it is an offset like
// any other, the offset of the 145th page that a context maps.

// SAFETY: the kernel completes a request when the device no longer uses its memory. Otherwise it leaves the request in
// the ring, from which it is taken once. Each element of a ring is taken once.
unsafe impl Driver for Siw {
    type CqRing = CqRing;
    type CqControl = Arming;
    type SendRing = SendRing;
    type RecvRing = RecvRing;
    type QpData = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            qp_follows_connection: true,
            flush: FlushMode::Library,
            // The kernel would return no error, and use its own addresses for the memory.
            custom_iova: false,
            // TCP takes no more of the message, or the stream was closed while the last part of it was handed over. No
            // other failure with registered memory has this errno.
            disconnect_status: WcStatus::IB_WC_LOC_QP_OP_ERR,
            ..Capabilities::default()
        }
    }

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        let (response, driver): (_, siw_uresp_create_cq) = cx.command(request)?;
        let ring = Ring::of_completions(cx.file(), driver.cq_key.get(), driver.num_cqe);
        match ring.and_then(|ring| Ok((ring.arming().ok_or(Errno::EPROTO)?, ring))) {
            Ok((control, ring)) => {
                Ok(CreatedCq { response, ring: CqRing { ring }, control, memory: None })
            }
            Err(errno) => Err(discard_cq(cx, response.cq_handle, None, errno)),
        }
    }

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        _: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        let (signal_all, shares) = (request.sq_sig_all != 0, request.is_srq != 0);
        let (mut response, driver): (_, siw_uresp_create_qp) = commands::create_qp(cx, request)?;
        let file = cx.file();
        let send = Ring::of_work(file, driver.sq_key.get(), driver.num_sqe, None);
        let rings = send.and_then(|mut send| {
            // Without a receive queue there is no ring, and the key belongs to another object.
            let beside = send.mapping();
            let map = || Ring::of_work(file, driver.rq_key.get(), driver.num_rqe, beside);
            let recv = (driver.num_rqe > 0 && !shares).then(map).transpose()?;
            Ok((send, recv))
        });
        let (send, recv) = match rings {
            Ok(rings) => rings,
            Err(errno) => return Err(discard_qp(cx, response.qp_handle, None, errno)),
        };
        // The kernel returns the requested numbers, but uses these.
        response.max_send_wr = driver.num_sqe;
        response.max_recv_wr = driver.num_rqe;
        let max_inline = u32::try_from(SIW_MAX_INLINE).expect("80 fits");
        let (max_sge, max_inline) =
            (response.max_send_sge.min(MAX_SGE), response.max_inline_data.min(max_inline));
        let send = SendRing::new(send, max_sge, max_inline, signal_all);
        let recv = RecvRing { ring: recv, max_sge: response.max_recv_sge.min(MAX_SGE) };
        let recv = (!shares).then_some(recv);
        Ok(CreatedQp { response, send, recv, data: (), ece_options: 0, memory: None })
    }

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        _: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        let (mut response, driver): (ib_uverbs_create_srq_resp, siw_uresp_create_srq) =
            commands::create_srq(cx, request)?;
        match Ring::of_work(cx.file(), driver.srq_key.get(), driver.num_rqe, None) {
            Ok(ring) => {
                // The kernel returns the requested number, but uses this one.
                response.max_wr = driver.num_rqe;
                let max_sge = response.max_sge.min(MAX_SGE);
                let ring = RecvRing { ring: Some(ring), max_sge };
                Ok(CreatedSrq { response, ring, on_destroyed: None, memory: None })
            }
            Err(errno) => Err(discard_srq(cx, response.srq_handle, None, errno)),
        }
    }

    fn create_ah(
        &self,
        _: CommandContext<'_>,
        _: PdNumber,
        _: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        Err(CreateError::Unsupported("datagrams by siw"))
    }

    unsafe fn register(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp, CommandError> {
        let driver_request = siw_ureq_reg_mr {
            stag_key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            ..siw_ureq_reg_mr::default()
        };
        // SAFETY: the contract of this function is that of the callee.
        let registered: Result<(_, siw_uresp_reg_mr), _> =
            unsafe { cx.file().register_memory(request, driver_request) };
        registered.map(|(response, _)| response)
    }
}

impl CqControlOps for Arming {
    fn arm(&self, _: CommandContext<'_>, _: &Arm<'_>) -> Result<(), CommandError> {
        self.arm_next();
        Ok(())
    }

    fn is_armed(&self) -> bool {
        self.is_set()
    }
}

impl OrphanedRequests for OrphanedElements {
    fn take(&self) -> Vec<u64> {
        self.take_all()
    }
}

/// The consumer's end of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    ring: Ring<siw_cqe>,
}

impl CqOps for CqRing {
    #[inline(always)]
    fn poll(&mut self, _: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        let translate = |element: &siw_cqe| translate_success(element).map(Completion);
        Ok(self.ring.take(into, translate, |element| Completion(translate_completion(element))))
    }

    #[inline(always)]
    fn try_poll(&mut self, into: &mut [Completion]) -> Option<usize> {
        self.ring.try_take(into, |element| translate_success(element).map(Completion))
    }
}

/// The producer's end of a receive queue; without a ring if its capacity is 0.
#[derive(Debug)]
pub struct RecvRing {
    ring: Option<Ring<siw_rqe>>,
    max_sge: u32,
}

impl RecvOps for RecvRing {
    fn check(&self, state: QpState) -> Posted {
        check_state(state)
    }

    /// Stores a request. The kernel checks the ring when a message arrives.
    #[inline(always)]
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        let Some(ring) = &mut self.ring else { return Err(PostError::Full(0)) };
        let mut element = ring.free()?;
        let into = offset_of!(siw_rqe, sge);
        let num_sge = gather(&mut element, into, request.scatter, self.max_sge)?;
        element.put(offset_of!(siw_rqe, id), &AlignedU64::new(request.wr_id));
        element.put(offset_of!(siw_rqe, num_sge), &num_sge);
        element.publish(siw_wqe_flags::empty());
        Ok(())
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, wr_id: u64, sge: Sge) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.store(&ReceiveRequest { wr_id, scatter: &[sge] }) }.is_ok()
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        let ring = self.ring.as_ref()?;
        Some(Box::new(ring.orphans()))
    }
}
