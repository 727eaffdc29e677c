//! The safe tier: how connections end.

use std::iter;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType};
use rdmacm::device::ResourceCounts;
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector, Listener};
use rdmacm::verbs::{QpState, WcStatus};

use crate::endpoint_connect::{objects_at, pair};
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{LONG, Side, announce, asleep, channel, listen, request, roce, siw};
use crate::io::Shape;
use crate::modify::bring;
use crate::netdev::run;
use crate::rng::Rng;

/// Returns the object counts of a connection. They exclude the device context, which the last handle closes.
fn parts_at(address: SocketAddr) -> Vec<Option<u64>> {
    let objects: ResourceCounts = objects_at(address);
    ["pd", "cq", "qp", "cm_id", "mr"].map(|kind| objects.count(kind)).to_vec()
}

/// Messages that were sent before the close are received, and the end follows them.
fn close_flushes_pending_sends(address: SocketAddr) {
    let before = parts_at(address);
    let [client, server] = pair(address, &ConnectionConfig::default());
    thread::scope(|scope| {
        let closing = scope.spawn(|| {
            for number in 0..16 {
                client.post_send(filled(&client, &[number; 4096])).expect("post");
            }
            client.close(LONG).expect("close");
        });
        for number in 0..16 {
            receives(&server, &[number; 4096]);
        }
        assert!(
            server.recv_timeout(LONG).expect("receive").is_none(),
            "the connection should have ended"
        );
        assert!(server.try_recv().expect("receive").is_none(), "the end should be returned again");
        closing.join().expect("client should not panic");
    });
    let error = server.acquire_buffer().expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    server.close(LONG).expect("close");
    for connection in [&client, &server] {
        connection.close(LONG).expect("the connection should be closed");
        let error = connection.recv().expect_err("this side should have closed");
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    }
    assert_eq!(parts_at(address), before, "the kernel objects should still exist");
}

/// Checks that an abort returns after the kernel objects are destroyed.
///
/// This holds even while another thread is notifying the peer of the end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abort_waits_for_command_of_close() {
    for _ in 0..30 {
        let before = parts_at(roce(0));
        let [client, server] = pair(roce(0), &ConnectionConfig::default());
        // Both sides have the same number of objects.
        let pairs = before.iter().zip(parts_at(roce(0)));
        let of_server: Vec<_> = pairs
            .map(|(before, both)| before.zip(both).map(|(before, both)| before.midpoint(both)))
            .collect();
        thread::scope(|scope| {
            let closing = scope.spawn(|| client.close(LONG));
            // From the moment at which the close notifies the peer, this call is refused.
            while client.try_acquire_buffer().is_ok() {}
            client.abort();
            assert_eq!(parts_at(roce(0)), of_server, "the client should have no object left");
            drop(closing.join().expect("the thread should not panic"));
        });
        server.abort();
        assert_eq!(parts_at(roce(0)), before);
    }
}

/// Checks that a connection lives as long as one handle, and ends for all handles at once.
fn clones_share_connection(address: SocketAddr) {
    let before = parts_at(address);
    for is_closed in [true, false] {
        let [client, server] = pair(address, &ConnectionConfig::default());
        let (first, second) = (client.clone(), client.clone());
        drop(client);
        first.post_send(filled(&second, b"by another handle's buffer")).expect("post");
        receives(&server, b"by another handle's buffer");
        server.post_send(filled(&server, b"back")).expect("post");
        receives(&second, b"back");
        assert_eq!(first.stats().expect("count"), second.stats().expect("count"));
        assert_eq!(first.peer_addr(), second.peer_addr());
        // After the end of a connection with sends in flight, `close` reports them as possibly lost. So both sides flush
        // first.
        first.flush_timeout(LONG).expect("flush");
        server.flush_timeout(LONG).expect("flush");
        thread::scope(|scope| {
            let waiting = scope
                .spawn(|| second.recv().expect_err("a clone should have ended the connection"));
            let ended = scope.spawn(|| {
                assert!(
                    server.recv_timeout(LONG).expect("receive").is_none(),
                    "the connection should have ended"
                );
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
        second.close(LONG).expect("closing again should succeed");
        assert_eq!(parts_at(address), before, "the kernel objects should still exist");
    }
    let [client, server] = pair(address, &ConnectionConfig::default());
    let last = client.clone();
    drop(client);
    last.post_send(filled(&last, b"one handle is left")).expect("post");
    receives(&server, b"one handle is left");
    drop(last);
    assert!(
        server.recv_timeout(LONG).expect("receive").is_none(),
        "the connection should have ended"
    );
    drop(server);
    assert_eq!(parts_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_clones_share_connection() {
    clones_share_connection(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_clones_share_connection() {
    clones_share_connection(siw(0));
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

/// A filter on the loopback device that drops each message that confirms a connection.
///
/// Dropping this value removes the filter.
struct Unconfirmed;

impl Unconfirmed {
    fn new() -> Self {
        run("tc", &["qdisc", "add", "dev", "lo", "clsact"]);
        let filter = ["filter", "add", "dev", "lo", "ingress", "protocol", "ip", "u32"];
        // A management datagram begins after the headers of IPv4 (20 bytes), UDP (8) and RoCE (12 and 8). The filter
        // matches the class of connection management and the attribute "ready to use".
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

/// Checks a peer that leaves before it gets the event that the connection is established.
///
/// The rejection is the reported end. The flush of the receives, which follows, is not.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_rejection_ends_connection() {
    let _unconfirmed = Unconfirmed::new();
    let theirs = channel();
    let (_listener, server) = listen(&theirs, roce(0));
    let connector = Connector::new().total_timeout(LONG);
    let (client, peer) = thread::scope(|scope| {
        let client = scope.spawn(|| connector.connect(server).expect("connect"));
        let peer = Side::new(request(&theirs), Shape::default());
        peer.id.accept(&ConnParam::default()).expect("accept");
        (client.join().expect("client should not panic"), peer)
    });
    drop(peer);
    assert!(
        client.recv_timeout(LONG).expect("receive").is_none(),
        "the connection should have ended"
    );
    let error = client.acquire_buffer().expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    client.close(LONG).expect("close");
}

/// Closes a connection in four threads at the same time, two on each side.
fn all_threads_may_close(address: SocketAddr) {
    let before = parts_at(address);
    let both = pair(address, &ConnectionConfig::default());
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
fn rxe_all_threads_may_close() {
    (0..5).for_each(|_| all_threads_may_close(roce(0)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_all_threads_may_close() {
    (0..5).for_each(|_| all_threads_may_close(siw(0)));
}

/// Checks that threads blocked in a call return when another thread ends the connection.
fn end_wakes_blocked_calls(address: SocketAddr, end: impl Fn(&Connection)) {
    let config = ConnectionConfig::new().send_buffers(1).receive_buffers(1);
    let [client, server] = pair(address, &config);
    // No request of this side is posted, so no request completes at the end.
    server.post_send(filled(&server, b"kept")).expect("post");
    let kept = client.recv_timeout(LONG).expect("receive").expect("a message");
    let buffer = client.acquire_buffer().expect("the only buffer should be free");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let receive = |client: &Connection| {
            client.recv_timeout(LONG).expect_err("the connection should end without a message")
        };
        let take = |client: &Connection| {
            client
                .acquire_buffer_timeout(LONG)
                .expect_err("the connection should end without a buffer")
        };
        let calls: [fn(&Connection) -> rdmacm::Error; 4] = [receive, receive, take, take];
        let sleepers = calls.map(|call| {
            let (tx, client) = (tx.clone(), &client);
            scope.spawn(move || {
                announce(&tx);
                call(client)
            })
        });
        (0..4).for_each(|_| asleep(rx.recv().expect("a thread should begin")));
        end(&client);
        for sleeper in sleepers {
            let error = sleeper.join().expect("thread should not panic");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        }
    });
    drop((kept, buffer));
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "peer should get the end");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_abort_wakes_blocked_calls() {
    end_wakes_blocked_calls(roce(0), Connection::abort);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_abort_wakes_blocked_calls() {
    end_wakes_blocked_calls(siw(0), Connection::abort);
}

/// Starts to close `client`. The peer answers later.
fn close(client: &Connection) {
    drop(client.close(Duration::ZERO));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_close_wakes_blocked_calls() {
    end_wakes_blocked_calls(roce(0), close);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_close_wakes_blocked_calls() {
    end_wakes_blocked_calls(siw(0), close);
}

/// Checks that a close ends at its deadline, and releases its objects, if the peer does not answer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_ends_at_deadline() {
    let before = parts_at(roce(0));
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let error = client.close(Duration::from_millis(50)).expect_err("no peer should answer");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(error.operation(), "close");
    assert!(error.hint().is_some_and(|hint| hint.contains("has not confirmed")), "{error}");
    drop(server);
    assert_eq!(parts_at(roce(0)), before);
    client.close(LONG).expect("the connection should be closed");
}

/// Closes a connection to a peer that keeps its only receive buffer, so a message stays unsent.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_reports_unsent_message_at_deadline() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().receive_buffers(1));
    client.post_send(filled(&client, b"one")).expect("post");
    let _kept = server.recv_timeout(LONG).expect("receive").expect("a message");
    client.post_send(filled(&client, b"two")).expect("post");
    let error = client.close(Duration::from_millis(50)).expect_err("a message should be in flight");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("not all posted requests")), "{error}");
}

/// Checks that on iWARP a close waits for no answer, because iWARP has none.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_close_waits_for_no_answer() {
    let before = parts_at(siw(0));
    let [client, server] = pair(siw(0), &ConnectionConfig::default());
    for side in [&client, &server] {
        let error =
            side.recv_timeout(Duration::from_millis(10)).expect_err("no message should arrive");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    }
    client.post_send(filled(&client, b"last")).expect("post");
    client.close(LONG).expect("close should need no answer");
    receives(&server, b"last");
    assert!(
        server.recv_timeout(LONG).expect("receive").is_none(),
        "the connection should have ended"
    );
    drop(server);
    assert_eq!(parts_at(siw(0)), before);
}

/// Checks that a close reports the loss of a message that was posted before the peer left.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_reports_lost_message() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().receive_buffers(1));
    // The second message finds no receive buffer.
    client.post_send(filled(&client, b"one")).expect("post");
    let kept = server.recv_timeout(LONG).expect("receive").expect("a message");
    client.post_send(filled(&client, b"two")).expect("post");
    drop(server);
    let error = client.close(LONG).expect_err("a message should be lost");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(error.to_string().ends_with("; a posted request was not completed"), "{error}");
    drop(kept);
}

/// Checks that a message posted during a close of another thread arrives or is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_delivers_concurrent_posts() {
    for number in 0..200 {
        let [client, server] = pair(roce(0), &ConnectionConfig::default());
        let (tx, rx) = mpsc::channel();
        let [posted, received] = thread::scope(|scope| {
            let posting = scope.spawn(|| {
                let mut posted = 0;
                while client.post_bytes(b"").is_ok() {
                    posted += 1;
                    // The flush creates moments at which no message is in flight.
                    let _ended = client.flush_timeout(LONG);
                    let _closing = tx.send(());
                }
                posted
            });
            let receiving = scope.spawn(|| {
                let next = || server.recv_timeout(LONG).expect("receive");
                iter::from_fn(next).count()
            });
            rx.recv().expect("receiver should begin");
            client.close(LONG).expect("no message should be lost");
            drop(rx);
            let posted = posting.join().expect("thread should not panic");
            [posted, receiving.join().expect("thread should not panic")]
        });
        assert_eq!(received, posted, "connection {number}");
    }
}

/// Connections may be dropped at any time, in any order and by several threads.
fn connection_may_be_dropped_at_any_time(address: SocketAddr) {
    let before = objects_at(address);
    let mut rng = Rng(0x1234_5678_9abc_def1);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    for _ in 0..20 {
        let mut things: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        let [client, server] = thread::scope(|scope| {
            let client = scope.spawn(|| Connector::new().connect(server).expect("connect"));
            let incoming = listener.accept_timeout(LONG).expect("a request");
            let server = incoming.accept(&ConnectionConfig::default(), &[], LONG).expect("accept");
            [client.join().expect("client should not panic"), server]
        });
        for _ in 0..rng.roll(12) {
            let (from, to) = if rng.roll(2) == 0 { (&client, &server) } else { (&server, &client) };
            match rng.roll(4) {
                0 => things.push(Box::new(filled(from, b"never sent"))),
                1 => from.post_send(filled(from, &[1; 4000])).expect("post"),
                2 => {
                    from.post_send(filled(from, b"received")).expect("post");
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
        rng.shuffle(&mut things);
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
fn rxe_connection_may_be_dropped_at_any_time() {
    connection_may_be_dropped_at_any_time(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connection_may_be_dropped_at_any_time() {
    connection_may_be_dropped_at_any_time(siw(0));
}

/// Checks that a side that sends gets `Disconnected` if the peer leaves.
///
/// The lost messages are not reported as failures.
fn abort_by_peer_during_sends_is_disconnect(address: SocketAddr) {
    for number in 0..40 {
        let [client, server] = pair(address, &ConnectionConfig::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..number % 8 {
                    let message = server.recv_timeout(LONG).expect("receive");
                    message.expect("the peer should not end the connection");
                }
                server.abort();
            });
            let sent = (0..).find_map(|_| {
                let posted = client.acquire_buffer_timeout(LONG).map(|mut buffer| {
                    buffer.set_len(4096).expect("the length should fit");
                    client.post_send(buffer)
                });
                posted.and_then(|posted| posted).err()
            });
            let error = sent.expect("posting should end");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "connection {number}: {error}");
            let end = client.recv_timeout(LONG);
            assert!(matches!(end, Ok(None)), "connection {number}: {end:?}");
            assert_eq!(client.stats().expect("count").failures, 0, "connection {number}");
        });
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_abort_by_peer_during_sends_is_disconnect() {
    abort_by_peer_during_sends_is_disconnect(siw(0));
}

/// Returns a connection and its low-level peer, whose queue pair a test can modify.
pub(crate) fn with_low_peer(keep_alive: Option<Duration>) -> (Connection, Side) {
    let config = ConnectionConfig::new().retry_count(2).keep_alive_interval(keep_alive);
    // This acknowledgment timeout is about a millisecond.
    to_low_peer(&Connector::new().ack_timeout(8).config(config))
}

/// Returns a connection of `connector`, and its low-level peer.
pub(crate) fn to_low_peer(connector: &Connector) -> (Connection, Side) {
    let channel = channel();
    let (_listener, server) = listen(&channel, roce(0));
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let peer = Side::new(request(&channel), Shape::default());
            peer.id.accept(&ConnParam::default()).expect("accept");
            channel
                .expect_event(EventType::Established)
                .expect("the connection should be established");
            peer
        });
        (connector.connect(server).expect("connect"), peer.join().expect("peer should not panic"))
    })
}

/// Checks that sends fail after all retries if the peer's queue pair has failed.
///
/// No event reports the failure.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sends_to_dead_peer_fail_after_retries() {
    let (client, peer) = with_low_peer(None);
    bring(peer.io.qp(), QpState::IB_QPS_RESET);
    let failed = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RETRY_EXC_ERR);
    let error = client
        .start_send(filled(&client, b"hello"))
        .and_then(|send| send.wait_timeout(LONG))
        .expect_err("no peer should answer");
    assert_eq!(*error.kind(), failed, "{error}");
    assert_eq!(error.errno(), libc::ETIMEDOUT);
    for later in [client.recv().map(drop), client.acquire_buffer().map(drop), client.close(LONG)] {
        let error = later.expect_err("the connection should have ended");
        assert_eq!(*error.kind(), failed, "{error}");
    }
    drop(peer);
}
