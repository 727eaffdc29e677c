//! Commands that several drivers share.
//!
//! # Safety
//!
//! Some devices have their queues in memory of this process. The unsafe functions pass the contract for that memory on
//! to the driver, which owns it.
#![expect(unsafe_code, reason = "creates queues in memory of this process")]

use std::mem;
use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, ib_uverbs_create_qp, ib_uverbs_create_qp_resp, ib_uverbs_create_srq_resp,
    ib_uverbs_destroy_cq, ib_uverbs_destroy_qp, ib_uverbs_destroy_srq, ib_uverbs_ex_create_qp,
    ib_uverbs_ex_create_qp_resp, ib_uverbs_req_notify_cq,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::CommandContext;
use super::error::CreateError;
use super::interface::{Arm, CqControlOps, CreateSrq, Opened};
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;

/// Makes `file` a context; the driver's part of the answer is an `O`.
pub fn get_context<O>(file: &UverbsFile) -> Result<Opened, CreateError>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    let (async_events, completion_vectors, _) = file.get_context::<(), O>(())?;
    Ok(Opened { async_events, completion_vectors })
}

/// Creates a queue pair; the driver's part of the answer is an `O`.
///
/// A request without flags uses the plain command, which every kernel has.
pub fn create_qp<O>(
    cx: CommandContext<'_>,
    request: ib_uverbs_ex_create_qp,
) -> Result<(ib_uverbs_create_qp_resp, O), CreateError>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    // SAFETY: a driver's part that is empty names no memory.
    unsafe { create_qp_in_memory(cx, request, ()) }
}

/// Creates a queue pair in memory of this process.
///
/// The driver's part of the request names the memory. The driver's part of the answer is an `O`.
///
/// A request without flags uses the plain command, which every kernel has.
///
/// # Safety
///
/// The caller keeps the contract of [`UverbsFile::create_in_memory`].
pub unsafe fn create_qp_in_memory<I, O>(
    cx: CommandContext<'_>,
    request: ib_uverbs_ex_create_qp,
    driver_request: I,
) -> Result<(ib_uverbs_create_qp_resp, O), CreateError>
where
    I: IntoBytes + Immutable,
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    cx.check()?;
    if !request.create_flags.is_empty() {
        // SAFETY: the contract of this function is that of the callee.
        let created = unsafe { cx.file().create_in_memory(request, driver_request) };
        let (response, driver): (ib_uverbs_ex_create_qp_resp, O) = created?;
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
    // SAFETY: the contract of this function is that of the callee.
    Ok(unsafe { cx.file().create_in_memory(request, driver_request) }?)
}

/// Creates a shared receive queue; the driver's part of the answer is an `O`.
pub fn create_srq<O>(
    cx: CommandContext<'_>,
    request: CreateSrq,
) -> Result<(ib_uverbs_create_srq_resp, O), CreateError>
where
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    // SAFETY: a driver's part that is empty names no memory.
    unsafe { create_srq_in_memory(cx, request, ()) }
}

/// Creates a shared receive queue in memory of this process.
///
/// The driver's part of the request names the memory. The driver's part of the answer is an `O`.
///
/// # Safety
///
/// The caller keeps the contract of [`UverbsFile::create_in_memory`].
pub unsafe fn create_srq_in_memory<I, O>(
    cx: CommandContext<'_>,
    request: CreateSrq,
    driver_request: I,
) -> Result<(ib_uverbs_create_srq_resp, O), CreateError>
where
    I: IntoBytes + Immutable,
    O: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    cx.check()?;
    Ok(match request {
        CreateSrq::Plain(request) => {
            // SAFETY: the contract of this function is that of the callee.
            unsafe { cx.file().create_in_memory(request, driver_request) }?
        }
        CreateSrq::Xrc(request) => {
            // SAFETY: the contract of this function is that of the callee.
            unsafe { cx.file().create_in_memory(request, driver_request) }?
        }
    })
}

/// Destroys a completion queue whose creation cannot be finished, and returns the error.
///
/// `memory` is the memory of this process that the queue was created in. If the kernel refuses to destroy the queue,
/// the memory stays mapped.
pub fn discard_cq(
    cx: CommandContext<'_>,
    cq_handle: u32,
    memory: Option<Arc<Mapping>>,
    errno: Errno,
) -> CreateError {
    let response = AlignedU64::default();
    discard(cx, ib_uverbs_destroy_cq { response, cq_handle, reserved: 0 }, memory, errno)
}

/// Destroys a queue pair whose creation cannot be finished, and returns the error.
///
/// `memory` is the memory of this process that the queue pair was created in. If the kernel refuses to destroy the
/// queue pair, the memory stays mapped.
pub fn discard_qp(
    cx: CommandContext<'_>,
    qp_handle: u32,
    memory: Option<Arc<Mapping>>,
    errno: Errno,
) -> CreateError {
    let response = AlignedU64::default();
    discard(cx, ib_uverbs_destroy_qp { response, qp_handle, reserved: 0 }, memory, errno)
}

/// Destroys a shared receive queue whose creation cannot be finished, and returns the error.
///
/// `memory` is the memory of this process that the queue was created in. If the kernel refuses to destroy the queue,
/// the memory stays mapped.
pub fn discard_srq(
    cx: CommandContext<'_>,
    srq_handle: u32,
    memory: Option<Arc<Mapping>>,
    errno: Errno,
) -> CreateError {
    let response = AlignedU64::default();
    discard(cx, ib_uverbs_destroy_srq { response, srq_handle, reserved: 0 }, memory, errno)
}

/// Sends a command that destroys a queue, and releases its `memory` if the kernel has destroyed it.
fn discard<C: Command>(
    cx: CommandContext<'_>,
    request: C,
    memory: Option<Arc<Mapping>>,
    errno: Errno,
) -> CreateError {
    if cx.file().command(request).is_err() {
        // The device may use the memory as long as the kernel's queue exists.
        mem::forget(memory);
    }
    CreateError::Map(errno)
}

/// The shared part of a completion queue that is armed by a command.
#[derive(Debug)]
pub struct ArmedByCommand;

impl CqControlOps for ArmedByCommand {
    /// Sends `IB_USER_VERBS_CMD_REQ_NOTIFY_CQ`.
    fn arm(&self, cx: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), CommandError> {
        let solicited_only = u32::from(arm.solicited_only);
        let request = ib_uverbs_req_notify_cq { cq_handle: arm.cq_handle, solicited_only };
        cx.command(request).map(|((), ())| ())
    }
}

#[cfg(test)]
mod tests;
