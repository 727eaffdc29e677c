//! The facts in which drivers differ.

use crate::work::WcStatus;

/// The facts in which the driver of a device differs from others.
///
/// Each module reads the facts that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// `true` if the state of a queue pair follows its connection.
    ///
    /// The kernel moves a queue pair to ERR when its connection ends, and ends the connection when the queue pair moves
    /// to ERR.
    ///
    /// A queue pair never leaves ERR: the kernel ignores a step out of it and reports success.
    pub qp_follows_connection: bool,
    /// The completion of requests that are posted to a queue pair in ERR.
    pub flush: FlushMode,
    /// `true` if misuse of type 2 memory windows can crash the kernel driver.
    ///
    /// When a window is invalidated, rxe drops the reference of the window to its queue pair, even if there is none.
    /// When a window is destroyed, rxe uses its queue pair, even if the queue pair was destroyed first.
    ///
    /// When a process ends, the kernel destroys the newer of two objects first.
    pub mw_type2_can_crash_kernel: bool,
    /// `true` if memory can be registered under addresses other than its own.
    pub custom_iova: bool,
    /// `true` if a shared receive queue keeps its requests when it is resized.
    pub srq_resize_keeps_requests: bool,
    /// `true` if the device raises one event for each event that was read.
    ///
    /// A completion queue that is armed again before its event was read raises no second event.
    pub raises_event_per_read: bool,
    /// `true` if queues are memory of the process, which the kernel pins.
    ///
    /// This memory counts against the user's limit.
    pub pins_queue_memory: bool,
    /// The vendor whose ECE options the queue pairs negotiate, if they negotiate any.
    ///
    /// ECE is enhanced connection establishment.
    ///
    /// The driver then implements [`Driver::modify_qp_with_ece`](super::Driver::modify_qp_with_ece).
    pub ece_vendor: Option<u32>,
    /// The status of a receive whose memory is too short for the message.
    pub oversize_status: WcStatus,
    /// The status of a send that has not completed when the connection ends.
    pub disconnect_status: WcStatus,
}

/// The completion of requests that are posted to a queue pair in ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    /// The device completes the requests.
    Device,
    /// The kernel flushes when the queue pair is moved to ERR again.
    OnRequest,
    /// The library completes the requests that the kernel has left: [`OrphanedRequests`](super::OrphanedRequests).
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
            raises_event_per_read: false,
            pins_queue_memory: false,
            ece_vendor: None,
            oversize_status: WcStatus::IB_WC_LOC_LEN_ERR,
            disconnect_status: WcStatus::IB_WC_WR_FLUSH_ERR,
        }
    }
}
