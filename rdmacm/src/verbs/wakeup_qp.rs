//! Raises a completion event for completions that the library injects, with a private queue pair.
//!
//! The kernel raises the event of an armed queue only for its own completions. The library
//! therefore flushes a receive on the private queue pair.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use verbs_abi::{ib_uverbs_destroy_qp, ib_uverbs_ex_create_qp};

use super::object::Object;
use super::pd::ProtectionDomain;
use super::{Completion, QpType, WcStatus};
use crate::driver::{CqControls, CreateError};
use crate::drivers::any::AnyRecvRing;
use crate::engine::{Cq, NewQp, Qp, WakeupRequest};
use crate::lock::ignore_poison;

/// The identifier of the next wakeup.
///
/// The number of the queue pair alone does not identify the completion. A destroyed queue pair may
/// have had the same number, and its completions may still be in the queue.
static NEXT_WR_ID: AtomicU64 = AtomicU64::new(u64::MAX);

/// A queue pair whose only completion is hidden from the program.
#[derive(Debug)]
pub(super) struct WakeupQp {
    qp: Qp,
    wr_id: u64,
    /// `None` once the queue pair is destroyed.
    queue_pair: Mutex<Option<KernelQp>>,
}

/// The queue pair in the kernel.
#[derive(Debug)]
struct KernelQp {
    object: Object<ib_uverbs_destroy_qp>,
    // Declared after `object`: the queue pair belongs to it.
    _pd: ProtectionDomain,
    receive: AnyRecvRing,
}

impl WakeupQp {
    /// Creates a queue pair that completes on `cq`.
    pub(super) fn new(pd: &ProtectionDomain, cq: &Cq) -> Result<Self, CreateError> {
        let context = pd.context();
        let request = ib_uverbs_ex_create_qp {
            pd_handle: pd.handle(),
            send_cq_handle: cq.handle(),
            recv_cq_handle: cq.handle(),
            max_send_wr: 1,
            max_recv_wr: 1,
            qp_type: QpType::IB_UVERBS_QPT_RC,
            ..ib_uverbs_ex_create_qp::default()
        };
        let cqs = CqControls { send: cq.control(), recv: cq.control() };
        let created = Qp::create(context.engine(), pd.number(), request, cqs)?;
        let NewQp { qp, recv, memory, .. } = created;
        let object = Object::with_memory(context, qp.handle(), memory);
        let receive =
            recv.ok_or(CreateError::Unsupported("the queue pair has no receive queue"))?;
        let queue_pair = KernelQp { object, _pd: pd.clone(), receive };
        let wr_id = NEXT_WR_ID.fetch_sub(1, Ordering::Relaxed);
        Ok(Self { qp, wr_id, queue_pair: Mutex::new(Some(queue_pair)) })
    }
}

impl WakeupRequest for WakeupQp {
    fn completes_with(&self, completion: &Completion) -> bool {
        completion.qp_num() == self.qp.number()
            && completion.wr_id() == self.wr_id
            && completion.status() == WcStatus::IB_WC_WR_FLUSH_ERR
    }

    fn raise_event(&self) {
        let mut queue_pair = ignore_poison(self.queue_pair.lock());
        let Some(KernelQp { object, receive, .. }) = &mut *queue_pair else { return };
        // Refused only if the kernel has damaged the ring.
        let _ = receive.store_nothing(self.wr_id);
        // If the post or the command is refused, no event is raised. A sleeping thread then wakes
        // at the next completion of another request.
        let _ = self.qp.command_error(object.context().engine());
    }

    fn destroy_qp(&self) {
        *ignore_poison(self.queue_pair.lock()) = None;
    }

    fn is_destroyed(&self) -> bool {
        match self.queue_pair.try_lock() {
            Ok(queue_pair) => queue_pair.is_none(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().is_none(),
            // The thread that raises the event holds the lock, so the queue pair exists.
            Err(TryLockError::WouldBlock) => false,
        }
    }
}
