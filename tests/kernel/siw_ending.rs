//! Software iWARP at the end of a connection: each request in flight arrives or is flushed, once.

use std::iter;
use std::time::Duration;

use rdmacm::cm::{ConnParam, EventType};
use rdmacm::verbs::{
    AccessFlags, MemoryRegion, QpState, QueuePair, QueuePairAttributes, QueuePairCaps,
    QueuePairInit, SendFlags, SendOperation, WcOpcode, WcStatus,
};

use crate::fixtures::{
    Connection, LONG, Side, assert_invalid, channel, listen, request, resolve, siw,
};
use crate::io::{Io, Shape, receive_nothing};
use crate::modify::bring;
use crate::siw::{connected, flushed, send_empty};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn reads_in_flight_are_flushed() {
    // The memory is no larger than in other tests, because siw enforces RLIMIT_MEMLOCK even for root.
    const LENGTH: usize = 3 << 20;
    let connection = connected(Shape { memory: LENGTH, ..Shape::default() });
    let Connection { client, server, client_channel, server_channel } = &connection;
    send_empty(client, server);
    for wr_id in 1..=16 {
        client.io.post(wr_id, server.io.read_at(0), 0..LENGTH, SIGNALED).expect("post a read");
    }
    client.id.disconnect().expect("disconnect");
    // The call has flushed the reads in flight.
    let back = (1..=17).map_while(|_| client.io.polled()).map(|completion| completion.wr_id());
    assert_eq!(back.collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn reads_are_flushed_when_peer_disconnects() {
    const LENGTH: usize = 3 << 20;
    let connection = connected(Shape { memory: LENGTH, ..Shape::default() });
    let Connection { client, server, client_channel, server_channel } = &connection;
    send_empty(client, server);
    for wr_id in 1..=16 {
        server.io.post(wr_id, client.io.read_at(0), 0..LENGTH, SIGNALED).expect("post a read");
    }
    client.id.disconnect().expect("disconnect");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    let back = iter::from_fn(|| server.io.polled()).map(|completion| completion.wr_id());
    assert_eq!(back.collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
}

/// Checks that requests which the kernel does not complete are flushed.
///
/// The kernel has ended the queue pair with the connection.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sends_after_peer_left_are_flushed() {
    let connection = connected(Shape::default());
    let Connection { client, server, server_channel, .. } = &connection;
    send_empty(client, server);
    server.io.receive(1, 0..8).expect("post a receive");
    client.id.disconnect().expect("disconnect");
    assert_eq!(flushed(server.io.next()), 1);
    // The first posts ring a doorbell, and later posts need none.
    for wr_id in 2..=4 {
        server.io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    }
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    for wr_id in 5..=6 {
        server.io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    }
    let back = iter::from_fn(|| server.io.polled()).map(flushed);
    assert_eq!(back.collect::<Vec<_>>(), (2..=6).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completed_sends_arrive_before_end() {
    const LENGTH: usize = 64 << 10;
    let caps = QueuePairCaps { max_recv_wr: 17, ..QueuePairCaps::default() };
    let connection = connected(Shape { caps, memory: LENGTH, ..Shape::default() });
    let Connection { client, server, client_channel, server_channel } = &connection;
    send_empty(client, server);
    (0..17).for_each(|wr_id| server.io.receive(wr_id, 0..LENGTH).expect("post a receive"));
    for wr_id in 0..16 {
        client.io.post(wr_id, SendOperation::Send, 0..LENGTH, SIGNALED).expect("post a send");
    }
    (0..16).for_each(|wr_id| assert!(client.io.done(wr_id).is_success()));
    client.id.disconnect().expect("disconnect");
    for wr_id in 0..16 {
        assert_eq!(server.io.done(wr_id).byte_len() as usize, LENGTH);
    }
    assert_eq!(flushed(server.io.next()), 16);
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
}

/// Uses a wrong key, a key without write access, and a key whose region is destroyed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forbidden_remote_access_ends_connection() {
    let write =
        AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    for (read, access, change, gone) in [
        (false, write, 0x5500, false),
        (true, AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ, 0x5500, false),
        (false, AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ, 0, false),
        (false, write, 0, true),
    ] {
        let connection = connected(Shape::default());
        let Connection { client, server, client_channel, server_channel } = &connection;
        send_empty(client, server);
        let region = MemoryRegion::alloc(server.io.qp().pd(), 64, access).expect("memory region");
        let (remote_addr, rkey) = (region.addr(), region.rkey() ^ change);
        let kept = (!gone).then_some(region);
        let operation = match read {
            true => SendOperation::Read { remote_addr, rkey },
            false => SendOperation::Write { remote_addr, rkey },
        };
        client.io.post(1, operation, 0..64, SIGNALED).expect("post");
        client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
        server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
        client.id.disconnect().expect("disconnect");
        // The kernel reports no reason for the refusal by the peer. A write has completed before.
        let completion = client.io.next();
        match read {
            true => assert_eq!(flushed(completion), 1),
            false => assert_eq!(completion.opcode(), WcOpcode::IB_UVERBS_WC_RDMA_WRITE),
        }
        assert!(client.io.polled().is_none());
        if let Some(region) = kept {
            let mut bytes = [1; 64];
            region.read(0, &mut bytes).expect("the range should be within the region");
            assert_eq!(bytes, [0; 64]);
        }
    }
}

/// Checks that a read needs no access flag.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn read_needs_no_access_flag() {
    let connection = connected(Shape::default());
    let Connection { client, server, .. } = &connection;
    send_empty(client, server);
    let region = MemoryRegion::alloc(server.io.qp().pd(), 64, AccessFlags::empty());
    let mut region = region.expect("memory region");
    region.write(0, b"not for peers").expect("the range should be within the region");
    let read = SendOperation::Read { remote_addr: region.addr(), rkey: region.rkey() };
    client.io.post(1, read, 0..13, SIGNALED).expect("post a read");
    client.io.done(1);
    assert_eq!(client.io.bytes(0..13), b"not for peers");
    connection.close();
}

/// Checks that a message without a receive ends the connection: iWARP has no "receiver not ready".
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_without_receive_ends_connection() {
    let connection = connected(Shape::default());
    let Connection { client, server, client_channel, server_channel } = &connection;
    send_empty(client, server);
    client.io.post(1, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    server.io.receive(2, 0..8).expect("a queue pair in ERR should take requests");
    assert_eq!(flushed(server.io.next()), 2);
    // The send succeeds, because TCP has accepted it.
    client.io.done(1);
}

/// Checks that the kernel reports the same end to both sides for each cause.
///
/// The client disconnects, or its message finds no receive.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn end_has_no_reason() {
    let reports = [true, false].map(|in_good_order| {
        let connection = connected(Shape::default());
        let Connection { client, server, client_channel, server_channel } = &connection;
        send_empty(client, server);
        match in_good_order {
            true => client.id.disconnect().expect("disconnect"),
            false => client.io.post(1, SendOperation::Send, 0..8, SIGNALED).expect("post a send"),
        }
        [(client, client_channel), (server, server_channel)].map(|(side, events)| {
            let event =
                events.expect_event(EventType::Disconnected).expect("side should get the event");
            side.io.receive(2, 0..8).expect("a queue pair in ERR should take requests");
            let mut flush = side.io.next();
            if flush.wr_id() == 1 {
                assert!(flush.is_success(), "the request should have been sent");
                flush = side.io.next();
            }
            assert_eq!(flushed(flush), 2);
            let qp = side.io.qp();
            let events = qp.pd().context().async_events();
            let more = events.get_event_timeout(Duration::ZERO).expect("read");
            let state = qp.query().expect("query").qp_state;
            let status = event.status();
            format!("{status}, {:?}, {:?}, {state}, {more:?}", event.private_data(), flush.status())
        })
    });
    assert_eq!(reports[0], reports[1]);
    assert!(reports[0][1].ends_with("None"), "no event of the device: {reports:?}");
}

/// Checks that a disconnect ends the connection of an external queue pair.
///
/// This holds even if the id has a later queue pair of its own.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn external_queue_pair_ends_with_connection() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, siw(0));
    let client = resolve(&ours, address);
    let external = Io::with(&client, Shape::default(), QueuePair::new);
    bring(external.qp(), QpState::IB_QPS_INIT);
    let named = ConnParam { qp_num: external.qp().number(), ..ConnParam::default() };
    client.connect(&named).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    ours.expect_event(EventType::Established).expect("the client should be connected");
    theirs.expect_event(EventType::Established).expect("the server should be connected");
    let _later = Io::new(&client, Shape::default());
    client.connect(&ConnParam::default()).expect_err("the client should be connected already");
    client.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("server should get the event");
    ours.expect_event(EventType::Disconnected).expect("client should get the event");
}

/// Disconnects each side repeatedly: the first call ends the connection, and the others succeed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn repeated_disconnects_end_connection_once() {
    let connection = connected(Shape::default());
    let Connection { client, server, client_channel, server_channel } = &connection;
    client.id.disconnect().expect("disconnect");
    client.id.disconnect().expect("disconnect before the event is read");
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    server.id.disconnect().expect("disconnect before the event is read");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    for side in [client, server] {
        side.id.disconnect().expect("disconnecting after the end should succeed");
    }
    for channel in [client_channel, server_channel] {
        let more = channel.get_event_timeout(Duration::ZERO).expect("wait for an event");
        assert!(more.is_none(), "{more:?}");
    }
}

/// Destroys queue pairs, because siw gives a new queue pair the lowest number that is free.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn reused_queue_pair_number_loses_no_completions() {
    let connection = connected(Shape::default());
    let (pd, cq) = (connection.client.io.qp().pd(), connection.client.io.cq());
    let caps = QueuePairCaps::default();
    let init = QueuePairInit { caps, ..QueuePairInit::new(cq) };
    let made = || {
        let qp = QueuePair::new(pd, &init).expect("a queue pair");
        bring(&qp, QpState::IB_QPS_INIT);
        qp
    };
    let (gone, stays) = (made(), made());
    let (gone_number, number) = (gone.number(), stays.number());
    (1..=2).for_each(|wr_id| receive_nothing(&gone, wr_id).expect("post a receive"));
    bring(&gone, QpState::IB_QPS_ERR);
    gone.destroy().expect("destroy");
    bring(&stays, QpState::IB_QPS_ERR);
    // The wakeup queue pair now has the number of the destroyed queue pair.
    cq.request_notify(false).expect("arm");
    receive_nothing(&stays, 3).expect("post a receive");
    let all: Vec<_> = (0..4).map_while(|_| connection.client.io.polled()).collect();
    let all: Vec<_> = all.into_iter().map(|one| (one.qp_num(), flushed(one))).collect();
    assert_eq!(all, [(gone_number, 1), (gone_number, 2), (number, 3)]);
}

/// Checks that the capacity of the completion queue limits injected completions.
///
/// Polling makes room for further ones.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unpolled_flushes_limit_further_posts() {
    let connection = connected(Shape { completions: 4, ..Shape::default() });
    let io = &connection.client.io;
    io.qp().modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("modify");
    let capacity = u64::from(io.cq().capacity());
    let post = |wr_id: u64| match wr_id % 2 {
        0 => io.receive_into(wr_id, &[]),
        _ => io.post_bare(wr_id, SendOperation::Send),
    };
    (0..capacity).for_each(|wr_id| post(wr_id).expect("the queue should have room"));
    for wr_id in [capacity, capacity + 1] {
        let error = post(wr_id).expect_err("completion queue should be full");
        assert_invalid(&error, &["the completion queue has no room for another flush error"]);
        assert_eq!(error.errno(), libc::ENOMEM);
    }
    for wr_id in 0..3 * capacity {
        let done = io.polled().expect("the request should have completed");
        assert_eq!((done.wr_id(), done.status()), (wr_id, WcStatus::IB_WC_WR_FLUSH_ERR));
        post(wr_id + capacity).expect("the queue should have room again");
    }
    io.qp().drain(LONG, |done| assert!(done.wr_id() >= 3 * capacity)).expect("drain");
}
