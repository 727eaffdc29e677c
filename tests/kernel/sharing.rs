//! Completion queues that several queue pairs share, and completion vectors.

use std::net::SocketAddr;

use rdmacm::cm::{CmId, ConnParam, EventType};
use rdmacm::verbs::{
    Completion, CompletionChannel, CompletionQueue, Context, QueuePairInit, SendFlags,
    SendOperation,
};

use crate::fixtures::{Side, assert_invalid, channel, id, listen, request, resolve, roce, siw};
use crate::io::{Io, Shape};

/// Returns one side of a connection, whose completions go to `cq`.
fn side(id: CmId, cq: &CompletionQueue) -> Side {
    let io = Io::with(&id, Shape::default(), |pd, init| {
        id.create_qp(pd, &QueuePairInit { send_cq: cq, recv_cq: cq, ..*init })
    });
    Side { id, io }
}

/// Shares one queue among two clients, and one among their servers.
///
/// The numbers identify the owner of a completion.
fn two_connections_share_queues(address: SocketAddr) {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, address);
    let ids = [(); 2].map(|()| resolve(&ours, address));
    let context = ids[0].context().expect("a device");
    let events = CompletionChannel::new(&context).expect("completion channel");
    let queue = || CompletionQueue::new(&context, 64, Some(&events)).expect("completion queue");
    let (sends, receives) = (queue(), queue());
    let sides = ids.map(|id| {
        let client = side(id, &sends);
        client.id.connect(&ConnParam::default()).expect("connect");
        let server = side(request(&theirs), &receives);
        server.io.receive(1, 0..8).expect("post a receive");
        server.io.receive(2, 8..16).expect("post a receive");
        server.id.accept(&ConnParam::default()).expect("accept");
        ours.expect_event(EventType::Established).expect("the connection should be established");
        theirs.expect_event(EventType::Established).expect("the connection should be established");
        (client, server)
    });
    receives.request_notify(false).expect("arm");
    for round in [1, 2] {
        for (number, (client, _)) in (0..).zip(&sides) {
            let bytes = [round * 10 + number; 8];
            client
                .io
                .post_inline(round.into(), SendOperation::Send, &bytes, SendFlags::SIGNALED)
                .expect("post a send");
        }
    }
    // One channel serves both queues, and its event names the queue.
    assert_eq!(events.get_event().expect("an event").token(), receives.token());
    for (cq, numbers) in [
        (&sends, sides.each_ref().map(|(client, _)| client.io.qp().number())),
        (&receives, sides.each_ref().map(|(_, server)| server.io.qp().number())),
    ] {
        let mut done = Vec::new();
        while done.len() < 4 {
            let mut some = [Completion::default(); 8];
            let count = cq.poll(&mut some).expect("poll");
            assert!(some[..count].iter().all(Completion::is_success), "{some:?}");
            done.extend(some[..count].iter().map(|one| (one.qp_num(), one.wr_id())));
        }
        for number in numbers {
            let of = done.iter().filter(|(qp, _)| *qp == number).map(|(_, wr_id)| *wr_id);
            assert_eq!(of.collect::<Vec<_>>(), [1, 2], "{done:?}");
        }
    }
    for (number, (_, server)) in (0..).zip(&sides) {
        let expected = [[10 + number; 8], [20 + number; 8]].concat();
        assert_eq!(server.io.bytes(0..16), expected);
    }
    let (sends, error) =
        sends.destroy().expect_err("queue pairs should use the queue").into_parts();
    assert_eq!(error.errno(), libc::EBUSY, "{error}");
    drop(sides);
    sends.destroy().expect("the queue should be unused");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_connections_share_queues_on_rxe() {
    two_connections_share_queues(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_connections_share_queues_on_siw() {
    two_connections_share_queues(siw(0));
}

fn every_completion_vector_works(address: SocketAddr) {
    let channel = channel();
    let id = id(&channel);
    id.bind(address).expect("bind");
    let context = id.context().expect("a device");
    let vectors = context.completion_vectors();
    assert!(vectors >= 1);
    for vector in 0..vectors {
        CompletionQueue::with_comp_vector(&context, 8, None, vector).expect("completion queue");
    }
    for vector in [vectors, u32::MAX] {
        let error = CompletionQueue::with_comp_vector(&context, 8, None, vector)
            .expect_err("the vector should not exist");
        assert_invalid(&error, &["vector", &vector.to_string(), &vectors.to_string()]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn every_completion_vector_works_on_rxe() {
    every_completion_vector_works(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn every_completion_vector_works_on_siw() {
    every_completion_vector_works(siw(0));
}

/// The shared context of a device is that of the ids that use the device.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_and_rxe_have_shared_contexts() {
    let channel = channel();
    let contexts = [roce(0), siw(0)].map(|address| {
        let id = id(&channel);
        id.bind(address).expect("bind");
        let context = id.context().expect("a device");
        let shared = || Context::shared(context.device()).expect("open the shared context");
        assert!(shared() == context && shared() == shared());
        context
    });
    assert!(contexts[0] != contexts[1]);
}
