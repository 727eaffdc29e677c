//! Queue pairs of `kt0`, which need no connection manager, and the requests posted to them.
//!
//! # Safety
//!
//! Requests name memory by addresses that belong to no object: `kt0` moves no byte, and reads lengths only.
#![expect(unsafe_code, reason = "posts requests to a device that touches no memory")]

use rdmacm::Result;
use rdmacm::verbs::{
    Completion, CompletionChannel, CompletionQueue, Context, Payload, ProtectionDomain, QpState,
    QpType, QueuePair, QueuePairAttributes, QueuePairCaps, QueuePairInit, ReceiveQueueGuard,
    ReceiveRequest, SendFlags, SendOperation, SendQueueGuard, SendRequest, Sge, SharedReceiveQueue,
    WcStatus,
};
use verbs_abi::{ib_mtu, ib_qp_attr_mask, ib_uverbs_ah_attr, ib_uverbs_qp_attr};

/// The Q_Key of every queue pair for datagrams.
pub(crate) const QKEY: u32 = 0x1234;

/// A queue pair and its completion queue.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
}

impl Node {
    /// Creates a queue pair that holds `depth` requests in each direction, in the state RESET.
    pub(crate) fn new(context: &Context, qp_type: QpType, depth: u32) -> Self {
        let pd = ProtectionDomain::new(context).expect("protection domain");
        Self::with(&pd, qp_type, depth, None)
    }

    pub(crate) fn with(
        pd: &ProtectionDomain,
        qp_type: QpType,
        depth: u32,
        srq: Option<&SharedReceiveQueue>,
    ) -> Self {
        let channel = CompletionChannel::new(pd.context()).expect("completion channel");
        let cq = CompletionQueue::new(pd.context(), 2 * depth, Some(&channel));
        let cq = cq.expect("completion queue");
        let caps =
            QueuePairCaps { max_send_wr: depth, max_recv_wr: depth, ..QueuePairCaps::default() };
        let init = QueuePairInit { srq, caps, ..QueuePairInit::new(&cq) };
        let qp = QueuePair::with_type(pd, qp_type, &init).expect("queue pair");
        Self { qp, cq, pd: pd.clone() }
    }

    /// Returns two connected queue pairs.
    pub(crate) fn pair(context: &Context, depth: u32) -> [Self; 2] {
        let nodes = [(); 2].map(|()| Self::new(context, QpType::IB_UVERBS_QPT_RC, depth));
        nodes[0].connect(nodes[1].qp.number());
        nodes[1].connect(nodes[0].qp.number());
        nodes
    }

    /// Moves the queue pair to RTS, with queue pair `peer` on the other side.
    pub(crate) fn connect(&self, peer: u32) {
        for state in [QpState::IB_QPS_INIT, QpState::IB_QPS_RTR, QpState::IB_QPS_RTS] {
            self.go(state, peer).expect("modify");
        }
    }

    pub(crate) fn go(&self, state: QpState, peer: u32) -> Result<()> {
        self.qp.modify(&attributes(self.qp.qp_type(), state, peer))
    }

    /// Pushes a send of `length` bytes.
    pub(crate) fn push(
        queue: &mut SendQueueGuard<'_>,
        wr_id: u64,
        operation: SendOperation<'_>,
        length: u32,
    ) -> Result<()> {
        Self::push_gathered(queue, wr_id, operation, &[Sge { addr: 0.into(), length, lkey: 0 }])
    }

    /// Pushes a request without a payload.
    pub(crate) fn push_nothing(
        queue: &mut SendQueueGuard<'_>,
        operation: SendOperation<'_>,
    ) -> Result<()> {
        Self::push_gathered(queue, 0, operation, &[])
    }

    pub(crate) fn push_gathered(
        queue: &mut SendQueueGuard<'_>,
        wr_id: u64,
        operation: SendOperation<'_>,
        sges: &[Sge],
    ) -> Result<()> {
        let (payload, flags) = (Payload::Gather(sges), SendFlags::SIGNALED);
        // SAFETY: kt0 looks at the length only.
        unsafe { queue.push(&SendRequest { wr_id, operation, payload, flags }) }
    }

    /// Posts sends of one byte with the identifiers `wr_ids`, by one command.
    pub(crate) fn send(&self, wr_ids: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut queue = self.qp.lock_send_queue()?;
        wr_ids
            .into_iter()
            .try_for_each(|wr_id| Self::push(&mut queue, wr_id, SendOperation::Send, 1))?;
        queue.ring_doorbell()
    }

    pub(crate) fn push_receive(queue: &mut ReceiveQueueGuard<'_>, wr_id: u64) -> Result<()> {
        Self::push_scattered(queue, wr_id, &[Sge { addr: 0.into(), length: 64, lkey: 0 }])
    }

    pub(crate) fn push_scattered(
        queue: &mut ReceiveQueueGuard<'_>,
        wr_id: u64,
        scatter: &[Sge],
    ) -> Result<()> {
        // SAFETY: as above.
        unsafe { queue.push(&ReceiveRequest { wr_id, scatter }) }
    }

    /// Posts receives, by one command.
    pub(crate) fn receive(&self, wr_ids: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut queue = self.qp.lock_receive_queue()?;
        wr_ids.into_iter().try_for_each(|wr_id| Self::push_receive(&mut queue, wr_id))?;
        queue.ring_doorbell()
    }

    /// Returns the numbers and statuses of the pending completions.
    pub(crate) fn completed(&self) -> Vec<(u64, WcStatus)> {
        completed(&self.cq).iter().map(|done| (done.wr_id(), done.status())).collect()
    }
}

/// Returns the pending completions.
pub(crate) fn completed(cq: &CompletionQueue) -> Vec<Completion> {
    let mut done = vec![Completion::default(); cq.capacity() as usize];
    let count = cq.poll(&mut done).expect("poll");
    done.truncate(count);
    done
}

/// Posts a receive to a shared receive queue.
pub(crate) fn receive_shared(queue: &SharedReceiveQueue, wr_id: u64) -> Result<()> {
    let scatter = [Sge { addr: 0.into(), length: 64, lkey: 0 }];
    // SAFETY: as above.
    unsafe { queue.post_recv(&ReceiveRequest { wr_id, scatter: &scatter }) }
}

/// Returns the attributes that move a queue pair of a type to `state`.
pub(crate) fn attributes(qp_type: QpType, state: QpState, peer: u32) -> QueuePairAttributes {
    use ib_qp_attr_mask as M;
    let datagrams = qp_type == QpType::IB_UVERBS_QPT_UD;
    let unreliable = qp_type == QpType::IB_UVERBS_QPT_UC;
    let mask = match state {
        QpState::IB_QPS_INIT if datagrams => M::IB_QP_PKEY_INDEX | M::IB_QP_PORT | M::IB_QP_QKEY,
        QpState::IB_QPS_INIT => M::IB_QP_PKEY_INDEX | M::IB_QP_PORT | M::IB_QP_ACCESS_FLAGS,
        QpState::IB_QPS_RTR if datagrams => M::empty(),
        QpState::IB_QPS_RTR if unreliable => {
            M::IB_QP_AV | M::IB_QP_PATH_MTU | M::IB_QP_DEST_QPN | M::IB_QP_RQ_PSN
        }
        QpState::IB_QPS_RTR => {
            M::IB_QP_AV
                | M::IB_QP_PATH_MTU
                | M::IB_QP_DEST_QPN
                | M::IB_QP_RQ_PSN
                | M::IB_QP_MAX_DEST_RD_ATOMIC
                | M::IB_QP_MIN_RNR_TIMER
        }
        QpState::IB_QPS_RTS if datagrams || unreliable => M::IB_QP_SQ_PSN,
        QpState::IB_QPS_RTS => {
            M::IB_QP_TIMEOUT
                | M::IB_QP_RETRY_CNT
                | M::IB_QP_RNR_RETRY
                | M::IB_QP_SQ_PSN
                | M::IB_QP_MAX_QP_RD_ATOMIC
        }
        _ => M::empty(),
    };
    let attributes = ib_uverbs_qp_attr {
        qp_attr_mask: (mask | M::IB_QP_STATE).bits(),
        qp_state: state.0.into(),
        path_mtu: ib_mtu::IB_MTU_1024.0.into(),
        qkey: QKEY,
        dest_qp_num: peer,
        ah_attr: address(),
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..ib_uverbs_qp_attr::default()
    };
    attributes.into()
}

/// Returns the address of `kt0` itself.
pub(crate) fn address() -> ib_uverbs_ah_attr {
    ib_uverbs_ah_attr { dlid: 1, port_num: 1, ..ib_uverbs_ah_attr::default() }
}
