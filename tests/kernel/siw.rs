//! Software iWARP and its differences from software RoCE.
//!
//! The side that connected sends first, as iWARP demands. There is no "receiver not ready": a send without a
//! receive ends the connection. A completed write has been sent. It has certainly arrived only when a later message has
//! arrived.

use std::iter;
use std::net::TcpListener;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::cm::{ConnParam, EventType};
use rdmacm::device::ResourceCounts;
use rdmacm::verbs::{
    Completion, CompletionChannel, CompletionQueue, QpState, QueuePair, QueuePairCaps,
    QueuePairInit, SendFlags, SendOperation, WcStatus,
};
use rdmacm::{Error, ErrorKind};

use crate::fixtures::{
    Connection, Side, ask, assert_invalid, channel, device, id, listen, request, resolve, siw,
};
use crate::io::Shape;
use crate::transfer::pattern;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

pub(crate) fn connected(shape: Shape) -> Connection {
    Connection::to(siw(0), shape, &ConnParam::default())
}

fn with_data(private_data: &[u8]) -> ConnParam {
    ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() }
}

/// Returns the object counts of siw0.
fn objects() -> ResourceCounts {
    device("siw0").resources().expect("count the objects")
}

/// Sends a message without bytes. When it has arrived, all earlier requests have taken effect.
pub(crate) fn send_empty(from: &Side, to: &Side) {
    to.io.receive_into(100, &[]).expect("post a receive");
    from.io.post_parts(101, SendOperation::Send, &[], SIGNALED).expect("post a send");
    to.io.done(100);
    from.io.done(101);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn inline_data_arrives_up_to_limit() {
    let caps = QueuePairCaps { max_inline_data: 80, ..QueuePairCaps::default() };
    let connection = connected(Shape { caps, ..Shape::default() });
    let Connection { client, server, .. } = &connection;
    for length in [0, 1, 16, 17, 79, 80] {
        let mut bytes = pattern(length, length);
        server.io.receive(1, 0..100).expect("post a receive");
        client.io.post_inline(2, SendOperation::Send, &bytes, SIGNALED).expect("post a send");
        assert_eq!(server.io.done(1).byte_len() as usize, length);
        client.io.done(2);
        assert_eq!(server.io.bytes(0..length), bytes);
        bytes.reverse();
        let there = server.io.written_at(1000);
        client.io.post_inline(3, there, &bytes, SIGNALED).expect("post a write");
        client.io.done(3);
        send_empty(client, server);
        assert_eq!(server.io.bytes(1000..1000 + length), bytes);
    }
    let refused = client.io.post_inline(4, SendOperation::Send, &[0; 81], SIGNALED);
    assert_invalid(
        &refused.expect_err("the message should be too long"),
        &["queue pair", "81", "80"],
    );
    let refused = client.io.post_inline(5, server.io.read_at(0), &[], SIGNALED);
    assert_invalid(&refused.expect_err("an inline read should be refused"), &["read"]);
    // The queue holds none of the refused requests.
    send_empty(client, server);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sges_are_gathered_and_scattered_in_order() {
    let caps = QueuePairCaps { max_send_sge: 6, max_recv_sge: 6, ..QueuePairCaps::default() };
    let mut connection = connected(Shape { caps, memory: 8192, ..Shape::default() });
    let Connection { client, server, .. } = &mut connection;
    let from = [5000..5001, 100..1400, 4000..4200, 7..7, 3000..3017, 0..1];
    let to = [6000..6700, 10..11, 4090..4190, 20..517, 7000..7100, 900..1200];
    let source = pattern(1, 8192);
    let gathered: Vec<u8> = from.iter().flat_map(|part| source[part.clone()].to_vec()).collect();
    client.io.fill(0, &source);
    server.io.receive_into(1, &to).expect("post a receive");
    client.io.post_parts(2, SendOperation::Send, &from, SIGNALED).expect("post a send");
    assert_eq!(server.io.done(1).byte_len() as usize, gathered.len());
    client.io.done(2);
    let scattered = to.iter().flat_map(|part| server.io.bytes(part.clone())).take(gathered.len());
    assert!(scattered.collect::<Vec<_>>() == gathered);

    server.io.fill(0, &[0; 8192]);
    client.io.post_parts(3, server.io.written_at(2000), &from, SIGNALED).expect("post a write");
    client.io.done(3);
    send_empty(client, server);
    assert!(server.io.bytes(2000..2000 + gathered.len()) == gathered);

    let seven = vec![0..1; 7];
    let refused = client.io.post_parts(4, SendOperation::Send, &seven, SIGNALED);
    assert_invalid(
        &refused.expect_err("too many entries should be refused"),
        &["7 scatter/gather entries", "6"],
    );
    assert_invalid(
        &server.io.receive_into(5, &seven).expect_err("too many entries should be refused"),
        &["7 scatter/gather entries", "6"],
    );
    // A read takes one scatter/gather entry, and no fence.
    let refused = server.io.post_parts(6, client.io.read_at(0), &to[..2], SIGNALED);
    assert_invalid(
        &refused.expect_err("two entries should be refused"),
        &["2 scatter/gather entries", "1"],
    );
    let fenced = SIGNALED | SendFlags::FENCE;
    let refused = server.io.post(7, client.io.read_at(0), 0..1, fenced);
    assert_invalid(&refused.expect_err("a fenced read should be refused"), &["fence", "read"]);
    server
        .io
        .post_parts(8, client.io.read_at(0), &[], SIGNALED)
        .expect("a read of no bytes should succeed");
    server.io.done(8);
    send_empty(client, server);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn fenced_send_carries_bytes_of_earlier_read() {
    let mut connection = connected(Shape::default());
    let Connection { client, server, .. } = &mut connection;
    for round in 0..200 {
        server.io.fill(0, &[round; 1000]);
        server.io.receive(1, 2000..3000).expect("post a receive");
        client.io.post(2, server.io.read_at(0), 0..1000, SIGNALED).expect("post a read");
        let fenced = SIGNALED | SendFlags::FENCE;
        client.io.post(3, SendOperation::Send, 0..1000, fenced).expect("post a send");
        client.io.done(2);
        client.io.done(3);
        server.io.done(1);
        assert!(server.io.bytes(2000..3000) == [round; 1000], "round {round}");
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn only_signaled_requests_are_polled() {
    let connection = connected(Shape::default());
    let Connection { client, server, .. } = &connection;
    for wr_id in 1..=64 {
        let flags = if wr_id % 8 == 0 { SIGNALED } else { SendFlags::empty() };
        let there = server.io.written_at(0);
        client
            .io
            .post_inline(wr_id, there, &wr_id.to_ne_bytes(), flags)
            .expect("the queue should have room");
        if wr_id % 8 == 0 {
            client.io.done(wr_id);
            assert!(client.io.polled().is_none());
        }
    }
    connection.close();
    let connection = connected(Shape { signal_all: true, ..Shape::default() });
    let there = connection.server.io.written_at(0);
    for wr_id in 1..=40 {
        connection.client.io.post_inline(wr_id, there, b"x", SendFlags::empty()).expect("post");
        connection.client.io.done(wr_id);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn armed_queue_raises_one_event() {
    let connection = connected(Shape::default());
    let (client, server) = (&connection.client, &connection.server);
    let (events, cq) = (server.io.channel(), server.io.cq());
    events.set_nonblocking(true).expect("make it non-blocking");
    let deliver = |wr_id| {
        server.io.receive_into(wr_id, &[]).expect("post a receive");
        client.io.post_parts(wr_id, SendOperation::Send, &[], SIGNALED).expect("post a send");
        client.io.done(wr_id);
        while server.io.polled().is_none() {
            std::thread::yield_now();
        }
    };
    let would_block = || {
        let error = events.get_event().expect_err("no event should be pending");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    };
    // The queue is not armed.
    (0..20).for_each(deliver);
    would_block();
    // Any completion raises the event, once. This holds even if the queue is armed for solicited completions, because
    // siw's kernel driver ignores that choice.
    for solicited_only in [false, true] {
        cq.request_notify(solicited_only).expect("arm");
        would_block();
        events.set_nonblocking(false).expect("make it blocking");
        deliver(20);
        assert_eq!(events.get_event().expect("an event").token(), cq.token());
        events.set_nonblocking(true).expect("make it non-blocking");
        (21..40).for_each(deliver);
        would_block();
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn small_rings_survive_many_rounds() {
    for requests in [1, 2, 3, 7] {
        let caps = QueuePairCaps {
            max_send_wr: requests,
            max_recv_wr: requests,
            max_inline_data: 16,
            ..QueuePairCaps::default()
        };
        let connection = connected(Shape { caps, completions: 16, ..Shape::default() });
        let Connection { client, server, .. } = &connection;
        // The kernel rounds the size up to a power of two, and reports the result.
        let depth = u64::from(requests.next_power_of_two());
        assert_eq!(u64::from(server.io.qp().caps().max_recv_wr), depth);
        assert_eq!(u64::from(client.io.qp().caps().max_send_wr), depth);
        (0..depth).for_each(|wr_id| server.io.receive(wr_id, 0..16).expect("post a receive"));
        let error = server.io.receive(99, 0..16).expect_err("the queue should be full");
        assert_invalid(&error, &["the queue is full", &format!("{depth} requests")]);
        assert_eq!(error.errno(), libc::ENOMEM);
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

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_send_queue_loses_nothing() {
    // The memory of both sides, and that of other tests which is not yet released, must be within RLIMIT_MEMLOCK. siw
    // enforces this limit even for root.
    const LENGTH: usize = 3 << 20;
    let caps = QueuePairCaps { max_send_wr: 2, ..QueuePairCaps::default() };
    let connection = connected(Shape { caps, memory: LENGTH, ..Shape::default() });
    let Connection { client, server, .. } = &connection;
    let there = server.io.written_at(0);
    // The kernel sends in the thread of the poster until the socket's buffer is full.
    let mut posted = 0;
    let error = loop {
        match client.io.post(posted, there, 0..LENGTH, SIGNALED) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
        assert!(posted < 60, "the queue should become full");
    };
    assert_invalid(&error, &["the queue is full", "2 requests"]);
    (0..posted).for_each(|wr_id| assert!(client.io.done(wr_id).is_success()));
    send_empty(client, server);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn send_before_establishment_is_refused() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, siw(0));
    let client = Side::new(resolve(&ours, address), Shape::default());
    client.io.receive(1, 0..100).expect("receives should be accepted");
    for _ in 0..3 {
        let refused = client.io.post_inline(2, SendOperation::Send, b"early", SIGNALED);
        assert_invalid(
            &refused.expect_err("the queue pair should not be connected"),
            &["not connected", "IB_QPS_RTS"],
        );
    }
    client.id.connect(&ConnParam::default()).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    server.io.receive(3, 0..100).expect("post a receive");
    server.id.accept(&ConnParam::default()).expect("accept");
    ours.expect_event(EventType::Established).expect("the connection should be established");
    theirs.expect_event(EventType::Established).expect("the connection should be established");
    client.io.post_inline(4, SendOperation::Send, b"first", SIGNALED).expect("post a send");
    client.io.done(4);
    assert_eq!(server.io.done(3).byte_len(), 5);
    assert_eq!(server.io.bytes(0..5), b"first");
    server.io.post_inline(5, SendOperation::Send, b"answer", SIGNALED).expect("post a send");
    assert_eq!(client.io.done(1).byte_len(), 6);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unnegotiated_read_blocks_nothing() {
    let none = ConnParam { initiator_depth: 0, responder_resources: 0, ..ConnParam::default() };
    let connection = Connection::to(siw(0), Shape::default(), &none);
    let Connection { client, server, .. } = &connection;
    send_empty(client, server);
    for _ in 0..3 {
        let refused = client.io.post(1, server.io.read_at(0), 0..8, SIGNALED);
        assert_invalid(
            &refused.expect_err("reads should not be negotiated"),
            &["read", "initiator depth"],
        );
        send_empty(client, server);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn answer_depth_is_bounded_by_request() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, siw(0));
    for offered in 0..2 {
        let asked = ConnParam { responder_resources: offered, ..ConnParam::default() };
        let client = ask(&ours, address, &asked);
        let server = Side::new(request(&theirs), Shape::default());
        let answer = ConnParam { initiator_depth: 5, ..ConnParam::default() };
        server.id.accept(&answer).expect("accept");
        ours.expect_event(EventType::Established).expect("the connection should be established");
        theirs.expect_event(EventType::Established).expect("the connection should be established");
        send_empty(&client, &server);
        for wr_id in 0..4 {
            let posted = server.io.post(wr_id, client.io.read_at(0), 0..8, SIGNALED);
            match offered {
                0 => assert_invalid(
                    &posted.expect_err("reads should not be negotiated"),
                    &["initiator depth"],
                ),
                _ => posted.expect("post a read"),
            }
        }
        for wr_id in (0..4).take(4 * usize::from(offered)) {
            server.io.done(wr_id);
        }
        send_empty(&client, &server);
        client.id.disconnect().expect("disconnect");
        ours.expect_event(EventType::Disconnected).expect("client should get the event");
        theirs.expect_event(EventType::Disconnected).expect("server should get the event");
    }
}

/// Returns the number of the request of `completion`, which must be a flush.
#[track_caller]
pub(crate) fn flushed(completion: Completion) -> u64 {
    assert_eq!(completion.status(), WcStatus::IB_WC_WR_FLUSH_ERR, "{completion:?}");
    completion.wr_id()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn posted_requests_are_flushed_at_end() {
    let connection = connected(Shape::default());
    let Connection { client, server, client_channel, server_channel } = &connection;
    send_empty(client, server);
    for wr_id in 1..=3 {
        client.io.receive(wr_id, 0..8).expect("post a receive");
        server.io.receive(wr_id, 0..8).expect("post a receive");
    }
    client.id.disconnect().expect("disconnect");
    (1..=3).for_each(|wr_id| assert_eq!(flushed(client.io.next()), wr_id));
    (1..=3).for_each(|wr_id| assert_eq!(flushed(server.io.next()), wr_id));
    let post = |side: &Side, first| {
        side.io.receive(first, 0..8).expect("post a receive");
        side.io.post(first + 1, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    };
    let back = |side: &Side, expected: &[u64]| {
        let mut back: Vec<_> = iter::from_fn(|| side.io.polled()).map(flushed).collect();
        // The order of completions of different queues is not defined.
        back.sort_unstable();
        assert_eq!(back, expected);
    };
    // The kernel has flushed the queue pair, or soon will, but the library detects the end only by the event.
    post(server, 4);
    post(server, 6);
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    back(server, &[4, 5, 6, 7]);
    post(server, 8);
    back(server, &[8, 9]);
    server.id.disconnect().expect("disconnect");
    back(server, &[]);
    // On this side, the library itself has ended the connection.
    post(client, 4);
    back(client, &[4, 5]);
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    post(client, 6);
    back(client, &[6, 7]);
}

/// Returns the number of channels, 0 or 1, that are readable within ten seconds.
fn readable(channel: &CompletionChannel) -> i32 {
    let timeout = PollTimeout::from(10_000_u16);
    poll(&mut [PollFd::new(channel.as_fd(), PollFlags::POLLIN)], timeout).expect("poll")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn injected_flush_wakes_waiting_thread() {
    let connection = connected(Shape::default());
    let Connection { client, server, server_channel, .. } = &connection;
    send_empty(client, server);
    server.io.receive(1, 0..8).expect("post a receive");
    client.id.disconnect().expect("disconnect");
    assert_eq!(flushed(server.io.next()), 1);
    let (events, cq) = (server.io.channel(), server.io.cq());
    let before = objects();
    // The kernel may not have flushed the queue pair yet.
    let arm = || cq.request_notify(false).expect("arm");
    while {
        server.io.receive(2, 0..8).expect("post a receive");
        arm();
        server.io.polled().is_some()
    } {}
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    for wr_id in 2..5 {
        // The test does not read the channel first, because that would wait forever without an event.
        assert_eq!(readable(events), 1, "the channel should be readable");
        assert_eq!(events.get_event().expect("an event").token(), cq.token());
        assert_eq!(flushed(server.io.polled().expect("the completion should have arrived")), wr_id);
        assert!(server.io.polled().is_none());
        assert_eq!(objects(), before, "the wakeup queue pair should be destroyed");
        arm();
        server.io.receive(wr_id + 1, 0..8).expect("post a receive");
    }
    // The last event stays unread.
    drop(connection);
}

fn rejected(error: &Error) -> (i32, &[u8]) {
    match error.kind() {
        ErrorKind::Rejected(rejection) => (rejection.reason.0, &rejection.private_data),
        _ => panic!("{error:?}"),
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn private_data_keeps_its_length() {
    let full = (1..=251).collect::<Vec<_>>();
    for (asked, answered) in [(&[][..], &[][..]), (b"client", b"server!"), (&full, &full)] {
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, siw(0));
        let client = ask(&ours, address, &with_data(asked));
        let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
        assert_eq!(event.private_data(), asked);
        let server = Side::new(event.take_request().expect("an id"), Shape::default());
        server.id.accept(&with_data(answered)).expect("accept");
        let event = ours
            .expect_event(EventType::Established)
            .expect("the connection should be established");
        assert_eq!(event.private_data(), answered);
        drop(client);
        theirs.expect_event(EventType::Established).expect("the connection should be established");
        drop(server);

        let client = ask(&ours, address, &with_data(asked));
        let server = request(&theirs);
        server.reject(answered).expect("reject");
        let error =
            ours.expect_event(EventType::Established).expect_err("the request should be rejected");
        assert_eq!(rejected(&error), (-libc::ECONNRESET, answered));
        assert_eq!(error.errno(), libc::ECONNREFUSED);
        let expected = "rejected by the peer: Connection reset by peer (ECONNRESET)";
        assert!(error.to_string().ends_with(expected), "{error}");
        drop(client);
    }
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, siw(0));
    let client = Side::new(resolve(&ours, address), Shape::default());
    let long = with_data(&[1; 252]);
    assert_invalid(
        &client.id.connect(&long).expect_err("the private data should be too long"),
        &["252", "251"],
    );
    client.id.connect(&ConnParam::default()).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    assert_invalid(
        &server.id.accept(&long).expect_err("the private data should be too long"),
        &["252", "251"],
    );
    assert_invalid(
        &server.id.reject(&[1; 252]).expect_err("the private data should be too long"),
        &["252", "251"],
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn accept_of_established_connection_is_refused() {
    let connection = connected(Shape::default());
    let Connection { client, server, .. } = &connection;
    send_empty(client, server);
    for side in [server, client] {
        let refused = side
            .id
            .accept(&ConnParam::default())
            .expect_err("the id should have no request to accept");
        assert_invalid(&refused, &["accept id", "no request", "accepted already"]);
    }
    send_empty(server, client);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connect_without_listener_is_rejected() {
    let channel = channel();
    let client = Side::new(resolve(&channel, siw(7199)), Shape::default());
    // The command takes as long as the connection attempt of TCP, and returns its result.
    let error = client.id.connect(&ConnParam::default()).expect_err("no program should listen");
    assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
    let id = client.id.token();
    let expected = format!("cannot connect id {id} to 10.0.0.2:7199: Connection refused");
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn wildcard_listener_needs_tcp_port() {
    let channel = channel();
    let taken = TcpListener::bind(siw(0)).expect("bind");
    let port = taken.local_addr().expect("address").port();
    let any = |port| (std::net::Ipv4Addr::UNSPECIFIED, port).into();
    let listener = id(&channel);
    listener.bind(any(port)).expect("the port should be free in RDMA's space");
    let error = listener.listen(0).expect_err("TCP should use the port");
    assert_eq!(error.errno(), libc::EADDRINUSE, "{error}");
    drop(taken);
    let (_listener, address) = listen(&channel, any(0));
    let client = ask(&channel, siw(address.port()), &ConnParam::default());
    let server = Side::new(request(&channel), Shape::default());
    assert_eq!(server.id.context().expect("a device").device().name(), "siw0");
    // Destroying an id that has sent a request waits for the answer.
    drop(server);
    drop(client);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unknown_siw_queue_pair_is_refused() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, siw(0));
    let client = resolve(&ours, address);
    let unknown = ConnParam { qp_num: 0xfff_fff, ..ConnParam::default() };
    // Log lines of the kernel that other tests caused are ignored.
    let before = complaints();
    let error = client.connect(&unknown).expect_err("the queue pair should not exist");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert_eq!(complaints(), before);
}

/// Returns the kernel's log lines about missing queue pairs, and about its own faults.
fn complaints() -> Vec<String> {
    let log = std::process::Command::new("dmesg").output().expect("run dmesg").stdout;
    let log = String::from_utf8_lossy(&log);
    let complains = |line: &&str| line.contains("does not exist") || line.contains("WARNING");
    log.lines().filter(complains).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connections_leave_no_objects() {
    connected(Shape::default()).close();
    let before = objects();
    for _ in 0..20 {
        let connection = connected(Shape::default());
        send_empty(&connection.client, &connection.server);
        connection.close();
    }
    assert_eq!(objects(), before);
}

/// Maps the 145th page of a context, whose offset means "no key" in the header.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queues_skip_mmap_key_that_means_none() {
    let channel = channel();
    let id = id(&channel);
    id.bind(siw(0)).expect("bind");
    let context = id.context().expect("the device should open");
    let queues = (0..200).map(|_| CompletionQueue::new(&context, 16, None).expect("a queue"));
    let queues: Vec<_> = queues.collect();
    for queue in &queues {
        queue.request_notify(false).expect("arm");
        assert_eq!(queue.poll(&mut [Completion::default()]).expect("poll"), 0);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_queue_pair_sizes_are_refused() {
    let connection = connected(Shape::default());
    let Connection { client, .. } = &connection;
    let (pd, cq) = (client.io.qp().pd(), client.io.cq());
    let default = QueuePairCaps::default();
    for caps in [
        QueuePairCaps { max_send_wr: 1 << 24, ..default },
        QueuePairCaps { max_recv_wr: 1 << 24, ..default },
        QueuePairCaps { max_send_wr: 0, ..default },
        QueuePairCaps { max_send_sge: 7, ..default },
        QueuePairCaps { max_recv_sge: 7, ..default },
        QueuePairCaps { max_inline_data: 81, ..default },
    ] {
        let init = QueuePairInit { caps, ..QueuePairInit::new(cq) };
        let error = QueuePair::new(pd, &init).expect_err("the capacities should be refused");
        assert!(matches!(error.kind(), ErrorKind::Os(libc::EINVAL)), "{caps:?}: {error:?}");
    }
    // A queue pair without receives has no receive ring.
    let caps = QueuePairCaps { max_recv_wr: 0, ..default };
    let init = QueuePairInit { caps, ..QueuePairInit::new(cq) };
    let qp = QueuePair::new(pd, &init).expect("a queue pair for sending only");
    assert_eq!(qp.caps().max_recv_wr, 0);
    let error = crate::io::receive_nothing(&qp, 1).expect_err("the queue pair should be in RESET");
    assert_invalid(&error, &[&QpState::IB_QPS_RESET.to_string()]);
    connection.close();
}
