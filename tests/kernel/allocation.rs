//! Posting and polling allocate nothing.
#![expect(unsafe_code, reason = "posts requests")]

use std::hint::black_box;

use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    Completion, Payload, QueuePairCaps, ReceiveRequest, SendFlags, SendOperation, SendRequest,
};
use rdmacm_tests::heap::allocations;

use crate::fixtures::{Connection, roce, siw};
use crate::io::Shape;
use crate::kt::Kt;
use crate::node::Node;

fn count_post_and_poll_allocations(address: std::net::SocketAddr) {
    let caps = QueuePairCaps { max_inline_data: 16, ..QueuePairCaps::default() };
    let shape = Shape { caps, ..Shape::default() };
    let connection = Connection::to(address, shape, &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    let scatter = [server.io.memory().sge(0..64).expect("the range should be within the memory")];
    let gather = [client.io.memory().sge(0..64).expect("the range should be within the memory")];
    let receive = ReceiveRequest { wr_id: 1, scatter: &scatter };
    let send = |payload| SendRequest {
        wr_id: 2,
        operation: SendOperation::Send,
        payload,
        flags: SendFlags::SIGNALED,
    };
    let requests = [send(Payload::Gather(&gather)), send(Payload::Inline(b"inline"))];
    let (sender, receiver) = (client.io.qp(), server.io.qp());
    let mut done = [Completion::default(); 4];
    let count = allocations(|| {
        for round in 0..20 {
            let mut remaining = 2;
            if round % 2 == 0 {
                // SAFETY: the memory is the two regions', which outlive the queue pairs and are not touched here.
                unsafe { receiver.post_recv(&receive) }.expect("post a receive");
                // SAFETY: as above.
                unsafe { sender.post_send(&requests[round / 2 % 2]) }.expect("post a send");
            } else {
                remaining = 4;
                let mut receives = receiver.lock_receive_queue().expect("receive queue");
                let mut sends = sender.lock_send_queue().expect("send queue");
                for request in &requests {
                    // SAFETY: as above.
                    unsafe { receives.push(&receive) }.expect("push a receive");
                    // SAFETY: as above.
                    unsafe { sends.push(request) }.expect("push a send");
                }
                receives.ring_doorbell().expect("ring");
                sends.ring_doorbell().expect("ring");
            }
            while remaining > 0 {
                for cq in [client.io.cq(), server.io.cq()] {
                    let count = cq.lock_poller().expect("poller").poll(&mut done).expect("poll");
                    assert!(done[..count].iter().all(Completion::is_success), "{done:?}");
                    remaining -= count;
                }
            }
        }
    });
    assert_eq!(count, 0);
    assert!(
        allocations(|| drop(black_box(Box::new(count)))) > 0,
        "the counter should count an allocation"
    );
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn post_and_poll_allocate_nothing() {
    count_post_and_poll_allocations(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn post_and_poll_allocate_nothing_on_siw0() {
    count_post_and_poll_allocations(siw(0));
}

/// Checks that only a list that is longer than all before allocates memory.
///
/// The driver of `kt0` collects a list for one command.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn post_and_poll_allocate_once_on_kt0() {
    let kt = Kt::load();
    let [from, to] = Node::pair(&kt.context(), 16);
    let mut done = [Completion::default(); 32];
    let mut exchange = |count: u64| {
        allocations(|| {
            to.receive(0..count).expect("post receives");
            from.send(0..count).expect("post sends");
            for cq in [&from.cq, &to.cq] {
                assert_eq!(cq.poll(&mut done).expect("poll") as u64, count);
            }
        })
    };
    assert!(exchange(16) > 0);
    for count in [1, 16, 3] {
        assert_eq!(exchange(count), 0, "of {count}");
    }
}
