//! The safe tier: connecting, accepting and rejecting, and the deadlines of these calls.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use nix::unistd::alarm;
use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType, RejectReason};
use rdmacm::device::ResourceCounts;
use rdmacm::endpoint::{
    Connection, ConnectionConfig, Connector, DmaMemory, Incoming, Listener, RemoteAccess,
};
use rdmacm::verbs::WcStatus;

use crate::child::in_child;
use crate::endpoint_close::to_low_peer;
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{
    LONG, announce, ask, asleep, assert_invalid, channel, device, roce, roce_name, roce_v6, siw,
    siw_v6, stuck,
};
use crate::netdev::Sysctl;

/// Returns both sides of a connection in this process: first the connecting side.
pub(crate) fn pair(address: SocketAddr, config: &ConnectionConfig) -> [Connection; 2] {
    pair_of(address, [config; 2])
}

/// Returns both sides of a connection, each with its own config.
pub(crate) fn pair_of(
    address: SocketAddr,
    [ours, theirs]: [&ConnectionConfig; 2],
) -> [Connection; 2] {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let connector = Connector::new().config(ours.clone()).total_timeout(LONG);
    thread::scope(|scope| {
        let client = scope.spawn(|| connector.connect(server).expect("connect"));
        let incoming = listener.accept_timeout(LONG).expect("a request");
        let accepted = incoming.accept(theirs, &[], LONG).expect("accept");
        [client.join().expect("client should not panic"), accepted]
    })
}

/// Returns the object counts of the device that has `address`.
pub(crate) fn objects_at(address: SocketAddr) -> ResourceCounts {
    let name = if address.ip() == siw(0).ip() || address.ip() == siw_v6(0).ip() {
        "siw0"
    } else {
        roce_name()
    };
    device(name).resources().expect("count the objects")
}

fn both_sides_report_peer_addresses(address: SocketAddr) {
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let mut others_port = 0;
    let [client, accepted] = thread::scope(|scope| {
        let connector = Connector::new().local_addr(address).tos(8).private_data(b"ping");
        let client = scope.spawn(move || connector.connect(server).expect("connect"));
        let incoming = listener.accept_timeout(LONG).expect("a request");
        assert!(incoming.private_data().starts_with(b"ping"));
        assert_eq!(incoming.local_addr(), Some(server));
        others_port = incoming.peer_addr().expect("an IP address").port();
        let config = ConnectionConfig::default();
        let accepted = incoming.accept(&config, b"pong", LONG).expect("accept");
        [client.join().expect("client should not panic"), accepted]
    });
    assert_eq!(client.peer_addr(), Some(server));
    assert_eq!(accepted.local_addr(), Some(server));
    let others = SocketAddr::new(address.ip(), others_port);
    assert_eq!((client.local_addr(), accepted.peer_addr()), (Some(others), Some(others)));
    assert!(client.private_data().starts_with(b"pong"));
    assert!(accepted.private_data().starts_with(b"ping"));
    // The text fits into a line, and has no data of the peer.
    assert_eq!(
        format!("{client:?}"),
        format!("Connection {{ local: Some({others}), peer: Some({server}), .. }}")
    );
    // The order of these drops must not matter.
    drop(accepted);
    drop(client);
    drop(listener);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_both_sides_report_peer_addresses() {
    both_sides_report_peer_addresses(roce(0));
    both_sides_report_peer_addresses(roce_v6(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_both_sides_report_peer_addresses() {
    both_sides_report_peer_addresses(siw(0));
    both_sides_report_peer_addresses(siw_v6(0));
}

/// Checks that the peer takes the traffic class of its packets from the request.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tos_becomes_traffic_class_of_both_sides() {
    for (connector, class) in [
        (Connector::new().tos(0x28), 0x28),
        (Connector::new().tos(0x28).local_addr(roce(0)), 0x28),
        (Connector::new(), 0),
    ] {
        let (_connection, peer) = to_low_peer(&connector);
        assert_eq!(peer.io.qp().query().expect("query").dest.traffic_class, class);
    }
}

/// Returns the peer's depths from the view of this side.
///
/// This side may have as many operations outstanding as the peer has resources.
fn depths(param: &ConnParam) -> [u8; 2] {
    [param.initiator_depth, param.responder_resources]
}

/// Checks that each side gets the depths of the other side in the request and in the answer.
fn depths_are_negotiated(address: SocketAddr) {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let proposed = ConnectionConfig::new().responder_resources(3).initiator_depth(5);
    let own = ConnectionConfig::new().responder_resources(4).initiator_depth(2);
    thread::scope(|scope| {
        let connector = Connector::new().config(proposed);
        let client = scope.spawn(move || connector.connect(server).expect("connect"));
        let incoming = listener.accept_timeout(LONG).expect("a request");
        assert_eq!(depths(incoming.conn_param()), [3, 5]);
        let accepted = incoming.accept(&own, &[], LONG).expect("accept");
        let client = client.join().expect("client should not panic");
        // Both sides have resources for reads.
        for [reader, owner] in [[&client, &accepted], [&accepted, &client]] {
            reader.post_send(filled(reader, b"hello")).expect("post");
            receives(owner, b"hello");
            let memory = DmaMemory::new(8).expect("memory");
            let export = owner.export(&memory, .., RemoteAccess::READ).expect("export");
            let buffer = filled(reader, &[1; 8]);
            let read = reader
                .start_read(buffer, &export.remote_memory(), 0)
                .and_then(|read| read.wait_timeout(LONG))
                .expect("read");
            assert_eq!(*read, [0; 8]);
        }
    });
    let channel = channel();
    let param = ConnParam { responder_resources: 3, initiator_depth: 5, ..ConnParam::default() };
    let _asks = ask(&channel, server, &param);
    let incoming = listener.accept_timeout(LONG).expect("a request");
    assert_eq!(depths(incoming.conn_param()), [3, 5]);
    let accepted = incoming.start_accept(&own, &[], LONG).expect("accept");
    let answer =
        channel.expect_event(EventType::Established).expect("the request should be accepted");
    // siw grants all requested resources, and reports the depths of this side. Other drivers report those of the peer.
    let expected = if address == siw(0) { [2, 5] } else { [4, 2] };
    assert_eq!(depths(answer.connection().expect("the event should have parameters")), expected);
    accepted.wait().expect("accept");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_depths_are_negotiated() {
    depths_are_negotiated(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_depths_are_negotiated() {
    depths_are_negotiated(siw(0));
}

/// Checks that the side without a receive buffer determines how often the device repeats a message.
///
/// This holds for the connecting and for the accepting side.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rnr_retries_follow_receiver_setting() {
    let patient = ConnectionConfig::default();
    let hasty = ConnectionConfig::new().receive_buffers(1).rnr_retry_count(1);
    let [client, server] = pair_of(roce(0), [&hasty, &patient]);
    let [other_client, other_server] = pair_of(roce(0), [&patient, &hasty]);
    for [sender, receiver] in [[server, client], [other_client, other_server]] {
        sender.post_send(filled(&sender, b"one")).expect("post");
        let kept = receiver.recv_timeout(LONG).expect("receive").expect("a message");
        let error = sender
            .start_send(filled(&sender, b"two"))
            .and_then(|send| send.wait_timeout(LONG))
            .expect_err("the peer should have no receive buffer");
        let failed = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RNR_RETRY_EXC_ERR);
        assert_eq!(*error.kind(), failed, "{error}");
        drop(kept);
    }
}

/// Returns the error of a client whose request `answer` handles.
fn answered(address: SocketAddr, answer: impl FnOnce(Incoming)) -> rdmacm::Error {
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let error = thread::scope(|scope| {
        let client = scope.spawn(|| Connector::new().connect(server));
        answer(listener.accept_timeout(LONG).expect("a request"));
        client
            .join()
            .expect("client should not panic")
            .expect_err("the client should not be connected")
    });
    drop(listener);
    assert_eq!(objects_at(address), before);
    error
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_rejection_carries_reason_and_private_data() {
    for reason in [RejectReason::CONSUMER_DEFINED, RejectReason::VENDOR_OPTION_NOT_SUPPORTED] {
        let error =
            answered(roce(0), |incoming| incoming.reject(reason, b"no more").expect("reject"));
        let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
        assert_eq!(rejection.reason, reason);
        assert!(rejection.private_data.starts_with(b"no more\0"), "{rejection:?}");
    }
    let error = answered(roce(0), |incoming| {
        assert_eq!(
            incoming.conn_param().retry_count,
            6,
            "the count should be the documented default"
        );
        let refused = incoming
            .reject(RejectReason::INVALID_SERVICE_ID, b"no")
            .expect_err("the reason should be refused");
        assert_invalid(&refused, &["reject", "reserved for the kernel"]);
    });
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert_eq!(
        rejection.reason,
        RejectReason::CONSUMER_DEFINED,
        "a dropped request should be rejected"
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_rejection_carries_private_data() {
    let reason = RejectReason::CONSUMER_DEFINED;
    let error = answered(siw(0), |incoming| incoming.reject(reason, b"no more").expect("reject"));
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert_eq!(rejection.private_data, b"no more");
    assert!(rejection.reason.errno().is_some(), "{rejection:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn dropped_request_is_rejected() {
    let error = answered(roce(0), drop);
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_dropped_request_is_rejected() {
    let error = answered(siw(0), drop);
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connect_without_listener_is_refused() {
    let error = Connector::new().connect(roce(7198)).expect_err("no program should listen");
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connect_without_listener_is_refused() {
    let error = Connector::new().connect(siw(7198)).expect_err("no program should listen");
    assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
    let step = format!("cannot connect to {}: ", siw(7198));
    assert!(error.to_string().starts_with(&step), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("the server listens")), "{error}");
}

/// Checks that each phase ends at its own deadline, and all phases at a common one.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unanswered_connect_ends_at_deadline() {
    let before = objects_at(roce(0));
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let short = Duration::from_millis(50);
    let with: [fn(Duration) -> Connector; 2] = [
        |deadline| Connector::new().response_timeout(deadline),
        // Address and route resolution use a part of this time, or all of it on a slow machine.
        |deadline| Connector::new().total_timeout(deadline),
    ];
    for with in with {
        let mut deadline = short;
        loop {
            let error = with(deadline).connect(server).expect_err("no peer should answer");
            assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
            assert_eq!(error.subject().matches(&server.to_string()).count(), 1, "{error}");
            if error.operation() == "connect" {
                break;
            }
            deadline *= 2;
            assert!(deadline < LONG, "{error}");
        }
        // The request of the ended attempt is still pending. Accepting it fails.
        let incoming = listener.accept().expect("a request should be pending");
        let client = incoming.peer_addr().expect("an IP address");
        let late = incoming
            .accept(&ConnectionConfig::default(), &[], LONG)
            .expect_err("the accept should be late");
        // The peer's rejection reaches the kernel before the command ACCEPT, which the kernel then refuses, or after
        // it.
        match late.kind() {
            ErrorKind::Rejected(rejection) => {
                assert_eq!(rejection.reason, RejectReason::TIMEOUT, "{late}")
            }
            kind => assert_eq!(*kind, ErrorKind::Os(libc::EINVAL), "{late}"),
        }
        let expected = format!("cannot accept the request of {client}: ");
        assert!(late.to_string().starts_with(&expected), "{late}");
        let is_rejected = matches!(late.kind(), ErrorKind::Rejected(_));
        let hint = (!is_rejected).then_some("the client may have ended its attempt to connect");
        assert_eq!(late.hint(), hint, "{late}");
    }
    // No machine has this address.
    let unused = SocketAddr::from(([10, 0, 0, 99], 7471));
    let connector = Connector::new().local_addr(roce(0)).resolve_addr_timeout(short);
    let error = connector.connect(unused).expect_err("no peer should answer");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    assert_eq!(error.operation(), "resolve the address");
    assert_eq!(error.subject(), unused.to_string());
    let error = listener.accept_timeout(short).expect_err("no request should come");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    let error = listener.try_accept().expect_err("no request should come");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    drop(listener);
    assert_eq!(objects_at(roce(0)), before);
}

/// Checks that siw does not end an attempt before the peer has answered.
///
/// The call returns late, with the error of its deadline.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_unanswered_connect_reports_deadline() {
    let before = objects_at(siw(0));
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let short = Duration::from_millis(50);
    let (tx, rx) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let connector = Connector::new().response_timeout(short);
            announce(&tx);
            connector.connect(server)
        });
        let client_thread = rx.recv().expect("the thread should begin");
        let incoming = listener.accept_timeout(LONG).expect("a request");
        // The call is still in the kernel after its deadline.
        thread::sleep(short);
        stuck(client_thread);
        drop(incoming);
        let error = client
            .join()
            .expect("client should not panic")
            .expect_err("no answer should have come");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
        assert_eq!(error.operation(), "connect", "{error}");
    });
    let error = listener.accept_timeout(short).expect_err("no request should come");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    drop(listener);
    assert_eq!(objects_at(siw(0)), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_config_is_refused() {
    let before = objects_at(roce(0));
    let with = |config| Connector::new().config(config).connect(roce(7198));
    let some = ConnectionConfig::default();
    for none in [
        some.clone().send_buffers(0),
        some.clone().receive_buffers(0),
        some.clone().send_buffer_size(0),
        some.clone().receive_buffer_size(0),
    ] {
        assert_invalid(
            &with(none).expect_err("a count of zero should be refused"),
            &["a connection", "is 0; the smallest is 1"],
        );
    }
    for much in [
        some.clone().send_buffers(u32::MAX),
        some.clone().receive_buffers(1 << 30),
        some.clone().send_buffer_size(usize::MAX),
        some.clone().receive_buffer_size(usize::MAX),
        some.clone().send_buffer_size(1 << 32),
        some.receive_buffer_size(1 << 32),
    ] {
        with(much).expect_err("more than the device supports should be refused");
    }
    let error = Connector::new()
        .private_data(&[1; 57])
        .connect(roce(7198))
        .expect_err("the private data should be too long");
    assert_invalid(&error, &["57"]);
    assert_eq!(objects_at(roce(0)), before);
}

/// Checks that a child does not wait for a thread of its parent that waits in the listener.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_listen() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (tx, rx) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            announce(&tx);
            drop(listener.accept_timeout(LONG).expect("a request"));
        });
        asleep(rx.recv().expect("the thread should begin"));
        in_child(|| {
            alarm::set(10);
            for error in [listener.accept(), listener.try_accept()] {
                let error = error.expect_err("the object should belong to the parent");
                assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error}");
            }
        });
        Connector::new().connect(server).expect_err("the request should not be accepted");
        waiter.join().expect("thread should not panic");
    });
}

/// Checks that a request wakes one waiting thread, even if two threads wait.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_request_wakes_one_of_several_threads() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (tx, rx) = std::sync::mpsc::channel();
    // Both connections are kept until both are accepted, because an end may overtake the last message of the handshake.
    let clients = thread::scope(|scope| {
        for _ in 0..2 {
            let (tx, listener) = (tx.clone(), &listener);
            scope.spawn(move || {
                announce(&tx);
                let incoming = listener.accept_timeout(LONG).expect("a request");
                incoming.accept(&ConnectionConfig::default(), &[], LONG).expect("accept")
            });
        }
        (0..2).for_each(|_| asleep(rx.recv().expect("a thread should begin")));
        [(); 2].map(|()| Connector::new().connect(server).expect("connect"))
    });
    drop(clients);
}

/// Checks that a request and its connection outlive their listener.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_outlives_listener() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(|| Connector::new().connect(server).expect("connect"));
        let incoming = listener.accept_timeout(LONG).expect("a request");
        drop(listener);
        let accepted = incoming.accept(&ConnectionConfig::default(), &[], LONG).expect("accept");
        drop((accepted, client.join().expect("client should not panic")));
    });
}

/// Checks that the kernel selects a port that neither RDMA nor, on iWARP, TCP uses.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_port_used_by_tcp_is_skipped() {
    const ROUNDS: u16 = 10;
    const FEW: [u16; 2] = [7400, 7401];
    let before = objects_at(siw(0));
    // The kernel has these two ports to choose from. On siw0, TCP uses the first one.
    let other = TcpListener::bind(siw(FEW[0])).expect("the port should be free");
    let few = Sysctl::new("net/ipv4/ip_local_port_range", &format!("{} {}", FEW[0], FEW[1]));
    for _ in 0..ROUNDS {
        let listener = Listener::bind(siw(0)).expect("a port should be free");
        assert_eq!(listener.local_addr(), Some(siw(FEW[1])));
        drop(listener);
        let taken = Listener::bind(siw(FEW[0])).expect_err("port should be taken");
        assert_eq!(taken.errno(), libc::EADDRINUSE, "{taken}");
    }
    for round in 1..=ROUNDS {
        // TCP remembers the peers of a port, so each round has another port.
        let [client, _server] = pair(siw(FEW[1] + round), &ConnectionConfig::default());
        assert_eq!(client.local_addr(), Some(siw(FEW[1])));
    }
    let asked = Connector::new().local_addr(siw(FEW[0]));
    let listener = Listener::bind(siw(FEW[1] + ROUNDS + 1)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let taken = asked.connect(server).expect_err("port should be taken");
    assert_eq!(taken.errno(), libc::EADDRINUSE, "{taken}");
    // TCP uses both ports now.
    let both = TcpListener::bind(siw(FEW[1])).expect("the port should be free");
    let none = Connector::new().connect(server).expect_err("no other port should be free");
    assert_eq!(none.errno(), libc::EADDRINUSE, "{none}");
    let none = Listener::bind(siw(0)).expect_err("no other port should be free");
    assert_eq!(none.errno(), libc::EADDRINUSE, "{none}");
    drop((few, other, both, listener));
    assert_eq!(objects_at(siw(0)), before);
}
