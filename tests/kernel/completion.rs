//! Visible completions of requests, and the ways to wait for them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::device::ResourceCounts;
use rdmacm::verbs::{
    Completion, CompletionChannel, CompletionQueue, Context, ProtectionDomain, QpState,
    QueuePairAttributes, QueuePairCaps, QueuePairInit, SendFlags, SendOperation, WcOpcode,
};

use crate::child::let_sigusr1_interrupt;
use crate::fixtures::{
    Connection, LONG, announce, asleep, assert_invalid, channel, device, listen, objects, resolve,
    roce, siw,
};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const SILENT: SendFlags = SendFlags::empty();

/// Sends an empty message, and polls the completion of its receive.
fn deliver(connection: &Connection, wr_id: u64, flags: SendFlags) {
    let Connection { client, server, .. } = connection;
    server.io.receive_into(wr_id, &[]).expect("post a receive");
    client.io.post_parts(wr_id, SendOperation::Send, &[], flags).expect("post a send");
    let received = loop {
        match server.io.polled() {
            None => thread::yield_now(),
            Some(completion) => break completion,
        }
    };
    assert!(received.is_success(), "{received:?}");
    assert_eq!(received.wr_id(), wr_id);
}

fn would_block(channel: &CompletionChannel) {
    let error = channel.get_event().expect_err("no event should be pending");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    assert_eq!(error.errno(), libc::EAGAIN);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn only_signaled_requests_are_polled() {
    let connection = Connection::new(Shape::default());
    let io = &connection.client.io;
    let there = connection.server.io.written_at(0);
    for wr_id in 1..=64 {
        let flags = if wr_id % 8 == 0 { SIGNALED } else { SILENT };
        io.post_inline(wr_id, there, &wr_id.to_ne_bytes(), flags)
            .expect("the queue should have room");
        if wr_id % 8 == 0 {
            io.done(wr_id);
            assert_eq!(connection.server.io.bytes(0..8), wr_id.to_ne_bytes());
            assert!(io.polled().is_none());
        }
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_can_signal_all_requests() {
    let connection = Connection::new(Shape { signal_all: true, ..Shape::default() });
    let there = connection.server.io.written_at(0);
    for wr_id in 1..=40 {
        connection.client.io.post_inline(wr_id, there, b"x", SILENT).expect("post");
        connection.client.io.done(wr_id);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completions_are_polled_in_order_in_one_call() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    for wr_id in 0..10 {
        server.io.receive_into(wr_id, &[]).expect("post a receive");
        client.io.post_parts(100 + wr_id, SendOperation::Send, &[], SIGNALED).expect("post a send");
    }
    let mut done = Vec::new();
    while done.len() < 10 {
        let mut some = [Completion::default(); 4];
        let count = server.io.cq().wait(&mut some).expect("wait");
        assert!((1..=4).contains(&count), "{count}");
        done.extend(some[..count].iter().map(Completion::wr_id));
    }
    assert_eq!(done, (0..10).collect::<Vec<_>>());
    (100..110).for_each(|wr_id| assert!(client.io.done(wr_id).is_success()));
    assert_eq!(client.io.cq().poll(&mut [Completion::default(); 4]).expect("poll"), 0);
    assert_eq!(client.io.cq().poll(&mut []).expect("poll"), 0);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn armed_queue_raises_one_event() {
    // Unsignaled requests may keep their places until a signaled one is polled.
    let caps = QueuePairCaps { max_send_wr: 64, max_inline_data: 64, ..QueuePairCaps::default() };
    let connection = Connection::new(Shape { caps, ..Shape::default() });
    let (channel, cq) = (connection.server.io.channel(), connection.server.io.cq());
    channel.set_nonblocking(true).expect("make it non-blocking");
    // The queue is not armed.
    (0..20).for_each(|wr_id| deliver(&connection, wr_id, SIGNALED));
    would_block(channel);
    // Any completion raises the event, once.
    cq.request_notify(false).expect("arm");
    would_block(channel);
    channel.set_nonblocking(false).expect("make it blocking");
    deliver(&connection, 20, SIGNALED);
    let event = channel.get_event().expect("an event");
    assert_eq!(event.token(), cq.token());
    drop(event);
    channel.set_nonblocking(true).expect("make it non-blocking");
    (21..40).for_each(|wr_id| deliver(&connection, wr_id, SIGNALED));
    would_block(channel);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn solicited_arming_ignores_other_completions() {
    let connection = Connection::new(Shape::default());
    let (channel, cq) = (connection.server.io.channel(), connection.server.io.cq());
    channel.set_nonblocking(true).expect("make it non-blocking");
    cq.request_notify(true).expect("arm");
    (0..20).for_each(|wr_id| deliver(&connection, wr_id, SIGNALED));
    would_block(channel);
    channel.set_nonblocking(false).expect("make it blocking");
    deliver(&connection, 20, SIGNALED | SendFlags::SOLICITED);
    assert_eq!(channel.get_event().expect("an event").token(), cq.token());
    // A failed send raises no event either.
    let client = &connection.client.io;
    client.channel().set_nonblocking(true).expect("make it non-blocking");
    let mut done = 0;
    while done < 21 {
        done += client.polled().map_or(0, |sent| u32::from(sent.is_success()));
    }
    client.cq().request_notify(true).expect("arm");
    client.qp().modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("modify");
    client.post_bare(21, SendOperation::Send).expect("post a send");
    let failed = loop {
        match client.polled() {
            None => thread::yield_now(),
            Some(completion) => break completion,
        }
    };
    assert!(!failed.is_success());
    would_block(client.channel());
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn channel_event_names_its_queue() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let id = resolve(&ours, server);
    let context = id.context().expect("context");
    let events = CompletionChannel::new(&context).expect("completion channel");
    let queue = |events| CompletionQueue::new(&context, 16, events).expect("completion queue");
    let (send_cq, recv_cq) = (queue(Some(&events)), queue(Some(&events)));
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let caps = QueuePairCaps::default();
    let init = QueuePairInit { recv_cq: &recv_cq, caps, ..QueuePairInit::new(&send_cq) };
    let qp = id.create_qp(&pd, &init).expect("queue pair");
    assert_eq!((qp.send_cq(), qp.recv_cq()), (&send_cq, &recv_cq));
    assert_ne!(send_cq.token(), recv_cq.token());
    // A queue pair without a peer flushes requests once it is in ERR.
    recv_cq.request_notify(false).expect("arm");
    crate::io::receive_nothing(&qp, 5).expect("post a receive");
    id.disconnect().expect_err("the id should not be connected");
    assert_eq!(events.get_event().expect("an event").token(), recv_cq.token());
    let mut done = [Completion::default(); 2];
    assert_eq!(recv_cq.poll(&mut done).expect("poll"), 1);
    assert_eq!((done[0].wr_id(), done[0].is_success()), (5, false));
    assert_eq!(send_cq.poll(&mut done).expect("poll"), 0);

    let alone = queue(None);
    let error = alone.wait(&mut done).expect_err("a queue without a channel should be refused");
    assert_invalid(&error, &["completion channel"]);
    let error = send_cq.wait(&mut []).expect_err("an empty slice should be refused");
    assert_invalid(&error, &["slice for completions is empty"]);
    // This call would read the events of the other queue.
    let error = send_cq
        .wait_timeout(&mut done, Duration::ZERO)
        .expect_err("a channel of two queues should be refused");
    assert_invalid(&error, &["other completion queues"]);
    let error = send_cq.wait(&mut done).expect_err("a channel of two queues should be refused");
    assert_invalid(&error, &["other completion queues"]);
    id.destroy_qp();
    drop((qp, recv_cq));
    assert_eq!(
        send_cq
            .wait_timeout(&mut done, Duration::ZERO)
            .expect("waiting on a queue without queue pairs should succeed"),
        0
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn timed_wait_ends_at_deadline() {
    const SHORT: Duration = Duration::from_millis(20);
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    let (cq, channel) = (server.io.cq(), server.io.channel());
    let mut done = [Completion::default()];
    assert_eq!(cq.wait_timeout(&mut done, SHORT).expect("wait"), 0);
    assert!(channel.get_event_timeout(SHORT).expect("wait").is_none());
    let deliver = |wr_id| {
        client.io.post_parts(wr_id, SendOperation::Send, &[], SIGNALED).expect("post a send");
        client.io.done(wr_id);
    };
    server.io.receive_into(1, &[]).expect("post a receive");
    server.io.receive_into(2, &[]).expect("post a receive");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            announce(&tx);
            // This call blocks, although the calls with deadlines have made the descriptor non-blocking.
            server.io.done(1);
        });
        asleep(rx.recv().expect("thread should send its id"));
        // Another thread waits, so this call does not even read the channel.
        assert_eq!(cq.wait_timeout(&mut done, SHORT).expect("wait"), 0);
        deliver(1);
        waiter.join().expect("waiter should not panic");
        scope.spawn(|| {
            announce(&tx);
            let mut done = [Completion::default()];
            assert_eq!(cq.wait_timeout(&mut done, Duration::MAX).expect("wait"), 1);
            assert_eq!((done[0].wr_id(), done[0].is_success()), (2, true));
        });
        asleep(rx.recv().expect("thread should send its id"));
        deliver(2);
    });
    channel.set_nonblocking(true).expect("make the channel non-blocking");
    let error = cq.wait(&mut done).expect_err("no completion should be pending");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    assert_eq!(cq.wait_timeout(&mut done, SHORT).expect("wait"), 0);
    channel.set_nonblocking(false).expect("block");
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn timed_wait_ends_while_poller_is_held() {
    let connection = Connection::new(Shape::default());
    let cq = connection.client.io.cq();
    let poller = cq.lock_poller().expect("poller");
    let (tx, rx) = mpsc::channel();
    let wait = || cq.wait_timeout(&mut [Completion::default()], Duration::from_millis(5));
    let error = wait().expect_err("the call should not wait for its own thread");
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| tx.send(wait()).expect("the test should receive"));
        let waited = rx.recv_timeout(LONG);
        drop(poller);
        assert_eq!(waited.expect("the wait should end").expect("wait"), 0);
    });
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_queue_sizes_are_refused_also_on_siw0() {
    for name in ["rxe0", "siw0"] {
        let context = Context::open(&device(name)).expect("open");
        let most = context.query_device().expect("query the device").max_cqe;
        for capacity in [0, most + 1, u32::MAX] {
            let error = CompletionQueue::new(&context, capacity, None)
                .expect_err("the capacity should be refused");
            assert_eq!(error.errno(), libc::EINVAL, "{capacity} on {name}: {error}");
        }
        let cq = CompletionQueue::new(&context, 100, None).expect("completion queue");
        assert!(cq.capacity() >= 100, "{}", cq.capacity());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_destroy_waits_for_event() {
    let connection = Connection::new(Shape::default());
    let cq = connection.server.io.cq().clone();
    cq.request_notify(false).expect("arm");
    deliver(&connection, 1, SIGNALED);
    let event = connection.server.io.channel().get_event().expect("an event");
    assert_eq!(event.token(), cq.token());
    let (cq, error) =
        cq.destroy().expect_err("this thread should hold an event of the queue").into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    let before = objects();
    let waiter = thread::spawn({
        // The queue pair is destroyed before the completion queue.
        drop(connection);
        move || cq.destroy().map_err(rdmacm::Error::from)
    });
    let queues = |objects: ResourceCounts| {
        objects.count("cq").expect("the device should count these objects")
    };
    while queues(objects()) + 2 > queues(before.clone()) {
        thread::yield_now();
    }
    // The kernel has destroyed the queue.
    for _ in 0..20 {
        objects();
        assert!(!waiter.is_finished(), "the call should wait for the event");
    }
    drop(event);
    waiter.join().expect("waiter should not panic").expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn object_in_use_stays_also_on_siw0() {
    for address in [roce(0), siw(0)] {
        let connection = Connection::to(address, Shape::default(), &ConnParam::default());
        let io = &connection.client.io;
        let error = io.cq().clone().destroy().expect_err("a queue pair should use the queue");
        assert_eq!(error.error().errno(), libc::EBUSY);
        let error = io.qp().clone().destroy().expect_err("the id should keep the queue pair");
        assert_eq!(error.error().errno(), libc::EBUSY);
        let error =
            io.qp().pd().clone().destroy().expect_err("objects should use the protection domain");
        assert_eq!(error.error().errno(), libc::EBUSY);
        // The queue still works after the refused call.
        deliver(&connection, 1, SIGNALED);
        connection.close();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_waiters_get_one_completion_each() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    for round in 0..20 {
        server.io.receive(1, 0..8).expect("post a receive");
        server.io.receive(2, 0..8).expect("post a receive");
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                let tx = tx.clone();
                scope.spawn(move || {
                    tx.send(server.io.next().wr_id()).expect("the test should receive")
                });
            }
            // The second send is posted after the first completion was taken. By then the other thread waits, too.
            for wr_id in 1..=2 {
                client.io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
                assert_eq!(rx.recv().expect("a completion"), wr_id, "round {round}");
                client.io.done(wr_id);
            }
        });
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signal_ends_wait_without_losing_completions() {
    let_sigusr1_interrupt();
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    server.io.receive_into(1, &[]).expect("post a receive");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            tx.send(pthread_self()).expect("the test should receive");
            let mut done = [Completion::default()];
            let error =
                server.io.cq().wait(&mut done).expect_err("a signal should interrupt the call");
            assert_eq!(error.errno(), libc::EINTR, "{error}");
            let error = server
                .io
                .channel()
                .get_event()
                .expect_err("another signal should interrupt the call");
            assert_eq!(error.errno(), libc::EINTR, "{error}");
        });
        let thread = rx.recv().expect("thread should send its id");
        // A signal before the thread waits interrupts no call. So the signals are repeated.
        while !waiter.is_finished() {
            pthread_kill(thread, Signal::SIGUSR1).expect("signal");
            thread::yield_now();
        }
    });
    client.io.post_parts(2, SendOperation::Send, &[], SIGNALED).expect("post a send");
    assert_eq!(server.io.done(1).opcode(), WcOpcode::IB_WC_RECV);
    client.io.done(2);
    connection.close();
}
