//! The facts in which drivers differ.

use crate::work::WcStatus;

/// The facts in which the driver of a device differs from others. Each module reads those that
/// concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The kernel moves a queue pair to ERR when its connection ends, and ends the connection when the
    /// queue pair moves there. A queue pair never leaves ERR: the kernel ignores a step out of it and
    /// reports success.
    pub qp_follows_connection: bool,
    /// How a request completes that is posted to a queue pair in ERR.
    pub flush: FlushMode,
    /// Misuse of type 2 memory windows can crash the kernel driver. rxe drops the reference of a
    /// window to its queue pair when the window is invalidated, even if there is none, and uses the
    /// queue pair of a window that is destroyed, even if the queue pair was destroyed first. As a
    /// process ends, the newer of two objects is destroyed first.
    pub mw_type2_can_crash_kernel: bool,
    /// Memory can be registered under addresses other than its own.
    pub custom_iova: bool,
    /// A shared receive queue keeps its requests when it is resized.
    pub srq_resize_keeps_requests: bool,
    /// The status of a receive whose memory is too short for the message.
    pub oversize_status: WcStatus,
    /// The status of a send that the end of the connection overtook.
    pub disconnect_status: WcStatus,
}

/// How a request completes that is posted to a queue pair in ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    /// The device completes it.
    Device,
    /// The kernel has to be asked: it flushes when the queue pair is moved to ERR once more.
    OnRequest,
    /// The library completes what the kernel has left: [`OrphanedRequests`](super::OrphanedRequests).
    Library,
}

impl Default for Capabilities {
    /// Returns the behavior that the InfiniBand specification describes.
    fn default() -> Self {
        Self {
            qp_follows_connection: false,
            flush: FlushMode::OnRequest,
            mw_type2_can_crash_kernel: false,
            custom_iova: true,
            srq_resize_keeps_requests: true,
            oversize_status: WcStatus::IB_WC_LOC_LEN_ERR,
            disconnect_status: WcStatus::IB_WC_WR_FLUSH_ERR,
        }
    }
}
