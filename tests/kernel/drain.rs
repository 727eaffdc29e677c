//! Draining a queue pair: every completion comes, and none after that.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{Completion, QueuePairCaps, SendFlags, SendOperation, WcOpcode, WcStatus};

use crate::bed::{Connection, Ending, LONG, Side, rxe, siw};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn shape() -> Shape {
    let caps = QueuePairCaps { max_send_wr: 8, max_recv_wr: 8, ..QueuePairCaps::default() };
    Shape { caps, ..Shape::default() }
}

fn drained(side: &Side) -> Vec<Completion> {
    let mut all = Vec::new();
    side.io.qp().drain(LONG, |completion| all.push(completion)).expect("drain");
    assert!(side.io.polled().is_none(), "nothing comes after the last one");
    all
}

/// The numbers of those that went well, and of those that were flushed.
fn numbers(completions: &[Completion]) -> (Vec<u64>, Vec<u64>) {
    let (well, flushed): (Vec<Completion>, Vec<_>) =
        completions.iter().partition(|completion| completion.is_success());
    assert!(flushed.iter().all(|completion| completion.status() == WcStatus::IB_WC_WR_FLUSH_ERR));
    let numbers = |some: &[Completion]| some.iter().map(Completion::wr_id).collect();
    (numbers(&well), numbers(&flushed))
}

fn full_queues_come_back(address: SocketAddr) {
    let connection = Connection::to(address, shape(), &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    // The server's receives are taken by three sends, and the rest of either queue is flushed.
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
    // Once more there is nothing.
    assert!(drained(client).is_empty() && drained(server).is_empty());
    // The queue pair takes requests still, which come back.
    server.io.receive(50, 0..8).expect("post a receive");
    assert_eq!(numbers(&drained(server)), (vec![], vec![50]));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queues_come_back_on_rxe() {
    full_queues_come_back(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queues_come_back_on_siw0() {
    full_queues_come_back(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sends_that_nobody_receives_come_back() {
    let param = ConnParam { rnr_retry_count: 7, ..ConnParam::default() };
    let connection = Connection::to(rxe(0), shape(), &param);
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
fn who_has_a_queue_cannot_drain_and_nothing_has_changed() {
    let connection = Connection::new(shape());
    let Connection { client, server, .. } = &connection;
    let refused = || {
        let error = client.io.qp().drain(LONG, |_| ()).expect_err("it would wait for itself");
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    };
    let sends = client.io.qp().send_queue().expect("send queue");
    refused();
    drop(sends);
    let receives = client.io.qp().receive_queue().expect("receive queue");
    refused();
    drop(receives);
    let poller = client.io.cq().poller().expect("poller");
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
fn another_thread_may_poll_or_keep_the_queue_too_long() {
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
            let mut poller = io.cq().poller().expect("poller");
            started.send(()).expect("the test listens");
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
        starts.recv().expect("the thread has the poller");
        let qp = io.qp();
        let error = qp
            .drain(Duration::from_millis(5), |completion| drained.push(completion))
            .expect_err("nobody polls");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
        assert!(drained.is_empty());
        polls.store(true, Ordering::Relaxed);
        qp.drain(LONG, |completion| drained.push(completion)).expect("somebody polls");
        drop(ending);
        taken = other.join().expect("the thread lives");
    });
    // Neither has a marker of either drain.
    taken.extend(drained);
    assert_eq!(numbers(&taken), (vec![], (0..8).collect()));
    connection.close();
}
