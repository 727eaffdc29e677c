//! Rings shared with the kernel: many rounds, and full rings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rdmacm::verbs::{Completion, QueuePairCaps, SendFlags, SendOperation, WcOpcode};

use crate::fixtures::{Connection, assert_invalid};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn shape(requests: u32) -> Shape {
    let caps = QueuePairCaps {
        max_send_wr: requests,
        max_recv_wr: requests,
        max_inline_data: 16,
        ..QueuePairCaps::default()
    };
    Shape { caps, completions: 2 * requests, ..Shape::default() }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn small_rings_survive_many_rounds() {
    for requests in [1, 2, 3, 7] {
        let connection = Connection::new(shape(requests));
        let Connection { client, server, .. } = &connection;
        let depth = u64::from(requests);
        (0..depth).for_each(|wr_id| server.io.receive(wr_id, 0..16).expect("post a receive"));
        for number in 0..300_u64 {
            let bytes = number.to_ne_bytes();
            client.io.post_inline(number, SendOperation::Send, &bytes, SIGNALED).expect("post");
            server.io.done(number);
            assert_eq!(server.io.bytes(0..8), bytes);
            server.io.receive(number + depth, 0..16).expect("the queue should have room again");
            client.io.done(number);
        }
        connection.close();
    }
}

/// Posts until the queue is full. Returns the number of posted requests.
fn fill(mut post: impl FnMut(u64) -> rdmacm::Result<()>) -> u64 {
    for number in 0..1000 {
        if let Err(error) = post(number) {
            assert_eq!(error.errno(), libc::ENOMEM, "{error}");
            assert_invalid(&error, &["the queue is full", &format!("{number} requests")]);
            return number;
        }
    }
    panic!("the queue should become full");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_send_queue_loses_nothing() {
    let connection = Connection::new(shape(10));
    let Connection { client, server, .. } = &connection;
    let wanted = u64::from(client.io.qp().caps().max_send_wr);
    for _ in 0..3 {
        // No request completes while the peer has no receive.
        let bytes = |number: u64| (number * 3).to_ne_bytes();
        let send =
            |number| client.io.post_inline(number, SendOperation::Send, &bytes(number), SIGNALED);
        let count = fill(send);
        assert!(count >= wanted && count < 2 * wanted, "{count} where {wanted} were promised");
        assert!(client.io.polled().is_none());
        for number in 0..count {
            let at = usize::try_from(number).expect("the number should fit") * 8;
            server.io.receive(number, at..at + 8).expect("post a receive");
        }
        for number in 0..count {
            let at = usize::try_from(number).expect("the number should fit") * 8;
            server.io.done(number);
            client.io.done(number);
            assert_eq!(server.io.bytes(at..at + 8), bytes(number));
        }
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_receive_queue_loses_nothing() {
    let connection = Connection::new(shape(10));
    let Connection { client, server, .. } = &connection;
    for _ in 0..3 {
        let count = fill(|number| server.io.receive(number, 0..8));
        assert!(count >= u64::from(server.io.qp().caps().max_recv_wr), "{count}");
        for number in 0..count {
            let bytes = (number * 5).to_ne_bytes();
            client.io.post_inline(number, SendOperation::Send, &bytes, SIGNALED).expect("post");
            server.io.done(number);
            client.io.done(number);
            assert_eq!(server.io.bytes(0..8), bytes);
        }
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_threads_post_while_two_poll() {
    const EACH: u64 = 200;
    const ALL: usize = 400;
    let mut shape = shape(12);
    // A sender without a receive at the peer waits for most of a second.
    shape.caps.max_recv_wr = 400;
    shape.completions = 400;
    let connection = Connection::new(shape);
    let Connection { client, server, .. } = &connection;
    for slot in 0..ALL {
        server.io.receive(slot as u64, 8 * slot..8 * slot + 8).expect("post a receive");
    }
    let post = |first: u64| {
        for number in first..first + EACH {
            loop {
                let bytes = number.to_ne_bytes();
                match client.io.post_inline(number, SendOperation::Send, &bytes, SIGNALED) {
                    Ok(()) => break,
                    Err(error) => assert_eq!(error.errno(), libc::ENOMEM, "{error}"),
                }
                thread::yield_now();
            }
        }
    };
    let completed = AtomicUsize::new(0);
    let poll = || {
        let mut numbers = Vec::new();
        while completed.load(Ordering::Relaxed) < ALL {
            let mut some = [Completion::default(); 3];
            let count = client.io.cq().poll(&mut some).expect("poll");
            assert!(some[..count].iter().all(Completion::is_success), "{some:?}");
            numbers.extend(some[..count].iter().map(Completion::wr_id));
            completed.fetch_add(count, Ordering::Relaxed);
            thread::yield_now();
        }
        numbers
    };
    let mut received = Vec::new();
    let sent = thread::scope(|scope| {
        let posters = [scope.spawn(|| post(0)), scope.spawn(|| post(EACH))];
        let pollers = [scope.spawn(poll), scope.spawn(poll)];
        while received.len() < ALL {
            let completion = server.io.next();
            assert!(completion.is_success(), "{completion:?}");
            assert_eq!(completion.opcode(), WcOpcode::IB_WC_RECV);
            let at = usize::try_from(completion.wr_id()).expect("the number should fit") * 8;
            let bytes =
                server.io.bytes(at..at + 8).try_into().expect("the slice should have 8 bytes");
            received.push(u64::from_ne_bytes(bytes));
        }
        posters.into_iter().for_each(|poster| poster.join().expect("a poster"));
        pollers.map(|poller| poller.join().expect("a poller"))
    });
    // The requests of each thread complete once, in their order.
    let of = |first: u64| received.iter().filter(move |number| **number / EACH == first);
    for first in [0, 1] {
        assert!(of(first).is_sorted(), "{received:?}");
    }
    let all = (0..2 * EACH).collect::<Vec<_>>();
    let mut sent = sent.concat();
    for numbers in [&mut received, &mut sent] {
        numbers.sort_unstable();
        assert_eq!(*numbers, all);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_queue_pair_sizes_are_refused() {
    let connection = Connection::new(Shape::default());
    let Connection { client, .. } = &connection;
    let (pd, cq) = (client.io.qp().pd(), client.io.cq());
    let default = QueuePairCaps::default();
    for caps in [
        QueuePairCaps { max_send_wr: 1 << 24, ..default },
        QueuePairCaps { max_recv_wr: 1 << 24, ..default },
        QueuePairCaps { max_send_sge: 1000, ..default },
        QueuePairCaps { max_recv_sge: 1000, ..default },
        QueuePairCaps { max_inline_data: 1 << 16, ..default },
    ] {
        let init = rdmacm::verbs::QueuePairInit { caps, ..rdmacm::verbs::QueuePairInit::new(cq) };
        let error =
            rdmacm::verbs::QueuePair::new(pd, &init).expect_err("the capacities should be refused");
        // The kernel refuses the size, or the driver, which names its limit.
        assert_eq!(error.errno(), libc::EINVAL, "{caps:?}: {error:?}");
    }
    connection.close();
}
