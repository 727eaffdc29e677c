//! Waking who sleeps for completions that the library has made itself.
//!
//! The kernel raises the event of an armed queue for its own completions only. So it is made to
//! complete one more request: a receive of a queue pair that only serves this, and that goes to ERR.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs_abi::{
    ib_qp_attr_mask, ib_uverbs_destroy_qp, ib_uverbs_ex_create_qp, ib_uverbs_modify_qp,
};

use super::object::Object;
use super::pd::ProtectionDomain;
use super::{Completion, QpState, QpType, WcStatus};
use crate::driver::{CqControls, CreateError, CreatedQp, Driver as _};
use crate::drivers::any::{AnyCqControl, AnyRecvRing};

/// The identifier of the next bell's request. A number alone names no bell: it may be that of a queue
/// pair that is gone, whose completions are on the queue still.
static NEXT_WR_ID: AtomicU64 = AtomicU64::new(u64::MAX);

/// A queue pair whose one completion is nobody's. It keeps its number from other queue pairs until
/// that completion is taken off the queue.
#[derive(Debug)]
pub(super) struct Bell {
    number: u32,
    wr_id: u64,
    /// Until it is [dismantled](Self::dismantle).
    queue_pair: Option<QueuePair>,
}

/// What is the kernel's of a bell.
#[derive(Debug)]
struct QueuePair {
    object: Object<ib_uverbs_destroy_qp>,
    // Behind the object: the queue pair is made in it.
    _pd: ProtectionDomain,
    receive: AnyRecvRing,
}

impl Bell {
    /// Makes a bell whose completion will be on the queue that the kernel knows as `cq_handle`.
    pub(super) fn new(
        pd: &ProtectionDomain,
        cq_handle: u32,
        control: &AnyCqControl,
    ) -> Result<Self, CreateError> {
        let context = pd.context();
        let request = ib_uverbs_ex_create_qp {
            pd_handle: pd.handle(),
            send_cq_handle: cq_handle,
            recv_cq_handle: cq_handle,
            max_send_wr: 1,
            max_recv_wr: 1,
            qp_type: QpType::IB_UVERBS_QPT_RC,
            ..ib_uverbs_ex_create_qp::default()
        };
        let cqs = CqControls { send: control, recv: control };
        let created = context.driver().create_qp(context.commands(), request, cqs)?;
        let CreatedQp { response, recv, memory, .. } = created;
        let receive = recv.ok_or(CreateError::Unsupported("it has no receive queue"))?;
        let object = Object::with_memory(context, response.qp_handle, memory);
        let queue_pair = QueuePair { object, _pd: pd.clone(), receive };
        let wr_id = NEXT_WR_ID.fetch_sub(1, Ordering::Relaxed);
        Ok(Self { number: response.qpn, wr_id, queue_pair: Some(queue_pair) })
    }

    /// Rings: the completion comes, and with it the event.
    pub(super) fn ring(&mut self) {
        let Some(QueuePair { object, receive, .. }) = &mut self.queue_pair else { return };
        // Refused only if the kernel has damaged the ring.
        let _ = receive.store_nothing(self.wr_id);
        let request = ib_uverbs_modify_qp {
            qp_handle: object.handle(),
            attr_mask: ib_qp_attr_mask::IB_QP_STATE,
            qp_state: QpState::IB_QPS_ERR,
            ..ib_uverbs_modify_qp::default()
        };
        // If either is refused, no event comes: a thread that sleeps does so until something else completes.
        let _ = object.context().file().command(request);
    }

    /// Destroys the queue pair. Its completion may be on the queue still.
    pub(super) fn dismantle(&mut self) {
        self.queue_pair = None;
    }

    /// Whether the queue pair is destroyed: what is not on the completion queue after that never comes.
    pub(super) fn is_dismantled(&self) -> bool {
        self.queue_pair.is_none()
    }

    /// Whether `completion` is this bell's.
    pub(super) fn made(&self, completion: &Completion) -> bool {
        completion.qp_num() == self.number
            && completion.wr_id() == self.wr_id
            && completion.status() == WcStatus::IB_WC_WR_FLUSH_ERR
    }
}

#[cfg(test)]
impl Bell {
    /// One that is dismantled, and the completion that it made.
    pub(super) fn of_the_past() -> (Self, Completion) {
        let (number, wr_id) = (18, u64::MAX);
        let status = WcStatus::IB_WC_WR_FLUSH_ERR;
        let made = verbs_abi::ib_uverbs_wc {
            wr_id: wr_id.into(),
            status,
            qp_num: number,
            ..Default::default()
        };
        (Self { number, wr_id, queue_pair: None }, Completion(made))
    }
}
