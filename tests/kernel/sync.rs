//! Synchronous ids.

use std::net::SocketAddr;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use nix::poll::PollTimeout;
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use rdmacm::addr::{AddrInfo, AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{
    CmId, ConnParam, EndpointQpInit, EventType, Membership, PortSpace, RejectReason, getaddrinfo,
};
use rdmacm::verbs::{
    CompletionQueue, ProtectionDomain, QpState, QueuePairCaps, SendFlags, SendOperation,
};
use rdmacm::{Error, ErrorKind};

use crate::channel::readable;
use crate::child::let_sigusr1_interrupt;
use crate::fixtures::{
    Connection, LONG, Side, announce, ask, asleep, assert_invalid, channel, id, ids, listen,
    objects, request, resolve, roce, roce_end, roce_ip, roce_v6, siw, siw_v6,
};
use crate::io::Shape;
use crate::netdev::ip;

const SHORT: Duration = Duration::from_millis(30);

/// Returns a synchronous id with a long time limit. Its requests inherit the limit.
fn new() -> CmId {
    let id = CmId::new_sync(PortSpace::Tcp).expect("create an id");
    assert_eq!(id.timeout(), None);
    id.set_timeout(Some(LONG));
    id
}

fn listener(address: SocketAddr) -> (CmId, SocketAddr) {
    let listener = new();
    listener.bind(address).expect("bind");
    listener.listen(0).expect("listen");
    let bound = listener.local_addr().expect("query").expect("a bound id should have an address");
    (listener, bound)
}

/// Returns an id that is ready to connect to `server`.
fn resolved(server: SocketAddr) -> CmId {
    let id = new();
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    assert_eq!(last(&id), EventType::AddrResolved);
    id.resolve_route(LONG).expect("resolve the route");
    assert_eq!(last(&id), EventType::RouteResolved);
    id
}

fn side(id: CmId) -> Side {
    Side::new(id, Shape::default())
}

fn last(id: &CmId) -> EventType {
    id.last_event().expect("the id should keep its last event").event_type()
}

fn with_data(private_data: &[u8]) -> ConnParam {
    ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() }
}

/// Checks that the private data of the last event begins with `data`.
#[track_caller]
fn assert_last_event(id: &CmId, event_type: EventType, data: &[u8]) {
    let event = id.last_event().expect("the id should keep its last event");
    assert_eq!(event.event_type(), event_type);
    assert_eq!(&event.private_data()[..data.len()], data);
}

fn timed_out(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut)
}

/// Runs a connection from its first step to its last, each side in its own thread.
fn whole_life(address: SocketAddr) {
    let (listener, address) = listener(address);
    assert!(listener.is_sync());
    let (tx, rx) = mpsc::channel();
    let (completes, completed) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (tx, completed) = (tx, completed);
            let server = side(listener.get_request().expect("a request"));
            assert!(server.id.is_sync());
            assert_last_event(&server.id, EventType::ConnectRequest, b"client");
            server.io.receive(1, 0..8).expect("post a receive");
            server.id.accept(&with_data(b"server")).expect("accept");
            assert_eq!(last(&server.id), EventType::Established);
            tx.send("accepted").expect("the client should receive");
            server.io.done(1);
            tx.send("arrived").expect("the client should receive");
            // If a receiver ends the connection at once, rxe may never acknowledge its last message.
            completed.recv().expect("the send should complete");
            server.id.disconnect().expect("disconnect");
            assert_eq!(last(&server.id), EventType::Disconnected);
            server.id.destroy().expect("destroy");
        });
        let client = side(resolved(address));
        client.id.connect(&with_data(b"client")).expect("connect");
        assert_last_event(&client.id, EventType::Established, b"server");
        // siw reports the connection to the client before siw reads from the server's socket, and does not check for
        // bytes that arrived in between. These bytes stay unread until more bytes arrive.
        assert_eq!(rx.recv(), Ok("accepted"));
        client.io.post(2, SendOperation::Send, 0..8, SendFlags::SIGNALED).expect("post a send");
        client.io.done(2);
        completes.send(()).expect("the server should wait");
        // On iWARP a send completes when TCP has accepted it.
        assert_eq!(rx.recv(), Ok("arrived"));
        client.id.disconnect().expect("disconnect");
        client.id.destroy().expect("destroy");
    });
    listener.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_works_without_events() {
    let before = objects();
    for address in [roce(0), roce_v6(0)] {
        whole_life(address);
    }
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_works_without_events_over_siw() {
    for address in [siw(0), siw_v6(0)] {
        whole_life(address);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rejection_error_has_reason_and_private_data() {
    let (listener, address) = listener(roce(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let unwanted = listener.get_request().expect("a request");
            // This call returns at once, because no connection exists.
            unwanted.disconnect().expect("the call should succeed");
            unwanted.reject(b"no").expect("reject");
            unwanted.destroy().expect("destroy");
        });
        let client = side(resolved(address));
        let error =
            client.id.connect(&ConnParam::default()).expect_err("the request should be rejected");
        let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error:?}") };
        assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED);
        assert_eq!(&rejection.private_data[..3], b"no\0");
        assert_eq!(error.errno(), libc::ECONNREFUSED);
        assert_last_event(&client.id, EventType::Rejected, b"no");
        client.id.disconnect().expect("the call should succeed");
        client.id.destroy().expect("destroy");
    });
    listener.destroy().expect("destroy");
    let client = side(resolved(address));
    let error = client.id.connect(&ConnParam::default()).expect_err("no program should listen");
    assert!(error.to_string().contains("no program listens on the port"), "{error}");
    assert_eq!(error.errno(), libc::ECONNREFUSED);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_resolutions_are_errors() {
    let id = new();
    // The address is in the network of the wire, and no machine has it.
    let unused = SocketAddr::from(([10, 0, 0, 99], 7471));
    let error = id.resolve_addr(None, unused, SHORT).expect_err("no peer should answer");
    assert!(timed_out(&error), "{error}");
    assert_eq!(error.errno(), libc::ETIMEDOUT);
    assert_eq!(last(&id), EventType::AddrError);
    // After the failed call, the next call is accepted.
    id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
    let error =
        id.resolve_addr(None, roce(7471), LONG).expect_err("the address should be resolved");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert!(id.last_event().is_none(), "last event should be cleared");
    id.resolve_route(LONG).expect("resolve the route");
    let error = new().get_request().map(drop).expect_err("the id should not listen");
    assert_invalid(&error, &["does not listen"]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn deadline_ends_wait_but_not_operation() {
    let theirs = channel();
    let (_listener, address) = listen(&theirs, roce(0));
    let client = side(resolved(address));
    client.id.set_timeout(Some(SHORT));
    let error = client.id.connect(&ConnParam::default()).expect_err("no peer should accept");
    assert!(timed_out(&error), "{error}");
    let error = client.id.disconnect().expect_err("the id should still connect");
    assert_invalid(&error, &["RDMA_CM_EVENT_ESTABLISHED", "CmId::wait_pending"]);
    assert_eq!(error.errno(), libc::EALREADY);
    assert!(timed_out(&client.id.wait_pending().expect_err("no peer should accept")));
    let server = side(request(&theirs));
    server.id.accept(&with_data(b"late")).expect("accept");
    client.id.set_timeout(None);
    client.id.wait_pending().expect("the request should be accepted");
    assert_last_event(&client.id, EventType::Established, b"late");
    assert_invalid(&client.id.wait_pending().expect_err("no call should be pending"), &["no call"]);
    // The id is destroyed while it connects.
    let client = side(resolved(address));
    client.id.set_timeout(Some(Duration::ZERO));
    assert!(timed_out(
        &client.id.connect(&ConnParam::default()).expect_err("the call should time out")
    ));
    client.id.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unconfirmed_accept_is_error() {
    let (listener, address) = listener(roce(0));
    let ours = channel();
    let client = ask(&ours, address, &ConnParam::default());
    let server = side(listener.get_request().expect("a request"));
    thread::scope(|scope| {
        let accepts = scope.spawn(|| server.id.accept(&ConnParam::default()));
        // The answer has arrived. Reading it would confirm the connection, so no thread reads it.
        assert!(readable(&ours, PollTimeout::from(10_000_u16)));
        assert!(!accepts.is_finished(), "the call should wait");
        drop(client);
        let error =
            accepts.join().expect("thread should not panic").expect_err("peer should have left");
        let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error:?}") };
        assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED);
    });
    assert_eq!(last(&server.id), EventType::Rejected);
    let state = server.io.qp().query().expect("query").qp_state;
    assert_eq!(state, QpState::IB_QPS_ERR, "posted requests should be flushed");
    server.id.destroy().expect("destroy");
    listener.destroy().expect("destroy");
}

/// Checks the event that RoCE raises when the hardware address of the neighbor changes.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unreachable_event_keeps_connection() {
    for is_read in [true, false] {
        let connection = Connection::new(Shape::default());
        let Connection { client, server, client_channel, server_channel } = &connection;
        let neighbor = roce_ip();
        ip(&["neigh", "replace", neighbor, "lladdr", "02:00:00:00:00:99", "dev", roce_end()]);
        assert!(readable(client_channel, PollTimeout::from(10_000_u16)));
        if is_read {
            let event = client_channel.get_event().expect("an event");
            assert_eq!(event.event_type(), EventType::Unreachable);
        }
        ip(&["neigh", "del", neighbor, "dev", roce_end()]);
        client.id.migrate_to_sync().expect("make it synchronous");
        client.id.set_timeout(Some(Duration::ZERO));
        assert!(timed_out(&client.id.disconnect().expect_err("the peer should not have answered")));
        server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
        server.id.disconnect().expect("disconnect");
        client.id.set_timeout(Some(LONG));
        client.id.wait_pending().expect("the peer should have answered");
        assert_eq!(last(&client.id), EventType::Disconnected);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn get_request_ends_at_deadline() {
    let (listener, address) = listener(roce(0));
    listener.set_timeout(Some(SHORT));
    assert!(timed_out(&listener.get_request().map(drop).expect_err("no request should come")));
    let ours = channel();
    let _client = ask(&ours, address, &ConnParam::default());
    listener.set_timeout(Some(LONG));
    let id = listener.get_request().expect("a request");
    assert_eq!(id.timeout(), Some(LONG));
    // The listener can be destroyed while the program keeps the event of the request.
    listener.destroy().expect("destroy");
    assert_eq!(last(&id), EventType::ConnectRequest);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signals_interrupt_without_losing_events() {
    let_sigusr1_interrupt();
    let theirs = channel();
    let (_listener, address) = listen(&theirs, roce(0));
    let client = side(resolved(address));
    for deadline in [None, Some(LONG)] {
        client.id.set_timeout(deadline);
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                tx.send(pthread_self()).expect("the test should receive");
                match deadline {
                    None => client.id.connect(&ConnParam::default()),
                    Some(_) => client.id.wait_pending(),
                }
                .expect_err("a signal should interrupt the call")
            });
            let thread = rx.recv().expect("thread should send its id");
            while !waiter.is_finished() {
                pthread_kill(thread, Signal::SIGUSR1).expect("signal");
                thread::yield_now();
            }
            let error = waiter.join().expect("waiter should not panic");
            assert_eq!(error.errno(), libc::EINTR, "{error}");
        });
    }
    let server = side(request(&theirs));
    server.id.accept(&ConnParam::default()).expect("accept");
    client.id.wait_pending().expect("the request should be accepted");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn second_waiting_thread_is_refused() {
    let (theirs, other) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let client = side(resolved(address));
    let (tx, rx) = mpsc::channel();
    let id = &client.id;
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            announce(&tx);
            id.connect(&ConnParam::default())
        });
        asleep(rx.recv().expect("thread should send its id"));
        let server = side(request(&theirs));
        for error in [id.disconnect(), id.wait_pending(), id.migrate(&other)] {
            let error = error.expect_err("another thread should wait");
            assert_invalid(&error, &["another thread"]);
            assert_eq!(error.errno(), libc::EBUSY);
        }
        server.id.accept(&ConnParam::default()).expect("accept");
        waiter
            .join()
            .expect("waiter should not panic")
            .expect("the connection should be established");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_request_goes_to_one_of_two_threads() {
    let (listener, address) = listener(roce(0));
    let (ours, other) = (channel(), channel());
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let servers = [(); 2].map(|()| {
            let (tx, listener) = (tx.clone(), &listener);
            scope.spawn(move || {
                announce(&tx);
                listener.get_request().expect("a request")
            })
        });
        for _ in &servers {
            asleep(rx.recv().expect("thread should send its id"));
        }
        let error = listener.migrate(&other).expect_err("threads should wait on the listener");
        assert_eq!(error.errno(), libc::EBUSY, "{error}");
        let _clients = [(); 2].map(|()| ask(&ours, address, &ConnParam::default()));
        let [one, two] = servers.map(|server| server.join().expect("server should not panic"));
        assert_ne!(one.token(), two.token());
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn id_moves_to_channel_and_back() {
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listen(&theirs, roce(0));
    // This id has a channel, and an event that was not read.
    let client = side(resolve(&ours, address));
    let error = client.id.get_request().map(drop).expect_err("the id should have a channel");
    assert_invalid(&error, &["not synchronous"]);
    assert!(client.id.last_event().is_none());
    client.id.migrate_to_sync().expect("make it synchronous");
    assert_invalid(
        &client.id.migrate_to_sync().expect_err("a second migration should be refused"),
        &["already"],
    );
    listener.migrate_to_sync().expect("make it synchronous");
    listener.set_timeout(Some(LONG));
    client.id.set_timeout(Some(Duration::ZERO));
    assert!(timed_out(
        &client.id.connect(&ConnParam::default()).expect_err("the call should time out")
    ));
    let server = side(listener.get_request().expect("a request"));
    client.id.migrate(&ours).expect("give it a channel");
    assert!(!client.id.is_sync());
    server.id.migrate(&theirs).expect("give it a channel");
    server.id.accept(&ConnParam::default()).expect("accept");
    // The event of the call that timed out arrives on this channel.
    ours.expect_event(EventType::Established).expect("the connection should be established");
    theirs.expect_event(EventType::Established).expect("the connection should be established");
    server.id.migrate_to_sync().expect("make it synchronous");
    client.id.disconnect().expect("disconnect");
    server.id.disconnect().expect("disconnect");
    assert_eq!(last(&server.id), EventType::Disconnected);
    ours.expect_event(EventType::Disconnected).expect("the id should be disconnected");
    server.id.disconnect().expect("the call should succeed");
    client.id.disconnect().expect("the call should succeed");
    client.id.migrate_to_sync().expect("make it synchronous");
    client.id.disconnect().expect("the call should succeed");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn one_of_two_threads_makes_id_synchronous() {
    let ours = channel();
    let id = id(&ours);
    for _ in 0..50 {
        let both = Barrier::new(2);
        let try_it = || {
            both.wait();
            id.migrate_to_sync().is_ok()
        };
        thread::scope(|scope| {
            let other = scope.spawn(try_it);
            let here = try_it();
            assert_ne!(here, other.join().expect("thread should not panic"));
        });
        id.migrate(&ours).expect("give it a channel");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn call_and_migration_exclude_each_other() {
    let ours = channel();
    for _ in 0..50 {
        let id = new();
        thread::scope(|scope| {
            let mover = scope.spawn(|| id.migrate(&ours));
            let resolved = id.resolve_addr(None, roce(7471), LONG);
            let moved = mover.join().expect("thread should not panic");
            for error in [resolved.err(), moved.err()].into_iter().flatten() {
                assert_eq!(error.errno(), libc::EBUSY, "{error}");
            }
        });
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_accept_does_not_wait() {
    let listener = CmId::new_sync(PortSpace::Udp).expect("create an id");
    listener.set_timeout(Some(LONG));
    listener.bind(roce(0)).expect("bind");
    listener.listen(0).expect("listen");
    let address = listener.local_addr().expect("query").expect("a bound id should have an address");
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let server = side(listener.get_request().expect("a request"));
            server.id.accept(&with_data(b"here")).expect("accept");
            server
        });
        let client = CmId::new_sync(PortSpace::Udp).expect("create an id");
        client.set_timeout(Some(LONG));
        client.resolve_addr(None, address, LONG).expect("resolve the address");
        client.resolve_route(LONG).expect("resolve the route");
        let client = side(client);
        client.id.connect(&ConnParam::default()).expect("ask");
        assert_last_event(&client.id, EventType::Established, b"here");
        let server = server.join().expect("server should not panic");
        let event = client.id.last_event().expect("the id should keep its last event");
        assert_eq!(
            event.datagram().expect("the event should have a destination").qp_num,
            server.io.qp().number()
        );
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn join_completes_before_call_returns() {
    let id = CmId::new_sync(PortSpace::Udp).expect("create an id");
    id.bind(roce(0)).expect("bind");
    let member = side(id);
    let group = SocketAddr::from(([239, 1, 1, 1], 0));
    member.id.join_multicast(group, Membership::Full).expect("join");
    let event = member.id.last_event().expect("the id should keep its last event");
    assert_eq!(event.event_type(), EventType::MulticastJoin);
    assert_eq!(event.datagram().expect("the event should have a destination").qp_num, 0xff_ffff);
    // The id can leave and be destroyed while it keeps the event.
    member.id.leave_multicast(group).expect("leave");
    member.id.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failure_of_other_group_ends_no_join() {
    let ours = channel();
    let id = CmId::new(&ours, PortSpace::Udp).expect("create an id");
    id.bind(roce(0)).expect("bind");
    let member = side(id);
    // The kernel joins an address that is no multicast group, and then refuses to attach the queue pair to it.
    member.id.join_multicast(roce(0), Membership::Full).expect("join");
    assert!(readable(&ours, PollTimeout::NONE));
    member.id.migrate_to_sync().expect("make it synchronous");
    let group = SocketAddr::from(([239, 1, 1, 4], 0));
    member.id.join_multicast(group, Membership::Full).expect("join");
    let event = member.id.last_event().expect("the id should keep its last event");
    assert_eq!(
        (event.event_type(), event.multicast()),
        (EventType::MulticastJoin, Some(group.into()))
    );
    // A failure of the same join ends the call.
    let error = member
        .id
        .join_multicast(roce(0), Membership::Full)
        .expect_err("the address should be no group");
    assert_eq!(error.errno(), libc::EINVAL);
    assert_eq!(last(&member.id), EventType::MulticastError);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn leave_cancels_join() {
    let id = CmId::new_sync(PortSpace::Udp).expect("create an id");
    id.bind(roce(0)).expect("bind");
    let group = SocketAddr::from(([239, 1, 1, 2], 0));
    id.set_timeout(Some(Duration::ZERO));
    // The kernel may join before a deadline of zero has passed.
    let error = loop {
        match id.join_multicast(group, Membership::Full) {
            Ok(()) => id.leave_multicast(group).expect("leave"),
            Err(error) => break error,
        }
    };
    assert!(timed_out(&error), "{error}");
    for part in ["RDMA_CM_EVENT_MULTICAST_JOIN", "239.1.1.2", "CmId::wait_pending"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(id.pending_event(), Some(EventType::MulticastJoin));
    let other = SocketAddr::from(([239, 1, 1, 3], 0));
    assert_eq!(
        id.leave_multicast(other).expect_err("the id should not be in the group").errno(),
        libc::EADDRNOTAVAIL
    );
    assert_eq!(id.pending_event(), Some(EventType::MulticastJoin));
    id.leave_multicast(group).expect("leave");
    assert_eq!(id.pending_event(), None);
    id.set_timeout(None);
    id.join_multicast(group, Membership::Full).expect("join");
    id.destroy().expect("destroy");
}

/// Resolves `address` by `getaddrinfo`, for listening or for connecting.
fn found(address: SocketAddr, flags: AddrInfoFlags) -> AddrInfo {
    let hints =
        AddrInfoHints { flags, port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let (node, service) = (address.ip().to_string(), address.port().to_string());
    let found = getaddrinfo(Some(&node), Some(&service), Some(&hints)).expect("a number");
    found.into_iter().next().expect("an address should be found")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn create_ep_makes_needed_objects() {
    let before = objects();
    let caps = QueuePairCaps { max_send_wr: 3, max_recv_wr: 4, ..QueuePairCaps::default() };
    let qp = EndpointQpInit { caps, ..EndpointQpInit::default() };
    for address in [roce(0), roce_v6(0)] {
        let passive = found(address, AddrInfoFlags::PASSIVE);
        let listener = CmId::create_ep(&passive, Some(&qp)).expect("create an endpoint");
        assert!(listener.qp().is_none());
        listener.set_timeout(Some(LONG));
        listener.listen(0).expect("listen");
        let address = listener.local_addr().expect("query").expect("the id should be bound");
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let server = listener.get_request().expect("a request");
                assert_last_event(&server, EventType::ConnectRequest, b"header and data");
                server.accept(&ConnParam::default()).expect("accept");
                server
            });
            let mut active = found(address, AddrInfoFlags::empty());
            active.connect = b"header ".to_vec();
            let client = CmId::create_ep(&active, Some(&qp)).expect("create an endpoint");
            client.set_timeout(Some(LONG));
            client.connect(&with_data(b"and data")).expect("connect");
            let server = server.join().expect("server should not panic");
            let made = objects();
            let count = |kind| {
                made.count(kind).expect("the device should count these objects")
                    - before.count(kind).expect("the device should count these objects")
            };
            assert_eq!(count("pd"), 1, "all share one protection domain");
            assert_eq!((count("qp"), count("cq")), (2, 4));
            for id in [client, server] {
                let qp = id.qp().expect("the id should have a queue pair");
                assert!(qp.caps().max_send_wr >= 3 && qp.caps().max_recv_wr >= 4);
                assert!(qp.send_cq() != qp.recv_cq());
                id.destroy().expect("destroy");
            }
        });
        listener.destroy().expect("destroy");
    }
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn create_ep_uses_given_objects() {
    let theirs = channel();
    let (_listener, address) = listen(&theirs, roce(0));
    let mut active = found(address, AddrInfoFlags::empty());
    let bare = CmId::create_ep(&active, None).expect("create an endpoint");
    assert!(bare.qp().is_none());
    let before = objects();
    let pd = ProtectionDomain::new(&bare.context().expect("a device")).expect("protection domain");
    let cq = CompletionQueue::new(pd.context(), 8, None).expect("completion queue");
    let (pd, cq) = (Some(pd), Some(cq));
    let qp = EndpointQpInit {
        pd,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        ..EndpointQpInit::default()
    };
    let made = bare.create_ep_qp(&qp).expect("a queue pair");
    assert_eq!((Some(made.send_cq()), Some(made.recv_cq())), (cq.as_ref(), cq.as_ref()));
    let now = objects();
    for kind in ["pd", "cq", "qp"] {
        assert_eq!(now.count(kind), before.count(kind).map(|count| count + 1), "{kind}");
    }
    // The path takes the place of route resolution.
    active.route =
        resolved(address).route().expect("a route").paths.iter().map(Into::into).collect();
    let routed = CmId::create_ep(&active, None).expect("create an endpoint");
    assert_eq!(last(&routed), EventType::RouteResolved);
    let before = ids();
    active.dst_addr = None;
    assert_invalid(
        &CmId::create_ep(&active, None)
            .expect_err("an endpoint without an address should be refused"),
        &["no address"],
    );
    active.flags = AddrInfoFlags::PASSIVE;
    assert_invalid(
        &CmId::create_ep(&active, None)
            .expect_err("an endpoint without an address should be refused"),
        &["no address"],
    );
    assert_eq!(ids(), before);
}
