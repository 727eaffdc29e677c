//! Guards of send queues, receive queues and pollers: lists with one doorbell, and calls of other threads meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType};
use rdmacm::verbs::{
    Completion, QueuePairCaps, SendFlags, SendOperation, SendQueueGuard, WcStatus,
};

use crate::child::in_child;
use crate::fixtures::{Connection, Ending, LONG, assert_invalid, roce, siw};
use crate::io::{Shape, push_inline};
use crate::process::forked;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn shape(requests: u32) -> Shape {
    let caps = QueuePairCaps {
        max_send_wr: requests,
        max_recv_wr: requests,
        max_inline_data: 16,
        ..QueuePairCaps::default()
    };
    Shape { caps, completions: 2 * requests + 2, ..Shape::default() }
}

#[track_caller]
fn would_deadlock<T>(result: rdmacm::Result<T>, text: &str) {
    let Err(error) = result else { panic!("the call should fail") };
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

fn list_arrives_in_order(connection: &Connection) {
    let Connection { client, server, .. } = connection;
    for round in 0..10_u64 {
        let mut receives = server.io.qp().lock_receive_queue().expect("receive queue");
        for place in 0..16 {
            let at = 8 * usize::try_from(place).expect("the number should fit");
            server.io.push_receive(&mut receives, place, at..at + 8).expect("push a receive");
        }
        receives.ring_doorbell().expect("ring");
        drop(receives);
        let mut sends = client.io.qp().lock_send_queue().expect("send queue");
        for place in 0..16_u64 {
            let bytes = (100 * round + place).to_ne_bytes();
            // Only the last request of the list is signaled.
            let flags = if place == 15 { SIGNALED } else { SendFlags::empty() };
            push_inline(&mut sends, place, SendOperation::Send, &bytes, flags)
                .expect("push a send");
        }
        match round % 2 {
            0 => sends.ring_doorbell().expect("ring"),
            _ => drop(sends),
        }
        for place in 0..16_u64 {
            server.io.done(place);
            let at = 8 * usize::try_from(place).expect("the number should fit");
            assert_eq!(server.io.bytes(at..at + 8), (100 * round + place).to_ne_bytes());
        }
        client.io.done(15);
        assert!(client.io.polled().is_none());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn list_arrives_in_order_with_one_doorbell() {
    let connection = Connection::new(shape(20));
    list_arrives_in_order(&connection);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn list_arrives_in_order_on_siw0() {
    let connection = Connection::to(siw(0), shape(20), &ConnParam::default());
    list_arrives_in_order(&connection);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn pushed_request_waits_for_doorbell() {
    let connection = Connection::new(shape(8));
    let Connection { client, server, .. } = &connection;
    server.io.receive(1, 0..8).expect("post a receive");
    let mut sends = client.io.qp().lock_send_queue().expect("send queue");
    push_inline(&mut sends, 2, SendOperation::Send, b"late", SIGNALED).expect("push");
    // In the time of this exchange the pushed message would have arrived.
    client.io.receive(3, 0..8).expect("post a receive");
    server.io.post_inline(4, SendOperation::Send, b"early", SIGNALED).expect("post a send");
    client.io.done(3);
    server.io.done(4);
    assert!(server.io.polled().is_none() && client.io.polled().is_none());
    sends.ring_doorbell().expect("ring");
    server.io.done(1);
    client.io.done(2);
    drop(sends);
    connection.close();
}

fn earlier_requests_stay_posted(address: SocketAddr) {
    let connection = Connection::to(address, shape(8), &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    for wr_id in 0..3 {
        server.io.receive(wr_id, 0..8).expect("post a receive");
    }
    let mut sends = client.io.qp().lock_send_queue().expect("send queue");
    let mut push =
        |wr_id, bytes: &[u8]| push_inline(&mut sends, wr_id, SendOperation::Send, bytes, SIGNALED);
    push(10, b"first").expect("push");
    push(11, b"second").expect("push");
    let limit = client.io.qp().caps().max_inline_data as usize;
    let refused = push(12, &vec![0; limit + 1]).expect_err("the message should be too long");
    assert_invalid(&refused, &["inline"]);
    push(13, b"third").expect("push");
    sends.ring_doorbell().expect("ring");
    for (wr_id, length) in [(0, 5), (1, 6), (2, 5)] {
        assert_eq!(server.io.done(wr_id).byte_len(), length);
    }
    for wr_id in [10, 11, 13] {
        client.io.done(wr_id);
    }
    drop(sends);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_before_failed_one_stay_posted() {
    earlier_requests_stay_posted(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_before_failed_one_stay_posted_on_siw0() {
    earlier_requests_stay_posted(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn second_lock_by_same_thread_is_refused() {
    let connection = Connection::new(shape(8));
    let Connection { client, .. } = &connection;
    let (qp, cq) = (client.io.qp(), client.io.cq());
    let mut sends = qp.lock_send_queue().expect("send queue");
    would_deadlock(qp.lock_send_queue(), "send queue");
    let refused = client.io.post_inline(1, SendOperation::Send, b"x", SIGNALED);
    would_deadlock(refused, "send queue");
    let receives = qp.lock_receive_queue().expect("the other queue should be unlocked");
    would_deadlock(qp.lock_receive_queue(), "receive queue");
    would_deadlock(client.io.receive(2, 0..8), "receive queue");
    let mut poller = cq.lock_poller().expect("poller");
    would_deadlock(cq.lock_poller(), "poller");
    would_deadlock(cq.poll(&mut [Completion::default()]), "poller");
    would_deadlock(cq.wait(&mut [Completion::default()]), "poller");
    // A clone refers to the same queue.
    would_deadlock(qp.clone().lock_send_queue(), "send queue");
    would_deadlock(cq.clone().lock_poller(), "poller");
    // Calls that need no guard work, such as a change of state.
    qp.query().expect("query");
    client.id.disconnect().expect("disconnect");
    let posted = push_inline(&mut sends, 3, SendOperation::Send, b"x", SIGNALED);
    posted.expect("a queue pair in ERR should take requests");
    sends.ring_doorbell().expect("ring");
    let mut done = [Completion::default()];
    while poller.poll(&mut done).expect("poll") == 0 {}
    assert_eq!((done[0].wr_id(), done[0].status()), (3, WcStatus::IB_WC_WR_FLUSH_ERR));
    drop((sends, receives, poller));
    client.io.receive(4, 0..8).expect("the queue should be unlocked");
    assert_eq!(client.io.next().wr_id(), 4);
}

fn guards_are_refused_in_child(address: SocketAddr) {
    let connection = Connection::to(address, shape(8), &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    let (io, qp) = (&client.io, client.io.qp());
    let sends = qp.lock_send_queue().expect("send queue");
    let receives = qp.lock_receive_queue().expect("receive queue");
    let poller = io.cq().lock_poller().expect("poller");
    let mut kept = Some((sends, receives, poller));
    in_child(|| {
        // The child has a copy of the guards, over the rings of its parent.
        let (mut sends, mut receives, mut poller) = kept.take().expect("the guards should exist");
        forked(push_inline(&mut sends, 1, SendOperation::Send, b"child", SIGNALED));
        forked(io.push_parts(&mut sends, 1, SendOperation::Send, &[0..8, 8..16], SIGNALED));
        forked(sends.ring_doorbell());
        forked(io.push_receive(&mut receives, 2, 0..8));
        forked(receives.ring_doorbell());
        forked(poller.poll(&mut [Completion::default()]));
        drop((sends, receives, poller));
        forked(qp.lock_send_queue());
        forked(qp.lock_receive_queue());
        forked(io.cq().lock_poller());
        forked(qp.drain(LONG, |_| ()));
    });
    let (mut sends, mut receives, mut poller) = kept.expect("the guards should exist");
    io.push_receive(&mut receives, 3, 0..8).expect("push a receive");
    receives.ring_doorbell().expect("ring");
    server.io.receive(4, 0..8).expect("post a receive");
    push_inline(&mut sends, 5, SendOperation::Send, b"parent", SIGNALED).expect("push a send");
    sends.ring_doorbell().expect("ring");
    assert_eq!(server.io.done(4).byte_len(), 6);
    server.io.post_inline(6, SendOperation::Send, b"peer", SIGNALED).expect("post a send");
    let mut done = Vec::new();
    while done.len() < 2 {
        let mut some = [Completion::default(); 4];
        let count = poller.poll(&mut some).expect("poll");
        done.extend(some[..count].iter().map(|done| (done.wr_id(), done.is_success())));
    }
    done.sort_unstable();
    assert_eq!(done, [(3, true), (5, true)], "no request of the child should complete");
    drop((sends, receives, poller));
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_use_queue_guards() {
    guards_are_refused_in_child(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_use_queue_guards_on_siw0() {
    guards_are_refused_in_child(siw(0));
}

/// Posts until the queue pair is in ERR, and polls until all requests have completed.
fn post_until_it_fails(connection: &Connection, mut sends: SendQueueGuard<'_>) -> u64 {
    let io = &connection.client.io;
    let mut poller = io.cq().lock_poller().expect("poller");
    let (mut posted, mut done, mut failed) = (0, 0, false);
    while !failed || done < posted {
        let mut some = [Completion::default(); 4];
        if !failed {
            let bytes = [0; 8];
            match push_inline(&mut sends, posted, SendOperation::Send, &bytes, SIGNALED) {
                Ok(()) => posted += 1,
                Err(error) => assert_eq!(error.errno(), libc::ENOMEM, "{error}"),
            }
            sends.ring_doorbell().expect("ring");
        }
        let count = poller.poll(&mut some).expect("poll");
        for completion in &some[..count] {
            assert_eq!(completion.wr_id(), done, "completions should be in order");
            failed |= !completion.is_success();
            assert_eq!(
                failed,
                !completion.is_success(),
                "no request should succeed after a failure"
            );
            done += 1;
        }
        thread::yield_now();
    }
    posted
}

fn connection_ends_amid_guards(address: SocketAddr) {
    let param = ConnParam { rnr_retry_count: 7, ..ConnParam::default() };
    let connection = Connection::to(address, shape(16), &param);
    let Connection { client, server, server_channel, client_channel } = &connection;
    (0..16).for_each(|wr_id| server.io.receive(wr_id, 0..8).expect("post a receive"));
    thread::scope(|scope| {
        let poster = scope.spawn(|| {
            let sends = client.io.qp().lock_send_queue().expect("send queue");
            let _receives = client.io.qp().lock_receive_queue().expect("receive queue");
            post_until_it_fails(&connection, sends)
        });
        // The poster posts, and stops when no receives are left.
        for wr_id in 0..16 {
            server.io.done(wr_id);
        }
        client.id.disconnect().expect("call should be pending");
        // A poster that slept after the last receive was taken has posted no more requests.
        assert!(poster.join().expect("poster should not panic") >= 16);
    });
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    server.id.disconnect().expect("disconnect");
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_ends_while_guards_are_held() {
    connection_ends_amid_guards(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_ends_while_guards_are_held_on_siw0() {
    connection_ends_amid_guards(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn other_threads_get_queues_in_turn() {
    let connection = Connection::new(shape(16));
    let Connection { client, server, .. } = &connection;
    (0..4).for_each(|wr_id| server.io.receive(wr_id, 0..8).expect("post a receive"));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (started, starts) = std::sync::mpsc::channel();
        let over = &over;
        scope.spawn(move || {
            let mut sends = client.io.qp().lock_send_queue().expect("send queue");
            let mut poller = client.io.cq().lock_poller().expect("poller");
            started.send(()).expect("the test should receive");
            while !over.load(Ordering::Relaxed) {
                sends.ring_doorbell().expect("a doorbell without requests should succeed");
                poller.poll(&mut []).expect("poll");
            }
        });
        let _ending = Ending(over);
        starts.recv().expect("the thread should have the queues");
        for wr_id in 0..4 {
            client.io.post_inline(wr_id, SendOperation::Send, b"through", SIGNALED).expect("post");
            server.io.done(wr_id);
            // The first two completions are polled, and the others are awaited.
            while wr_id < 2 && client.io.polled().is_none() {}
            if wr_id >= 2 {
                client.io.done(wr_id);
            }
        }
    });
    connection.close();
}

fn receives_of_failing_qp_are_flushed(address: SocketAddr) {
    let connection = Connection::to(address, shape(64), &ConnParam::default());
    let io = &connection.client.io;
    thread::scope(|scope| {
        let poster = scope.spawn(|| {
            let mut receives = io.qp().lock_receive_queue().expect("receive queue");
            for wr_id in 0..60 {
                io.push_receive(&mut receives, wr_id, 0..8).expect("push a receive");
                receives.ring_doorbell().expect("ring");
            }
        });
        scope.spawn(|| connection.client.id.disconnect().expect("disconnect"));
        poster.join().expect("poster should not panic");
    });
    for wr_id in 0..60 {
        let completion = io.next();
        assert_eq!(
            (completion.wr_id(), completion.status()),
            (wr_id, WcStatus::IB_WC_WR_FLUSH_ERR)
        );
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn receives_posted_during_failure_are_flushed() {
    receives_of_failing_qp_are_flushed(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn receives_posted_during_failure_are_flushed_on_siw0() {
    receives_of_failing_qp_are_flushed(siw(0));
}
