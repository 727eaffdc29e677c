//! What cannot be on `kt0`, a driver that keeps its queues in the kernel: as on the others, before a command or by one.

use rdmacm::ErrorKind;
use rdmacm::verbs::{
    AccessFlags, AsyncEventType, CompletionQueue, MemoryRegion, ProtectionDomain, QpType,
    QueuePair, QueuePairCaps, QueuePairInit, SendOperation, Sge, SharedReceiveQueue,
    SharedReceiveQueueAttributes,
};

use crate::bed::{LONG, assert_invalid};
use crate::kt::Kt;
use crate::node::{Node, completed, receive_shared};
use crate::shared::receive_too_much;

/// That an object could not be destroyed because of others; it comes back.
#[track_caller]
fn busy<T>(refused: Result<(), rdmacm::DestroyError<T>>) -> T {
    let Err(refused) = refused else { panic!("something needs it") };
    let (object, error) = refused.into_parts();
    assert!(matches!(error.kind(), ErrorKind::Os(libc::EBUSY)), "{error:?}");
    object
}

#[track_caller]
fn too_large<T: std::fmt::Debug>(made: rdmacm::Result<T>) {
    let error = made.expect_err("the device has fewer");
    assert!(matches!(error.kind(), ErrorKind::Os(libc::EINVAL)), "{error:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn more_than_kt0_has() {
    let kt = Kt::load();
    let context = kt.context();
    let most = context.query_device().expect("query the device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    for capacity in [0, most.max_cqe + 1, u32::MAX] {
        too_large(CompletionQueue::new(&context, capacity, None));
    }
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let default = QueuePairCaps::default();
    for caps in [
        QueuePairCaps { max_send_wr: most.max_qp_wr + 1, ..default },
        QueuePairCaps { max_recv_wr: most.max_qp_wr + 1, ..default },
        QueuePairCaps { max_send_sge: most.max_sge + 1, ..default },
        QueuePairCaps { max_recv_sge: most.max_sge + 1, ..default },
    ] {
        too_large(QueuePair::new(&pd, &QueuePairInit { caps, ..QueuePairInit::new(&cq) }));
    }
    let default = SharedReceiveQueueAttributes::default();
    for attributes in [
        SharedReceiveQueueAttributes { max_wr: 0, ..default },
        SharedReceiveQueueAttributes { max_wr: most.max_srq_wr + 1, ..default },
        SharedReceiveQueueAttributes { max_sge: most.max_srq_sge + 1, ..default },
    ] {
        too_large(SharedReceiveQueue::new(&pd, attributes));
    }
    assert_eq!([kt.count("cq"), kt.count("qp"), kt.count("srq")], [1, 0, 0]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_that_no_queue_of_kt0_takes() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    let piece = Sge { addr: 0.into(), length: 8, lkey: 0 };
    let mut sends = from.qp.send_queue().expect("send queue");
    let mut push =
        |operation, pieces: &[Sge]| Node::push_gathered(&mut sends, 1, operation, pieces);
    let refused = push(SendOperation::Send, &[piece; 2]).expect_err("two pieces");
    assert_invalid(&refused, &["2 pieces", "1 are the most"]);
    let (rkey, swap) = (7, 0);
    for remote_addr in [4097, 4100] {
        let operations = [
            SendOperation::FetchAdd { remote_addr, rkey, add: 0 },
            SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap },
        ];
        for operation in operations {
            let refused = push(operation, &[piece]).expect_err("unaligned");
            assert_invalid(&refused, &["multiple of 8"]);
        }
    }
    push(SendOperation::Send, &[piece]).expect("no harm is done");
    drop(sends);
    let mut receives = to.qp.receive_queue().expect("receive queue");
    let refused = Node::push_scattered(&mut receives, 2, &[piece; 2]).expect_err("two pieces");
    assert_invalid(&refused, &["2 pieces", "1 are the most"]);
    Node::push_receive(&mut receives, 3).expect("no harm is done");
    drop(receives);
    assert_eq!([completed(&from.cq).len(), completed(&to.cq).len()], [1, 1]);
    let attributes = SharedReceiveQueueAttributes::default();
    let shared = SharedReceiveQueue::new(&to.pd, attributes).expect("shared receive queue");
    let refused = receive_too_much(&shared, 2).expect_err("two pieces");
    assert_invalid(&refused, &["2 pieces", "1 are the most"]);
    receive_shared(&shared, 4).expect("no harm is done");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroyed_in_the_wrong_order_on_kt0() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let attributes = SharedReceiveQueueAttributes::default();
    let srq = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    let region = MemoryRegion::alloc(&pd, 64, AccessFlags::empty()).expect("memory region");
    let Node { qp, cq, pd } = {
        let node = Node::with(&pd, QpType::IB_UVERBS_QPT_RC, 4, Some(&srq));
        drop(pd);
        node
    };
    let clone = qp.clone();
    let (qp, cq) = (busy(qp.destroy()), busy(cq.destroy()));
    let (srq, pd) = (busy(srq.destroy()), busy(pd.destroy()));
    drop(clone);
    qp.destroy().expect("nobody else has it");
    cq.destroy().expect("nothing completes on it");
    let pd = busy(pd.destroy());
    srq.destroy().expect("nobody receives from it");
    let pd = busy(pd.destroy());
    region.destroy().expect("no window needs it");
    pd.destroy().expect("nothing is in it");
    for kind in ["qp", "cq", "srq", "mr", "pd"] {
        assert_eq!(kt.count(kind), 0, "{kind}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn an_overflow_is_told_on_kt0() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 2, None).expect("completion queue");
    let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    let node = Node { qp, cq, pd };
    node.connect(node.qp.number());
    node.receive(0..3).expect("post receives");
    // A receive and a send each.
    node.send(10..12).expect("post sends");
    let event = context.async_events().get_event_timeout(LONG).expect("read").expect("an event");
    assert_eq!(event.event_type(), AsyncEventType::IB_EVENT_CQ_ERR);
    assert_eq!(event.token(), Some(node.cq.token()));
    drop(event);
    let well: Vec<_> = node.completed().iter().map(|(wr_id, _)| *wr_id).collect();
    assert_eq!(well, [0, 10], "what there was room for");
    node.send([12]).expect("post a send");
    assert_eq!(node.completed().len(), 2);
}
