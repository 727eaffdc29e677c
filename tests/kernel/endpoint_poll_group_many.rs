//! Poll groups with very many members, which begin and end meanwhile.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::poll_group::{Event, Member, MemberEnd, PollGroupConfig};
use rdmacm::endpoint::{ConnectionConfig, Connector, Listener};

use rdmacm_tests::heap::kept;
use rdmacm_tests::open_descriptors;

use crate::endpoint_connect::objects_at;
use crate::endpoint_memory::heap_of_tables;
use crate::endpoint_poll_group::{Group, bytes, receives_bytes};
use crate::fixtures::{LONG, roce, siw};

/// The maximum number of descriptors of a group, for any number of members.
const MOST_DESCRIPTORS: usize = 10;

/// A guard that stops the serving thread when it is dropped, even if a check fails.
struct DoneGuard<'a>(&'a AtomicBool);

impl Drop for DoneGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Echoes on `group` until the other side is done and no member is left.
fn serve(group: &mut Group, listener: &Listener, is_done: &AtomicBool) {
    let mut unanswered = HashMap::<Member, Vec<Vec<u8>>>::new();
    loop {
        while let Ok(incoming) = listener.try_accept() {
            group.group.add(incoming, &[], LONG).expect("add");
        }
        let mut events = Vec::new();
        group.group.wait(&mut events, Some(Duration::from_millis(2))).expect("wait");
        for event in events {
            let member = event.member();
            match event {
                Event::Message(_, message) => {
                    unanswered.entry(member).or_default().push(message.to_vec());
                }
                Event::Ended(_, MemberEnd::Peer) => assert!(unanswered.remove(&member).is_none()),
                Event::Ended(_, other) => panic!("{other:?}"),
                _ => {}
            }
            let Some(waiting) = unanswered.get_mut(&member) else { continue };
            while let Some(message) = waiting.first() {
                match group.group.post_bytes(member, message) {
                    Ok(()) => drop(waiting.remove(0)),
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            if waiting.is_empty() {
                unanswered.remove(&member);
            }
        }
        if group.group.is_empty() && is_done.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The message that a member of the requesting side expects back.
struct Asked {
    seed: u64,
    rounds: u64,
}

/// Runs a group of clients and a group of servers with `count` members each.
///
/// Some of the members end, and others connect.
fn members_come_and_go(address: SocketAddr, count: usize, rounds: u64) {
    let (before, opened) = (objects_at(address), open_descriptors());
    let config = PollGroupConfig::new()
        .receive_buffers(4096)
        .send_buffers(2048)
        .receive_buffer_size(512)
        .send_buffer_size(512)
        .send_buffers_per_member(2)
        .max_held(8)
        .initial_members(4096);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let servers = scope.spawn(|| {
            let mut group = Group::new(address, &config);
            serve(&mut group, &listener, &is_done);
        });
        let done = DoneGuard(&is_done);
        let mut group = Group::new(address, &config);
        // With 16 attempts at once, each resolution may take long on a loaded machine.
        let connector = Connector::new()
            .resolve_addr_timeout(LONG)
            .resolve_route_timeout(LONG)
            .total_timeout(LONG);
        let mut asked = HashMap::new();
        let mut idle = Vec::new();
        let (mut started, mut connecting, mut closed) = (0, 0, 0);
        let (total, mut is_full) = (count + count / 4, false);
        let mut first_descriptors = None;
        while closed < total {
            // Only few attempts run at the same time, so that each has a place in the listener's backlog.
            while connecting < 16 && started < total && asked.len() < count {
                let member = group.group.connect(&connector, server).expect("connect");
                asked.insert(member, Asked { seed: started as u64, rounds: 0 });
                (started, connecting) = (started + 1, connecting + 1);
                first_descriptors.get_or_insert_with(open_descriptors);
            }
            let event = group.next();
            let member = event.member();
            match event {
                Event::Established(_) => connecting -= 1,
                Event::Message(_, message) => {
                    let asked =
                        asked.get_mut(&member).expect("the member should belong to this side");
                    assert_eq!(*message, bytes(asked.seed << 20 | asked.rounds, 512));
                    asked.rounds += 1;
                    if !is_full {
                        // All members exist at the same time before the first one ends.
                        idle.push(member);
                    }
                }
                Event::Ended(_, MemberEnd::Local) => {
                    closed += 1;
                    asked.remove(&member);
                    continue;
                }
                other => panic!("{other:?}"),
            }
            let due = match (is_full || asked[&member].rounds == 0, idle.len() == count) {
                (true, _) => vec![member],
                (false, true) => {
                    is_full = true;
                    assert_eq!(group.group.len(), count);
                    let most = opened + 1 + 2 * MOST_DESCRIPTORS;
                    assert!(
                        open_descriptors() <= most,
                        "{opened} before, {} now",
                        open_descriptors()
                    );
                    std::mem::take(&mut idle)
                }
                (false, false) => Vec::new(),
            };
            for member in due {
                let Asked { seed, rounds: done } = asked[&member];
                if done < rounds {
                    group.group.post_bytes(member, &bytes(seed << 20 | done, 512)).expect("post");
                } else {
                    group.group.close(member).expect("close");
                }
            }
        }
        drop(done);
        servers.join().expect("thread should not panic");
        assert!(
            Some(open_descriptors()) <= first_descriptors,
            "members should have no descriptors"
        );
    });
    drop(listener);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_thousand_members_come_and_go() {
    members_come_and_go(roce(0), 1000, 2);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_many_members_come_and_go() {
    members_come_and_go(siw(0), 100, 4);
}

/// Checks that a group of 50 members has as many queues as a group of a single member.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn members_share_queues_and_descriptors() {
    let shared = || ["cq", "srq", "pd", "mr"].map(count);
    let (before, opened) = (shared(), open_descriptors());
    let mut group = Group::new(roce(0), &PollGroupConfig::default());
    let (now, new) = (shared(), [2, 1, 1, 1]);
    assert!((0..4).all(|place| now[place] == before[place] + new[place]), "{before:?}, {now:?}");
    // The device has two more while it is open.
    assert!(open_descriptors() <= opened + 6, "{opened} before, {} now", open_descriptors());
    let mut peers = Group::new(roce(0), &PollGroupConfig::default());
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (empty, opened) = (shared(), open_descriptors());
    for _ in 0..50 {
        let client = peers.group.connect(&Connector::new(), server).expect("connect");
        let joined = thread::scope(|scope| {
            let peers = scope.spawn(|| peers.expect_established(client));
            let incoming = listener.accept_timeout(LONG).expect("a request");
            let member = group.group.add(incoming, &[], LONG).expect("add");
            group.expect_established(member);
            peers.join().expect("the peer should connect");
            member
        });
        peers.group.post_bytes(client, b"hello").expect("post");
        assert_eq!(*group.message(joined), *b"hello");
    }
    assert_eq!(shared(), empty);
    // Each group has a timer while members connect.
    assert!(open_descriptors() <= opened + 2, "{opened} before, {} now", open_descriptors());
}

fn count(name: &str) -> u64 {
    objects_at(roce(0)).count(name).unwrap_or(0)
}

/// The maximum number of bytes of the heap for one more member.
///
/// The queues, which the driver maps, are not on the heap.
const HEAP: isize = 2048;

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn idle_member_uses_little_memory() {
    const MEMBERS: isize = 200;
    let config = PollGroupConfig::new().receive_buffers(64).send_buffers(64);
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let mut group = Group::new(roce(0), &config);
    thread::scope(|scope| {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let mut peers = Group::new(roce(0), &config);
            for _ in 0..2 * MEMBERS {
                let client = peers.group.connect(&Connector::new(), server).expect("connect");
                peers.expect_established(client);
            }
            assert!(rx.recv().is_err(), "the test should end");
        });
        let mut join = || {
            for _ in 0..MEMBERS {
                let incoming = listener.accept_timeout(LONG).expect("a request");
                let member = group.group.add(incoming, &[], LONG).expect("add");
                group.expect_established(member);
            }
        };
        // The first members cause these allocations.
        join();
        let ((), bytes) = kept(join);
        let most = HEAP + heap_of_tables();
        assert!(bytes / MEMBERS <= most, "{} bytes of the heap for a member", bytes / MEMBERS);
        drop(tx);
    });
}

/// Serves plain connections, which connect and end at random times.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn plain_connections_are_served() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let is_done = AtomicBool::new(false);
    let config = PollGroupConfig::new().receive_buffers(64).send_buffers(16);
    thread::scope(|scope| {
        let servers = scope.spawn(|| {
            let mut group = Group::new(roce(0), &config);
            serve(&mut group, &listener, &is_done);
        });
        let done = DoneGuard(&is_done);
        let clients = (0..4_u64).map(|client| {
            scope.spawn(move || {
                for round in 0..10 {
                    let config = ConnectionConfig::new().send_buffers(4);
                    let connector = Connector::new().config(config).total_timeout(LONG);
                    let connection = connector.connect(server).expect("connect");
                    for message in 0..1 + (client + round) % 7 {
                        let bytes = bytes(client << 32 | round << 16 | message, 4096);
                        connection.post_bytes(&bytes).expect("post");
                        receives_bytes(&connection, &bytes);
                    }
                    match (client + round) % 2 {
                        0 => connection.close(LONG).expect("close"),
                        _ => connection.abort(),
                    }
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().for_each(|client| client.join().expect("thread should not panic"));
        drop(done);
        servers.join().expect("thread should not panic");
    });
}
