use super::*;
use crate::drivers::null::Null;
use crate::engine::{Cq, NewCq};
use crate::sys::uverbs::UverbsFile;

/// An owner that calls `during` when requests are flushed.
struct Owner<'a> {
    cq: &'a Cq,
    during: &'a dyn Fn(&Self),
}

impl QpOwner for Owner<'_> {
    fn cqs(&self) -> CqControls<'_, AnyDriver> {
        CqControls { send: self.cq.control(), recv: self.cq.control() }
    }

    fn complete_orphans(&self, _: QueueSide, _: &[u64]) {
        (self.during)(self);
    }

    fn can_complete_orphan(&self, _: QueueSide) -> bool {
        true
    }
}

/// A flush may miss a request that another thread posts during the flush.
#[test]
fn post_during_flush_owes_another_flush() {
    let driver = AnyDriver::Null(Null::with_flush(FlushMode::Library));
    let device = DeviceContext::new(UverbsFile::silent(), driver);
    let request = verbs_abi::ib_uverbs_create_cq { cqe: 4, ..Default::default() };
    let NewCq { cq, .. } = Cq::create(&device, request).expect("a completion queue");
    let request = ib_uverbs_ex_create_qp {
        qp_type: QpType::IB_UVERBS_QPT_RC,
        max_send_wr: 4,
        max_recv_wr: 4,
        ..Default::default()
    };
    let cqs = CqControls { send: cq.control(), recv: cq.control() };
    let NewQp { qp, .. } =
        Qp::create(&device, PdNumber::next(), request, cqs).expect("a queue pair");
    qp.set_state(QpState::IB_QPS_ERR);
    qp.defer_flush();
    let post = |owner: &Owner<'_>| qp.flush_if_error(&device, owner).expect("only recorded");
    let alone = Owner { cq: &cq, during: &|_| () };
    let with_post = Owner { cq: &cq, during: &post };
    post(&alone);
    assert!(qp.owes_flush());
    qp.flush_deferred(&device, &with_post).expect("flush");
    assert!(qp.owes_flush(), "a request was posted meanwhile");
    qp.flush_deferred(&device, &alone).expect("flush");
    assert!(!qp.owes_flush());
}
