//! Buffers whose request gets into the queue, and the kernel is not told.

use std::net::SocketAddr;

use rdmacm::cm::{CmId, ConnParam, EventType};
use rdmacm::endpoint::Settings;
use rdmacm::verbs::{
    Buffer, BufferQueues, BufferRefused, CompletionQueue, ProtectionDomain, QueuePairInit,
    SendOperation,
};
use rdmacm::{ErrorKind, WrongProcess};
use rdmacm_tests::wait_until;

use crate::bed::{Side, channel, listen, request, resolve, rxe, siw};
use crate::child::by_a_stranger;
use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};
use crate::io::Shape;

/// What becomes of a buffer that `post` posts in a thread whose commands the kernel refuses.
fn refused(
    queues: &mut BufferQueues,
    post: impl FnOnce(&mut BufferQueues) -> Result<(), BufferRefused> + Send,
) -> Option<Buffer> {
    let posted = by_a_stranger(|| post(queues));
    let BufferRefused { buffer, error } = posted.expect_err("the kernel refuses it");
    let kind = error.kind();
    assert!(matches!(kind, ErrorKind::WrongProcess(WrongProcess::Credentials)), "{error}");
    buffer
}

/// Waits for buffers that come back; which they are.
fn back(queues: &mut BufferQueues, count: usize) -> Vec<usize> {
    let mut back = Vec::new();
    wait_until("they come back", || {
        queues.poll(|buffer, _| back.push(buffer.index())).expect("poll");
        back.len() >= count
    });
    assert_eq!((back.len(), queues.outstanding()), (count, 0));
    back.sort_unstable();
    back
}

fn connected(address: SocketAddr) -> (CmId, BufferQueues, Vec<Buffer>, Side) {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, address);
    let id = resolve(&ours, server);
    let context = id.context().expect("the id has a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let qp = id.create_qp(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    let mut buffers = Buffer::alloc(&pd, 5, 64).expect("buffers");
    buffers.reverse();
    id.connect(&ConnParam::default()).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    (1..4).for_each(|wr_id| server.io.receive(wr_id, 0..64).expect("post a receive"));
    server.id.accept(&ConnParam::default()).expect("accept");
    for channel in [&ours, &theirs] {
        channel.expect_event(EventType::Established).expect("connected");
    }
    (id, BufferQueues::new(qp).expect("queues"), buffers, server)
}

/// What the kernel was not told of stands in the queue: it goes out with what comes next, and nobody may have its
/// buffer before.
fn a_send_stays(address: SocketAddr) -> (CmId, BufferQueues, Vec<Buffer>, Side) {
    let (id, mut queues, mut buffers, server) = connected(address);
    let mut next = || buffers.pop().expect("a buffer");
    queues.send(next(), 8, SendOperation::Send).expect("post a send");
    server.io.done(1);
    assert_eq!(back(&mut queues, 1), [0]);
    let buffer = next();
    assert!(refused(&mut queues, |queues| queues.send(buffer, 8, SendOperation::Send)).is_none());
    assert_eq!(queues.outstanding(), 1);
    queues.send(next(), 8, SendOperation::Send).expect("post a send");
    server.io.done(2);
    server.io.done(3);
    assert_eq!(back(&mut queues, 2), [1, 2]);
    (id, queues, buffers, server)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_send_stays_in_the_queue_of_rxe() {
    let (id, mut queues, mut buffers, server) = a_send_stays(rxe(0));
    // A receive on a queue pair in ERR, which rxe must be told of.
    id.disconnect().expect("disconnect");
    let buffer = buffers.pop().expect("a buffer");
    assert!(refused(&mut queues, |queues| queues.receive(buffer)).is_none());
    assert_eq!(queues.outstanding(), 1);
    queues.receive(buffers.pop().expect("a buffer")).expect("post a receive");
    assert_eq!(back(&mut queues, 2), [3, 4]);
    drop(server);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_send_stays_in_the_queue_of_siw() {
    a_send_stays(siw(0));
}

/// siw is asked whether there is a connection before the first send gets into the queue.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_does_not_get_into_the_queue_of_siw_comes_back() {
    let (_id, mut queues, mut buffers, _server) = connected(siw(0));
    let buffer = buffers.pop().expect("a buffer");
    let posted = by_a_stranger(|| queues.send(buffer, 8, SendOperation::Send));
    let refused = posted.expect_err("the kernel refuses it");
    assert!(matches!(refused.error.kind(), ErrorKind::Unposted { .. }), "{}", refused.error);
    assert_eq!(refused.buffer.map(|buffer| buffer.index()), Some(0));
    assert_eq!(queues.outstanding(), 0);
}

/// What goes out with the next message is counted as sent.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_message_that_the_kernel_was_not_told_of_is_counted() {
    let [client, server] = pair(rxe(0), &Settings::default());
    let buffer = filled(&client, b"untold");
    let error = by_a_stranger(|| client.post(buffer)).expect_err("the kernel refuses it");
    assert!(matches!(error.kind(), ErrorKind::WrongProcess(_)), "{error}");
    client.post(filled(&client, b"told")).expect("post");
    receives(&server, b"untold");
    receives(&server, b"told");
    assert_eq!(client.counters().expect("count").messages_sent, 2);
}
