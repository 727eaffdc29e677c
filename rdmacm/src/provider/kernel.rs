//! Commands that the software drivers share.

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, ib_uverbs_destroy_cq, ib_uverbs_destroy_qp, ib_uverbs_destroy_srq,
    ib_uverbs_post_send, ib_uverbs_send_wr,
};

use crate::error::Error;
use crate::sys::command::Refused;
use crate::verbs::Context;

/// Has the kernel look at the send queue of the queue pair that it knows as `handle`: POST_SEND
/// without requests.
#[inline]
pub(super) fn doorbell(context: &Context, handle: u32) -> Result<(), Refused> {
    let request = ib_uverbs_post_send {
        response: AlignedU64::default(),
        qp_handle: handle,
        wr_count: 0,
        sge_count: 0,
        // The kernel refuses less, even where there are none.
        wqe_size: u32::try_from(size_of::<ib_uverbs_send_wr>()).expect("56 fits"),
    };
    context.file().command(request).map(drop)
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
