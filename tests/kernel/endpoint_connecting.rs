//! The safe tier: connecting and accepting without waiting.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rdmacm::cm::RejectReason;
use rdmacm::endpoint::{Connecting, Connection, ConnectionConfig, Connector, Incoming, Listener};
use rdmacm::{Error, ErrorKind};

use crate::endpoint_connect::objects_at;
use crate::endpoint_messages::{filled, receives};
use crate::endpoint_nonblocking::now;
use crate::fixtures::{LONG, assert_invalid, roce, siw};

/// One side of a connection in an event loop.
enum Side {
    Connecting(Connecting),
    Established(Connection),
}

/// Waits until `fd` is readable, or `deadline` has passed.
fn sleep(fd: &impl AsFd, deadline: Option<Instant>) {
    let rest = deadline.map_or(LONG, |deadline| deadline.saturating_duration_since(Instant::now()));
    let rest = (rest + Duration::from_millis(1)).min(LONG);
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::try_from(rest).expect("the value should fit")).expect("poll");
}

/// The operation of each phase of an attempt to connect.
const ADDRESS: &str = "resolve the address";
const ROUTE: &str = "resolve the route";
pub(crate) const ANSWER: &str = "connect";

/// Returns an attempt to connect to `listener` that is in `phase`.
pub(crate) fn waiting_for(connector: &Connector, listener: &Listener, phase: &str) -> Connecting {
    let server = listener.local_addr().expect("an IP address");
    for _ in 0..100 {
        let mut connecting = connector.start_connect(server).expect("start");
        if phase == ADDRESS {
            return connecting;
        }
        loop {
            sleep(&connecting, connecting.deadline());
            let later = connecting.try_wait().expect_err("no answer should have come");
            assert_eq!(*later.kind(), ErrorKind::WouldBlock, "{later}");
            if later.operation() == phase {
                return connecting;
            }
            if later.operation() == ANSWER {
                break;
            }
        }
        // The phase was over before the check.
        give_up(connecting, listener);
    }
    panic!("the attempt should {phase}")
}

/// Drops a connection attempt whose request no thread has read.
fn give_up(connecting: Connecting, listener: &Listener) {
    thread::scope(|scope| {
        // siw waits until the peer has answered.
        scope.spawn(|| drop(connecting));
        drop(listener.accept_timeout(LONG).expect("a request"));
    });
}

/// Waits for the result of an attempt.
pub(crate) fn finish(mut connecting: Connecting) -> Result<Connection, Error> {
    loop {
        match connecting.try_wait() {
            Err(error) if *error.kind() == ErrorKind::WouldBlock => {
                sleep(&connecting, connecting.deadline());
            }
            finished => return finished,
        }
    }
}

/// Connects many peers to this process in one thread, all at the same time.
fn many_attempts_run_concurrently(address: SocketAddr) {
    const CLIENTS: usize = 20;
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
    let add = |fd: &dyn AsFd, data: usize| {
        let data = u64::try_from(data).expect("the value should fit");
        epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, data)).expect("add");
    };
    let wait = || {
        let mut events = [EpollEvent::empty(); 8];
        let long = EpollTimeout::try_from(LONG).expect("the value should fit");
        let count = epoll.wait(&mut events, long).expect("wait");
        assert!(count > 0, "descriptor should become readable");
        events
            .into_iter()
            .take(count)
            .map(|event| usize::try_from(event.data()).expect("the value should fit"))
    };
    const LISTENER: usize = usize::MAX >> 1;
    add(&listener, LISTENER);
    let mut sides = Vec::new();
    for number in 0..CLIENTS {
        let private_data = [u8::try_from(number).expect("the number should fit")];
        let connector = Connector::new().private_data(&private_data).total_timeout(LONG);
        let connecting = connector.start_connect(server).expect("start");
        add(&connecting, number);
        sides.push(Side::Connecting(connecting));
    }
    // `accepted` has the index of each client's peer.
    let mut accepted = [0; CLIENTS];
    while sides.len() < 2 * CLIENTS || sides.iter().any(|side| matches!(side, Side::Connecting(_)))
    {
        for which in wait() {
            if which == LISTENER {
                while let Some(incoming) = now(listener.try_accept()) {
                    let number = usize::from(incoming.private_data()[0]);
                    let connecting =
                        incoming.start_accept(&ConnectionConfig::default(), b"yes", LONG);
                    let connecting = connecting.expect("start");
                    accepted[number] = sides.len();
                    add(&connecting, sides.len());
                    sides.push(Side::Connecting(connecting));
                }
            } else if let Side::Connecting(connecting) = &mut sides[which] {
                let fd = connecting.as_fd().as_raw_fd();
                if let Some(connection) = now(connecting.try_wait()) {
                    assert_eq!(
                        connection.as_fd().as_raw_fd(),
                        fd,
                        "the descriptor should stay the same"
                    );
                    assert_eq!(connecting.deadline(), None);
                    let over =
                        connecting.try_wait().expect_err("the connection should be returned once");
                    assert_invalid(&over, &["has already ended"]);
                    sides[which] = Side::Established(connection);
                }
            }
        }
    }
    let connections: Vec<_> = sides
        .into_iter()
        .map(|side| match side {
            Side::Established(connection) => connection,
            Side::Connecting(connecting) => panic!("{connecting:?}"),
        })
        .collect();
    for (number, other) in accepted.into_iter().enumerate() {
        let [client, server] = [&connections[number], &connections[other]];
        assert!(client.private_data().starts_with(b"yes"));
        assert_eq!(client.local_addr(), server.peer_addr());
        client.post_send(filled(client, b"hello")).expect("post");
        while !wait().any(|which| which == other) {}
        receives(server, b"hello");
    }
    drop((connections, listener));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_many_attempts_run_concurrently() {
    many_attempts_run_concurrently(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_many_attempts_run_concurrently() {
    many_attempts_run_concurrently(siw(0));
}

/// Checks that a dropped attempt leaves no object in any phase, and the peer is notified.
fn attempt_may_be_dropped_in_every_phase(address: SocketAddr) {
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let connector = Connector::new().total_timeout(LONG);
    let objects = objects_at(address);
    for phase in [ADDRESS, ROUTE] {
        drop(waiting_for(&connector, &listener, phase));
        assert_eq!(objects_at(address), objects, "{phase}");
    }
    give_up(waiting_for(&connector, &listener, ANSWER), &listener);
    assert_eq!(objects_at(address), objects);
    // One side leaves before it gets the event that the connection is established.
    for accepter_goes in [true, false] {
        let connecting = waiting_for(&connector, &listener, ANSWER);
        let incoming = listener.accept_timeout(LONG).expect("a request");
        let accepting =
            incoming.start_accept(&ConnectionConfig::default(), &[], LONG).expect("accept");
        let stays = if accepter_goes { [accepting, connecting] } else { [connecting, accepting] };
        let [goes, stays] = stays;
        drop(goes);
        // The other side may have established the connection before.
        if let Ok(connection) = finish(stays) {
            assert!(
                connection.recv_timeout(LONG).expect("receive").is_none(),
                "the connection should have ended"
            );
        }
    }
    drop(listener);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_attempt_may_be_dropped_in_every_phase() {
    attempt_may_be_dropped_in_every_phase(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_attempt_may_be_dropped_in_every_phase() {
    attempt_may_be_dropped_in_every_phase(siw(0));
}

/// Checks that each phase of an attempt ends at its own deadline, or at the total deadline.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn every_phase_ends_at_deadline() {
    let before = objects_at(roce(0));
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let unused = SocketAddr::from(([10, 0, 0, 99], 7471));
    let short = Duration::from_millis(20);
    let times_out = |connecting: Connecting, operation: &str| {
        assert!(connecting.deadline().is_some());
        let error = finish(connecting).expect_err("no peer should answer");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(error.operation(), operation, "{error}");
    };
    for connector in
        [Connector::new().resolve_addr_timeout(short), Connector::new().total_timeout(short)]
    {
        let connector = connector.local_addr(roce(0));
        times_out(connector.start_connect(unused).expect("start"), ADDRESS);
    }
    // The kernel finds the route at once, but a timeout of zero can be shorter.
    let connector = Connector::new().resolve_route_timeout(Duration::ZERO).response_timeout(short);
    let late = (0..100).find_map(|_| {
        let connecting = connector.start_connect(server).expect("start");
        let error = finish(connecting).expect_err("no peer should answer");
        let is_late = error.operation() == ROUTE;
        if !is_late {
            drop(listener.accept_timeout(LONG).expect("its request"));
        }
        is_late.then_some(error)
    });
    assert_eq!(*late.expect("the attempt should time out").kind(), ErrorKind::TimedOut);
    // After the total timeout, the attempt does not continue, whatever events have arrived.
    let mut late = Connector::new().total_timeout(short).start_connect(server).expect("start");
    sleep(&late, None);
    while late.deadline().is_some_and(|deadline| Instant::now() < deadline) {
        thread::sleep(short);
    }
    let error = late.try_wait().expect_err("the deadline should have passed");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(error.operation(), ANSWER, "{error}");
    assert_eq!(error.hint(), Some("raise `total_timeout`"), "{error}");
    let connector = Connector::new().response_timeout(short);
    times_out(connector.start_connect(server).expect("start"), ANSWER);
    drop(listener.accept_timeout(LONG).expect("its request"));
    // The accepting side waits for a peer that does not continue.
    let connecting = waiting_for(&Connector::new(), &listener, ANSWER);
    let incoming = listener.accept_timeout(LONG).expect("a request");
    times_out(
        incoming.start_accept(&ConnectionConfig::default(), &[], short).expect("start"),
        "accept",
    );
    drop((connecting, listener));
    assert_eq!(objects_at(roce(0)), before);
}

/// Checks that the earlier of the deadline of a phase and the total deadline applies.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn earlier_deadline_applies() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let connector = Connector::new()
        .resolve_addr_timeout(minutes(10))
        .resolve_route_timeout(minutes(20))
        .response_timeout(minutes(60))
        .total_timeout(minutes(40));
    for (phase, least, most) in [(ADDRESS, 9, 10), (ROUTE, 19, 20), (ANSWER, 39, 40)] {
        let connecting = waiting_for(&connector, &listener, phase);
        let deadline = connecting.deadline().expect("the attempt should have a deadline");
        let now = Instant::now();
        assert!(deadline > now + minutes(least) && deadline <= now + minutes(most), "{phase}");
    }
}

/// Returns the error of an attempt to connect to `address` whose request `answer` has handled.
fn answered(address: SocketAddr, answer: impl FnOnce(Incoming)) -> Error {
    let listener = Listener::bind(address).expect("listen");
    let connecting = waiting_for(&Connector::new(), &listener, ANSWER);
    answer(listener.accept_timeout(LONG).expect("a request"));
    finish(connecting).expect_err("the attempt should fail")
}

/// Checks attempts whose peer rejects the request, drops the request, or drops its listener.
fn attempt_fails_when_peer_leaves(address: SocketAddr) {
    let before = objects_at(address);
    let reason = RejectReason::CONSUMER_DEFINED;
    let error = answered(address, |incoming| incoming.reject(reason, b"no more").expect("reject"));
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
    assert!(rejection.private_data.starts_with(b"no more"), "{rejection:?}");
    let error = answered(address, drop);
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");

    // The listener is dropped before its address and route are resolved, and while its request is unread.
    for phase in [ADDRESS, ROUTE, ANSWER] {
        let listener = Listener::bind(address).expect("listen");
        let connecting = waiting_for(&Connector::new(), &listener, phase);
        if phase == ANSWER {
            sleep(&listener, None);
        }
        drop(listener);
        let error = finish(connecting).expect_err("no program should listen");
        let is_refused = error.errno() == libc::ECONNREFUSED;
        assert!(is_refused || matches!(error.kind(), ErrorKind::Rejected(_)), "{phase}: {error}");
    }
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_attempt_fails_when_peer_leaves() {
    attempt_fails_when_peer_leaves(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_attempt_fails_when_peer_leaves() {
    attempt_fails_when_peer_leaves(siw(0));
}
