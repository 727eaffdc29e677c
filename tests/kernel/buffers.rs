//! Posts that take buffers by value, and return them with the completions.

use std::net::SocketAddr;
use std::thread;

use rdmacm::Error;
use rdmacm::cm::{CmId, ConnParam, EventType, PortSpace};
use rdmacm::device::GidType;
use rdmacm::verbs::{
    AccessFlags, AddressHandle, BufferedQueuePair, Completion, CompletionQueue, Destination,
    GRH_LENGTH, MemoryRegion, PostBufferError, ProtectionDomain, QueuePairCaps, QueuePairInit,
    RegisteredBuffer, SendOperation,
};
use rdmacm::verbs_abi::ib_uverbs_ah_attr;

use crate::child::{forbid_writes_of_length, in_child};
use crate::endpoint_connect::objects_at;
use crate::fixtures::{
    assert_invalid, channel, device, listen, request, resolve, roce, roce_name, siw,
};

/// A side with two buffers of 100 bytes in each direction, and with two completion queues.
struct Side {
    id: CmId,
    queues: BufferedQueuePair,
    buffers: Vec<RegisteredBuffer>,
}

impl Side {
    fn new(id: CmId) -> Self {
        let context = id.context().expect("the id should have a device");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let cq = || CompletionQueue::new(&context, 4, None).expect("completion queue");
        let (send_cq, recv_cq) = (cq(), cq());
        let caps = QueuePairCaps { max_send_wr: 2, max_recv_wr: 2, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, recv_cq: &recv_cq, ..QueuePairInit::new(&send_cq) };
        let queues =
            BufferedQueuePair::new(id.create_qp(&pd, &init).expect("queue pair")).expect("queues");
        let buffers = RegisteredBuffer::alloc(&pd, 4, 100).expect("buffers");
        Self { id, queues, buffers }
    }

    fn buffer(&mut self) -> RegisteredBuffer {
        self.buffers.pop().expect("a buffer")
    }

    /// Waits until a buffer returns.
    fn back(&mut self) -> (RegisteredBuffer, Completion) {
        let mut back = Vec::new();
        while self.queues.poll(|buffer, made| back.push((buffer, *made))).expect("poll") == 0 {
            thread::yield_now();
        }
        assert_eq!(back.len(), 1);
        back.remove(0)
    }
}

/// Returns two connected sides, with a receive posted on each.
fn connected(address: SocketAddr) -> [Side; 2] {
    let channels = [channel(), channel()];
    let (listener, server) = listen(&channels[1], address);
    let mut client = Side::new(resolve(&channels[0], server));
    let buffer = client.buffer();
    client.queues.post_recv(buffer).expect("post");
    client.id.connect(&ConnParam::default()).expect("connect");
    let mut server = Side::new(request(&channels[1]));
    let buffer = server.buffer();
    server.queues.post_recv(buffer).expect("post");
    server.id.accept(&ConnParam::default()).expect("accept");
    for channel in &channels {
        channel.expect_event(EventType::Established).expect("the connection should be established");
    }
    drop(listener);
    [client, server]
}

fn posted_buffers_come_back(address: SocketAddr) {
    let before = objects_at(address);
    let [mut client, mut server] = connected(address);
    for (from, to) in [(0, 1), (1, 0)] {
        let sides = [&mut client, &mut server];
        let mut buffer = sides[from].buffer();
        assert!(buffer.iter().all(|byte| *byte == 0), "a new buffer should contain zeros");
        let index = buffer.index();
        buffer[..5].copy_from_slice(b"hello");
        sides[from].queues.post_send(buffer, 5, SendOperation::Send).expect("post");
        let (received, completion) = sides[to].back();
        assert!(completion.is_success(), "{completion:?}");
        assert_eq!((&received[..6], completion.byte_len()), (&b"hello\0"[..], 5));
        let (sent, completion) = sides[from].back();
        assert!(completion.is_success(), "{completion:?}");
        assert_eq!((&sent[..5], sent.len(), sent.index()), (&b"hello"[..], 100, index));
    }
    // These are the other operations whose only local memory is a buffer.
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
    let memory = MemoryRegion::alloc(server.queues.qp().pd(), 64, access).expect("memory region");
    let (remote_addr, rkey) = (memory.addr() + 8, memory.rkey());
    let mut buffer = client.buffer();
    buffer[..5].copy_from_slice(b"there");
    client.queues.post_send(buffer, 5, SendOperation::Write { remote_addr, rkey }).expect("post");
    let (mut buffer, completion) = client.back();
    assert!(completion.is_success(), "{completion:?}");
    buffer.fill(0);
    client.queues.post_send(buffer, 6, SendOperation::Read { remote_addr, rkey }).expect("post");
    let (buffer, completion) = client.back();
    assert!(completion.is_success(), "{completion:?}");
    assert_eq!(buffer[..6], *b"there\0");
    assert_eq!((client.queues.outstanding(), server.queues.outstanding()), (0, 0));
    drop((client, server, memory, buffer));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_posted_buffers_come_back() {
    posted_buffers_come_back(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_posted_buffers_come_back() {
    posted_buffers_come_back(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_post_returns_buffer() {
    let [mut client, _server] = connected(roce(0));
    #[track_caller]
    fn refused(result: Result<(), PostBufferError>, text: &str) -> Error {
        let PostBufferError { buffer, error } = result.expect_err("posting should fail");
        assert_eq!(buffer.expect("the buffer should be returned").len(), 100);
        assert_invalid(&error, &[text]);
        error
    }
    let buffer = client.buffer();
    refused(
        client.queues.post_send(buffer, 101, SendOperation::Send),
        "length 101 exceeds the 100 bytes",
    );
    let invalidates = SendOperation::LocalInvalidate { rkey: 1 };
    let buffer = client.buffer();
    refused(client.queues.post_send(buffer, 0, invalidates), "`FetchAdd` use a buffer");
    let context = client.id.context().expect("the id should have a device");
    let other = ProtectionDomain::new(&context).expect("protection domain");
    let mut others = RegisteredBuffer::alloc(&other, 4, 100).expect("buffers");
    let mut other = || others.pop().expect("a buffer");
    refused(client.queues.post_send(other(), 1, SendOperation::Send), "another protection domain");
    refused(client.queues.post_recv(other()), "another protection domain");
    for (count, length) in [(0, 1), (1, 0), (usize::MAX, 2), (2, usize::MAX)] {
        let error = RegisteredBuffer::alloc(client.queues.qp().pd(), count, length);
        error.expect_err("impossible sizes should be refused");
    }
    // The queue has room for two receives.
    let buffer = client.buffer();
    client.queues.post_recv(buffer).expect("post");
    let many = RegisteredBuffer::alloc(client.queues.qp().pd(), 100, 100).expect("buffers");
    let mut posted = 2;
    for buffer in many {
        match client.queues.post_recv(buffer) {
            Ok(()) => posted += 1,
            full => {
                assert_eq!(refused(full, "").errno(), libc::ENOMEM);
                break;
            }
        }
    }
    assert_eq!(
        client.queues.outstanding(),
        posted,
        "the count should be that of the posted requests"
    );
}

/// Returns a side that sends and receives datagrams, and its address vector.
fn datagram_side() -> (Side, ib_uverbs_ah_attr) {
    let channel = channel();
    let id = CmId::new(&channel, PortSpace::Udp).expect("create an id");
    id.bind(roce(0)).expect("bind");
    let context = id.context().expect("the id should have a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 8, None).expect("completion queue");
    let caps = QueuePairCaps { max_send_wr: 4, max_recv_wr: 4, ..QueuePairCaps::default() };
    let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
    let queues =
        BufferedQueuePair::new(id.create_qp(&pd, &init).expect("queue pair")).expect("queues");
    let buffers = RegisteredBuffer::alloc(&pd, 8, GRH_LENGTH + 8).expect("buffers");
    let gid = id.route().expect("route").local.gid;
    let mut gids = device(roce_name()).port(1).expect("port").gids().expect("GIDs");
    let entry = gids.find(|entry| entry.gid == gid && entry.gid_type == Some(GidType::RoceV2));
    let mut to = ib_uverbs_ah_attr { is_global: 1, port_num: 1, ..ib_uverbs_ah_attr::default() };
    to.grh.dgid = gid.0;
    to.grh.hop_limit = 64;
    to.grh.sgid_index = u8::try_from(entry.expect("its own").index).expect("the value should fit");
    (Side { id, queues, buffers }, to)
}

/// Checks that a program may drop the address handle as soon as a datagram is posted.
///
/// rxe of Linux 6.12 sends asynchronously.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn address_handle_lives_until_datagram_is_sent() {
    let before = objects_at(roce(0));
    let (mut receiver, to) = datagram_side();
    let (mut sender, _) = datagram_side();
    for round in 0..10 {
        for _ in 0..4 {
            let buffer = receiver.buffer();
            receiver.queues.post_recv(buffer).expect("post");
        }
        for number in 0..4 {
            let mut buffer = sender.buffer();
            buffer[0] = number;
            let address = &AddressHandle::new(sender.queues.qp().pd(), &to).expect("a handle");
            let qp_num = receiver.queues.qp().number();
            let posted =
                sender.queues.post_send_to(buffer, 8, address, qp_num, 0x0123_4567, Some(round));
            posted.expect("post");
        }
        for side in [&mut sender, &mut receiver] {
            let mut numbers = Vec::new();
            while numbers.len() < 4 {
                let polled = side.queues.poll(|buffer, completion| {
                    assert!(completion.is_success(), "{completion:?}");
                    let header = if completion.is_receive() { GRH_LENGTH } else { 0 };
                    numbers.push(buffer[header]);
                    side.buffers.push(buffer);
                });
                polled.expect("poll");
            }
            assert_eq!(numbers, [0, 1, 2, 3]);
        }
    }
    // A refused send does not keep the handle, so its domain can be destroyed.
    let other = ProtectionDomain::new(sender.queues.qp().pd().context()).expect("another domain");
    let address = AddressHandle::new(&other, &to).expect("a handle");
    let buffer = sender.buffer();
    let destination = Destination { address: &address, qp_num: 1, qkey: 1 };
    let held_by_none = SendOperation::SendTo { destination, imm_data: None };
    let refused = sender
        .queues
        .post_send(buffer, 8, held_by_none)
        .expect_err("an operation with a borrowed handle should be refused");
    let buffer = refused.buffer.expect("the buffer should be returned");
    let refused = sender.queues.post_send_to(buffer, 8, &address, 1, 1, None);
    let refused = refused.expect_err("a handle of another domain should be refused");
    sender.buffers.push(refused.buffer.expect("the buffer should be returned"));
    drop(address);
    other.destroy().expect("the domain should be unused");
    // If the queue pair is destroyed first, the handle does not outlive it either: the domain can be destroyed.
    let pd = sender.queues.qp().pd().clone();
    let buffer = sender.buffer();
    let address = AddressHandle::new(&pd, &to).expect("a handle");
    sender.queues.post_send_to(buffer, 8, &address, 1, 1, None).expect("post");
    drop(address);
    drop(sender);
    pd.destroy().expect("the domain should be unused");
    drop(receiver);
    assert_eq!(objects_at(roce(0)), before);
}

/// Buffers that are posted at the end stay registered until the queue pair is destroyed.
fn queue_pair_keeps_posted_buffers(address: SocketAddr) {
    let before = objects_at(address);
    let [client, server] = connected(address);
    let regions = || objects_at(address).count("mr");
    let with_all = regions();
    let Side { id, queues, buffers } = client;
    let qp = queues.qp().clone();
    drop((queues, buffers));
    assert_eq!(regions(), with_all, "the id and the clone should keep the queue pair");
    drop(id);
    assert_eq!(regions(), with_all, "the clone should keep the queue pair");
    qp.destroy().expect("queue pair should have no other owner");
    assert_eq!(regions(), with_all.map(|count| count - 1));
    drop(server);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_queue_pair_keeps_posted_buffers() {
    queue_pair_keeps_posted_buffers(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_queue_pair_keeps_posted_buffers() {
    queue_pair_keeps_posted_buffers(siw(0));
}

/// Checks that buffers stay registered as long as the kernel has their queue pair.
///
/// The device may write to them until then. The kernel refuses to destroy the queue pair, and the test checks that no
/// command deregisters the buffers before.
fn memory_is_released_after_queue_pair(address: SocketAddr) {
    // The command has a header, the address of the response, and the queue pair.
    const DESTROY_QP: i32 = 8 + 8 + 8;

    let before = objects_at(address);
    // The memory that stays registered is freed when this process ends.
    in_child(|| {
        let channels = [channel(), channel()];
        let (_listener, server) = listen(&channels[1], address);
        let without = objects_at(address);
        let Side { id, mut queues, mut buffers } = Side::new(resolve(&channels[0], server));
        queues.post_recv(buffers.remove(0)).expect("post");
        let qp = queues.qp().clone();
        drop((buffers, queues, id));
        thread::scope(|scope| {
            scope.spawn(move || {
                forbid_writes_of_length(DESTROY_QP, libc::EBUSY);
                drop(qp);
            });
        });
        let has = |kind| objects_at(address).count(kind) > without.count(kind);
        assert!(has("qp"), "the kernel should refuse to destroy the queue pair");
        assert!(has("mr"), "the memory should stay, because the device may write to the memory");
    });
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_memory_is_released_after_queue_pair() {
    memory_is_released_after_queue_pair(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_memory_is_released_after_queue_pair() {
    memory_is_released_after_queue_pair(siw(0));
}
