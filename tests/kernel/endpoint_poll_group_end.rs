//! Poll groups: each member ends once, with the reason that a connection would give.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType, RejectReason};
use rdmacm::endpoint::poll_group::{End, Event, PollGroupConfig};
use rdmacm::endpoint::{Connector, Listener, PollGroup, Settings};
use rdmacm::verbs::{QpState, WcStatus};

use crate::bed::{LONG, Side, ask, assert_invalid, channel, device, listen, request, rxe, siw};
use crate::endpoint_connect::objects_at;
use crate::endpoint_poll_group::{Group, hears, small};
use crate::io::Shape;
use crate::modify::bring;
use crate::removal::Own;

fn close_flushes(address: SocketAddr) {
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    let (client, member) = group.accepts(&listener, &Settings::default());
    client.post_bytes(b"first").expect("post");
    assert_eq!(*group.message(member), *b"first");
    (0..8_u8).for_each(|number| group.group.post_bytes(member, &[number]).expect("post"));
    group.group.close(member).expect("close");
    let error = group.group.post_bytes(member, b"late").expect_err("the member is closed");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            (0..8_u8).for_each(|number| hears(&client, &[number]));
            assert!(client.recv_timeout(LONG).expect("receive").is_none());
            client.close(LONG).expect("close");
        });
        assert!(matches!(group.end(member), End::Local));
        peer.join().expect("all messages arrive");
    });
    let error = group.group.close(member).expect_err("the member has ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    group.is_quiet();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_close_flushes() {
    close_flushes(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_close_flushes() {
    close_flushes(siw(0));
}

/// The last messages of a peer come before its end.
fn messages_come_before_end(address: SocketAddr) {
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    for round in 0..20_u8 {
        let (client, member) = group.accepts(&listener, &Settings::default());
        (0..4_u8).for_each(|number| client.post_bytes(&[round, number]).expect("post"));
        thread::scope(|scope| {
            let closes = scope.spawn(|| client.close(LONG).expect("close"));
            for number in 0..4 {
                assert_eq!(*group.message(member), [round, number]);
            }
            assert!(matches!(group.end(member), End::Peer));
            closes.join().expect("the client lives");
        });
    }
    group.is_quiet();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_come_before_end() {
    messages_come_before_end(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_come_before_end() {
    messages_come_before_end(siw(0));
}

/// Members that are aborted with messages that the group has not polled leave their buffers to the next ones.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_completions_are_posted_again() {
    let before = objects_at(rxe(0));
    let mut group = Group::new(rxe(0), &small());
    let listener = Listener::bind(rxe(0)).expect("listen");
    for _ in 0..20 {
        let (client, member) = group.accepts(&listener, &Settings::default());
        (0..8_u8).for_each(|number| client.post_bytes(&[number]).expect("post"));
        // What was acknowledged has completed at the group.
        client.flush_timeout(LONG).expect("flush");
        group.group.post_bytes(member, b"under way").expect("post");
        group.group.abort(member).expect("abort");
        assert!(matches!(group.end(member), End::Local));
    }
    let (client, member) = group.accepts(&listener, &Settings::default());
    for number in 0..40_u8 {
        client.post_bytes(&[number]).expect("post");
        assert_eq!(*group.message(member), [number]);
    }
    drop((group, client, listener));
    assert_eq!(objects_at(rxe(0)), before);
}

/// The member that takes too many buffers ends, and the others go on.
fn hoarder_ends(address: SocketAddr) {
    let config = PollGroupConfig { max_held: 3, ..small() };
    let mut group = Group::new(address, &config);
    let listener = Listener::bind(address).expect("listen");
    let settings = Settings::default();
    let (greedy, hoarder) = group.accepts(&listener, &settings);
    let (modest, other) = group.accepts(&listener, &settings);
    (0..3_u8).for_each(|number| greedy.post_bytes(&[number]).expect("post"));
    let held: Vec<_> = (0..3).map(|_| group.message(hoarder)).collect();
    modest.post_bytes(b"one").expect("post");
    assert_eq!(*group.message(other), *b"one");
    greedy.post_bytes(b"too many").expect("post");
    assert_eq!(group.failure(hoarder), ErrorKind::Overrun);
    assert!(held.iter().zip(0..).all(|(message, number)| **message == [number]));
    for number in 0..20_u8 {
        modest.post_bytes(&[number]).expect("post");
        assert_eq!(*group.message(other), [number]);
    }
    drop(held);
    // A message that is dropped makes room for another one.
    let (patient, member) = group.accepts(&listener, &settings);
    for number in 0..10_u8 {
        patient.post_bytes(&[number]).expect("post");
        assert_eq!(*group.message(member), [number]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_hoarder_ends() {
    hoarder_ends(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_hoarder_ends() {
    hoarder_ends(siw(0));
}

/// A message that finds no buffer ends its connection on iWARP, and the group reports that.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_starved_member_ends_with_overrun() {
    // With the reserve there are 10.
    let config = PollGroupConfig { receives: 8, ..small() };
    let mut group = Group::new(siw(0), &config);
    let listener = Listener::bind(siw(0)).expect("listen");
    let settings = Settings::default();
    let (client, member) = group.accepts(&listener, &settings);
    (0..10_u8).for_each(|number| client.post_bytes(&[number]).expect("post"));
    let held: Vec<_> = (0..10).map(|_| group.message(member)).collect();
    client.post_bytes(b"one too many").expect("post");
    assert_eq!(group.failure(member), ErrorKind::Overrun);
    drop(held);
    let (client, member) = group.accepts(&listener, &settings);
    client.post_bytes(b"next").expect("post");
    assert_eq!(*group.message(member), *b"next");
    group.is_closed_by(&client, member);
}

/// On RoCE such a message waits at the peer, and arrives when there is a buffer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_message_waits_for_buffer() {
    let config = PollGroupConfig { receives: 2, ..small() };
    let mut group = Group::new(rxe(0), &config);
    let listener = Listener::bind(rxe(0)).expect("listen");
    let (client, member) = group.accepts(&listener, &Settings::default());
    for _ in 0..5 {
        (0..4_u8).for_each(|number| client.post_bytes(&[number]).expect("post"));
        let held: Vec<_> = (0..2).map(|_| group.message(member)).collect();
        group.is_quiet();
        drop(held);
        for number in 2..4 {
            assert_eq!(*group.message(member), [number]);
        }
    }
}

/// Attempts fail as those of a connection do.
fn attempts_fail_as_connections_do(address: SocketAddr) {
    let before = objects_at(address);
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let nothing = Listener::bind(address).expect("listen");
    let silent = nothing.local_addr().expect("an IP address");
    drop(nothing);
    let connector = Connector::new();

    let member = group.group.connect(&connector, silent).expect("connect");
    let alike = connector.connect(silent).expect_err("no listener");
    assert_eq!(group.failure(member), *alike.kind());

    let rejected = thread::scope(|scope| {
        let member = group.group.connect(&connector, server).expect("connect");
        scope.spawn(|| {
            let incoming = listener.incoming_timeout(LONG).expect("a request");
            incoming.reject(RejectReason::CONSUMER_DEFINED, b"no").expect("reject");
        });
        group.failure(member)
    });
    match rejected {
        ErrorKind::Rejected(rejection) => assert!(rejection.private_data.starts_with(b"no")),
        other => panic!("{other:?}"),
    }

    // The last member was given up before its peer has answered.
    let member = group.group.connect(&connector, server).expect("connect");
    group.group.abort(member).expect("abort");
    assert!(matches!(group.end(member), End::Local));
    group.is_quiet();
    drop((group, listener));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_attempts_fail_as_connections_do() {
    attempts_fail_as_connections_do(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_attempts_fail_as_connections_do() {
    attempts_fail_as_connections_do(siw(0));
}

/// A listener that accepts nothing: the deadline of the phase, and that of the whole attempt.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unanswered_attempt_times_out() {
    let mut group = Group::new(rxe(0), &small());
    let listener = Listener::bind(rxe(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let short = Duration::from_millis(200);
    for connector in [Connector::new().connect_timeout(short), Connector::new().timeout(short)] {
        let member = group.group.connect(&connector, server).expect("connect");
        assert_eq!(group.failure(member), ErrorKind::TimedOut);
    }
    // A peer that is accepted and does not go on.
    let other = Listener::bind(rxe(0)).expect("listen");
    let low = channel();
    let _client = ask(&low, other.local_addr().expect("an IP address"), &ConnParam::default());
    let incoming = other.incoming_timeout(LONG).expect("a request");
    let member = group.group.add(incoming, &[], short).expect("add");
    assert_eq!(group.failure(member), ErrorKind::TimedOut);
    // The group goes on.
    let listener = Listener::bind(rxe(0)).expect("listen");
    let (client, member) = group.accepts(&listener, &Settings::default());
    client.post_bytes(b"hello").expect("post");
    assert_eq!(*group.message(member), *b"hello");
}

/// A peer whose queue pair is dead, of which no event tells: a message to it fails when the retries are used up. A flush
/// of the others is no reason.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn silent_peer_ends_member_with_its_status() {
    let config = PollGroupConfig { retry_count: 2, ..small() };
    let kept_alive = Duration::from_millis(100);
    for keep_alive_interval in [None, Some(kept_alive)] {
        let config = PollGroupConfig { keep_alive_interval, ..config.clone() };
        let mut group = Group::new(rxe(0), &config);
        let channel = channel();
        let (_listener, server) = listen(&channel, rxe(0));
        let connector = Connector::new().ack_timeout(8);
        let member = group.group.connect(&connector, server).expect("connect");
        let peer = thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let peer = Side::new(request(&channel), Shape::default());
                peer.id.accept(&ConnParam::default()).expect("accept");
                channel.expect_event(EventType::Established).expect("connected");
                peer
            });
            group.is_established(member);
            peer.join().expect("the peer lives")
        });
        bring(peer.io.qp(), QpState::IB_QPS_RESET);
        if keep_alive_interval.is_none() {
            (0..3_u8).for_each(|number| group.group.post_bytes(member, &[number]).expect("post"));
        }
        let failed = ErrorKind::Failed(WcStatus::IB_WC_RETRY_EXC_ERR);
        assert_eq!(group.failure(member), failed);
        group.is_quiet();
    }
}

/// A message that is longer than the buffer of the group ends the member, and leaves the buffer to others.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn oversized_message_ends_member() {
    let config = PollGroupConfig { receives: 2, receive_buffer_size: 64, ..small() };
    let mut group = Group::new(rxe(0), &config);
    let listener = Listener::bind(rxe(0)).expect("listen");
    for _ in 0..4 {
        let (client, member) = group.accepts(&listener, &Settings::default());
        client.post_bytes(&[7; 100]).expect("post");
        let failed = ErrorKind::Failed(WcStatus::IB_WC_LOC_LEN_ERR);
        assert_eq!(group.failure(member), failed);
    }
}

/// A group that has no room refuses a member, rejects its peer, and goes on.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_full_group_refuses_member() {
    let config = PollGroupConfig { sends: 1024, members: 0, ..small() };
    let mut group = Group::new(siw(0), &config);
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let error = group.group.connect(&Connector::new(), server).expect_err("there is no room");
    assert_invalid(&error, &["completion queue", "1 members"]);
    let alike = thread::scope(|scope| {
        let client = scope.spawn(|| Connector::new().timeout(LONG).connect(server).map(drop));
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        let error = group.group.add(incoming, &[], LONG).expect_err("there is no room");
        assert_invalid(&error, &["completion queue", "1 members"]);
        client.join().expect("the client lives")
    });
    assert_eq!(alike.expect_err("it is rejected").errno(), libc::ECONNREFUSED);
    assert!(group.group.is_empty());
}

/// rxe can resize the queue.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_group_grows() {
    let config = PollGroupConfig { sends: 1, members: 0, ..small() };
    let mut group = Group::new(rxe(0), &config);
    let listener = Listener::bind(rxe(0)).expect("listen");
    let members: Vec<_> = (0..12).map(|_| group.accepts(&listener, &Settings::default())).collect();
    for (client, member) in &members {
        group.group.post_bytes(*member, b"hello").expect("post");
        hears(client, b"hello");
        group.group.flush(*member).expect("flush");
        let sent = group.next();
        assert!(matches!(sent, Event::Sent(_)), "{sent:?}");
    }
}

/// A request over another device is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_member_of_another_device_is_refused() {
    let mut group = Group::new(rxe(0), &small());
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        scope.spawn(|| Connector::new().timeout(LONG).connect(server).expect_err("rejected"));
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        assert_eq!(incoming.device().expect("a device").name(), "siw0");
        let error = group.group.add(incoming, &[], LONG).expect_err("another device");
        assert_invalid(&error, &["over siw0", "over rxe0"]);
    });
    let member = group.group.connect(&Connector::new(), server).expect("connect");
    match group.end(member) {
        End::Failed(error) => assert_invalid(&error, &["over siw0", "over rxe0"]),
        other => panic!("{other:?}"),
    }
}

fn removal_ends_all(own: &Own) {
    let group = PollGroup::new(&device(own.name), &small());
    let mut group = Group { group: group.expect("poll group"), events: Default::default() };
    let listener = Listener::bind(own.address).expect("listen");
    let (client, one) = group.accepts(&listener, &Settings::default());
    let (other, two) = group.accepts(&listener, &Settings::default());
    client.post_bytes(b"kept").expect("post");
    let message = group.message(one);
    let deletion = own.delete();
    let mut ended = [group.next(), group.next()].map(|event| match event {
        Event::Ended(member, End::Failed(error)) => {
            assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
            member
        }
        // The other side uses the device too, and may have ended before.
        Event::Ended(member, End::Peer) => member,
        event => panic!("{event:?}"),
    });
    ended.sort_unstable();
    assert_eq!(ended, [one, two]);
    let error = group.group.wait(&mut Vec::new(), Some(LONG)).expect_err("the device is gone");
    assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
    let error = group.group.poll(&mut Vec::new()).expect_err("the device is gone");
    assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
    assert_eq!(*message, *b"kept");
    drop((client, other, listener, group, message));
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_removal_ends_all_members() {
    removal_ends_all(&Own::rxe());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_removal_ends_all_members() {
    removal_ends_all(&Own::siw());
}
