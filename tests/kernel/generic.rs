//! The data path of drivers that keep their queues in the kernel, on `kt0`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::ErrorKind;
use rdmacm::verbs::{
    AccessFlags, AddressHandle, AsyncElement, AsyncEventType, Completion, CompletionQueue, Context,
    Destination, MemoryRegion, ProtectionDomain, QpCreateFlags, QpState, QpType, QueuePair,
    QueuePairAttributes, QueuePairCaps, QueuePairInit, SendOperation, Sge, SharedReceiveQueue,
    SharedReceiveQueueAttributes, WcOpcode, WcStatus,
};

use crate::fixtures::{Ending, LONG, assert_invalid};
use crate::kt::Kt;
use crate::node::{Node, QKEY, address, completed, receive_shared};

const SUCCESS: WcStatus = WcStatus::IB_WC_SUCCESS;
const FLUSHED: WcStatus = WcStatus::IB_WC_WR_FLUSH_ERR;

fn with(status: WcStatus, wr_ids: impl IntoIterator<Item = u64>) -> Vec<(u64, WcStatus)> {
    wr_ids.into_iter().map(|wr_id| (wr_id, status)).collect()
}

/// Asserts that the driver returned `errno`, and that `expected` requests were not posted.
#[track_caller]
fn assert_unposted(error: &rdmacm::Error, errno: i32, expected: usize) {
    let ErrorKind::PartiallyPosted { unposted, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((error.errno(), *unposted), (errno, expected), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn device_opens_after_module_reload() {
    for _ in 0..2 {
        let kt = Kt::load();
        let context = kt.context();
        assert_eq!(kt.count("context"), 1);
        assert_eq!(context.query_port(1).expect("query the port").lid, 1);
        drop(context);
        assert_eq!(kt.count("context"), 0);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_lists_arrive_in_order() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 64);
    for round in 0..3 {
        let numbers = || (0..64).map(|number| 64 * round + number);
        to.receive(numbers()).expect("post receives");
        from.send(numbers()).expect("post sends");
        assert_eq!(from.completed(), with(SUCCESS, numbers()));
        assert_eq!(to.completed(), with(SUCCESS, numbers()));
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn list_longer_than_command_arrives() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 1024);
    to.receive(0..1024).expect("post receives");
    from.send(0..1024).expect("post sends");
    assert_eq!(to.completed(), with(SUCCESS, 0..1024));
    assert_eq!(from.completed(), with(SUCCESS, 0..1024));
    // No receive is posted, so the sends fill the queue and stay there.
    from.send(0..1000).expect("post sends");
    assert_unposted(
        &from.send(1000..2024).expect_err("the list should have too many requests"),
        libc::ENOMEM,
        1000,
    );
    to.receive(0..1024).expect("post receives");
    assert_eq!(from.completed(), with(SUCCESS, 0..1024));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn first_refused_request_is_reported() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    from.send(0..14).expect("post sends");
    assert_unposted(&from.send(14..18).expect_err("the queue should be full"), libc::ENOMEM, 2);
    assert_unposted(&from.send([18]).expect_err("the queue should be full"), libc::ENOMEM, 1);
    assert_eq!(from.completed(), [], "no send should complete");
    to.receive(0..16).expect("post receives");
    assert_eq!(from.completed(), with(SUCCESS, 0..16));
    assert_eq!(to.completed(), with(SUCCESS, 0..16));
    to.receive(0..10).expect("post receives");
    assert_unposted(&to.receive(10..17).expect_err("the queue should be full"), libc::ENOMEM, 1);
    // A list cannot be longer than the queue.
    let mut queue = from.qp.lock_send_queue().expect("send queue");
    for wr_id in 0..16 {
        Node::push(&mut queue, wr_id, SendOperation::Send, 1).expect("push");
    }
    let error =
        Node::push(&mut queue, 16, SendOperation::Send, 1).expect_err("the queue should be full");
    assert_invalid(&error, &["queue is full", "16"]);
    drop(queue);
    assert_eq!(from.completed(), with(SUCCESS, 0..16));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn post_in_wrong_state_names_state() {
    let kt = Kt::load();
    let node = Node::new(&kt.context(), QpType::IB_UVERBS_QPT_RC, 16);
    assert_eq!(node.qp.caps().max_inline_data, 0);
    assert_invalid(
        &node.receive([1]).expect_err("the queue pair should be in RESET"),
        &["IB_QPS_RESET"],
    );
    node.go(QpState::IB_QPS_INIT, 0).expect("modify");
    node.receive([1]).expect("post a receive");
    assert_invalid(
        &node.send([2]).expect_err("the queue pair should be in INIT"),
        &["IB_QPS_INIT", "IB_QPS_RTS"],
    );
    assert!(node.go(QpState::IB_QPS_RTS, 0).is_err(), "RTR should come first");
    // The queue pair connects to itself.
    for state in [QpState::IB_QPS_RTR, QpState::IB_QPS_RTS] {
        node.go(state, node.qp.number()).expect("modify");
    }
    node.send([3, 4]).expect("post sends");
    assert_eq!(node.completed(), with(SUCCESS, [1, 3]));
    node.receive([5]).expect("post a receive");
    assert_eq!(node.completed(), with(SUCCESS, [5, 4]));
    node.receive([6]).expect("post a receive");
    node.go(QpState::IB_QPS_ERR, 0).expect("modify");
    node.send([7]).expect("post a send");
    node.receive([8]).expect("post a receive");
    assert_eq!(node.completed(), with(FLUSHED, [6, 7, 8]));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn every_operation_completes_with_its_opcode() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    let (remote_addr, rkey) = (4096, 7);
    let imm_data = 0x0102_0304;
    let operations = [
        (SendOperation::Write { remote_addr, rkey }, WcOpcode::IB_UVERBS_WC_RDMA_WRITE),
        (
            SendOperation::WriteWithImm { remote_addr, rkey, imm_data },
            WcOpcode::IB_UVERBS_WC_RDMA_WRITE,
        ),
        (SendOperation::Read { remote_addr, rkey }, WcOpcode::IB_UVERBS_WC_RDMA_READ),
        (
            SendOperation::CompareSwap { remote_addr, rkey, compare: 1, swap: 2 },
            WcOpcode::IB_UVERBS_WC_COMP_SWAP,
        ),
        (SendOperation::FetchAdd { remote_addr, rkey, add: 1 }, WcOpcode::IB_UVERBS_WC_FETCH_ADD),
        (SendOperation::Send, WcOpcode::IB_UVERBS_WC_SEND),
        (SendOperation::SendWithImm { imm_data }, WcOpcode::IB_UVERBS_WC_SEND),
        (SendOperation::SendWithInvalidate { rkey }, WcOpcode::IB_UVERBS_WC_SEND),
    ];
    to.receive(0..4).expect("post receives");
    for (operation, opcode) in operations {
        let mut queue = from.qp.lock_send_queue().expect("send queue");
        Node::push(&mut queue, 5, operation, 8).expect("push");
        queue.ring_doorbell().expect("ring");
        let done = completed(&from.cq);
        assert_eq!((done[0].opcode(), done[0].qp_num()), (opcode, from.qp.number()));
        assert!(done[0].is_success() && done.len() == 1, "{done:?}");
    }
    let done = completed(&to.cq);
    let received = done.iter().map(|done| {
        assert_eq!(done.byte_len(), 8);
        (done.wr_id(), done.opcode(), done.imm_data(), done.invalidated_rkey())
    });
    let (message, written) = (WcOpcode::IB_WC_RECV, WcOpcode::IB_WC_RECV_RDMA_WITH_IMM);
    assert_eq!(
        received.collect::<Vec<_>>(),
        [
            (0, written, Some(imm_data), None),
            (1, message, None, None),
            (2, message, Some(imm_data), None),
            (3, message, None, Some(rkey)),
        ]
    );
    let mut queue = from.qp.lock_send_queue().expect("send queue");
    let error = Node::push_nothing(&mut queue, SendOperation::LocalInvalidate { rkey });
    let error = error.expect_err("no command should carry the operation");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    drop(queue);
    // The message is longer than the receive: both sides report this, and later requests are flushed.
    to.receive([2, 3]).expect("post receives");
    let mut queue = from.qp.lock_send_queue().expect("send queue");
    Node::push(&mut queue, 6, SendOperation::Send, 65).expect("push");
    Node::push(&mut queue, 7, SendOperation::Send, 1).expect("push");
    queue.ring_doorbell().expect("ring");
    assert_eq!(from.completed(), [(6, WcStatus::IB_WC_REM_INV_REQ_ERR), (7, FLUSHED)]);
    let failed = completed(&to.cq).into_iter();
    let failed = failed.map(|done| (done.wr_id(), done.status(), done.vendor_err()));
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed, [(2, WcStatus::IB_WC_LOC_LEN_ERR, 0x74), (3, FLUSHED, 0)]);
    assert_eq!(from.qp.query().expect("query").qp_state, QpState::IB_QPS_ERR);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_follow_address_handle() {
    let kt = Kt::load();
    let context = kt.context();
    let [from, to] = [(); 2].map(|()| Node::new(&context, QpType::IB_UVERBS_QPT_UD, 16));
    from.connect(0);
    to.connect(0);
    let handle = AddressHandle::new(&from.pd, &address()).expect("address handle");
    assert_eq!(kt.count("ah"), 1);
    to.receive([1]).expect("post a receive");
    let destination = Destination { address: &handle, qp_num: to.qp.number(), qkey: QKEY };
    let operation = SendOperation::SendTo { destination, imm_data: Some(0x0102_0304) };
    let mut queue = from.qp.lock_send_queue().expect("send queue");
    Node::push(&mut queue, 2, operation, 8).expect("push");
    Node::push(&mut queue, 3, operation, 8).expect("push");
    queue.ring_doorbell().expect("ring");
    let done = completed(&to.cq);
    let [received] = done[..] else { panic!("{done:?}") };
    assert_eq!((received.wr_id(), received.byte_len()), (1, 48));
    assert_eq!((received.src_qp(), received.imm_data()), (from.qp.number(), Some(0x0102_0304)));
    assert!(received.has_grh() && received.is_receive() && received.is_success());
    assert_eq!((received.qp_num(), received.port_num()), (to.qp.number(), 1));
    assert_eq!((received.slid(), received.sl(), received.dlid_path_bits()), (0x1234, 5, 6));
    assert_eq!((received.pkey_index(), received.vendor_err()), (7, 0));
    assert_eq!(from.completed(), with(SUCCESS, [2, 3]), "a datagram without a receive is lost");
    handle.destroy().expect("destroy");
    assert_eq!(kt.count("ah"), 0);
}

/// Checks that a queue pair without acknowledgments survives a failed send, in state SQE.
///
/// In SQE it still receives. It sends again after a change to RTS.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_send_leaves_unreliable_queue_pair_in_sqe() {
    const FOREIGN: u32 = u32::MAX;
    let kt = Kt::load();
    let context = kt.context();
    for qp_type in [QpType::IB_UVERBS_QPT_UC, QpType::IB_UVERBS_QPT_UD] {
        let [from, to] = [(); 2].map(|()| Node::new(&context, qp_type, 16));
        from.connect(to.qp.number());
        to.connect(from.qp.number());
        let send = |node: &Node, peer: &Node, wr_ids: &[u64], lkey| {
            let handle = AddressHandle::new(&node.pd, &address()).expect("address handle");
            let destination =
                Destination { address: &handle, qp_num: peer.qp.number(), qkey: QKEY };
            let operation = match qp_type {
                QpType::IB_UVERBS_QPT_UD => SendOperation::SendTo { destination, imm_data: None },
                _ => SendOperation::Send,
            };
            let mut queue = node.qp.lock_send_queue().expect("send queue");
            for wr_id in wr_ids {
                let sge = Sge { addr: 0.into(), length: 8, lkey };
                Node::push_gathered(&mut queue, *wr_id, operation, &[sge]).expect("push");
            }
            queue.ring_doorbell().expect("ring");
        };
        let state = |node: &Node| node.qp.query().expect("query").qp_state;
        from.receive([20, 21]).expect("post receives");
        to.receive([30, 31]).expect("post receives");
        send(&from, &to, &[1, 2], FOREIGN);
        assert_eq!(from.completed(), [(1, WcStatus::IB_WC_LOC_PROT_ERR), (2, FLUSHED)]);
        assert_eq!(state(&from), QpState::IB_QPS_SQE);
        // In SQE, posted sends are flushed, and arriving messages are received.
        send(&from, &to, &[3], 0);
        assert_eq!(from.completed(), with(FLUSHED, [3]));
        assert_eq!(to.completed(), []);
        send(&to, &from, &[4], 0);
        assert_eq!(to.completed(), with(SUCCESS, [4]));
        assert_eq!(from.completed(), with(SUCCESS, [20]));
        let back = QueuePairAttributes::to(QpState::IB_QPS_RTS).from_state(QpState::IB_QPS_SQE);
        from.qp.modify(&back).expect("modify");
        assert_eq!(state(&from), QpState::IB_QPS_RTS);
        from.qp.modify(&back).expect_err("the queue pair should be in RTS already");
        send(&from, &to, &[5], 0);
        assert_eq!(from.completed(), with(SUCCESS, [5]));
        assert_eq!(to.completed(), with(SUCCESS, [30]));
        // A change from SQE to ERR flushes all requests.
        send(&from, &to, &[6], FOREIGN);
        assert_eq!(from.completed(), [(6, WcStatus::IB_WC_LOC_PROT_ERR)]);
        from.go(QpState::IB_QPS_ERR, 0).expect("modify");
        assert_eq!(from.completed(), with(FLUSHED, [21]));
        assert_eq!(state(&from), QpState::IB_QPS_ERR);
    }
    // On a reliable queue pair, all requests fail.
    let [from, to] = Node::pair(&context, 16);
    from.receive([20]).expect("post a receive");
    let mut queue = from.qp.lock_send_queue().expect("send queue");
    let sge = Sge { addr: 0.into(), length: 8, lkey: FOREIGN };
    Node::push_gathered(&mut queue, 1, SendOperation::Send, &[sge]).expect("push");
    queue.ring_doorbell().expect("ring");
    assert_eq!(from.completed(), [(1, WcStatus::IB_WC_LOC_PROT_ERR), (20, FLUSHED)]);
    assert_eq!(from.qp.query().expect("query").qp_state, QpState::IB_QPS_ERR);
    assert_eq!(to.completed(), []);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_accepts_flag_of_driver() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 1, None).expect("completion queue");
    let caps = QueuePairCaps { max_send_wr: 3, max_recv_sge: 2, ..QueuePairCaps::default() };
    let create_flags = QpCreateFlags::IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
    let init = QueuePairInit { caps, create_flags, ..QueuePairInit::new(&cq) };
    let qp = QueuePair::with_type(&pd, QpType::IB_UVERBS_QPT_UD, &init).expect("queue pair");
    assert_eq!(kt.count("qp"), 1);
    assert_eq!((qp.caps().max_send_wr, qp.caps().max_recv_sge), (4, 2));
    assert_eq!(qp.query().expect("query").max_send_wr, 4);
    qp.destroy().expect("destroy");
    assert_eq!(kt.count("qp"), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn shared_receive_queue_posts_by_command() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let attributes = SharedReceiveQueueAttributes { max_wr: 10, limit: 2, ..Default::default() };
    let shared = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    assert_eq!(shared.attributes().max_wr, 16, "rounded up");
    let to = Node::with(&pd, QpType::IB_UVERBS_QPT_RC, 16, Some(&shared));
    let from = Node::new(&context, QpType::IB_UVERBS_QPT_RC, 16);
    from.connect(to.qp.number());
    to.connect(from.qp.number());
    assert_invalid(
        &to.receive([1]).expect_err("the queue pair should use a shared receive queue"),
        &["uses a shared one"],
    );
    for wr_id in 0..16 {
        receive_shared(&shared, wr_id).expect("post a receive");
    }
    assert_unposted(
        &receive_shared(&shared, 16).expect_err("the queue should be full"),
        libc::ENOMEM,
        1,
    );
    from.send(0..14).expect("post sends");
    assert_eq!(to.completed(), with(SUCCESS, 0..14));
    let events = context.async_events();
    let none = events.get_event_timeout(Duration::ZERO).expect("read");
    assert!(none.is_none(), "two receives should be left: {none:?}");
    from.send([14]).expect("post a send");
    let event =
        events.get_event_timeout(LONG).expect("read").expect("an event should report the limit");
    assert_eq!(event.event_type(), AsyncEventType::IB_EVENT_SRQ_LIMIT_REACHED);
    assert_eq!(event.token(), Some(shared.token()));
    drop(event);
    assert_eq!(shared.query().expect("query").limit, 0);
    shared.resize(40).expect("resize");
    assert_eq!(shared.query().expect("query").max_wr, 64);
}

/// Refuses requests with any errno.
///
/// ENOTSUPP has a name only in the kernel, and EIO is also the errno of a removed device.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_request_is_not_posted_for_any_errno() {
    for (refusal, errno) in [(c"refusal=524", 524), (c"refusal=5", libc::EIO)] {
        let kt = Kt::load_with(refusal);
        let context = kt.context();
        let [from, to] = Node::pair(&context, 16);
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let attributes = SharedReceiveQueueAttributes::default();
        let shared = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
        for _ in 0..2 {
            assert_unposted(&from.send(0..3).expect_err("the posts should be refused"), errno, 3);
            assert_unposted(&to.receive(0..2).expect_err("the posts should be refused"), errno, 2);
            assert_unposted(
                &receive_shared(&shared, 0).expect_err("the post should be refused"),
                errno,
                1,
            );
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completion_wakes_waiting_thread() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    let mut done = [Completion::default(); 4];
    assert_eq!(to.cq.wait_timeout(&mut done, Duration::from_millis(1)).expect("wait"), 0);
    to.receive(0..3).expect("post receives");
    to.cq.request_notify(false).expect("arm");
    from.send(0..3).expect("post sends");
    assert_eq!(to.cq.wait(&mut done).expect("wait"), 3);
    // The event of the earlier arming is still pending, and wakes the call without completions.
    assert_eq!(to.cq.wait_timeout(&mut done, Duration::from_millis(1)).expect("wait"), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queues_are_drained() {
    let kt = Kt::load();
    let context = kt.context();
    let initiator = Node::new(&context, QpType::IB_UVERBS_QPT_XRC_INI, 16);
    let [from, to] = Node::pair(&context, 16);
    to.receive(0..4).expect("post receives");
    from.send(0..6).expect("post sends");
    from.receive(20..36).expect("post receives");
    let drained = |node: &Node| {
        let mut done = Vec::new();
        let drained =
            node.qp.drain(LONG, |completion| done.push((completion.wr_id(), completion.status())));
        drained.map(|()| done)
    };
    let sent = with(SUCCESS, 0..4).into_iter().chain(with(FLUSHED, 4..6));
    let all: Vec<_> = sent.chain(with(FLUSHED, 20..36)).collect();
    assert_eq!(drained(&from).expect("drain"), all);
    assert_eq!(drained(&to).expect("drain"), with(SUCCESS, 0..4));
    initiator.connect(from.qp.number());
    assert_eq!(drained(&initiator).expect("drain"), []);
    let datagrams = Node::new(&context, QpType::IB_UVERBS_QPT_UD, 16);
    datagrams.connect(0);
    let error = drained(&datagrams).expect_err("a datagram queue pair should not be drained");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    let known = format!("{:?}", datagrams.cq);
    assert!(!known.contains("Marker"), "no marker should be known: {known}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_completion_queue_is_drained() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    from.receive(0..16).expect("post receives");
    to.receive(0..16).expect("post receives");
    from.send(16..32).expect("post sends");
    to.send(16..32).expect("post sends");
    assert_eq!(from.cq.capacity(), 32);
    let mut done = 0;
    from.qp
        .drain(LONG / 6, |completion| done += u32::from(completion.is_success()))
        .expect("drain");
    assert_eq!(done, 32);
}

/// Checks that a drain ends although another queue pair fills the completion queue.
///
/// Each completion causes another post.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drain_ends_despite_other_completions() {
    const SHORT: Duration = Duration::from_millis(5);
    let kt = Kt::load();
    let context = kt.context();
    let node = Node::new(&context, QpType::IB_UVERBS_QPT_RC, 16);
    let qp =
        QueuePair::with_type(&node.pd, QpType::IB_UVERBS_QPT_UD, &QueuePairInit::new(&node.cq));
    let busy = Node { qp: qp.expect("queue pair"), cq: node.cq.clone(), pd: node.pd.clone() };
    busy.connect(0);
    let handle = AddressHandle::new(&busy.pd, &address()).expect("address handle");
    let destination = Destination { address: &handle, qp_num: busy.qp.number(), qkey: QKEY };
    let operation = SendOperation::SendTo { destination, imm_data: None };
    let until = Instant::now() + LONG / 6;
    let go_on = || {
        let mut queue = busy.qp.lock_send_queue().expect("send queue");
        if Instant::now() < until {
            Node::push(&mut queue, 1, operation, 8).expect("push");
        }
    };
    go_on();
    node.qp.drain(SHORT, |_| go_on()).expect("a drain in RESET should succeed");
    node.connect(node.qp.number());
    node.receive(0..4).expect("post receives");
    let (over, (tx, rx)) = (AtomicBool::new(false), mpsc::channel());
    thread::scope(|scope| {
        let _ending = Ending(&over);
        scope.spawn(|| {
            let _queue = node.qp.lock_send_queue().expect("send queue");
            tx.send(()).expect("the test should receive");
            while !over.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        });
        rx.recv().expect("the thread should have the send queue");
        let error = node.qp.drain(SHORT, |_| go_on()).expect_err("the drain should post no marker");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    });
    node.qp.drain(LONG, |_| go_on()).expect("drain");
    assert!(Instant::now() < until, "the drain should end before the time limit");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completion_queue_is_resized() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    assert_eq!(from.cq.capacity(), 32);
    to.receive(0..16).expect("post receives");
    from.send(0..10).expect("post sends");
    from.cq.resize(60).expect("resize");
    assert_eq!(from.cq.capacity(), 64);
    let error = from.cq.resize(8).expect_err("ten completions should be on the queue");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    from.cq.resize(9).expect("resize");
    assert_eq!(from.cq.capacity(), 16);
    from.send(10..16).expect("post sends");
    assert_eq!(from.completed(), with(SUCCESS, 0..16));
}

/// Checks that each type of event that the kernel forwards reaches its object.
///
/// The kernel raises GID_CHANGE itself, and no queue has WQ_FATAL.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn every_event_reaches_its_object() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let shared = SharedReceiveQueue::new(&pd, SharedReceiveQueueAttributes::default());
    let shared = shared.expect("shared receive queue");
    let node = Node::with(&pd, QpType::IB_UVERBS_QPT_RC, 16, Some(&shared));
    let events = context.async_events();
    for number in (0..=17).chain([20, 99]) {
        let about = if matches!(number, 8..=13 | 17..) { 1 } else { node.qp.number() };
        kt.raise(AsyncEventType(number), about);
        let event = events.get_event_timeout(LONG).expect("read");
        let event = event.unwrap_or_else(|| panic!("event {number} should arrive"));
        assert_eq!(event.event_type(), AsyncEventType(number));
        let element = match number {
            0 => AsyncElement::CompletionQueue(node.cq.token()),
            14 | 15 => AsyncElement::SharedReceiveQueue(shared.token()),
            8 | 20 => AsyncElement::Device,
            9..=13 | 17 => AsyncElement::Port(1),
            99 => AsyncElement::Unknown(1),
            _ => AsyncElement::QueuePair(node.qp.token()),
        };
        assert_eq!(event.element(), element, "{number}");
    }
}

/// Checks that a driver with unknown rings supports everything except its queues.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn driver_with_unknown_rings_is_detected() {
    let kt = Kt::load_with(c"rings=1");
    let context: Context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let memory = MemoryRegion::alloc(&pd, 4096, AccessFlags::empty()).expect("memory region");
    assert_eq!([kt.count("pd"), kt.count("mr")], [1, 1]);
    let error = CompletionQueue::new(&context, 1, None)
        .expect_err("the format of the rings should be unknown");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("RDMA_DRIVER_UNKNOWN"), "{error}");
    let attributes = SharedReceiveQueueAttributes::default();
    let error = SharedReceiveQueue::new(&pd, attributes)
        .expect_err("the format of the rings should be unknown");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    let error = AddressHandle::new(&pd, &address())
        .expect_err("an unusable address handle should be refused");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    drop(memory);
    assert_eq!([kt.count("cq"), kt.count("srq"), kt.count("ah"), kt.count("mr")], [0; 4]);
}
