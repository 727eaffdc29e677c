//! Commands that several drivers share.

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, ib_uverbs_create_qp, ib_uverbs_create_qp_resp, ib_uverbs_create_srq_resp,
    ib_uverbs_destroy_cq, ib_uverbs_destroy_qp, ib_uverbs_destroy_srq, ib_uverbs_ex_create_qp,
    ib_uverbs_ex_create_qp_resp, ib_uverbs_req_notify_cq,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::CommandContext;
use super::error::CreateError;
use super::interface::{Arm, CqControlOps, CreateSrq, Opened};
use crate::sys::command::Refused;
use crate::sys::uverbs::UverbsFile;

/// Makes `file` a context; the driver's part of the answer is an `O`.
pub fn get_context<O>(file: &UverbsFile) -> Result<Opened, CreateError>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    let (async_events, completion_vectors) = file.get_context::<O>()?;
    Ok(Opened { async_events, completion_vectors })
}

/// Creates a queue pair; the driver's part of the answer is an `O`.
///
/// Without flags by the plain command, which every kernel has.
pub fn create_qp<O>(
    cx: CommandContext<'_>,
    request: ib_uverbs_ex_create_qp,
) -> Result<(ib_uverbs_create_qp_resp, O), CreateError>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    if !request.create_flags.is_empty() {
        let (response, driver): (ib_uverbs_ex_create_qp_resp, O) = cx.command(request)?;
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
    Ok(cx.command(request)?)
}

/// Creates a shared receive queue; the driver's part of the answer is an `O`.
pub fn create_srq<O>(
    cx: CommandContext<'_>,
    request: CreateSrq,
) -> Result<(ib_uverbs_create_srq_resp, O), CreateError>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    Ok(match request {
        CreateSrq::Plain(request) => cx.command(request)?,
        CreateSrq::Xrc(request) => cx.command(request)?,
    })
}

/// Destroys a completion queue whose ring could not be mapped. Returns the error.
pub fn discard_cq(cx: CommandContext<'_>, cq_handle: u32, errno: Errno) -> CreateError {
    let response = AlignedU64::default();
    let _ = cx.file().command(ib_uverbs_destroy_cq { response, cq_handle, reserved: 0 });
    CreateError::Map(errno)
}

/// Destroys a queue pair whose rings could not be mapped. Returns the error.
pub fn discard_qp(cx: CommandContext<'_>, qp_handle: u32, errno: Errno) -> CreateError {
    let response = AlignedU64::default();
    let _ = cx.file().command(ib_uverbs_destroy_qp { response, qp_handle, reserved: 0 });
    CreateError::Map(errno)
}

/// Destroys a shared receive queue whose ring could not be mapped. Returns the error.
pub fn discard_srq(cx: CommandContext<'_>, srq_handle: u32, errno: Errno) -> CreateError {
    let response = AlignedU64::default();
    let _ = cx.file().command(ib_uverbs_destroy_srq { response, srq_handle, reserved: 0 });
    CreateError::Map(errno)
}

/// The shared part of a completion queue that is armed by a command.
#[derive(Debug)]
pub struct ArmedByCommand;

impl CqControlOps for ArmedByCommand {
    /// `IB_USER_VERBS_CMD_REQ_NOTIFY_CQ`.
    fn arm(&self, cx: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), Refused> {
        let solicited_only = u32::from(arm.solicited_only);
        let request = ib_uverbs_req_notify_cq { cq_handle: arm.cq_handle, solicited_only };
        cx.command(request).map(|((), ())| ())
    }
}
