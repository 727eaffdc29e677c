use super::super::id::tests::fake_connection;
use super::*;
use crate::verbs::{
    CompletionQueue, Context, ProtectionDomain, QpState, QueuePair, QueuePairAttributes,
    QueuePairInit,
};

/// Creates a queue pair of the null device, which has the options 3 of vendor 7.
fn qp() -> OwnQp {
    let context = Context::null();
    let pd = ProtectionDomain::new(&context).expect("the protection domain should be created");
    let cq =
        CompletionQueue::new(&context, 16, None).expect("the completion queue should be created");
    OwnQp::Queues(
        QueuePair::new(&pd, &QueuePairInit::new(&cq)).expect("the queue pair should be created"),
    )
}

fn changed(qp: &OwnQp) -> Option<Ece> {
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_INIT)).expect("modify");
    qp.ece()
}

#[test]
fn answer_of_other_vendor_is_refused() {
    let (id, _channel, _kernel) = fake_connection();
    let qp = qp();
    id.inner.state().offer_ece(&qp).expect("offer");
    assert_eq!(id.inner.state().local_ece, Ece { vendor_id: 7, options: 3 });
    let other = Ece { vendor_id: 8, options: 1 };
    let error = id
        .inner
        .take_ece_answer(&qp, other)
        .expect_err("options of another vendor should be refused");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    for (answer, options) in [((7, 2), 2), ((7, 6), 2), ((0, 0), 0)] {
        let answer = Ece { vendor_id: answer.0, options: answer.1 };
        id.inner.take_ece_answer(&qp, answer).expect("the answer should be accepted");
        assert_eq!(changed(&qp), Some(Ece { vendor_id: 7, options }));
    }
}

#[test]
fn request_of_other_vendor_leaves_no_options() {
    for (request, options) in [((7, 5), 1), ((8, 5), 0)] {
        let (id, _channel, _kernel) = fake_connection();
        let (qp, mut state) = (qp(), id.inner.state());
        state.remote_ece = Ece { vendor_id: request.0, options: request.1 };
        state.offer_ece(&qp).expect("offer");
        changed(&qp);
        state.record_ece(&qp);
        assert_eq!(state.answer_ece(), Ece { vendor_id: request.0, options });
    }
}

#[test]
fn external_vendor_is_bounded_and_options_kept() {
    let (id, _channel, _kernel) = fake_connection();
    for vendor_id in [0, MAX_VENDOR + 1] {
        let refused = id.set_local_ece(Ece { vendor_id, options: 5 });
        assert_eq!(refused.expect_err("the vendor should be refused").errno(), libc::EINVAL);
    }
    let ece = Ece { vendor_id: MAX_VENDOR, options: 5 };
    id.set_local_ece(ece).expect("the options should be accepted");
    assert_eq!(id.inner.state().local_ece, ece);
    let sent = rdma_ucm_ece::from(ece);
    assert_eq!((sent.vendor_id, sent.attr_mod), (MAX_VENDOR, 5));
    assert_eq!(Ece::from(sent), ece);
    id.inner.state().remote_ece = ece;
    assert_eq!(id.remote_ece().expect("the options should be readable"), ece);
}
