//! Connections, and what moves over them.
#![expect(unsafe_code, reason = "posts requests over memory that outlives them")]

use rdmacm::cm::{EventChannel, EventType};
use rdmacm::verbs::{
    AccessFlags, Completion, MemoryRegion, Payload, ReceiveRequest, SendFlags, SendOperation,
    SendRequest, WcOpcode,
};

use crate::bed::{connect, rxe};

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_message_arrives() {
    let channels = [EventChannel::new().expect("channel"), EventChannel::new().expect("channel")];
    let [client, server] = connect([&channels[0], &channels[1]], rxe(0));
    let mut from = MemoryRegion::alloc(&client.pd, 4096, AccessFlags::empty()).expect("region");
    let to = MemoryRegion::alloc(&server.pd, 4096, AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE)
        .expect("region");
    from.write(100, b"hello through the kernel").expect("write");
    let scatter = [to.sge(..).expect("all of it")];
    // SAFETY: the region lives until the completion is polled, and is not touched before.
    unsafe { server.qp.post_recv(&ReceiveRequest { wr_id: 7, scatter: &scatter }) }.expect("post");
    let gather = [from.sge(100..124).expect("within")];
    let request = SendRequest {
        wr_id: 8,
        operation: SendOperation::Send,
        payload: Payload::Gather(&gather),
        flags: SendFlags::SIGNALED,
    };
    // SAFETY: the region lives until the completion is polled, and is not touched before.
    unsafe { client.qp.post_send(&request) }.expect("post");
    let mut done = [Completion::default()];
    assert_eq!(server.cq.wait(&mut done).expect("wait"), 1);
    assert!(done[0].is_success(), "{:?}", done[0]);
    assert_eq!((done[0].wr_id(), done[0].byte_len()), (7, 24));
    assert_eq!(done[0].opcode(), WcOpcode::IB_WC_RECV);
    let mut text = [0; 24];
    to.read(0, &mut text).expect("read");
    assert_eq!(&text, b"hello through the kernel");
    assert_eq!(client.cq.wait(&mut done).expect("wait"), 1);
    assert!(done[0].is_success(), "{:?}", done[0]);
    assert_eq!(done[0].wr_id(), 8);

    client.id.disconnect().expect("disconnect");
    channels[0].expect_event(EventType::Disconnected).expect("the client hears of it");
    channels[1].expect_event(EventType::Disconnected).expect("the server hears of it");
    server.id.disconnect().expect("disconnect");
    client.id.destroy().expect("destroy");
    server.id.destroy().expect("destroy");
}
