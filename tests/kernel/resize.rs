//! Resizing of completion queues.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{Completion, QueuePairCaps, SendFlags, SendOperation};

use crate::fixtures::{Connection, Ending, siw};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn shape() -> Shape {
    let caps = QueuePairCaps { max_send_wr: 64, max_recv_wr: 64, ..QueuePairCaps::default() };
    Shape { caps, completions: 128, ..Shape::default() }
}

fn deliver(connection: &Connection, numbers: std::ops::Range<u64>) {
    let Connection { client, server, .. } = connection;
    for number in numbers {
        server.io.receive(number, 0..8).expect("post a receive");
        client.io.post(number, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        client.io.done(number);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queued_completions_survive_resize() {
    let connection = Connection::new(shape());
    let cq = connection.server.io.cq();
    deliver(&connection, 0..10);
    // One completion has been polled before.
    connection.server.io.done(0);
    cq.resize(500).expect("resize to more entries");
    assert!(cq.capacity() >= 500, "{}", cq.capacity());
    deliver(&connection, 10..20);
    cq.resize(45).expect("resize to fewer entries");
    assert!((45..500).contains(&cq.capacity()), "{}", cq.capacity());
    deliver(&connection, 20..40);
    // This capacity is smaller than the number of completions.
    let error = cq.resize(20).expect_err("39 completions should be on the queue");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let most = cq.context().query_device().expect("attributes").max_cqe;
    for capacity in [0, most + 1] {
        assert_eq!(
            cq.resize(capacity).expect_err("the capacity should be refused").errno(),
            libc::EINVAL
        );
    }
    for number in 1..40 {
        connection.server.io.done(number);
    }
    assert!(connection.server.io.polled().is_none());
    // A completion wakes a thread that already waited before the resize.
    cq.request_notify(false).expect("arm");
    cq.resize(100).expect("resize to more entries");
    deliver(&connection, 30..31);
    assert_eq!(connection.server.io.channel().get_event().expect("event").token(), cq.token());
    connection.server.io.done(30);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_is_resized_amid_polls_and_posts() {
    let connection = Connection::new(shape());
    let Connection { client, server, .. } = &connection;
    let cq = server.io.cq();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let poller = scope.spawn(|| {
            let mut poller = cq.lock_poller().expect("poller");
            let mut remaining = 0..400;
            while !remaining.is_empty() {
                let mut some = [Completion::default(); 3];
                let count = poller.poll(&mut some).expect("poll");
                for completion in &some[..count] {
                    assert!(completion.is_success(), "{completion:?}");
                    assert_eq!(Some(completion.wr_id()), remaining.next(), "in order, each once");
                }
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            for capacity in (400..1100).step_by(50).cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                cq.resize(capacity).expect("resize");
                thread::yield_now();
            }
        });
        let _ending = Ending(over);
        for number in 0..400_u64 {
            while server.io.receive(number, 0..8).is_err() {}
            client.io.post(number, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
            client.io.done(number);
        }
        poller.join().expect("poller should not panic");
    });
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn resize_is_refused_while_thread_polls() {
    let connection = Connection::new(shape());
    let cq = connection.server.io.cq();
    let poller = cq.lock_poller().expect("poller");
    let error = cq.resize(10).expect_err("the call should not wait for its own thread");
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    drop(poller);
    cq.resize(10).expect("resize");
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_refuses_resize() {
    let connection = Connection::to(siw(0), shape(), &ConnParam::default());
    let cq = connection.server.io.cq();
    let before = cq.capacity();
    let error = cq.resize(10).expect_err("siw should not resize");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert_eq!(cq.capacity(), before);
    deliver(&connection, 0..3);
    (0..3).for_each(|number| assert!(connection.server.io.done(number).is_success()));
    connection.close();
}
