//! The safe tier: how connections end.

use std::iter;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType};
use rdmacm::device::Resources;
use rdmacm::endpoint::{Connection, Connector, Listener, Settings};
use rdmacm::verbs::{QpState, WcStatus};

use crate::bed::{LONG, Side, announce, asleep, channel, listen, request, rxe, siw};
use crate::dice::Dice;
use crate::endpoint_connect::{objects_at, pair};
use crate::endpoint_messages::{filled, receives};
use crate::io::Shape;
use crate::modify::bring;
use crate::netdev::run;

/// What is there besides open devices, which go with the last handle.
fn parts_at(address: SocketAddr) -> Vec<Option<u64>> {
    let objects: Resources = objects_at(address);
    ["pd", "cq", "qp", "cm_id", "mr"].map(|kind| objects.count(kind)).to_vec()
}

/// What was sent before it is received, and the end after that.
fn closing_delivers_everything(address: SocketAddr) {
    let before = parts_at(address);
    let [client, server] = pair(address, &Settings::default());
    thread::scope(|scope| {
        let closing = scope.spawn(|| {
            for number in 0..16 {
                client.post(filled(&client, &[number; 4096])).expect("post");
            }
            client.close(LONG).expect("close");
        });
        for number in 0..16 {
            receives(&server, &[number; 4096]);
        }
        assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
        assert!(server.try_recv().expect("receive").is_none(), "the end again");
        closing.join().expect("the client lives");
    });
    let error = server.buffer().expect_err("the connection has ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    server.close(LONG).expect("close");
    for connection in [&client, &server] {
        connection.close(LONG).expect("it is closed");
        let error = connection.recv().expect_err("this side has closed");
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    }
    assert_eq!(parts_at(address), before, "the handles are there still");
}

/// An abort returns when the kernel objects are gone, also if another thread is just telling the peer of the end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abort_waits_for_command_of_close() {
    for _ in 0..30 {
        let before = parts_at(rxe(0));
        let [client, server] = pair(rxe(0), &Settings::default());
        // Both sides have as many.
        let pairs = before.iter().zip(parts_at(rxe(0)));
        let of_server: Vec<_> = pairs
            .map(|(before, both)| before.zip(both).map(|(before, both)| before.midpoint(both)))
            .collect();
        thread::scope(|scope| {
            let closing = scope.spawn(|| client.close(LONG));
            // Refused from the moment at which the peer is to be told.
            while client.try_buffer().is_ok() {}
            client.abort();
            assert_eq!(parts_at(rxe(0)), of_server, "the client should have no object left");
            drop(closing.join().expect("the thread should not panic"));
        });
        server.abort();
        assert_eq!(parts_at(rxe(0)), before);
    }
}

/// The connection lives as long as one of its handles, and ends for all of them at once.
fn clones_share_connection(address: SocketAddr) {
    let before = parts_at(address);
    for is_closed in [true, false] {
        let [client, server] = pair(address, &Settings::default());
        let (first, second) = (client.clone(), client.clone());
        drop(client);
        first.post(filled(&second, b"by another handle's buffer")).expect("post");
        receives(&server, b"by another handle's buffer");
        server.post(filled(&server, b"back")).expect("post");
        receives(&second, b"back");
        assert_eq!(first.counters().expect("count"), second.counters().expect("count"));
        assert_eq!(first.peer_addr(), second.peer_addr());
        // Otherwise an abort leaves it unknown whether all was sent, and so a later call of `close`.
        first.flush_timeout(LONG).expect("flush");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| second.recv().expect_err("a clone has ended it"));
            let ended = scope.spawn(|| {
                assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
                server.close(LONG).expect("close");
            });
            match is_closed {
                true => first.close(LONG).expect("close"),
                false => first.abort(),
            }
            let error = waiting.join().expect("the thread should not panic");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
            ended.join().expect("the thread should not panic");
        });
        second.close(LONG).expect("it is closed already");
        assert_eq!(parts_at(address), before, "the handles are there still");
    }
    let [client, server] = pair(address, &Settings::default());
    let last = client.clone();
    drop(client);
    last.post(filled(&last, b"one handle is left")).expect("post");
    receives(&server, b"one handle is left");
    drop(last);
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
    drop(server);
    assert_eq!(parts_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_clones_share_connection() {
    clones_share_connection(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_clones_share_connection() {
    clones_share_connection(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_closing_delivers_everything() {
    closing_delivers_everything(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_closing_delivers_everything() {
    closing_delivers_everything(siw(0));
}

/// The network of the guest with itself, which loses each message that confirms a connection until this is dropped.
struct Unconfirmed;

impl Unconfirmed {
    fn new() -> Self {
        run("tc", &["qdisc", "add", "dev", "lo", "clsact"]);
        let filter = ["filter", "add", "dev", "lo", "ingress", "protocol", "ip", "u32"];
        // A management datagram begins behind the headers of IPv4 (20 bytes), UDP (8) and RoCE (12 and 8): one of the
        // connection management class, whose attribute is "ready to use".
        let class = ["match", "u32", "0x01070000", "0xffff0000", "at", "48"];
        let attribute = ["match", "u32", "0x00140000", "0xffff0000", "at", "64"];
        run("tc", &[&filter[..], &class, &attribute, &["action", "drop"]].concat());
        Self
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        run("tc", &["qdisc", "delete", "dev", "lo", "clsact"]);
    }
}

/// A peer that goes before it has learned that the connection stands rejects it: that is its end, and the flush of the receives
/// behind it is no cause.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_rejection_is_an_end() {
    let _unconfirmed = Unconfirmed::new();
    let theirs = channel();
    let (_listener, server) = listen(&theirs, rxe(0));
    let connector = Connector::new().timeout(LONG);
    let (client, peer) = thread::scope(|scope| {
        let client = scope.spawn(|| connector.connect(server).expect("connect"));
        let peer = Side::new(request(&theirs), Shape::default());
        peer.id.accept(&ConnParam::default()).expect("accept");
        (client.join().expect("the client lives"), peer)
    });
    drop(peer);
    assert!(client.recv_timeout(LONG).expect("receive").is_none(), "the end");
    let error = client.buffer().expect_err("the connection has ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    client.close(LONG).expect("close");
}

/// Four threads close a connection, two on each side, at the same time.
fn everybody_closes(address: SocketAddr) {
    let before = parts_at(address);
    let both = pair(address, &Settings::default());
    thread::scope(|scope| {
        for connection in both.iter().chain(&both) {
            scope.spawn(|| {
                connection.close(LONG).expect("close");
            });
        }
    });
    assert_eq!(parts_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_everybody_closes() {
    (0..5).for_each(|_| everybody_closes(rxe(0)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_everybody_closes() {
    (0..5).for_each(|_| everybody_closes(siw(0)));
}

/// Whoever sleeps in a call when another thread ends the connection comes back from it.
fn sleepers_are_woken(address: SocketAddr, end: impl Fn(&Connection)) {
    let settings = Settings { send_buffers: 1, receive_buffers: 1, ..Settings::default() };
    let [client, server] = pair(address, &settings);
    // Nothing is posted, and so nothing completes at the end.
    server.post(filled(&server, b"kept")).expect("post");
    let kept = client.recv_timeout(LONG).expect("receive").expect("a message");
    let buffer = client.buffer().expect("the only one");
    let (says, hears) = mpsc::channel();
    thread::scope(|scope| {
        let receive = |client: &Connection| client.recv_timeout(LONG).expect_err("no message");
        let take = |client: &Connection| client.buffer_timeout(LONG).expect_err("no buffer");
        let calls: [fn(&Connection) -> rdmacm::Error; 4] = [receive, receive, take, take];
        let sleepers = calls.map(|call| {
            let (says, client) = (says.clone(), &client);
            scope.spawn(move || {
                announce(&says);
                call(client)
            })
        });
        (0..4).for_each(|_| asleep(hears.recv().expect("a thread begins")));
        end(&client);
        for sleeper in sleepers {
            let error = sleeper.join().expect("it comes back");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        }
    });
    drop((kept, buffer));
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the peer hears of the end");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_sleepers_are_woken_by_abort() {
    sleepers_are_woken(rxe(0), Connection::abort);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_sleepers_are_woken_by_abort() {
    sleepers_are_woken(siw(0), Connection::abort);
}

/// The peer answers only later.
fn close(client: &Connection) {
    drop(client.close(Duration::ZERO));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_sleepers_are_woken_by_close() {
    sleepers_are_woken(rxe(0), close);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_sleepers_are_woken_by_close() {
    sleepers_are_woken(siw(0), close);
}

/// A peer that does not look after its connection does not answer; what this side has is gone all the same.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn closing_has_a_deadline() {
    let before = parts_at(rxe(0));
    let [client, server] = pair(rxe(0), &Settings::default());
    let error = client.close(Duration::from_millis(50)).expect_err("nobody answers");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(error.operation(), "close");
    drop(server);
    assert_eq!(parts_at(rxe(0)), before);
    client.close(LONG).expect("it is closed");
}

/// iWARP has no answer to wait for, and what is not there does not come.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_closing_waits_for_no_answer() {
    let before = parts_at(siw(0));
    let [client, server] = pair(siw(0), &Settings::default());
    for side in [&client, &server] {
        let error = side.recv_timeout(Duration::from_millis(10)).expect_err("there is nothing");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    }
    client.post(filled(&client, b"last")).expect("post");
    client.close(LONG).expect("nobody has to look");
    receives(&server, b"last");
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
    drop(server);
    assert_eq!(parts_at(siw(0)), before);
}

/// A message that was posted before the peer went is lost, and closing says so.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn closing_says_what_was_lost() {
    let [client, server] = pair(rxe(0), &Settings { receive_buffers: 1, ..Settings::default() });
    // The second one finds no buffer.
    client.post(filled(&client, b"one")).expect("post");
    let kept = server.recv_timeout(LONG).expect("receive").expect("a message");
    client.post(filled(&client, b"two")).expect("post");
    drop(server);
    let error = client.close(LONG).expect_err("a message was lost");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    drop(kept);
}

/// What is posted while another thread closes the connection arrives, or is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn closing_loses_nothing_that_another_thread_posts() {
    for number in 0..200 {
        let [client, server] = pair(rxe(0), &Settings::default());
        let (says, hears) = mpsc::channel();
        let [posted, received] = thread::scope(|scope| {
            let posting = scope.spawn(|| {
                let mut posted = 0;
                while client.post_bytes(b"").is_ok() {
                    posted += 1;
                    // So that there are times when nothing is on its way.
                    let _ended = client.flush_timeout(LONG);
                    let _closing = says.send(());
                }
                posted
            });
            let receiving = scope.spawn(|| {
                let next = || server.recv_timeout(LONG).expect("receive");
                iter::from_fn(next).count()
            });
            hears.recv().expect("it has begun");
            client.close(LONG).expect("nothing is lost");
            drop(hears);
            let posted = posting.join().expect("it lives");
            [posted, receiving.join().expect("it lives")]
        });
        assert_eq!(received, posted, "connection {number}");
    }
}

/// The ends of many connections in the middle of whatever they do, in any order and by several threads.
fn dropped_in_the_middle(address: SocketAddr) {
    let before = objects_at(address);
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    for _ in 0..20 {
        let mut things: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        let [client, server] = thread::scope(|scope| {
            let client = scope.spawn(|| Connector::new().connect(server).expect("connect"));
            let incoming = listener.incoming_timeout(LONG).expect("a request");
            let server = incoming.accept(&Settings::default(), &[], LONG).expect("accept");
            [client.join().expect("the client lives"), server]
        });
        for _ in 0..dice.roll(12) {
            let (from, to) =
                if dice.roll(2) == 0 { (&client, &server) } else { (&server, &client) };
            match dice.roll(4) {
                0 => things.push(Box::new(filled(from, b"never sent"))),
                1 => from.post(filled(from, &[1; 4000])).expect("post"),
                2 => {
                    from.post(filled(from, b"received")).expect("post");
                    let message = to.recv_timeout(LONG).expect("receive").expect("a message");
                    things.push(Box::new(message));
                }
                _ => drop(
                    from.start_send(filled(from, b"sent"))
                        .and_then(|send| send.wait_timeout(LONG))
                        .expect("send"),
                ),
            }
        }
        let (sends, receives) = (client.clone(), client);
        things.push(Box::new(sends));
        things.push(Box::new(receives));
        things.push(Box::new(server));
        dice.shuffle(&mut things);
        let others = things.split_off(things.len() / 2);
        thread::scope(|scope| {
            scope.spawn(|| drop(others));
            drop(things);
        });
    }
    drop(listener);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_dropped_in_the_middle() {
    dropped_in_the_middle(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_dropped_in_the_middle() {
    dropped_in_the_middle(siw(0));
}

/// Who sends while the peer goes hears of that and of no failure, whatever becomes of what is on its way.
fn the_end_overtakes_what_is_sent(address: SocketAddr) {
    for number in 0..40 {
        let [client, server] = pair(address, &Settings::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..number % 8 {
                    let message = server.recv_timeout(LONG).expect("receive");
                    message.expect("the peer does not end it");
                }
                server.abort();
            });
            let sent = (0..).find_map(|_| {
                let posted = client.buffer_timeout(LONG).map(|mut buffer| {
                    buffer.set_len(4096).expect("it fits");
                    client.post(buffer)
                });
                posted.and_then(|posted| posted).err()
            });
            let error = sent.expect("it does not go on for ever");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "connection {number}: {error}");
            let end = client.recv_timeout(LONG);
            assert!(matches!(end, Ok(None)), "connection {number}: {end:?}");
            assert_eq!(client.counters().expect("count").failures, 0, "connection {number}");
        });
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_end_overtakes_what_is_sent() {
    the_end_overtakes_what_is_sent(siw(0));
}

/// A connection, and its peer on the other level, whose queue pair anything can be done to.
pub(crate) fn with_low_peer(keep_alive: Option<Duration>) -> (Connection, Side) {
    let settings = Settings { retry_count: 2, keep_alive, ..Settings::default() };
    // About a millisecond.
    to_low_peer(&Connector::new().ack_timeout(8).settings(settings))
}

/// A connection of `connector`, and such a peer.
pub(crate) fn to_low_peer(connector: &Connector) -> (Connection, Side) {
    let channel = channel();
    let (_listener, server) = listen(&channel, rxe(0));
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let peer = Side::new(request(&channel), Shape::default());
            peer.id.accept(&ConnParam::default()).expect("accept");
            channel.expect_event(EventType::Established).expect("connected");
            peer
        });
        (connector.connect(server).expect("connect"), peer.join().expect("the peer lives"))
    })
}

/// A peer whose queue pair is dead, of which nobody tells: what is sent fails when the retries are used up.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_peer_does_not_answer() {
    let (client, peer) = with_low_peer(None);
    bring(peer.io.qp(), QpState::IB_QPS_RESET);
    let failed = ErrorKind::Failed(WcStatus::IB_WC_RETRY_EXC_ERR);
    let error = client
        .start_send(filled(&client, b"hello"))
        .and_then(|send| send.wait_timeout(LONG))
        .expect_err("nobody answers");
    assert_eq!(*error.kind(), failed, "{error}");
    assert_eq!(error.errno(), libc::ETIMEDOUT);
    for later in [client.recv().map(drop), client.buffer().map(drop), client.close(LONG)] {
        let error = later.expect_err("the connection has ended");
        assert_eq!(*error.kind(), failed, "{error}");
    }
    drop(peer);
}
