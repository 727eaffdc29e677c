//! Commands that several drivers share.

use std::sync::Mutex;

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, ib_uverbs_create_qp, ib_uverbs_create_qp_resp, ib_uverbs_destroy_cq,
    ib_uverbs_destroy_qp, ib_uverbs_destroy_srq, ib_uverbs_ex_create_qp,
    ib_uverbs_ex_create_qp_resp, ib_uverbs_req_notify_cq,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::sys::command::Refused;
use crate::verbs::Context;

/// What has the kernel look at the send queue of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doorbell<'a> {
    pub(crate) context: &'a Context,
    /// The kernel's name of the queue pair.
    pub(crate) handle: u32,
    /// Held while the kernel changes the queue pair.
    pub(crate) changing: &'a Mutex<()>,
}

impl Doorbell<'_> {
    /// POST_SEND without requests.
    #[inline(always)]
    pub(super) fn ring(self) -> Result<(), Refused> {
        self.context.file().ring(self.handle)
    }
}

/// Makes a queue pair; the driver's part of the answer is an `O`.
///
/// Without flags by the plain command, which every kernel has.
pub(super) fn create_qp<O>(
    context: &Context,
    request: ib_uverbs_ex_create_qp,
) -> Result<(ib_uverbs_create_qp_resp, O)>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    const OPERATION: &str = "create";
    const WHAT: &str = "a queue pair";
    if !request.create_flags.is_empty() {
        let (response, driver): (ib_uverbs_ex_create_qp_resp, O) =
            context.driver_command(OPERATION, WHAT, request, ())?;
        return Ok((response.base, driver));
    }
    let request = ib_uverbs_create_qp {
        response: AlignedU64::default(),
        user_handle: request.user_handle,
        pd_handle: request.pd_handle,
        send_cq_handle: request.send_cq_handle,
        recv_cq_handle: request.recv_cq_handle,
        srq_handle: request.srq_handle,
        max_send_wr: request.max_send_wr,
        max_recv_wr: request.max_recv_wr,
        max_send_sge: request.max_send_sge,
        max_recv_sge: request.max_recv_sge,
        max_inline_data: request.max_inline_data,
        sq_sig_all: request.sq_sig_all,
        qp_type: request.qp_type,
        is_srq: request.is_srq,
        reserved: 0,
    };
    context.driver_command(OPERATION, WHAT, request, ())
}

/// Destroys a completion queue whose ring could not be mapped; the error.
pub(super) fn discard_cq(context: &Context, cq_handle: u32, errno: Errno) -> Error {
    let response = AlignedU64::default();
    let _ = context.file().command(ib_uverbs_destroy_cq { response, cq_handle, reserved: 0 });
    Error::os("map the ring of", "a completion queue", errno)
}

/// Destroys a queue pair whose rings could not be mapped; the error.
pub(super) fn discard_qp(context: &Context, qp_handle: u32, errno: Errno) -> Error {
    let response = AlignedU64::default();
    let _ = context.file().command(ib_uverbs_destroy_qp { response, qp_handle, reserved: 0 });
    Error::os("map the rings of", "a queue pair", errno)
}

/// Destroys a shared receive queue whose ring could not be mapped; the error.
pub(super) fn discard_srq(context: &Context, srq_handle: u32, errno: Errno) -> Error {
    let response = AlignedU64::default();
    let _ = context.file().command(ib_uverbs_destroy_srq { response, srq_handle, reserved: 0 });
    Error::os("map the ring of", "a shared receive queue", errno)
}

/// Arms a completion queue. `IB_USER_VERBS_CMD_REQ_NOTIFY_CQ`.
pub(super) fn request_notify(context: &Context, handle: u32, solicited_only: bool) -> Result<()> {
    let request =
        ib_uverbs_req_notify_cq { cq_handle: handle, solicited_only: u32::from(solicited_only) };
    context.command("arm", "a completion queue", request)
}
