//! Buffers that are posted by handing them over.

use std::net::SocketAddr;
use std::thread;

use rdmacm::Error;
use rdmacm::cm::{CmId, ConnParam, EventType, PortSpace};
use rdmacm::device::GidType;
use rdmacm::verbs::{
    AccessFlags, AddressHandle, Buffer, BufferQueues, BufferRefused, Completion, CompletionQueue,
    Destination, GRH_LENGTH, MemoryRegion, ProtectionDomain, QueuePairCaps, QueuePairInit,
    SendOperation,
};
use rdmacm::verbs_abi::ib_uverbs_ah_attr;

use crate::bed::{assert_invalid, channel, device, listen, request, resolve, rxe, siw};
use crate::child::{forbid_writes_of_length, in_child};
use crate::endpoint_connect::objects_at;

/// Two buffers of 100 bytes each way, and completions in two queues.
struct Side {
    id: CmId,
    queues: BufferQueues,
    buffers: Vec<Buffer>,
}

impl Side {
    fn new(id: CmId) -> Self {
        let context = id.context().expect("the id has a device");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let cq = || CompletionQueue::new(&context, 4, None).expect("completion queue");
        let (send_cq, recv_cq) = (cq(), cq());
        let caps = QueuePairCaps { max_send_wr: 2, max_recv_wr: 2, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, recv_cq: &recv_cq, ..QueuePairInit::new(&send_cq) };
        let queues =
            BufferQueues::new(id.create_qp(&pd, &init).expect("queue pair")).expect("queues");
        let buffers = Buffer::alloc(&pd, 4, 100).expect("buffers");
        Self { id, queues, buffers }
    }

    fn buffer(&mut self) -> Buffer {
        self.buffers.pop().expect("a buffer")
    }

    /// Waits until something comes back.
    fn back(&mut self) -> (Buffer, Completion) {
        let mut back = Vec::new();
        while self.queues.poll(|buffer, made| back.push((buffer, *made))).expect("poll") == 0 {
            thread::yield_now();
        }
        assert_eq!(back.len(), 1);
        back.remove(0)
    }
}

/// Two connected sides, with a receive posted on each.
fn connected(address: SocketAddr) -> [Side; 2] {
    let channels = [channel(), channel()];
    let (listener, server) = listen(&channels[1], address);
    let mut client = Side::new(resolve(&channels[0], server));
    let buffer = client.buffer();
    client.queues.receive(buffer).expect("post");
    client.id.connect(&ConnParam::default()).expect("connect");
    let mut server = Side::new(request(&channels[1]));
    let buffer = server.buffer();
    server.queues.receive(buffer).expect("post");
    server.id.accept(&ConnParam::default()).expect("accept");
    for channel in &channels {
        channel.expect_event(EventType::Established).expect("connected");
    }
    drop(listener);
    [client, server]
}

fn what_is_handed_over_comes_back(address: SocketAddr) {
    let before = objects_at(address);
    let [mut client, mut server] = connected(address);
    for (from, to) in [(0, 1), (1, 0)] {
        let sides = [&mut client, &mut server];
        let mut buffer = sides[from].buffer();
        assert!(buffer.iter().all(|byte| *byte == 0), "it is fresh");
        let index = buffer.index();
        buffer[..5].copy_from_slice(b"hello");
        sides[from].queues.send(buffer, 5, SendOperation::Send).expect("post");
        let (received, completion) = sides[to].back();
        assert!(completion.is_success(), "{completion:?}");
        assert_eq!((&received[..6], completion.byte_len()), (&b"hello\0"[..], 5));
        let (sent, completion) = sides[from].back();
        assert!(completion.is_success(), "{completion:?}");
        assert_eq!((&sent[..5], sent.len(), sent.index()), (&b"hello"[..], 100, index));
    }
    // The other operations that are over a buffer alone.
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
    let memory = MemoryRegion::alloc(server.queues.qp().pd(), 64, access).expect("memory region");
    let (remote_addr, rkey) = (memory.addr() + 8, memory.rkey());
    let mut buffer = client.buffer();
    buffer[..5].copy_from_slice(b"there");
    client.queues.send(buffer, 5, SendOperation::Write { remote_addr, rkey }).expect("post");
    let (mut buffer, completion) = client.back();
    assert!(completion.is_success(), "{completion:?}");
    buffer.fill(0);
    client.queues.send(buffer, 6, SendOperation::Read { remote_addr, rkey }).expect("post");
    let (buffer, completion) = client.back();
    assert!(completion.is_success(), "{completion:?}");
    assert_eq!(buffer[..6], *b"there\0");
    assert_eq!((client.queues.outstanding(), server.queues.outstanding()), (0, 0));
    drop((client, server, memory, buffer));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_what_is_handed_over_comes_back() {
    what_is_handed_over_comes_back(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_what_is_handed_over_comes_back() {
    what_is_handed_over_comes_back(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_cannot_be_posted_is_given_back() {
    let [mut client, _server] = connected(rxe(0));
    #[track_caller]
    fn refused(result: Result<(), BufferRefused>, says: &str) -> Error {
        let BufferRefused { buffer, error } = result.expect_err("it cannot be posted");
        assert_eq!(buffer.expect("it comes back").len(), 100);
        assert_invalid(&error, &[says]);
        error
    }
    let buffer = client.buffer();
    refused(client.queues.send(buffer, 101, SendOperation::Send), "fewer bytes");
    let invalidates = SendOperation::LocalInvalidate { rkey: 1 };
    let buffer = client.buffer();
    refused(client.queues.send(buffer, 0, invalidates), "not one over a buffer");
    let context = client.id.context().expect("the id has a device");
    let other = ProtectionDomain::new(&context).expect("protection domain");
    let mut others = Buffer::alloc(&other, 4, 100).expect("buffers");
    let mut other = || others.pop().expect("a buffer");
    refused(client.queues.send(other(), 1, SendOperation::Send), "another protection domain");
    refused(client.queues.receive(other()), "another protection domain");
    for (count, length) in [(0, 1), (1, 0), (usize::MAX, 2), (2, usize::MAX)] {
        let error = Buffer::alloc(client.queues.qp().pd(), count, length);
        error.expect_err("there are no such buffers");
    }
    // Two receives are all that there is room for.
    let buffer = client.buffer();
    client.queues.receive(buffer).expect("post");
    let many = Buffer::alloc(client.queues.qp().pd(), 100, 100).expect("buffers");
    let mut posted = 2;
    for buffer in many {
        match client.queues.receive(buffer) {
            Ok(()) => posted += 1,
            full => {
                assert_eq!(refused(full, "").errno(), libc::ENOMEM);
                break;
            }
        }
    }
    assert_eq!(client.queues.outstanding(), posted, "those that were posted");
}

/// A side that sends and receives datagrams, and where it is reached.
fn datagram_side() -> (Side, ib_uverbs_ah_attr) {
    let channel = channel();
    let id = CmId::new(&channel, PortSpace::Udp).expect("create an id");
    id.bind(rxe(0)).expect("bind");
    let context = id.context().expect("the id has a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 8, None).expect("completion queue");
    let caps = QueuePairCaps { max_send_wr: 4, max_recv_wr: 4, ..QueuePairCaps::default() };
    let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
    let queues = BufferQueues::new(id.create_qp(&pd, &init).expect("queue pair")).expect("queues");
    let buffers = Buffer::alloc(&pd, 8, GRH_LENGTH + 8).expect("buffers");
    let gid = id.route().expect("route").local.gid;
    let mut gids = device("rxe0").port(1).expect("port").gids().expect("GIDs");
    let entry = gids.find(|entry| entry.gid == gid && entry.kind == Some(GidType::RoceV2));
    let mut to = ib_uverbs_ah_attr { is_global: 1, port_num: 1, ..ib_uverbs_ah_attr::default() };
    to.grh.dgid = gid.0;
    to.grh.hop_limit = 64;
    to.grh.sgid_index = u8::try_from(entry.expect("its own").index).expect("it fits");
    (Side { id, queues, buffers }, to)
}

/// Who posts datagrams may let go of their address handles at once: rxe of Linux 6.12 sends by and by.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn where_datagrams_go_is_held_until_they_are_sent() {
    let before = objects_at(rxe(0));
    let (mut receiver, to) = datagram_side();
    let (mut sender, _) = datagram_side();
    for round in 0..10 {
        for _ in 0..4 {
            let buffer = receiver.buffer();
            receiver.queues.receive(buffer).expect("post");
        }
        for number in 0..4 {
            let mut buffer = sender.buffer();
            buffer[0] = number;
            let address = &AddressHandle::new(sender.queues.qp().pd(), &to).expect("a handle");
            let qp_num = receiver.queues.qp().number();
            let posted =
                sender.queues.send_to(buffer, 8, address, qp_num, 0x0123_4567, Some(round));
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
    // Not where they are refused: their domain is free of them then.
    let other = ProtectionDomain::new(sender.queues.qp().pd().context()).expect("another domain");
    let address = AddressHandle::new(&other, &to).expect("a handle");
    let buffer = sender.buffer();
    let destination = Destination { address: &address, qp_num: 1, qkey: 1 };
    let held_by_none = SendOperation::SendTo { destination, imm_data: None };
    let refused = sender.queues.send(buffer, 8, held_by_none).expect_err("nothing would hold it");
    let buffer = refused.buffer.expect("it comes back");
    let refused = sender.queues.send_to(buffer, 8, &address, 1, 1, None);
    let refused = refused.expect_err("the address is of another domain");
    sender.buffers.push(refused.buffer.expect("it comes back"));
    drop(address);
    other.destroy().expect("nothing is left of it");
    // And longer than the queue pair, if that goes first: the domain is free of them then.
    let pd = sender.queues.qp().pd().clone();
    let buffer = sender.buffer();
    let address = AddressHandle::new(&pd, &to).expect("a handle");
    sender.queues.send_to(buffer, 8, &address, 1, 1, None).expect("post");
    drop(address);
    drop(sender);
    pd.destroy().expect("nothing is left of them");
    drop(receiver);
    assert_eq!(objects_at(rxe(0)), before);
}

/// What is posted when everything goes stays registered until the queue pair is destroyed.
fn the_queue_pair_keeps_what_is_posted(address: SocketAddr) {
    let before = objects_at(address);
    let [client, server] = connected(address);
    let regions = || objects_at(address).count("mr");
    let with_all = regions();
    let Side { id, queues, buffers } = client;
    let qp = queues.qp().clone();
    drop((queues, buffers));
    assert_eq!(regions(), with_all, "the id and this have the queue pair");
    drop(id);
    assert_eq!(regions(), with_all, "this has the queue pair");
    qp.destroy().expect("nobody else has it");
    assert_eq!(regions(), with_all.map(|count| count - 1));
    drop(server);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_the_queue_pair_keeps_what_is_posted() {
    the_queue_pair_keeps_what_is_posted(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_queue_pair_keeps_what_is_posted() {
    the_queue_pair_keeps_what_is_posted(siw(0));
}

/// The buffers of a queue pair stay registered as long as the kernel has the queue pair, which the device writes to until then.
/// The kernel's refusal to destroy the queue pair shows that no command deregisters them before.
fn memory_goes_after_its_queue_pair(address: SocketAddr) {
    // A header, the address of the response, and the queue pair.
    const DESTROY_QP: i32 = 8 + 8 + 8;

    let before = objects_at(address);
    // What is kept for the device goes when the process ends.
    in_child(|| {
        let channels = [channel(), channel()];
        let (_listener, server) = listen(&channels[1], address);
        let without = objects_at(address);
        let Side { id, mut queues, mut buffers } = Side::new(resolve(&channels[0], server));
        queues.receive(buffers.remove(0)).expect("post");
        let qp = queues.qp().clone();
        drop((buffers, queues, id));
        thread::scope(|scope| {
            scope.spawn(move || {
                forbid_writes_of_length(DESTROY_QP, libc::EBUSY);
                drop(qp);
            });
        });
        let has = |kind| objects_at(address).count(kind) > without.count(kind);
        assert!(has("qp"), "the kernel has refused to destroy it");
        assert!(has("mr"), "the device may write to it");
    });
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_memory_goes_after_its_queue_pair() {
    memory_goes_after_its_queue_pair(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_memory_goes_after_its_queue_pair() {
    memory_goes_after_its_queue_pair(siw(0));
}
