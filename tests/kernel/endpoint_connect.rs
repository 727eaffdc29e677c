//! The safe tier: connecting, accepting, rejecting, and the deadlines of it.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use nix::unistd::alarm;
use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType, RejectReason};
use rdmacm::device::Resources;
use rdmacm::endpoint::{Connection, Connector, Incoming, Listener, Memory, Rights, Settings};
use rdmacm::verbs::WcStatus;

use crate::bed::{
    LONG, announce, ask, asleep, assert_invalid, channel, device, rxe, rxe_v6, siw, siw_v6, stuck,
};
use crate::child::in_child;
use crate::endpoint_end::to_low_peer;
use crate::endpoint_messages::{filled, receives};
use crate::netdev::Sysctl;

/// A connection within this process: the side that connected, and the one that accepted.
pub(crate) fn pair(address: SocketAddr, settings: &Settings) -> [Connection; 2] {
    pair_of(address, [settings; 2])
}

/// A connection whose sides have settings of their own.
pub(crate) fn pair_of(address: SocketAddr, [ours, theirs]: [&Settings; 2]) -> [Connection; 2] {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let connector = Connector::new().settings(ours.clone()).timeout(LONG);
    thread::scope(|scope| {
        let client = scope.spawn(|| connector.connect(server).expect("connect"));
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        let accepted = incoming.accept(theirs, &[], LONG).expect("accept");
        [client.join().expect("the client lives"), accepted]
    })
}

/// What there is on the device that has `address`.
pub(crate) fn objects_at(address: SocketAddr) -> Resources {
    let name =
        if address.ip() == siw(0).ip() || address.ip() == siw_v6(0).ip() { "siw0" } else { "rxe0" };
    device(name).resources().expect("count the objects")
}

fn both_sides_know_each_other(address: SocketAddr) {
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let mut others_port = 0;
    let [client, accepted] = thread::scope(|scope| {
        let connector = Connector::new().source(address).type_of_service(8).private_data(b"ping");
        let client = scope.spawn(move || connector.connect(server).expect("connect"));
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        assert!(incoming.private_data().starts_with(b"ping"));
        assert_eq!(incoming.local_addr().expect("query"), Some(server));
        others_port = incoming.peer_addr().expect("query").expect("an IP address").port();
        let settings = Settings::default();
        let accepted = incoming.accept(&settings, b"pong", LONG).expect("accept");
        [client.join().expect("the client lives"), accepted]
    });
    assert_eq!(client.peer_addr(), Some(server));
    assert_eq!(accepted.local_addr(), Some(server));
    let others = SocketAddr::new(address.ip(), others_port);
    assert_eq!((client.local_addr(), accepted.peer_addr()), (Some(others), Some(others)));
    assert!(client.private_data().starts_with(b"pong"));
    assert!(accepted.private_data().starts_with(b"ping"));
    // Short enough for a line, and nothing of what peers say.
    assert_eq!(
        format!("{client:?}"),
        format!("Connection {{ local: Some({others}), peer: Some({server}), .. }}")
    );
    // In either order, and the listener first or last.
    drop(accepted);
    drop(client);
    drop(listener);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_both_sides_know_each_other() {
    both_sides_know_each_other(rxe(0));
    both_sides_know_each_other(rxe_v6(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_both_sides_know_each_other() {
    both_sides_know_each_other(siw(0));
    both_sides_know_each_other(siw_v6(0));
}

/// What the packets carry the peer has of the request, for its own.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_type_of_service_is_the_traffic_class_of_both() {
    for (connector, class) in [
        (Connector::new().type_of_service(0x28), 0x28),
        (Connector::new().type_of_service(0x28).source(rxe(0)), 0x28),
        (Connector::new(), 0),
    ] {
        let (_connection, peer) = to_low_peer(&connector);
        assert_eq!(peer.io.qp().query().expect("query").dest.traffic_class, class);
    }
}

/// The peer's depths, from the other side's point of view: what it holds the other one may have outstanding.
fn depths(param: &ConnParam) -> [u8; 2] {
    [param.initiator_depth, param.responder_resources]
}

/// Each side hears of what the other one has of reads, be it proposed or accepted.
fn the_depths_are_carried(address: SocketAddr) {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let proposed = Settings { responder_resources: 3, initiator_depth: 5, ..Settings::default() };
    let own = Settings { responder_resources: 4, initiator_depth: 2, ..Settings::default() };
    thread::scope(|scope| {
        let connector = Connector::new().settings(proposed);
        let client = scope.spawn(move || connector.connect(server).expect("connect"));
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        assert_eq!(depths(incoming.param()), [3, 5]);
        let accepted = incoming.accept(&own, &[], LONG).expect("accept");
        let client = client.join().expect("the client lives");
        // Both have some.
        for [reader, owner] in [[&client, &accepted], [&accepted, &client]] {
            reader.post(filled(reader, b"hello")).expect("post");
            receives(owner, b"hello");
            let memory = Memory::new(8).expect("memory");
            let export = owner.export(&memory, Rights::READ).expect("export");
            let buffer = filled(reader, &[1; 8]);
            let read = reader
                .start_read(buffer, &export.remote(), 0)
                .and_then(|read| read.wait_timeout(LONG))
                .expect("read");
            assert_eq!(*read, [0; 8]);
        }
    });
    let channel = channel();
    let param = ConnParam { responder_resources: 3, initiator_depth: 5, ..ConnParam::default() };
    let _asks = ask(&channel, server, &param);
    let incoming = listener.incoming_timeout(LONG).expect("a request");
    assert_eq!(depths(incoming.param()), [3, 5]);
    let accepted = incoming.start(&own, &[], LONG).expect("accept");
    let answer = channel.expect_event(EventType::Established).expect("it is accepted");
    // siw holds as many as are asked for, and says what this side has of it, where others say what the peer has.
    let expected = if address == siw(0) { [2, 5] } else { [4, 2] };
    assert_eq!(depths(answer.connection().expect("of the server")), expected);
    accepted.wait().expect("accept");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_the_depths_are_carried() {
    the_depths_are_carried(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_depths_are_carried() {
    the_depths_are_carried(siw(0));
}

/// How often a message is sent again is for who has no buffer for it to say, be it by asking or by accepting.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_message_is_sent_again_as_often_as_the_receiver_says() {
    let patient = Settings::default();
    let hasty = Settings { receive_buffers: 1, rnr_retry_count: 1, ..Settings::default() };
    let [client, server] = pair_of(rxe(0), [&hasty, &patient]);
    let [other_client, other_server] = pair_of(rxe(0), [&patient, &hasty]);
    for [sender, receiver] in [[server, client], [other_client, other_server]] {
        sender.post(filled(&sender, b"one")).expect("post");
        let kept = receiver.recv_timeout(LONG).expect("receive").expect("a message");
        let error = sender
            .start_send(filled(&sender, b"two"))
            .and_then(|send| send.wait_timeout(LONG))
            .expect_err("no buffer");
        let failed = ErrorKind::Failed(WcStatus::IB_WC_RNR_RETRY_EXC_ERR);
        assert_eq!(*error.kind(), failed, "{error}");
        drop(kept);
    }
}

/// What becomes of a client whose request `answer` answers.
fn answered(address: SocketAddr, answer: impl FnOnce(Incoming)) -> rdmacm::Error {
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let error = thread::scope(|scope| {
        let client = scope.spawn(|| Connector::new().connect(server));
        answer(listener.incoming_timeout(LONG).expect("a request"));
        client.join().expect("the client lives").expect_err("no connection")
    });
    drop(listener);
    assert_eq!(objects_at(address), before);
    error
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_rejection_brings_its_reason_and_private_data() {
    for reason in [RejectReason::CONSUMER_DEFINED, RejectReason::VENDOR_OPTION_NOT_SUPPORTED] {
        let error =
            answered(rxe(0), |incoming| incoming.reject(reason, b"no more").expect("reject"));
        let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
        assert_eq!(rejection.reason, reason);
        assert!(rejection.private_data.starts_with(b"no more\0"), "{rejection:?}");
    }
    let error = answered(rxe(0), |incoming| {
        assert_eq!(incoming.param().retry_count, Settings::default().retry_count);
        let refused = incoming.reject(RejectReason::INVALID_SERVICE_ID, b"no").expect_err("no");
        assert_invalid(&refused, &["reject", "the kernel's own"]);
    });
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED, "it was dropped");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_rejection_brings_its_private_data() {
    let reason = RejectReason::CONSUMER_DEFINED;
    let error = answered(siw(0), |incoming| incoming.reject(reason, b"no more").expect("reject"));
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert_eq!(rejection.private_data, b"no more");
    assert!(rejection.reason.errno().is_some(), "{rejection:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_request_that_is_dropped_is_rejected() {
    let error = answered(rxe(0), drop);
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_request_that_is_dropped_is_rejected() {
    let error = answered(siw(0), drop);
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn nobody_listens() {
    let error = Connector::new().connect(rxe(7198)).expect_err("nobody listens");
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_nobody_listens() {
    let error = Connector::new().connect(siw(7198)).expect_err("nobody listens");
    assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
}

/// Each phase that can be late has its own deadline, and all have one together.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn nobody_answers() {
    let before = objects_at(rxe(0));
    let listener = Listener::bind(rxe(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let short = Duration::from_millis(50);
    let with: [fn(Duration) -> Connector; 2] = [
        |deadline| Connector::new().connect_timeout(deadline),
        // Of which resolving takes a part, all of it where the machine is slow.
        |deadline| Connector::new().timeout(deadline),
    ];
    for with in with {
        let mut deadline = short;
        loop {
            let error = with(deadline).connect(server).expect_err("nobody answers");
            assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
            assert_eq!(error.subject().matches(&server.to_string()).count(), 1, "{error}");
            if error.subject().contains("ESTABLISHED") {
                break;
            }
            deadline *= 2;
            assert!(deadline < LONG, "{error}");
        }
        // The request is there, of a peer that is not: accepting finds out.
        let incoming = listener.incoming().expect("it is there");
        let late = incoming.accept(&Settings::default(), &[], LONG).expect_err("it is late");
        // The peer's rejection reaches the kernel before ACCEPT, which the kernel then refuses, or after it.
        match late.kind() {
            ErrorKind::Rejected(rejection) => {
                assert_eq!(rejection.reason, RejectReason::TIMEOUT, "{late}")
            }
            _ => assert!(late.to_string().contains("the peer may have given up"), "{late}"),
        }
    }
    // A neighbour that does not exist.
    let nobody = SocketAddr::from(([10, 0, 0, 99], 7471));
    let connector = Connector::new().source(rxe(0)).address_timeout(short);
    let error = connector.connect(nobody).expect_err("nobody is there");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    assert!(error.subject().contains("ADDR_RESOLVED"), "{error}");
    assert!(error.subject().contains(&nobody.to_string()), "{error}");
    let error = listener.incoming_timeout(short).expect_err("nobody asks");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    let error = listener.try_incoming().expect_err("nobody asks");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    drop(listener);
    assert_eq!(objects_at(rxe(0)), before);
}

/// siw does not give an attempt up before the peer has said something: the call comes back late, but of its deadline.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_nobody_answers() {
    let before = objects_at(siw(0));
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let short = Duration::from_millis(50);
    let (says, hears) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let connector = Connector::new().connect_timeout(short);
            announce(&says);
            connector.connect(server)
        });
        let client_thread = hears.recv().expect("the thread begins");
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        // It gives the attempt up when the time is over.
        thread::sleep(short);
        stuck(client_thread);
        drop(incoming);
        let error = client.join().expect("the client lives").expect_err("nobody has answered");
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
        assert!(error.subject().contains("ESTABLISHED"), "{error}");
    });
    let error = listener.incoming_timeout(short).expect_err("nobody asks");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    drop(listener);
    assert_eq!(objects_at(siw(0)), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_cannot_be_had_is_an_error() {
    let before = objects_at(rxe(0));
    let with = |settings| Connector::new().settings(settings).connect(rxe(7198));
    let some = Settings::default();
    for none in [
        Settings { send_buffers: 0, ..some.clone() },
        Settings { receive_buffers: 0, ..some.clone() },
        Settings { send_buffer_size: 0, ..some.clone() },
        Settings { receive_buffer_size: 0, ..some.clone() },
    ] {
        assert_invalid(&with(none).expect_err("none of something"), &["a connection", "a buffer"]);
    }
    for much in [
        Settings { send_buffers: u32::MAX, ..some.clone() },
        Settings { receive_buffers: 1 << 30, ..some.clone() },
        Settings { send_buffer_size: usize::MAX, ..some.clone() },
        Settings { receive_buffer_size: usize::MAX, ..some.clone() },
        Settings { send_buffer_size: 1 << 32, ..some.clone() },
        Settings { receive_buffer_size: 1 << 32, ..some },
    ] {
        with(much).expect_err("more than there is");
    }
    let error = Connector::new().private_data(&[1; 57]).connect(rxe(7198)).expect_err("too long");
    assert_invalid(&error, &["57"]);
    assert_eq!(objects_at(rxe(0)), before);
}

/// A thread that waits when its process forks is no child's to wait for.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_forked_child_does_not_listen() {
    let listener = Listener::bind(rxe(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (says, hears) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            announce(&says);
            drop(listener.incoming_timeout(LONG).expect("a request"));
        });
        asleep(hears.recv().expect("the thread begins"));
        in_child(|| {
            alarm::set(10);
            for error in [listener.incoming(), listener.try_incoming()] {
                let error = error.expect_err("it is the parent's");
                assert!(matches!(error.kind(), ErrorKind::WrongProcess(_)), "{error}");
            }
        });
        Connector::new().connect(server).expect_err("it is not accepted");
        waiter.join().expect("the thread lives");
    });
}

/// A thread that waits for requests is woken by one, and so is one of two.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn several_threads_wait_for_requests() {
    let listener = Listener::bind(rxe(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (says, hears) = std::sync::mpsc::channel();
    // They stay until both are accepted: the end may overtake the last word of the handshake.
    let clients = thread::scope(|scope| {
        for _ in 0..2 {
            let (says, listener) = (says.clone(), &listener);
            scope.spawn(move || {
                announce(&says);
                let incoming = listener.incoming_timeout(LONG).expect("a request");
                incoming.accept(&Settings::default(), &[], LONG).expect("accept")
            });
        }
        (0..2).for_each(|_| asleep(hears.recv().expect("a thread begins")));
        [(); 2].map(|()| Connector::new().connect(server).expect("connect"))
    });
    drop(clients);
}

/// What a listener has brought lives on without it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_request_outlives_its_listener() {
    let listener = Listener::bind(rxe(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(|| Connector::new().connect(server).expect("connect"));
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        drop(listener);
        let accepted = incoming.accept(&Settings::default(), &[], LONG).expect("accept");
        drop((accepted, client.join().expect("the client lives")));
    });
}

/// The kernel chooses of RDMA's own ports, and iWARP needs that of TCP too.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_another_port_is_chosen_where_tcp_has_it() {
    const ROUNDS: u16 = 10;
    const FEW: [u16; 2] = [7400, 7401];
    let before = objects_at(siw(0));
    // The ports that the kernel has to choose from, of which TCP has the first on siw0.
    let other = TcpListener::bind(siw(FEW[0])).expect("take it");
    let few = Sysctl::new("net/ipv4/ip_local_port_range", &format!("{} {}", FEW[0], FEW[1]));
    for _ in 0..ROUNDS {
        let listener = Listener::bind(siw(0)).expect("there is a free one");
        assert_eq!(listener.local_addr(), Some(siw(FEW[1])));
        drop(listener);
        let taken = Listener::bind(siw(FEW[0])).expect_err("nobody left that choice");
        assert_eq!(taken.errno(), libc::EADDRINUSE, "{taken}");
    }
    for round in 1..=ROUNDS {
        // TCP remembers whom a port was connected to.
        let [client, _server] = pair(siw(FEW[1] + round), &Settings::default());
        assert_eq!(client.local_addr(), Some(siw(FEW[1])));
    }
    let asked = Connector::new().source(siw(FEW[0]));
    let listener = Listener::bind(siw(FEW[1] + ROUNDS + 1)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let taken = asked.connect(server).expect_err("nobody left that choice");
    assert_eq!(taken.errno(), libc::EADDRINUSE, "{taken}");
    // Both.
    let both = TcpListener::bind(siw(FEW[1])).expect("take it");
    let none = Connector::new().connect(server).expect_err("there is no other");
    assert_eq!(none.errno(), libc::EADDRINUSE, "{none}");
    let none = Listener::bind(siw(0)).expect_err("there is no other");
    assert_eq!(none.errno(), libc::EADDRINUSE, "{none}");
    drop((few, other, both, listener));
    assert_eq!(objects_at(siw(0)), before);
}
