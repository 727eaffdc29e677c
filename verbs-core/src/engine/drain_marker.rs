//! Requests that the library posts after all others of a queue, to detect when those have completed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

use crate::work::{Completion, WcStatus};

/// The identifier of the next marker.
///
/// The other requests of the queue pair have identifiers of the program. So the numbers begin with one that a program
/// is unlikely to choose.
static NEXT_WR_ID: AtomicU64 = AtomicU64::new(0x9c5f_2a71_d3e8_0000);

/// The side of a work queue of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueSide {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// A request after all others of a queue, whose completion the library hides from the program.
#[derive(Debug, Clone)]
pub struct DrainMarker {
    qp_num: u32,
    side: QueueSide,
    wr_id: u64,
    has_completed: Arc<AtomicBool>,
    /// Expires when the queue pair is destroyed.
    qp_lifetime: Weak<()>,
}

impl PartialEq for DrainMarker {
    fn eq(&self, other: &Self) -> bool {
        self.wr_id == other.wr_id
    }
}

impl DrainMarker {
    /// Creates a marker for a queue of queue pair `qp_num`, which exists as long as `qp_lifetime`.
    ///
    /// The caller holds the queue and posts the marker next, so that the identifiers of markers ascend in the order of
    /// the queue.
    pub fn new(qp_num: u32, side: QueueSide, qp_lifetime: &Arc<()>) -> Self {
        let wr_id = NEXT_WR_ID.fetch_add(1, Ordering::Relaxed);
        let qp_lifetime = Arc::downgrade(qp_lifetime);
        Self { qp_num, side, wr_id, has_completed: Arc::default(), qp_lifetime }
    }

    /// Returns `true` if the marker is before `other` in the same queue.
    ///
    /// Its completion was lost if only that of `other` was polled.
    pub fn precedes(&self, other: &Self) -> bool {
        (self.qp_num, self.side) == (other.qp_num, other.side) && self.wr_id < other.wr_id
    }

    /// Returns `true` if the queue pair was destroyed: no completion of it is added after that.
    pub fn is_orphaned(&self) -> bool {
        let is_orphaned = self.qp_lifetime.strong_count() == 0;
        // Completions that the kernel stored before the queue pair was destroyed are visible after this.
        fence(Ordering::Acquire);
        is_orphaned
    }

    /// Returns the identifier of the marker's request.
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// Returns `true` if the marker's completion was polled.
    pub fn has_completed(&self) -> bool {
        self.has_completed.load(Ordering::Acquire)
    }

    /// Returns `true` if `completion` is that of the marker, and then records that it was polled.
    pub fn completes_with(&self, completion: &Completion) -> bool {
        let is_own = completion.wr_id() == self.wr_id
            && completion.qp_num() == self.qp_num
            && completion.status() == WcStatus::IB_WC_WR_FLUSH_ERR;
        if is_own {
            self.has_completed.store(true, Ordering::Release);
        }
        is_own
    }
}
