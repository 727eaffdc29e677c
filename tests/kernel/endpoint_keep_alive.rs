//! The safe tier: keep-alive probes of connections.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm_tests::rxe::counter;
use rdmacm_tests::wait_until;

use crate::endpoint_close::with_low_peer;
use crate::endpoint_connect::{objects_at, pair};
use crate::endpoint_messages::{filled, receives};
use crate::endpoint_nonblocking::{eventually, is_readable, now};
use crate::fixtures::{LONG, announce, asleep, assert_invalid, roce, siw};
use crate::modify::bring;
use crate::netdev::{Sysctl, run};

/// A short interval between probes.
const EVERY: Duration = Duration::from_millis(1);

/// Checks that a connection with keep-alive detects the failure of its idle peer.
///
/// A blocking call and an event loop detect it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn death_of_idle_peer_is_detected() {
    let before = objects_at(roce(0));
    let (waits, first) = with_low_peer(Some(EVERY));
    let (loops, second) = with_low_peer(Some(EVERY));
    let (without, third) = with_low_peer(None);
    let (tx, rx) = mpsc::channel();
    let failed = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RETRY_EXC_ERR);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            announce(&tx);
            waits.recv_timeout(LONG).expect_err("no peer should be there")
        });
        asleep(rx.recv().expect("the thread should begin"));
        for peer in [&first, &second, &third] {
            bring(peer.io.qp(), QpState::IB_QPS_RESET);
        }
        let error = waiter.join().expect("thread should not panic");
        assert_eq!(*error.kind(), failed, "{error}");
    });
    let found = eventually(&loops, || match loops.try_recv() {
        Err(error) if *error.kind() != ErrorKind::WouldBlock => Ok(error),
        other => other.map(|message| panic!("{message:?}")),
    });
    assert_eq!(*found.kind(), failed, "{found}");
    assert!(
        now(without.try_recv()).is_none(),
        "a connection without keep-alive should report no end"
    );
    // No message was lost.
    for ended in [&waits, &loops] {
        ended.flush().expect("a flush of no posts should succeed");
        ended.close(LONG).expect("close");
    }
    drop((waits, loops, without, first, second, third));
    assert_eq!(objects_at(roce(0)), before);
}

/// A filter on the loopback device that drops all packets, until this value is dropped.
pub(crate) struct Cut {
    _retries: Sysctl,
}

impl Cut {
    pub(crate) fn new() -> Self {
        // TCP gives up after few retries.
        let cut = Self { _retries: Sysctl::new("net/ipv4/tcp_retries2", "2") };
        run("tc", &["qdisc", "add", "dev", "lo", "clsact"]);
        run("tc", &["filter", "add", "dev", "lo", "ingress", "matchall", "action", "drop"]);
        cut
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        run("tc", &["qdisc", "delete", "dev", "lo", "clsact"]);
    }
}

/// Checks that TCP reports the silence of a peer only if it has data to send.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_silence_of_idle_peer_is_detected() {
    let config = ConnectionConfig::new().keep_alive_interval(Some(EVERY));
    let watched = pair(siw(0), &config);
    let unwatched = pair(siw(0), &ConnectionConfig::default());
    let cut = Cut::new();
    let end = watched[0].recv_timeout(LONG).expect("the connection should end without an error");
    assert!(end.is_none(), "the end should look like an end by the peer");
    drop(cut);
    // TCP sends again before it gives up.
    unwatched[0].post_send(filled(&unwatched[0], b"still there")).expect("post");
    receives(&unwatched[1], b"still there");
}

/// Returns the number of packets that rxe has sent.
fn packets() -> u64 {
    counter("rxe0", "sent_pkts").expect("a counter")
}

/// Probes use no buffer of messages, and cause no message at the peer.
fn probes_use_no_message_buffers(address: SocketAddr, has_looked: impl Fn()) {
    let before = objects_at(address);
    let config = ConnectionConfig::new()
        .send_buffers(1)
        .receive_buffers(1)
        .keep_alive_interval(Some(Duration::from_micros(100)));
    let both = pair(address, &config);
    let [client, server] = &both;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| receives(server, b"at last"));
        has_looked();
        client.post_send(filled(client, b"at last")).expect("post");
        waiter.join().expect("receiver should get the message");
    });
    for round in 0..100_u8 {
        let kept = filled(client, &[round; 4096]);
        assert!(now(client.try_acquire_buffer()).is_none(), "only one buffer should exist");
        client.post_send(kept).expect("the queue should have room");
        receives(server, &[round; 4096]);
        let back = filled(server, &[round]);
        drop(server.start_send(back).and_then(|send| send.wait_timeout(LONG)).expect("send"));
        receives(client, &[round]);
        client.flush_timeout(LONG).expect("flush");
    }
    thread::scope(|scope| {
        scope.spawn(|| client.close(LONG).expect("close"));
        assert!(
            server.recv_timeout(LONG).expect("receive").is_none(),
            "the connection should have ended"
        );
    });
    drop(both);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_probes_use_no_message_buffers() {
    probes_use_no_message_buffers(roce(0), || {
        let first = packets();
        wait_until("the connection probes its peer", || packets() > first + 20);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_probes_use_no_message_buffers() {
    probes_use_no_message_buffers(siw(0), || {});
}

/// Probes stop when the connection ends.
///
/// Otherwise the timer would keep waking a caller that still polls the connection.
fn probes_stop_with_connection(address: SocketAddr) {
    let before = timers();
    let config = ConnectionConfig::new().keep_alive_interval(Some(Duration::from_secs(1)));
    let [client, server] = pair(address, &config);
    assert_eq!(timers(), before + 2);
    drop(client);
    assert!(
        server.recv_timeout(LONG).expect("receive").is_none(),
        "the connection should have ended"
    );
    assert_eq!(timers(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_probes_stop_with_connection() {
    probes_stop_with_connection(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_probes_stop_with_connection() {
    probes_stop_with_connection(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn interval_bounds_are_checked() {
    let with = |keep_alive| {
        let config = ConnectionConfig::new().keep_alive_interval(Some(keep_alive));
        Connector::new().config(config).start_connect(roce(7198)).map(drop)
    };
    assert_invalid(
        &with(Duration::ZERO).expect_err("an interval of zero should be refused"),
        &["the keep-alive interval is 0"],
    );
    let for_ever = ConnectionConfig::new().keep_alive_interval(Some(Duration::MAX));
    let [client, server]: [Connection; 2] = pair(roce(0), &for_ever);
    client.post_send(filled(&client, b"hello")).expect("post");
    receives(&server, b"hello");
}

/// Returns the number of timers of this process.
///
/// After a test of tasks on smol, one of them belongs to its reactor.
fn timers() -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .expect("the descriptors")
        .map(|fd| fd.expect("read an entry of the directory").path());
    links
        .filter(|link| fs::read_link(link).is_ok_and(|to| to.ends_with("anon_inode:[timerfd]")))
        .count()
}

/// Checks that an iWARP client probes until the first message of the peer.
///
/// The kernel of a server may leave the first message unread until more data arrives.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_client_probes_until_first_message() {
    let before = timers();
    for speaks in [true, false] {
        let [client, server] = pair(siw(0), &ConnectionConfig::default());
        assert_eq!(timers(), before + 1, "only the client should have a timer");
        // The descriptor reports the timer for any operation.
        assert!(is_readable(&client, PollTimeout::NONE));
        assert!(now(client.try_recv()).is_none());
        if speaks {
            client.post_send(filled(&client, b"first")).expect("post");
            receives(&server, b"first");
            server.post_send(filled(&server, b"answer")).expect("post");
            receives(&client, b"answer");
        } else {
            // The client sends a limited number of probes.
            while timers() > before {
                assert!(is_readable(&client, PollTimeout::NONE));
                assert!(now(client.try_recv()).is_none());
            }
        }
        assert_eq!(timers(), before);
        client.flush().expect("no send should fail");
        client.close(LONG).expect("close");
    }
}
