//! Poll groups: each member ends once, with the reason that a connection would give.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;
use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType, RejectReason};
use rdmacm::endpoint::poll_group::{Event, MemberEnd};
use rdmacm::endpoint::{ConnectionConfig, Connector, Listener, PollGroup};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm_tests::wait_until;

use crate::endpoint_connect::objects_at;
use crate::endpoint_nonblocking::is_readable;
use crate::endpoint_poll_group::{Group, receives_bytes, small};
use crate::fixtures::{
    LONG, Side, ask, assert_invalid, channel, device, listen, request, roce, siw,
};
use crate::io::Shape;
use crate::modify::bring;
use crate::removal::Own;

fn close_flushes_pending_sends(address: SocketAddr) {
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    client.post_bytes(b"first").expect("post");
    assert_eq!(*group.message(member), *b"first");
    (0..8_u8).for_each(|number| group.group.post_bytes(member, &[number]).expect("post"));
    group.group.close(member).expect("close");
    let error = group.group.post_bytes(member, b"late").expect_err("the member should be closed");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            (0..8_u8).for_each(|number| receives_bytes(&client, &[number]));
            assert!(client.recv_timeout(LONG).expect("receive").is_none());
            client.close(LONG).expect("close");
        });
        assert!(matches!(group.end(member), MemberEnd::Local));
        peer.join().expect("peer should not panic");
    });
    let error = group.group.close(member).expect_err("the member should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    group.expect_quiet();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_close_flushes_pending_sends() {
    close_flushes_pending_sends(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_close_flushes_pending_sends() {
    close_flushes_pending_sends(siw(0));
}

/// Checks that the last messages of a peer precede its end.
fn messages_precede_end(address: SocketAddr) {
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    for round in 0..20_u8 {
        let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
        (0..4_u8).for_each(|number| client.post_bytes(&[round, number]).expect("post"));
        thread::scope(|scope| {
            let closes = scope.spawn(|| client.close(LONG).expect("close"));
            for number in 0..4 {
                assert_eq!(*group.message(member), [round, number]);
            }
            let end = group.end(member);
            assert!(matches!(end, MemberEnd::Peer), "{end:?}");
            assert_eq!(end.to_string(), "the peer has ended the connection");
            closes.join().expect("client should not panic");
        });
    }
    group.expect_quiet();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_precede_end() {
    messages_precede_end(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_precede_end() {
    messages_precede_end(siw(0));
}

/// Checks that the buffers of aborted members return, even if the group has not polled their messages.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_completions_are_posted_again() {
    let before = objects_at(roce(0));
    let mut group = Group::new(roce(0), &small());
    let listener = Listener::bind(roce(0)).expect("listen");
    for _ in 0..20 {
        let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
        (0..8_u8).for_each(|number| client.post_bytes(&[number]).expect("post"));
        // Acknowledged messages have completed in the group.
        client.flush_timeout(LONG).expect("flush");
        group.group.post_bytes(member, b"under way").expect("post");
        group.group.abort(member).expect("abort");
        assert!(matches!(group.end(member), MemberEnd::Local));
    }
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    for number in 0..40_u8 {
        client.post_bytes(&[number]).expect("post");
        assert_eq!(*group.message(member), [number]);
    }
    drop((group, client, listener));
    assert_eq!(objects_at(roce(0)), before);
}

/// Checks that a member that holds too many buffers ends, and the others continue.
fn member_holding_all_buffers_ends(address: SocketAddr) {
    let config = small().max_held(3);
    let mut group = Group::new(address, &config);
    let listener = Listener::bind(address).expect("listen");
    let config = ConnectionConfig::default();
    let (greedy, hoarder) = group.accepts(&listener, &config);
    let (modest, other) = group.accepts(&listener, &config);
    (0..3_u8).for_each(|number| greedy.post_bytes(&[number]).expect("post"));
    let held: Vec<_> = (0..3).map(|_| group.message(hoarder)).collect();
    modest.post_bytes(b"one").expect("post");
    assert_eq!(*group.message(other), *b"one");
    greedy.post_bytes(b"too many").expect("post");
    assert_eq!(group.failure(hoarder), ErrorKind::ReceiveOverrun);
    assert!(held.iter().zip(0..).all(|(message, number)| **message == [number]));
    for number in 0..20_u8 {
        modest.post_bytes(&[number]).expect("post");
        assert_eq!(*group.message(other), [number]);
    }
    drop(held);
    // A dropped message makes room for another one.
    let (patient, member) = group.accepts(&listener, &config);
    for number in 0..10_u8 {
        patient.post_bytes(&[number]).expect("post");
        assert_eq!(*group.message(member), [number]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_member_holding_all_buffers_ends() {
    member_holding_all_buffers_ends(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_member_holding_all_buffers_ends() {
    member_holding_all_buffers_ends(siw(0));
}

/// Checks that an iWARP message without a buffer ends its connection, and that the group reports this.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_starved_member_ends_with_overrun() {
    // With the reserve, the group has 10 buffers.
    let config = small().receive_buffers(8);
    let mut group = Group::new(siw(0), &config);
    let listener = Listener::bind(siw(0)).expect("listen");
    let config = ConnectionConfig::default();
    let (client, member) = group.accepts(&listener, &config);
    (0..10_u8).for_each(|number| client.post_bytes(&[number]).expect("post"));
    let held: Vec<_> = (0..10).map(|_| group.message(member)).collect();
    client.post_bytes(b"one too many").expect("post");
    assert_eq!(group.failure(member), ErrorKind::ReceiveOverrun);
    drop(held);
    let (client, member) = group.accepts(&listener, &config);
    client.post_bytes(b"next").expect("post");
    assert_eq!(*group.message(member), *b"next");
    group.expect_closed_by(&client, member);
}

/// Checks that on RoCE a message without a buffer waits at the peer, and arrives when a buffer is free.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_message_waits_for_buffer() {
    let config = small().receive_buffers(2);
    let mut group = Group::new(roce(0), &config);
    let listener = Listener::bind(roce(0)).expect("listen");
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    for _ in 0..5 {
        (0..4_u8).for_each(|number| client.post_bytes(&[number]).expect("post"));
        let held: Vec<_> = (0..2).map(|_| group.message(member)).collect();
        group.expect_quiet();
        drop(held);
        for number in 2..4 {
            assert_eq!(*group.message(member), [number]);
        }
    }
}

/// Attempts fail with the errors of a single connection.
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
    let alike = connector.connect(silent).expect_err("no listener should be at the address");
    assert_eq!(group.failure(member), *alike.kind());

    let rejected = thread::scope(|scope| {
        let member = group.group.connect(&connector, server).expect("connect");
        scope.spawn(|| {
            let incoming = listener.accept_timeout(LONG).expect("a request");
            incoming.reject(RejectReason::CONSUMER_DEFINED, b"no").expect("reject");
        });
        group.failure(member)
    });
    match rejected {
        ErrorKind::Rejected(rejection) => assert!(rejection.private_data.starts_with(b"no")),
        other => panic!("{other:?}"),
    }

    // The group gave up the last member before the peer answered.
    let member = group.group.connect(&connector, server).expect("connect");
    group.group.abort(member).expect("abort");
    assert!(matches!(group.end(member), MemberEnd::Local));
    group.expect_quiet();
    drop((group, listener));
    assert_eq!(objects_at(address), before);
}

fn refused_answer_leaves_group_unchanged(address: SocketAddr) {
    let before = objects_at(address);
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(move || Connector::new().total_timeout(LONG).connect(server));
        let incoming = listener.accept_timeout(LONG).expect("a request");
        let added = group.group.add(incoming, &[0; 300], LONG);
        assert_invalid(&added.expect_err("the answer should be too long"), &["private data"]);
        let connected = client.join().expect("client should not panic");
        let error = connected.expect_err("the request should be rejected");
        assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
    });
    assert!(group.group.is_empty());
    group.expect_quiet();
    drop((group, listener));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_refused_answer_leaves_group_unchanged() {
    refused_answer_leaves_group_unchanged(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_refused_answer_leaves_group_unchanged() {
    refused_answer_leaves_group_unchanged(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_attempts_fail_as_connections_do() {
    attempts_fail_as_connections_do(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_attempts_fail_as_connections_do() {
    attempts_fail_as_connections_do(siw(0));
}

/// Checks that a deadline applies if a listener accepts no request.
///
/// The deadline is that of the phase or of the whole attempt.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unanswered_attempt_times_out() {
    let mut group = Group::new(roce(0), &small());
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let short = Duration::from_millis(200);
    for connector in
        [Connector::new().response_timeout(short), Connector::new().total_timeout(short)]
    {
        let member = group.group.connect(&connector, server).expect("connect");
        assert_eq!(group.failure(member), ErrorKind::TimedOut);
    }
    // After the total timeout, the attempt does not continue, although its event has arrived.
    let total = Connector::new().total_timeout(short);
    let member = group.group.connect(&total, server).expect("connect");
    let is_over = Instant::now() + short;
    wait_until("the address is resolved", || is_readable(&group.group, PollTimeout::ZERO));
    thread::sleep(is_over.saturating_duration_since(Instant::now()));
    match group.end(member) {
        MemberEnd::Failed(error) => {
            assert_eq!(error.operation(), "connect", "{error}");
            assert_eq!(error.hint(), Some("raise `total_timeout`"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // The request of an ended attempt is still pending. Accepting it fails.
    let incoming = listener.accept_timeout(LONG).expect("a request should be pending");
    let subject = format!("the request of {}", incoming.peer_addr().expect("an IP address"));
    let error = match group.group.add(incoming, &[], LONG) {
        Ok(member) => group.error(member),
        Err(error) => error,
    };
    assert_eq!((error.operation(), error.subject()), ("accept", &*subject), "{error}");
    // This peer is accepted, and does not continue.
    let other = Listener::bind(roce(0)).expect("listen");
    let low = channel();
    let _client = ask(&low, other.local_addr().expect("an IP address"), &ConnParam::default());
    let incoming = other.accept_timeout(LONG).expect("a request");
    let subject = format!("the request of {}", incoming.peer_addr().expect("an IP address"));
    let member = group.group.add(incoming, &[], short).expect("add");
    let error = group.error(member);
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!((error.operation(), error.subject()), ("accept", &*subject), "{error}");
    // The group still works.
    let listener = Listener::bind(roce(0)).expect("listen");
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    client.post_bytes(b"hello").expect("post");
    assert_eq!(*group.message(member), *b"hello");
}

/// Checks that a message to a peer whose queue pair has failed fails after all retries.
///
/// No event reports the failure of the queue pair. The flush of the other messages is not reported as the cause.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn silent_peer_ends_member_with_its_status() {
    let config = small().retry_count(2);
    let kept_alive = Duration::from_millis(100);
    for keep_alive_interval in [None, Some(kept_alive)] {
        let config = config.clone().keep_alive_interval(keep_alive_interval);
        let mut group = Group::new(roce(0), &config);
        let channel = channel();
        let (_listener, server) = listen(&channel, roce(0));
        let connector = Connector::new().ack_timeout(8);
        let member = group.group.connect(&connector, server).expect("connect");
        let peer = thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let peer = Side::new(request(&channel), Shape::default());
                peer.id.accept(&ConnParam::default()).expect("accept");
                channel
                    .expect_event(EventType::Established)
                    .expect("the connection should be established");
                peer
            });
            group.expect_established(member);
            peer.join().expect("peer should not panic")
        });
        bring(peer.io.qp(), QpState::IB_QPS_RESET);
        if keep_alive_interval.is_none() {
            (0..3_u8).for_each(|number| group.group.post_bytes(member, &[number]).expect("post"));
        }
        let failed = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RETRY_EXC_ERR);
        assert_eq!(group.failure(member), failed);
        group.expect_quiet();
    }
}

/// Checks that a message longer than the buffer of the group ends the member only.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn oversized_message_ends_member() {
    let config = small().receive_buffers(2).receive_buffer_size(64);
    let mut group = Group::new(roce(0), &config);
    let listener = Listener::bind(roce(0)).expect("listen");
    for _ in 0..4 {
        let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
        client.post_bytes(&[7; 100]).expect("post");
        let failed = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_LOC_LEN_ERR);
        assert_eq!(group.failure(member), failed);
    }
}

/// Checks that a group without room refuses a member, rejects its peer, and continues.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_full_group_refuses_member() {
    // With the completions of an ended member, the queue has 1024, a power of two to which siw rounds up.
    let config = small().send_buffers(1022).send_buffers_per_member(1).initial_members(0);
    let mut group = Group::new(siw(0), &config);
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let error =
        group.group.connect(&Connector::new(), server).expect_err("the group should have no room");
    assert_invalid(&error, &["completion queue", "1 members"]);
    let alike = thread::scope(|scope| {
        let client = scope.spawn(|| Connector::new().total_timeout(LONG).connect(server).map(drop));
        let incoming = listener.accept_timeout(LONG).expect("a request");
        let error =
            group.group.add(incoming, &[], LONG).expect_err("the group should have no room");
        assert_invalid(&error, &["completion queue", "1 members"]);
        client.join().expect("client should not panic")
    });
    assert_eq!(alike.expect_err("the request should be rejected").errno(), libc::ECONNREFUSED);
    assert!(group.group.is_empty());
}

/// Checks that on rxe the group resizes its completion queue for further members.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_group_grows() {
    let config = small().send_buffers(1).initial_members(0);
    let mut group = Group::new(roce(0), &config);
    let listener = Listener::bind(roce(0)).expect("listen");
    let members: Vec<_> =
        (0..12).map(|_| group.accepts(&listener, &ConnectionConfig::default())).collect();
    for (client, member) in &members {
        group.group.post_bytes(*member, b"hello").expect("post");
        receives_bytes(client, b"hello");
        group.group.flush(*member).expect("flush");
        let sent = group.next();
        assert!(matches!(sent, Event::Sent(_)), "{sent:?}");
    }
}

/// Checks that a request over another device is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_member_of_another_device_is_refused() {
    let mut group = Group::new(roce(0), &small());
    let listener = Listener::bind(siw(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        scope.spawn(|| {
            Connector::new()
                .total_timeout(LONG)
                .connect(server)
                .expect_err("the request should be rejected")
        });
        let incoming = listener.accept_timeout(LONG).expect("a request");
        assert_eq!(incoming.device().expect("a device").name(), "siw0");
        let error = group
            .group
            .add(incoming, &[], LONG)
            .expect_err("a member of another device should be refused");
        assert_invalid(&error, &["over siw0", "over rxe0"]);
    });
    let member = group.group.connect(&Connector::new(), server).expect("connect");
    match group.end(member) {
        MemberEnd::Failed(error) => assert_invalid(&error, &["over siw0", "over rxe0"]),
        other => panic!("{other:?}"),
    }
}

/// Checks that removal of the device ends all members, on both sides of each connection.
///
/// Both sides are in one group, so that the first event in its channel is the removal. A peer with another channel may
/// disconnect a member before the kernel reports the removal to that member.
fn removal_ends_all_members(own: &Own) {
    let group = PollGroup::new(&device(own.name), &small());
    let mut group = Group { group: group.expect("poll group"), events: Default::default() };
    let listener = Listener::bind(own.address).expect("listen");
    let (client, one) = group.connects_to_itself(&listener);
    let (other, two) = group.connects_to_itself(&listener);
    group.group.post_bytes(client, b"kept").expect("post");
    let message = group.message(one);
    let deletion = own.delete();
    for _ in [one, two, client, other] {
        match group.next() {
            Event::Ended(_, MemberEnd::Failed(error)) => {
                assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
            }
            event => panic!("{event:?}"),
        }
    }
    assert!(group.group.is_empty());
    let error =
        group.group.wait(&mut Vec::new(), None).expect_err("the device should have been removed");
    assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
    let error = group.group.poll(&mut Vec::new()).expect_err("the device should have been removed");
    assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
    assert_eq!(*message, *b"kept");
    drop((listener, group, message));
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_removal_ends_all_members() {
    removal_ends_all_members(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_removal_ends_all_members() {
    removal_ends_all_members(&Own::siw());
}

/// Checks that a removal, which the kernel reports to ids alone, waits for the contexts.
fn removal_waits_for_group_without_members(own: &Own) {
    let mut group = PollGroup::new(&device(own.name), &small()).expect("poll group");
    let deletion = own.delete();
    let count = group.wait(&mut Vec::new(), Some(Duration::from_millis(200))).expect("wait");
    assert_eq!(count, 0);
    assert!(deletion.waits());
    drop(group);
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_removal_waits_for_group_without_members() {
    removal_waits_for_group_without_members(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_removal_waits_for_group_without_members() {
    removal_waits_for_group_without_members(&Own::siw());
}
