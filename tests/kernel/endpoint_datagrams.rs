//! The safe tier: datagrams.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::ErrorKind;
use rdmacm::cm::Membership;
use rdmacm::endpoint::{Buffer, DatagramConfig, DatagramPeer, DatagramSocket, RemoteOperation};
use rdmacm::verbs::WcStatus;
use rdmacm_tests::heap::allocations;
use rdmacm_tests::wait_until;

use crate::child::in_child;
use crate::fixtures::{
    LONG, NO_LISTENER, announce, asleep, assert_invalid, is_card, objects, roce, roce_end, roce_ip,
    roce_name, roce_v6, siw,
};
use crate::netdev::{ip, wait_until_usable};
use crate::process::forked;
use crate::removal::Own;
use crate::rng::Rng;

/// Returns a socket at `address`, on a port that the kernel selects.
pub(crate) fn socket(address: SocketAddr) -> DatagramSocket {
    DatagramSocket::bind(address, &DatagramConfig::default()).expect("bind")
}

pub(crate) fn address(socket: &DatagramSocket) -> SocketAddr {
    socket.local_addr().expect("an IP address")
}

/// Returns the result of a call that does not wait; `None` if it returned `WouldBlock`.
#[track_caller]
pub(crate) fn now<T>(result: rdmacm::Result<T>) -> Option<T> {
    match result {
        Ok(got) => Some(got),
        Err(error) if *error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// Starts to resolve the queue pair of `to` on `from`.
pub(crate) fn resolve_peer(
    from: &DatagramSocket,
    to: &DatagramSocket,
) -> RemoteOperation<DatagramPeer> {
    from.start_resolve_peer(address(to)).expect("start")
}

/// Resolves `to` on `from`, with calls of this thread on both sockets. No datagram has arrived at `to`.
pub(crate) fn found(from: &DatagramSocket, to: &DatagramSocket) -> DatagramPeer {
    let mut resolution = resolve_peer(from, to);
    loop {
        if let Some(peer) = now(resolution.try_wait()) {
            return peer;
        }
        assert!(now(to.try_recv_from()).is_none());
        becomes_readable(&[from, to]);
    }
}

pub(crate) fn is_readable(socket: &DatagramSocket) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).expect("poll") > 0
}

/// Waits until one of the sockets is readable.
#[track_caller]
pub(crate) fn becomes_readable(sockets: &[&DatagramSocket]) {
    let watched = sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
    let mut fds: Vec<_> = watched.collect();
    let long = PollTimeout::try_from(LONG).expect("the value should fit");
    assert!(poll(&mut fds, long).expect("poll") > 0, "a descriptor should become readable");
}

pub(crate) fn filled(socket: &DatagramSocket, bytes: &[u8]) -> Buffer {
    let mut buffer = socket.acquire_buffer_timeout(LONG).expect("a buffer");
    buffer.copy_from(bytes).expect("the length should fit");
    buffer
}

/// Receives a datagram, which must be `bytes`, and returns its sender.
#[track_caller]
pub(crate) fn receives(socket: &DatagramSocket, bytes: &[u8]) -> DatagramPeer {
    let (message, sender) = socket.recv_from_timeout(LONG).expect("receive");
    assert!(*message == *bytes, "{message:?} is not what was sent");
    sender
}

fn datagrams_go_both_ways(bound: SocketAddr) {
    let before = objects();
    let (client, server) = (socket(bound), socket(bound));
    assert_eq!(address(&client).ip(), bound.ip());
    assert_ne!(address(&client).port(), address(&server).port());
    let peer = found(&client, &server);
    assert_eq!(peer.qp_num(), server.qp_num());
    let gid = match bound.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    assert_eq!(peer.gid().map(Ipv6Addr::from), Some(gid));
    let all = vec![7; client.mtu()];
    for (length, imm_data) in [(1, None), (0, Some(3)), (100, Some(u32::MAX)), (all.len(), None)] {
        let text = &all[..length];
        let mut buffer = filled(&client, text);
        buffer.set_imm_data(imm_data);
        let buffer = client
            .start_send_to(buffer, &peer)
            .and_then(|send| send.wait_timeout(LONG))
            .expect("send");
        assert_eq!(
            (buffer.len(), &buffer[..length]),
            (all.len(), text),
            "the buffer should have its full capacity"
        );
        let (message, sender) = server.recv_from_timeout(LONG).expect("receive");
        assert_eq!((&*message, message.imm_data()), (text, imm_data));
        assert_eq!(sender.qp_num(), client.qp_num());
        server.post_send_to(filled(&server, text), &sender).expect("answer");
        assert_eq!(receives(&client, text), peer, "answer should come from the peer");
    }
    server.flush_timeout(LONG).expect("flush");
    // A socket can be its own peer.
    let own = client
        .start_resolve_peer(address(&client))
        .and_then(|resolution| resolution.wait_timeout(LONG))
        .expect("resolve");
    client.post_send_to(filled(&client, b"own"), &own).expect("post");
    assert_eq!(receives(&client, b"own"), own);
    drop((client, server, peer, own));
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_datagrams_go_both_ways() {
    datagrams_go_both_ways(roce(0));
    datagrams_go_both_ways(roce_v6(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_sockets_are_refused_as_on_siw() {
    fn bind(address: SocketAddr, config: &DatagramConfig) -> rdmacm::Result<DatagramSocket> {
        DatagramSocket::bind(address, config)
    }
    let default = DatagramConfig::default();
    let error = bind(siw(0), &default).expect_err("iWARP should have no datagrams");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    for nowhere in [(Ipv4Addr::UNSPECIFIED, 0).into(), (Ipv6Addr::UNSPECIFIED, 0).into()] {
        let error = bind(nowhere, &default).expect_err("the address should be on no device");
        assert_invalid(&error, &["bind a datagram socket to", "the address of one device"]);
    }
    for config in [default.clone().send_buffers(0), default.clone().receive_buffers(0)] {
        assert_invalid(
            &bind(roce(0), &config).expect_err("a socket without buffers should be refused"),
            &["buffers is 0"],
        );
    }
    let error = bind(([10, 0, 0, 99], 0).into(), &default).expect_err("address should be unused");
    assert_eq!(error.errno(), libc::EADDRNOTAVAIL, "{error}");
    let first = socket(roce(0));
    let error = bind(address(&first), &default).expect_err("the port should be taken");
    assert_eq!(error.errno(), libc::EADDRINUSE, "{error}");
    let other = default.send_buffers(u32::MAX);
    let before = objects();
    bind(roce(0), &other).expect_err("more buffers than the device supports should be refused");
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unresolvable_peers_are_reported() {
    let socket = socket(roce(0));
    let before = objects();
    let error = socket
        .start_resolve_peer(roce(7199))
        .and_then(|resolution| resolution.wait_timeout(LONG))
        .expect_err("no program should listen");
    assert_eq!(*error.kind(), ErrorKind::Unreachable(NO_LISTENER), "{error}");
    assert!(error.to_string().contains(&format!("cannot resolve {}:7199", roce_ip())), "{error}");
    let error = socket
        .start_resolve_peer(roce_v6(7199))
        .and_then(|resolution| resolution.wait_timeout(LONG))
        .expect_err("an address of another family should be refused");
    assert_invalid(&error, &["resolve", "of another family"]);
    // A socket without calls sends no answer. After a timeout, the caller can repeat the request.
    let silent = self::socket(roce(0));
    let timeout = Duration::from_millis(20);
    let error = socket
        .start_resolve_peer(address(&silent))
        .and_then(|resolution| resolution.wait_timeout(timeout))
        .expect_err("the peer should not answer");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(now(silent.try_recv_from()).is_none());
    let peer = found(&socket, &silent);
    assert_eq!(peer.qp_num(), silent.qp_num());
    drop((silent, peer));
    assert_eq!(objects(), before, "the ids of requests should be destroyed");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn oversized_and_foreign_buffers_are_refused() {
    let config = DatagramConfig::new().send_buffers(2);
    let bind = || DatagramSocket::bind(roce(0), &config).expect("bind");
    let (one, other) = (bind(), bind());
    let peer = found(&one, &other);
    let mut buffer = one.try_acquire_buffer().expect("a buffer");
    assert_eq!((one.mtu(), buffer.capacity(), buffer.len()), (1024, 1024, 1024));
    let error = buffer.set_len(1025).expect_err("the length should exceed the buffer");
    assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
    let foreign = filled(&other, b"x");
    let error =
        one.post_send_to(foreign, &peer).expect_err("a buffer of another socket should be refused");
    assert_invalid(&error, &["send on", "buffer"]);
    let error = other
        .post_send_to(filled(&other, b"x"), &peer)
        .expect_err("a peer of another socket should be refused");
    assert_invalid(&error, &["send on", "of another socket"]);
    // Exactly the buffers of the socket are free again.
    let second = one.try_acquire_buffer().expect("a buffer");
    assert!(now(one.try_acquire_buffer()).is_none());
    let error = one
        .acquire_buffer_timeout(Duration::from_millis(1))
        .expect_err("no third buffer should exist");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    drop((buffer, second));
    let both = [(); 2].map(|()| other.try_acquire_buffer().expect("a buffer"));
    assert!(now(other.try_acquire_buffer()).is_none());
    drop(both);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_without_receive_buffer_is_lost() {
    let config = DatagramConfig::new().receive_buffers(2);
    let server = DatagramSocket::bind(roce(0), &config).expect("bind");
    let client = socket(roce(0));
    let peer = found(&client, &server);
    for number in 0..5 {
        drop(
            client
                .start_send_to(filled(&client, &[number]), &peer)
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
    }
    let both = [0, 1].map(|number| {
        let (message, _) = server.recv_from_timeout(LONG).expect("receive");
        assert_eq!(*message, [number]);
        message
    });
    let error = server
        .recv_from_timeout(Duration::from_millis(20))
        .expect_err("the datagram should be lost");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!((&*both[0], &*both[1]), (&[0][..], &[1][..]), "held messages should not change");
    drop(both);
    client.post_send_to(filled(&client, &[9]), &peer).expect("post");
    receives(&server, &[9]);
}

/// Two sockets, and two peers of the first: the second socket and a removed address.
pub(crate) struct Nowhere {
    pub(crate) client: DatagramSocket,
    pub(crate) server: DatagramSocket,
    pub(crate) back: DatagramPeer,
    pub(crate) nowhere: DatagramPeer,
}

/// Returns `true` if a send failed because no route exists.
///
/// rxe of Linux 6.12 reports the failure with the status of the later sends.
pub(crate) fn no_route(error: &rdmacm::Error) -> bool {
    let status = match error.kind() {
        ErrorKind::WorkRequestFailed(status) => *status,
        _ => panic!("{error}"),
    };
    [WcStatus::IB_WC_LOC_QP_OP_ERR, WcStatus::IB_WC_WR_FLUSH_ERR].contains(&status)
}

pub(crate) fn with_nowhere() -> Nowhere {
    let gone: IpAddr = "fd99::9".parse().expect("an address");
    let change = |verb| ip(&["address", verb, "fd99::9/128", "dev", roce_end(), "nodad"]);
    change("add");
    wait_until_usable(roce_name(), gone);
    let (client, server) = (socket(roce_v6(0)), socket(roce_v6(0)));
    let leaves = socket((gone, 0).into());
    let back = found(&client, &server);
    let nowhere = found(&client, &leaves);
    client.post_send_to(filled(&client, b"there"), &nowhere).expect("post");
    receives(&leaves, b"there");
    drop(leaves);
    change("del");
    wait_until("there is no route", || {
        let sent = client
            .start_send_to(filled(&client, b"lost"), &nowhere)
            .and_then(|send| send.wait_timeout(LONG));
        match sent {
            Ok(_) => false,
            Err(error) => {
                assert!(no_route(&error), "{error}");
                assert!(error.to_string().contains("send on the datagram socket"), "{error}");
                true
            }
        }
    });
    Nowhere { client, server, back, nowhere }
}

/// Checks that a send that fails locally fails the sends posted with it, and no others.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_send_leaves_socket_usable() {
    // This is the documented default of `DatagramConfig::receive_buffers`.
    const RECEIVES: u32 = 64;
    let Nowhere { client, server, back, nowhere } = with_nowhere();
    let own = found(&server, &client);
    for _ in 0..3 {
        // The socket works at once in both directions, with all of its buffers.
        drop(
            client
                .start_send_to(filled(&client, b"back"), &back)
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        receives(&server, b"back");
        for number in 0..RECEIVES {
            let text = number.to_ne_bytes();
            drop(
                server
                    .start_send_to(filled(&server, &text), &own)
                    .and_then(|send| send.wait_timeout(LONG))
                    .expect("send"),
            );
        }
        for number in 0..RECEIVES {
            receives(&client, &number.to_ne_bytes());
        }
        client.flush_timeout(LONG).expect("flush should report it once");
        // Only the next flush reports a failed send that no call waits for.
        client.post_send_to(filled(&client, b"lost"), &nowhere).expect("post");
        let error = client.flush_timeout(LONG).expect_err("the message should be lost");
        assert!(no_route(&error), "{error}");
        client.flush_timeout(LONG).expect("the failure should be reported once");
    }
}

/// Checks that an answer to a remembered sender creates no object.
///
/// This holds even if other senders have sent since.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_allocate_nothing() {
    let (client, other, server) = (socket(roce(0)), socket(roce_v6(0)), socket(roce(0)));
    let peer = found(&client, &server);
    let six = socket(roce_v6(0));
    let others_peer = found(&other, &six);
    let round = || {
        for (client, server, peer) in [(&client, &server, &peer), (&other, &six, &others_peer)] {
            client.post_send_to(filled(client, b"there"), peer).expect("post");
            let sender = receives(server, b"there");
            drop(
                server
                    .start_send_to(filled(server, b"back"), &sender)
                    .and_then(|send| send.wait_timeout(LONG))
                    .expect("send"),
            );
            receives(client, b"back");
        }
    };
    // The first datagram of a sender creates objects.
    round();
    assert_eq!(allocations(|| (0..50).for_each(|_| round())), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sender_cache_keeps_configured_count() {
    let config = DatagramConfig::new().max_cached_peers(2);
    let server = DatagramSocket::bind(roce(0), &config).expect("bind");
    let clients = [(); 3].map(|()| socket(roce(0)));
    let peers = [0, 1, 2].map(|which: usize| found(&clients[which], &server));
    let exchange = |which: usize| {
        let client = &clients[which];
        drop(
            client
                .start_send_to(filled(client, b"x"), &peers[which])
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        let mut sender = None;
        let made = allocations(|| sender = Some(receives(&server, b"x")));
        (sender.expect("the datagram should have a sender"), made)
    };
    exchange(0);
    assert_eq!(exchange(0).1, 0, "the first sender should be remembered");
    exchange(1);
    let (kept, made) = exchange(0);
    assert_eq!(made, 0, "two senders should be remembered");
    // The third sender takes the place of the second one, which has been silent for longest.
    exchange(2);
    assert_eq!([exchange(0).1, exchange(2).1], [0, 0]);
    let (again, made) = exchange(1);
    assert!(made > 0, "the second sender should be forgotten");
    assert!(exchange(0).1 > 0, "the first sender should be forgotten");
    assert_ne!(kept, again);
    // The program can still answer senders whose handles it holds.
    for (sender, client) in [(kept, &clients[0]), (again, &clients[1])] {
        server.post_send_to(filled(&server, b"to you"), &sender).expect("post");
        receives(client, b"to you");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_and_buffer_outlive_socket() {
    let before = objects();
    let (client, server) = (socket(roce(0)), socket(roce(0)));
    let peer = found(&client, &server);
    client.post_send_to(filled(&client, b"kept"), &peer).expect("post");
    let (message, sender) = server.recv_from_timeout(LONG).expect("receive");
    let buffer = server.acquire_buffer().expect("a buffer");
    drop(server);
    assert_eq!(*message, *b"kept");
    client.abort();
    // The message and the buffer hold the region, and the peers hold the protection domains.
    let [qps, ids, regions, pds] =
        ["qp", "cm_id", "mr", "pd"].map(|kind| objects().count(kind).zip(before.count(kind)));
    assert_eq!([qps, ids].map(|counts| counts.map(|(now, before)| now - before)), [Some(0); 2]);
    assert_eq!(regions.map(|(now, before)| now - before), Some(1));
    assert_eq!(pds.map(|(now, before)| now - before), Some(2));
    drop((message, buffer, sender, client));
    drop(peer);
    assert_eq!(objects(), before);
}

/// Drops sockets, peers, buffers and messages in any order, by several threads, during calls.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn socket_may_be_dropped_at_any_time() {
    let before = objects();
    let mut rng = Rng(0x0dd5_5eed_1234_5678);
    for round in 0..20 {
        let mut things: Vec<Box<dyn Any + Send>> = Vec::new();
        let sockets = [socket(roce(0)), socket(roce(0))];
        let peers = [found(&sockets[0], &sockets[1]), found(&sockets[1], &sockets[0])];
        for _ in 0..rng.roll(12) {
            let which = rng.roll(2);
            let (from, to, peer) = (&sockets[which], &sockets[1 - which], &peers[which]);
            match rng.roll(5) {
                0 => things.push(Box::new(filled(from, b"never sent"))),
                1 => from.post_send_to(filled(from, &[1; 1000]), peer).expect("post"),
                2 => drop(
                    from.start_send_to(filled(from, b"sent"), peer)
                        .and_then(|send| send.wait_timeout(LONG))
                        .expect("send"),
                ),
                3 => things.push(Box::new(resolve_peer(from, to))),
                _ => {
                    from.post_send_to(filled(from, b"received"), peer).expect("post");
                    things.push(Box::new(to.recv_from_timeout(LONG).expect("receive")));
                }
            }
            if round % 2 == 0 {
                let group = SocketAddr::from(([239, 7, 7, 7], 0));
                things.extend(
                    from.start_join_multicast(group, Membership::Full)
                        .and_then(|join| join.wait_timeout(LONG))
                        .ok()
                        .map(|group| Box::new(group) as _),
                );
            }
        }
        things.extend(sockets.map(|socket| Box::new(socket) as _));
        things.extend(peers.map(|peer| Box::new(peer) as _));
        rng.shuffle(&mut things);
        let others = things.split_off(things.len() / 2);
        thread::scope(|scope| {
            scope.spawn(|| drop(others));
            drop(things);
        });
    }
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_use_socket() {
    let (client, server) = (socket(roce(0)), socket(roce(0)));
    let peer = found(&client, &server);
    let group = client
        .start_join_multicast(([239, 1, 2, 200], 0), Membership::Full)
        .expect("join")
        .wait()
        .expect("join");
    client.post_send_to(filled(&client, b"before"), &peer).expect("post");
    let sender = receives(&server, b"before");
    let buffer = filled(&client, b"the parent's");
    // The child gets copies of these objects.
    let childs = filled(&server, b"the child's");
    let mut all = Some((client, server, group, childs, peer.clone()));
    in_child(|| {
        let (client, server, group, buffer, peer) = all.take().expect("the objects should exist");
        forked(client.acquire_buffer());
        forked(server.post_send_to(buffer, &sender));
        forked(client.flush());
        forked(client.flush_timeout(LONG));
        forked(client.try_flush());
        forked(client.recv_from());
        forked(client.try_recv_from());
        forked(client.start_resolve_peer(roce(7199)));
        forked(client.start_join_multicast(([239, 1, 2, 201], 0), Membership::Full));
        forked(group.check_membership());
        forked(group.leave());
        client.abort();
        drop((client, server, peer));
    });
    let (client, server, group, ..) = all.expect("the parent's objects should still exist");
    client.post_send_to(buffer, &peer).expect("post");
    receives(&server, b"the parent's");
    group.check_membership().expect("socket should be in the group");
    server.post_send_to(filled(&server, b"and back"), &sender).expect("post");
    receives(&client, b"and back");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn device_removal_ends_socket() {
    let own = Own::roce();
    let (client, server) = (socket(own.address), socket(own.address));
    let peer = found(&client, &server);
    client.post_send_to(filled(&client, b"there"), &peer).expect("post");
    receives(&server, b"there");
    let group = server
        .start_join_multicast(([239, 1, 2, 202], 0), Membership::Full)
        .expect("join")
        .wait()
        .expect("join");
    let (tx, rx) = mpsc::channel();
    let deletion = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            announce(&tx);
            server.recv_from_timeout(LONG).expect_err("the device should be removed")
        });
        asleep(rx.recv().expect("the thread should begin"));
        let deletion = own.delete();
        let error = receiver.join().expect("thread should not panic");
        assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
        deletion
    });
    for result in [
        client.recv_from_timeout(LONG).map(drop),
        client
            .start_resolve_peer(address(&server))
            .and_then(|resolution| resolution.wait_timeout(LONG))
            .map(drop),
        client.acquire_buffer_timeout(LONG).map(drop),
        server.acquire_buffer().map(drop),
    ] {
        let error = result.expect_err("device should be removed");
        assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
    }
    // The driver of the card ends the contexts, so the deletion may be over.
    assert!(is_card() || deletion.waits(), "the deletion should wait for the sockets");
    drop(group);
    drop((client, server, peer));
    deletion.finish();
    own.comes_back();
}
