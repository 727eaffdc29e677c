//! Unsupported calls, on `kt0`, whose driver keeps its queues in the kernel, and on the other devices.
//!
//! The library refuses them before a command, or the kernel refuses the command.

use std::net::SocketAddr;

use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace};
use rdmacm::verbs::{
    AccessFlags, AsyncEvent, AsyncEventType, CompletionQueue, MemoryRegion, Mtu, ProtectionDomain,
    QpState, QpType, QueuePair, QueuePairAttributes as Attributes, QueuePairCaps, QueuePairInit,
    SendFlags, SendOperation, Sge, SharedReceiveQueue, SharedReceiveQueueAttributes, WcStatus,
};

use crate::fixtures::{Connection, LONG, assert_invalid, channel, is_card, roce, siw};
use crate::io::Shape;
use crate::kt::Kt;
use crate::manual_qp;
use crate::node::{self, Node, completed, receive_shared};
use crate::shared::receive_too_much;

/// Asserts that an object could not be destroyed because other objects use it, and returns the object.
#[track_caller]
fn busy<T>(refused: Result<(), rdmacm::DestroyError<T>>) -> T {
    let Err(refused) = refused else { panic!("the destruction should be refused") };
    let (object, error) = refused.into_parts();
    assert!(matches!(error.kind(), ErrorKind::Os(libc::EBUSY)), "{error:?}");
    object
}

#[track_caller]
fn too_large<T: std::fmt::Debug>(made: rdmacm::Result<T>) {
    let error = made.expect_err("the device should support fewer");
    assert!(matches!(error.kind(), ErrorKind::Os(libc::EINVAL)), "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("limits of the device")), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sizes_beyond_kt0_limits_are_refused() {
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

/// Checks that the device at `address` has no XRC for ids.
fn xrc_is_unsupported(address: SocketAddr) {
    let ours = channel();
    let bound = |qp_type| {
        let id = CmId::with_qp_type(&ours, PortSpace::Ib, qp_type).expect("create an id");
        id.bind(address).expect("bind");
        id
    };
    let id = bound(QpType::IB_UVERBS_QPT_XRC_TGT);
    let initiator = bound(QpType::IB_UVERBS_QPT_XRC_INI);
    let attributes = SharedReceiveQueueAttributes::default();
    for refused in [
        id.default_xrc_domain().map(drop),
        id.create_xrc_target(None).map(drop),
        id.create_xrc_srq(None, None, None, attributes).map(drop),
        id.create_srq(None, attributes).map(drop),
        initiator.create_ep_qp(&EndpointQpInit::default()).map(drop),
    ] {
        let error = refused.expect_err("the device should have no XRC");
        assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
    }
    assert!(id.xrc_target().is_none() && id.srq().is_none() && initiator.qp().is_none());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_have_no_xrc_on_rxe() {
    xrc_is_unsupported(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_have_no_xrc_on_siw() {
    xrc_is_unsupported(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unsupported_requests_are_refused_on_kt0() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    let sge = Sge { addr: 0.into(), length: 8, lkey: 0 };
    let mut sends = from.qp.lock_send_queue().expect("send queue");
    let mut push = |operation, sges: &[Sge]| Node::push_gathered(&mut sends, 1, operation, sges);
    let refused = push(SendOperation::Send, &[sge; 2]).expect_err("two entries should be refused");
    assert_invalid(&refused, &["2 scatter/gather entries", "maximum of 1"]);
    let (rkey, swap) = (7, 0);
    for remote_addr in [4097, 4100] {
        let operations = [
            SendOperation::FetchAdd { remote_addr, rkey, add: 0 },
            SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap },
        ];
        for operation in operations {
            let refused =
                push(operation, &[sge]).expect_err("an unaligned address should be refused");
            assert_invalid(&refused, &["multiple of 8"]);
        }
    }
    push(SendOperation::Send, &[sge]).expect("a later post should succeed");
    drop(sends);
    let mut receives = to.qp.lock_receive_queue().expect("receive queue");
    let refused = Node::push_scattered(&mut receives, 2, &[sge; 2])
        .expect_err("two entries should be refused");
    assert_invalid(&refused, &["2 scatter/gather entries", "maximum of 1"]);
    Node::push_receive(&mut receives, 3).expect("a later post should succeed");
    drop(receives);
    assert_eq!([completed(&from.cq).len(), completed(&to.cq).len()], [1, 1]);
    let attributes = SharedReceiveQueueAttributes::default();
    let shared = SharedReceiveQueue::new(&to.pd, attributes).expect("shared receive queue");
    let refused = receive_too_much(&shared, 2).expect_err("two entries should be refused");
    assert_invalid(&refused, &["2 scatter/gather entries", "maximum of 1"]);
    receive_shared(&shared, 4).expect("a later post should succeed");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_in_wrong_order_is_refused_on_kt0() {
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
    qp.destroy().expect("queue pair should have no other owner");
    cq.destroy().expect("the queue should be unused");
    let pd = busy(pd.destroy());
    srq.destroy().expect("queue should have no other owner");
    let pd = busy(pd.destroy());
    region.destroy().expect("no window should use the region");
    pd.destroy().expect("the domain should be unused");
    for kind in ["qp", "cq", "srq", "mr", "pd"] {
        assert_eq!(kt.count(kind), 0, "{kind}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn overflow_is_reported_on_kt0() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 2, None).expect("completion queue");
    let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    let node = Node { qp, cq, pd };
    node.connect(node.qp.number());
    node.receive(0..3).expect("post receives");
    // Each message completes a receive and a send.
    node.send(10..12).expect("post sends");
    let event = context.async_events().get_event_timeout(LONG).expect("read").expect("an event");
    assert_eq!(event.event_type(), AsyncEventType::IB_EVENT_CQ_ERR);
    assert_eq!(event.token(), Some(node.cq.token()));
    drop(event);
    let well: Vec<_> = node.completed().iter().map(|(wr_id, _)| *wr_id).collect();
    assert_eq!(well, [0, 10], "completions that fit into the queue");
    node.send([12]).expect("post a send");
    assert_eq!(node.completed().len(), 2);
}

/// Completions that fit into the queue are kept. The queue accepts further ones, and the queue pair can be drained.
fn overflowed_queue_continues(address: SocketAddr) {
    let shape = Shape { completions: 4, ..Shape::default() };
    let param = ConnParam { retry_count: 1, ..ConnParam::default() };
    let connection = Connection::to(address, shape, &param);
    let (client, io) = (&connection.client.io, &connection.server.io);
    let capacity = u64::from(io.cq().capacity());
    for wr_id in 0..=capacity {
        io.receive_into(wr_id, &[]).expect("post a receive");
        let send = client.post_parts(wr_id, SendOperation::Send, &[], SendFlags::SIGNALED);
        send.expect("post a send");
        if wr_id < capacity {
            client.done(wr_id);
        }
    }
    let events = io.cq().context().async_events();
    let is_queue_error = |event: &AsyncEvent| {
        event.event_type() == AsyncEventType::IB_EVENT_CQ_ERR
            && event.token() == Some(io.cq().token())
    };
    while !is_queue_error(
        &events.get_event_timeout(LONG).expect("read").expect("an event should come"),
    ) {}
    (0..capacity).for_each(|wr_id| assert_eq!(io.done(wr_id).wr_id(), wr_id));
    // rxe loses the last completion. siw does not complete the request yet.
    let mut rest = Vec::new();
    io.qp().drain(LONG, |done| rest.push((done.wr_id(), done.is_success()))).expect("drain");
    assert!(rest.is_empty() || rest == [(capacity, false)], "{rest:?}");
    for wr_id in 50..50 + 2 * capacity {
        io.receive_into(wr_id, &[]).expect("the queue pair should take the receive");
        let done = io.next();
        assert_eq!((done.wr_id(), done.status()), (wr_id, WcStatus::IB_WC_WR_FLUSH_ERR));
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn overflowed_queue_continues_on_rxe() {
    overflowed_queue_continues(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn overflowed_queue_continues_on_siw0() {
    overflowed_queue_continues(siw(0));
}

/// Ports, MTUs and depths beyond the limits of the device are refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn attributes_beyond_device_limits_are_refused() {
    let kt = Kt::load();
    let node = Node::new(&kt.context(), QpType::IB_UVERBS_QPT_RC, 4);
    let io = manual_qp::io(QpType::IB_UVERBS_QPT_RC, Shape::default());
    let rxe = (io.qp(), manual_qp::address(), true);
    for (qp, address, is_rxe) in [(&node.qp, node::address(), false), rxe] {
        let most = qp.pd().context().query_device().expect("query the device");
        let [served, begun] = [most.max_qp_rd_atom, most.max_qp_init_rd_atom]
            .map(|most| u8::try_from(most).expect("the depth should fit in a byte"));
        let modify = |attributes: Attributes| qp.modify(&attributes);
        let refused = |attributes: Attributes| {
            let error = qp.modify(&attributes).expect_err("the device should support less");
            assert_eq!(error.errno(), libc::EINVAL, "{error}");
        };
        let init = |port| Attributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(port);
        let init = |port| init(port).access(AccessFlags::empty());
        let receive = |mtu, depth| {
            let receive = Attributes::to(QpState::IB_QPS_RTR).address(address).path_mtu(mtu);
            receive.dest_qp_num(1).rq_psn(0).max_dest_rd_atomic(depth).min_rnr_timer(12)
        };
        let send = |timeout, depth| {
            let send = Attributes::to(QpState::IB_QPS_RTS).sq_psn(0).timeout(timeout);
            send.retry_cnt(5).rnr_retry(6).max_rd_atomic(depth)
        };
        [0, 2, u8::MAX].into_iter().for_each(|port| refused(init(port)));
        modify(init(1)).expect("modify");
        // rxe accepts any depth of the peer, and kt0 any MTU and timeout.
        match is_rxe {
            true => refused(receive(Mtu(6), served)),
            false => refused(receive(Mtu::IB_MTU_1024, served + 1)),
        }
        modify(receive(Mtu::IB_MTU_1024, served)).expect("modify");
        refused(send(14, begun + 1));
        // mlx5 uses the lower five bits of the value.
        if is_rxe && !is_card() {
            refused(send(32, begun));
        }
        modify(send(14, begun)).expect("modify");
        assert_eq!(qp.query().expect("query").qp_state, QpState::IB_QPS_RTS);
    }
}
