//! The safe tier: connections that are kept alive.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, Connector, Settings};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm_tests::wait_until;

use crate::bed::{LONG, announce, asleep, assert_invalid, rxe, siw};
use crate::endpoint_connect::{objects_at, pair};
use crate::endpoint_end::with_low_peer;
use crate::endpoint_loop::{eventually, is_readable, now};
use crate::endpoint_messages::{filled, receives};
use crate::modify::bring;
use crate::netdev::{Sysctl, run};

/// Often.
const EVERY: Duration = Duration::from_millis(1);

/// Whether it waits in a call or in a loop, a connection hears that its idle peer is dead, if it looks after that.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_death_of_an_idle_peer_is_heard_of() {
    let before = objects_at(rxe(0));
    let (waits, first) = with_low_peer(Some(EVERY));
    let (loops, second) = with_low_peer(Some(EVERY));
    let (without, third) = with_low_peer(None);
    let (says, hears) = mpsc::channel();
    let failed = ErrorKind::Failed(WcStatus::IB_WC_RETRY_EXC_ERR);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            announce(&says);
            waits.recv_timeout(LONG).expect_err("nobody is there")
        });
        asleep(hears.recv().expect("the thread begins"));
        for peer in [&first, &second, &third] {
            bring(peer.io.qp(), QpState::IB_QPS_RESET);
        }
        let error = waiter.join().expect("it comes back");
        assert_eq!(*error.kind(), failed, "{error}");
    });
    let found = eventually(&loops, || match loops.try_recv() {
        Err(error) if *error.kind() != ErrorKind::WouldBlock => Ok(error),
        other => other.map(|message| panic!("{message:?}")),
    });
    assert_eq!(*found.kind(), failed, "{found}");
    assert!(now(without.try_recv()).is_none(), "it does not look");
    // No message was lost.
    for ended in [&waits, &loops] {
        ended.flush().expect("nothing was posted");
        ended.close(LONG).expect("close");
    }
    drop((waits, loops, without, first, second, third));
    assert_eq!(objects_at(rxe(0)), before);
}

/// The network of the guest with itself, which loses everything until this goes.
pub(crate) struct Cut {
    _retries: Sysctl,
}

impl Cut {
    pub(crate) fn new() -> Self {
        // TCP gives up soon.
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

/// TCP says so, when it has something to send.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_silence_of_an_idle_peer_is_heard_of() {
    let settings = Settings { keep_alive: Some(EVERY), ..Settings::default() };
    let watched = pair(siw(0), &settings);
    let unwatched = pair(siw(0), &Settings::default());
    let cut = Cut::new();
    let end = watched[0].recv_timeout(LONG).expect("it ended");
    assert!(end.is_none(), "as if the peer had ended it");
    drop(cut);
    // A wire that works again, in time.
    unwatched[0].post(filled(&unwatched[0], b"still there")).expect("post");
    receives(&unwatched[1], b"still there");
}

/// How many packets rxe has sent.
fn packets() -> u64 {
    let counter = Path::new("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts");
    fs::read_to_string(counter).expect("read").trim().parse().expect("a number")
}

/// Looking after the peer takes nothing from messages, and the peer does not hear of it.
fn messages_have_their_places(address: SocketAddr, has_looked: impl Fn()) {
    let before = objects_at(address);
    let settings = Settings {
        send_buffers: 1,
        receive_buffers: 1,
        keep_alive: Some(Duration::from_micros(100)),
        ..Settings::default()
    };
    let both = pair(address, &settings);
    let [client, server] = &both;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| receives(server, b"at last"));
        has_looked();
        client.post(filled(client, b"at last")).expect("post");
        waiter.join().expect("it comes");
    });
    for round in 0..100_u8 {
        let kept = filled(client, &[round; 4096]);
        assert!(now(client.try_buffer()).is_none(), "there is one");
        client.post(kept).expect("there is room for it");
        receives(server, &[round; 4096]);
        let back = filled(server, &[round]);
        drop(server.start_send(back).and_then(|send| send.wait_timeout(LONG)).expect("send"));
        receives(client, &[round]);
        client.flush_timeout(LONG).expect("flush");
    }
    thread::scope(|scope| {
        scope.spawn(|| client.close(LONG).expect("close"));
        assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
    });
    drop(both);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_have_their_places() {
    messages_have_their_places(rxe(0), || {
        let first = packets();
        wait_until("it looks after its peer", || packets() > first + 20);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_have_their_places() {
    messages_have_their_places(siw(0), || {});
}

/// What would wake for ever who has the connection in a poll still.
fn stops_with_the_connection(address: SocketAddr) {
    let before = timers();
    let settings = Settings { keep_alive: Some(Duration::from_secs(1)), ..Settings::default() };
    let [client, server] = pair(address, &settings);
    assert_eq!(timers(), before + 2);
    drop(client);
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
    assert_eq!(timers(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_it_stops_with_the_connection() {
    stops_with_the_connection(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_it_stops_with_the_connection() {
    stops_with_the_connection(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn it_takes_some_time() {
    let with = |keep_alive| {
        let settings = Settings { keep_alive: Some(keep_alive), ..Settings::default() };
        Connector::new().settings(settings).start(rxe(7198)).map(drop)
    };
    assert_invalid(&with(Duration::ZERO).expect_err("all the time"), &["keeps it alive"]);
    let for_ever = Settings { keep_alive: Some(Duration::MAX), ..Settings::default() };
    let [client, server]: [Connection; 2] = pair(rxe(0), &for_ever);
    client.post(filled(&client, b"hello")).expect("post");
    receives(&server, b"hello");
}

/// Returns the number of timers of this process. A test of tasks on smol leaves that of its reactor behind.
fn timers() -> usize {
    let links =
        fs::read_dir("/proc/self/fd").expect("the descriptors").map(|fd| fd.expect("one").path());
    links
        .filter(|link| fs::read_link(link).is_ok_and(|to| to.ends_with("anon_inode:[timerfd]")))
        .count()
}

/// On iWARP the kernel of a server may overlook a first message until something else comes.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_who_connects_has_the_peer_look_until_that_says_something() {
    let before = timers();
    for speaks in [true, false] {
        let [client, server] = pair(siw(0), &Settings::default());
        assert_eq!(timers(), before + 1, "the client's");
        // Whatever the program waits for.
        assert!(is_readable(&client, PollTimeout::NONE));
        assert!(now(client.try_recv()).is_none());
        if speaks {
            client.post(filled(&client, b"first")).expect("post");
            receives(&server, b"first");
            server.post(filled(&server, b"answer")).expect("post");
            receives(&client, b"answer");
        } else {
            // A few times only.
            while timers() > before {
                assert!(is_readable(&client, PollTimeout::NONE));
                assert!(now(client.try_recv()).is_none());
            }
        }
        assert_eq!(timers(), before);
        client.flush().expect("nothing failed");
        client.close(LONG).expect("close");
    }
}
