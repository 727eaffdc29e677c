//! Draining a queue pair: each request completes, and no completion arrives afterwards.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AddressHandle, AsyncEvent, AsyncEventType, Completion, CompletionQueue, Destination,
    ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, QueuePairCaps,
    QueuePairInit, SendFlags, SendOperation, SharedReceiveQueue, SharedReceiveQueueAttributes,
    WcOpcode, WcStatus,
};

use crate::fixtures::{Connection, Ending, LONG, Side, promised, roce, siw};
use crate::io::Shape;
use crate::kt::Kt;
use crate::node::{Node, QKEY, address, receive_shared};
use crate::shared::Servers;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn shape() -> Shape {
    let caps = QueuePairCaps { max_send_wr: 8, max_recv_wr: 8, ..QueuePairCaps::default() };
    Shape { caps, ..Shape::default() }
}

fn drained(side: &Side) -> Vec<Completion> {
    let mut all = Vec::new();
    side.io.qp().drain(LONG, |completion| all.push(completion)).expect("drain");
    assert!(side.io.polled().is_none(), "no completion should follow the last one");
    all
}

/// Returns the numbers of the successful requests, and those of the flushed ones.
fn numbers(completions: &[Completion]) -> (Vec<u64>, Vec<u64>) {
    let (well, flushed): (Vec<Completion>, Vec<_>) =
        completions.iter().partition(|completion| completion.is_success());
    assert!(flushed.iter().all(|completion| completion.status() == WcStatus::IB_WC_WR_FLUSH_ERR));
    let numbers = |some: &[Completion]| some.iter().map(Completion::wr_id).collect();
    (numbers(&well), numbers(&flushed))
}

fn full_queues_are_drained(address: SocketAddr) {
    let connection = Connection::to(address, shape(), &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    // Three sends take receives of the server. The other requests of both queues are flushed.
    let receives = (0..).take_while(|wr_id| server.io.receive(*wr_id, 0..8).is_ok()).count();
    assert!(receives >= 8);
    for wr_id in 100..103 {
        client.io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    }
    for wr_id in 0..3 {
        assert_eq!(server.io.done(wr_id).opcode(), WcOpcode::IB_WC_RECV);
    }
    let (well, flushed) = numbers(&drained(server));
    assert_eq!(well, [0; 0]);
    assert!(flushed.into_iter().eq(3..receives as u64));
    let (well, flushed) = numbers(&drained(client));
    assert_eq!((well, flushed), (vec![100, 101, 102], vec![]));
    // A second drain returns no completion.
    assert!(drained(client).is_empty() && drained(server).is_empty());
    // The queue pair still accepts requests, which are flushed.
    server.io.receive(50, 0..8).expect("post a receive");
    assert_eq!(numbers(&drained(server)), (vec![], vec![50]));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queues_are_drained_on_rxe() {
    full_queues_are_drained(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queues_are_drained_on_siw0() {
    full_queues_are_drained(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sends_without_receive_are_flushed_by_drain() {
    let param = ConnParam { rnr_retry_count: 7, ..ConnParam::default() };
    let connection = Connection::to(roce(0), shape(), &param);
    let io = &connection.client.io;
    let post = |wr_id: &u64| io.post(*wr_id, SendOperation::Send, 0..8, SIGNALED).is_ok();
    let sends = (0..).take_while(post).count();
    assert!(sends >= 8);
    let (well, flushed) = numbers(&drained(&connection.client));
    assert_eq!(well, [0; 0]);
    assert!(flushed.into_iter().eq(0..sends as u64));
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drain_is_refused_while_thread_holds_queue() {
    let connection = Connection::new(shape());
    let Connection { client, server, .. } = &connection;
    let refused = || {
        let error = client
            .io
            .qp()
            .drain(LONG, |_| ())
            .expect_err("the call should not wait for its own thread");
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    };
    let sends = client.io.qp().lock_send_queue().expect("send queue");
    refused();
    drop(sends);
    let receives = client.io.qp().lock_receive_queue().expect("receive queue");
    refused();
    drop(receives);
    let poller = client.io.cq().lock_poller().expect("poller");
    refused();
    drop(poller);
    server.io.receive(1, 0..8).expect("post a receive");
    client.io.post(2, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    server.io.done(1);
    client.io.done(2);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drain_tolerates_other_poller_until_deadline() {
    let connection = Connection::new(shape());
    let io = &connection.client.io;
    (0..8).for_each(|wr_id| io.receive(wr_id, 0..8).expect("post a receive"));
    let (over, polls) = (AtomicBool::new(false), AtomicBool::new(false));
    let (started, starts) = mpsc::channel();
    let mut drained = Vec::new();
    let mut taken = Vec::new();
    thread::scope(|scope| {
        let (over, polls) = (&over, &polls);
        let other = scope.spawn(move || {
            let mut taken = Vec::new();
            let mut poller = io.cq().lock_poller().expect("poller");
            started.send(()).expect("the test should receive");
            while !over.load(Ordering::Relaxed) {
                let mut some = [Completion::default(); 2];
                if polls.load(Ordering::Relaxed) {
                    let count = poller.poll(&mut some).expect("poll");
                    taken.extend_from_slice(&some[..count]);
                }
                thread::yield_now();
            }
            taken
        });
        let ending = Ending(over);
        starts.recv().expect("the thread should have the poller");
        let qp = io.qp();
        let error = qp
            .drain(Duration::from_millis(5), |completion| drained.push(completion))
            .expect_err("drain should need a poller");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
        assert!(drained.is_empty());
        polls.store(true, Ordering::Relaxed);
        qp.drain(LONG, |completion| drained.push(completion)).expect("drain should have a poller");
        drop(ending);
        taken = other.join().expect("thread should not panic");
    });
    // Neither queue has a marker of either drain.
    taken.extend(drained);
    assert_eq!(numbers(&taken), (vec![], (0..8).collect()));
    connection.close();
}

/// Checks that a drain returns only receives that the queue pair has taken.
///
/// The drain leaves the other receives in the shared queue.
fn srq_queue_pair_drain_returns_receives(address: SocketAddr) {
    let servers = Servers::new(address, 2, 8, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    let [one, other] = &pairs[..] else { panic!("two") };
    for wr_id in 0..8 {
        shared.receive(wr_id, 0..8).expect("post a receive");
    }
    for wr_id in 0..3 {
        one.client.io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        one.client.io.done(wr_id);
    }
    // On iWARP, the completions may arrive later.
    let mut received = 0;
    if address == siw(0) {
        (0..3).for_each(|wr_id| assert_eq!(shared.done().wr_id(), wr_id));
        received = 3;
    }
    let mut taken = Vec::new();
    one.server.io.qp().drain(LONG, |completion| taken.push(completion)).expect("drain");
    assert_eq!(numbers(&taken), ((received..3).collect(), vec![]));
    one.server.io.post(9, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    assert_eq!(numbers(&drained(&one.server)), (vec![], vec![9]));
    let events = one.server.io.qp().pd().context().async_events();
    if address == roce(0) && promised("RDMACM_TEST_KERNEL") != "6.1" {
        let is_the_last = |event: &AsyncEvent| {
            event.token() == Some(one.server.io.qp().token())
                && event.event_type() == AsyncEventType::IB_EVENT_QP_LAST_WQE_REACHED
        };
        while !is_the_last(&events.get_event_timeout(LONG).expect("read").expect("an event")) {}
    }
    assert_eq!(shared.cq.poll(&mut [Completion::default()]).expect("poll"), 0);
    for wr_id in 3..8 {
        other.client.io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        let done = shared.done();
        assert_eq!((done.wr_id(), done.qp_num()), (wr_id, other.server.io.qp().number()));
        other.client.io.done(wr_id);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn srq_queue_pair_drain_returns_receives_on_rxe() {
    srq_queue_pair_drain_returns_receives(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn srq_queue_pair_drain_returns_receives_on_siw0() {
    srq_queue_pair_drain_returns_receives(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn srq_queue_pair_drain_returns_receives_on_kt0() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let attributes = SharedReceiveQueueAttributes::default();
    let shared = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    let to = Node::with(&pd, QpType::IB_UVERBS_QPT_RC, 16, Some(&shared));
    let from = Node::new(&context, QpType::IB_UVERBS_QPT_RC, 16);
    from.connect(to.qp.number());
    to.connect(from.qp.number());
    (0..8).for_each(|wr_id| receive_shared(&shared, wr_id).expect("post a receive"));
    from.send(0..3).expect("post sends");
    to.send(20..24).expect("post sends");
    let mut done = Vec::new();
    to.qp.drain(LONG, |completion| done.push(completion)).expect("drain");
    assert_eq!(numbers(&done), ((0..3).collect(), (20..24).collect()));
    let event = context.async_events().get_event_timeout(LONG).expect("read").expect("an event");
    assert_eq!(event.event_type(), AsyncEventType::IB_EVENT_QP_LAST_WQE_REACHED);
    assert_eq!(event.token(), Some(to.qp.token()));
    let rest = (0..).take_while(|wr_id| receive_shared(&shared, *wr_id).is_ok()).count();
    assert_eq!(rest, 16 - 5);
}

/// Runs two drains: the first to begin posts its markers last, and polls the markers of both.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn concurrent_drains_keep_their_markers() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let [send_cq, recv_cq] =
        [(); 2].map(|()| CompletionQueue::new(&context, 4, None).expect("completion queue"));
    let init = QueuePairInit { recv_cq: &recv_cq, ..QueuePairInit::new(&send_cq) };
    let qp = QueuePair::with_type(&pd, QpType::IB_UVERBS_QPT_RC, &init).expect("queue pair");
    let node = Node { qp, cq: recv_cq.clone(), pd: pd.clone() };
    node.connect(node.qp.number());
    node.receive([7]).expect("post a receive");
    let (polled, polls) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    thread::scope(|scope| {
        let qp = &node.qp;
        let first = scope.spawn(move || {
            let mut all = Vec::new();
            let drained = qp.drain(Duration::from_secs(2), |completion| {
                all.push(completion.wr_id());
                if completion.wr_id() == 7 {
                    polled.send(()).expect("the test should receive");
                    goes.recv().expect("test should not panic");
                }
            });
            drained.map(|()| all)
        });
        polls.recv().expect("the receive should return");
        let poller = send_cq.lock_poller().expect("poller");
        let second = scope
            .spawn(|| qp.drain(Duration::ZERO, |_| panic!("drain should not return a completion")))
            .join();
        let error = second
            .expect("drain should not panic")
            .expect_err("nothing should have polled the marker");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
        drop(poller);
        go.send(()).expect("the first drain should not panic");
        let all = first.join().expect("thread should not panic").expect("drain");
        assert_eq!(all, [7], "no marker should reach the program");
    });
}

/// Drains a queue pair whose completion queue is full whenever a request completes.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn lost_marker_is_forgotten() {
    const SHORT: Duration = Duration::from_millis(5);
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 2, None).expect("completion queue");
    let made = |qp_type| {
        let qp = QueuePair::with_type(&pd, qp_type, &QueuePairInit::new(&cq));
        Node { qp: qp.expect("queue pair"), cq: cq.clone(), pd: pd.clone() }
    };
    let filling = made(QpType::IB_UVERBS_QPT_UD);
    filling.connect(0);
    let handle = AddressHandle::new(&pd, &address()).expect("address handle");
    let (qp_num, qkey) = (filling.qp.number(), QKEY);
    let destination = Destination { address: &handle, qp_num, qkey };
    let fill = || {
        let mut queue = filling.qp.lock_send_queue().expect("send queue");
        let operation = SendOperation::SendTo { destination, imm_data: None };
        (0..2).for_each(|wr_id| Node::push(&mut queue, wr_id, operation, 1).expect("push"));
    };
    let known = || format!("{cq:?}").contains("Marker");
    for again in [true, false] {
        let node = made(QpType::IB_UVERBS_QPT_RC);
        node.connect(node.qp.number());
        node.receive([7]).expect("post a receive");
        // The queue is polled for the sends, then for the receives, and then for the markers.
        let mut fills = 2;
        let lost = node.qp.drain(SHORT, |completion| {
            if fills > 0 && completion.wr_id() != 0 {
                fills -= 1;
                fill();
            }
        });
        let error = lost.expect_err("the drain should report its lost markers");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
        assert!(known());
        if again {
            node.qp
                .drain(LONG, |_| panic!("no completion should be left"))
                .expect("the queue should have room now");
            assert!(!known());
        }
        drop(node);
        assert_eq!(cq.poll(&mut [Completion::default()]).expect("poll"), 0);
        assert!(!known());
    }
}

/// Checks that rxe repeats a request without acknowledgment forever.
///
/// The tests must detect this fault.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_unacknowledged_request_repeats_forever() {
    let connection = Connection::new(shape());
    let Connection { client, server, .. } = &connection;
    // The server ends as if its last acknowledgment were dropped, so the client gets no event.
    let ended = QueuePairAttributes::to(QpState::IB_QPS_ERR);
    server.io.qp().modify(&ended).expect("modify");
    client.io.post(1, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    assert!(rdmacm_tests::rxe::retries_forever());
    assert!(client.io.polled().is_none(), "the request should not have failed");
    connection.close();
}
