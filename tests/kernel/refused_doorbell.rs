//! Buffers whose request is in the queue, although the kernel refused its doorbell.

use std::net::SocketAddr;

use rdmacm::cm::{CmId, ConnParam, EventType};
use rdmacm::endpoint::ConnectionConfig;
use rdmacm::verbs::{
    BufferedQueuePair, CompletionQueue, PostBufferError, ProtectionDomain, QueuePairInit,
    RegisteredBuffer, SendOperation,
};
use rdmacm::{ErrorKind, NotOwner};
use rdmacm_tests::wait_until;

use crate::child::with_refused_commands;
use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{Side, channel, listen, request, resolve, roce, siw};
use crate::io::Shape;

/// Returns the error and the buffer of a `post` in a thread whose commands the kernel refuses.
fn refused(
    queues: &mut BufferedQueuePair,
    post: impl FnOnce(&mut BufferedQueuePair) -> Result<(), PostBufferError> + Send,
) -> Option<RegisteredBuffer> {
    let posted = with_refused_commands(|| post(queues));
    let PostBufferError { buffer, error } =
        posted.expect_err("the kernel should refuse the doorbell");
    let kind = error.kind();
    assert!(matches!(kind, ErrorKind::NotOwner(NotOwner::Credentials)), "{error}");
    buffer
}

/// Waits until `count` buffers return. Returns their indices.
fn back(queues: &mut BufferedQueuePair, count: usize) -> Vec<usize> {
    let mut back = Vec::new();
    wait_until("the buffers return", || {
        queues.poll(|buffer, _| back.push(buffer.index())).expect("poll");
        back.len() >= count
    });
    assert_eq!((back.len(), queues.outstanding()), (count, 0));
    back.sort_unstable();
    back
}

fn connected(address: SocketAddr) -> (CmId, BufferedQueuePair, Vec<RegisteredBuffer>, Side) {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, address);
    let id = resolve(&ours, server);
    let context = id.context().expect("the id should have a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let qp = id.create_qp(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    let mut buffers = RegisteredBuffer::alloc(&pd, 5, 64).expect("buffers");
    buffers.reverse();
    id.connect(&ConnParam::default()).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    (1..4).for_each(|wr_id| server.io.receive(wr_id, 0..64).expect("post a receive"));
    server.id.accept(&ConnParam::default()).expect("accept");
    for channel in [&ours, &theirs] {
        channel.expect_event(EventType::Established).expect("the connection should be established");
    }
    (id, BufferedQueuePair::new(qp).expect("queues"), buffers, server)
}

/// Checks that a request without a doorbell stays queued, and that the next doorbell sends it.
fn send_stays_queued_after_refusal(
    address: SocketAddr,
) -> (CmId, BufferedQueuePair, Vec<RegisteredBuffer>, Side) {
    let (id, mut queues, mut buffers, server) = connected(address);
    let mut next = || buffers.pop().expect("a buffer");
    queues.post_send(next(), 8, SendOperation::Send).expect("post a send");
    server.io.done(1);
    assert_eq!(back(&mut queues, 1), [0]);
    let buffer = next();
    assert!(
        refused(&mut queues, |queues| queues.post_send(buffer, 8, SendOperation::Send)).is_none()
    );
    assert_eq!(queues.outstanding(), 1);
    queues.post_send(next(), 8, SendOperation::Send).expect("post a send");
    server.io.done(2);
    server.io.done(3);
    assert_eq!(back(&mut queues, 2), [1, 2]);
    (id, queues, buffers, server)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn send_stays_queued_after_refusal_on_rxe() {
    let (id, mut queues, mut buffers, server) = send_stays_queued_after_refusal(roce(0));
    // A receive on a queue pair in ERR needs a doorbell on rxe.
    id.disconnect().expect("disconnect");
    let buffer = buffers.pop().expect("a buffer");
    assert!(refused(&mut queues, |queues| queues.post_recv(buffer)).is_none());
    assert_eq!(queues.outstanding(), 1);
    queues.post_recv(buffers.pop().expect("a buffer")).expect("post a receive");
    assert_eq!(back(&mut queues, 2), [3, 4]);
    drop(server);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn send_stays_queued_after_refusal_on_siw() {
    send_stays_queued_after_refusal(siw(0));
}

/// Refuses the query by which the library checks the connection before the first send.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_send_is_returned_on_siw() {
    let (_id, mut queues, mut buffers, _server) = connected(siw(0));
    let buffer = buffers.pop().expect("a buffer");
    let posted = with_refused_commands(|| queues.post_send(buffer, 8, SendOperation::Send));
    let refused = posted.expect_err("the kernel should refuse the doorbell");
    assert!(matches!(refused.error.kind(), ErrorKind::PartiallyPosted { .. }), "{}", refused.error);
    assert_eq!(refused.buffer.map(|buffer| buffer.index()), Some(0));
    assert_eq!(queues.outstanding(), 0);
}

/// Checks that a message that is sent with the next one is counted as sent.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_sent_by_later_doorbell_is_counted() {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let buffer = filled(&client, b"untold");
    let error = with_refused_commands(|| client.post_send(buffer))
        .expect_err("the kernel should refuse the doorbell");
    assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error}");
    client.post_send(filled(&client, b"told")).expect("post");
    receives(&server, b"untold");
    receives(&server, b"told");
    assert_eq!(client.stats().expect("count").messages_sent, 2);
}
