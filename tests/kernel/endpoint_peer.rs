//! The safe tier: a peer that goes while somebody waits for it in whatever call.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use rdmacm::endpoint::{Buffer, Connection, Remote, Rights, Settings};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm::{ErrorKind, Result};

use crate::bed::{LONG, Side, announce, asleep, rxe, siw};
use crate::endpoint_connect::{objects_at, pair, pair_of};
use crate::endpoint_end::with_low_peer;
use crate::endpoint_keep_alive::Cut;
use crate::endpoint_loop::now;
use crate::endpoint_messages::filled;
use crate::modify::bring;
use crate::netdev::Sysctl;

/// Something of the peer's.
fn theirs() -> Remote {
    Remote::new(0x1000, 1, 8, Rights::READ | Rights::WRITE | Rights::ATOMIC).expect("it may be")
}

/// What a thread waits for: that it says so, or what it got.
pub(crate) type Call = (&'static str, fn(&Connection, &mut dyn FnMut()) -> Result<()>);

/// All calls that wait, on a connection whose peer has no buffer for what was sent first: all that needs the peer waits
/// behind that. Each says when it will wait.
pub(crate) const CALLS: [Call; 10] = [
    ("send", |connection, waits| {
        let buffer = connection.buffer()?;
        waits();
        connection.start_send(buffer).and_then(|send| send.wait_timeout(LONG)).map(drop)
    }),
    ("flush", |connection, waits| {
        waits();
        connection.flush_timeout(LONG)
    }),
    ("recv", |connection, waits| {
        waits();
        let message = connection.recv_timeout(LONG)?;
        assert!(message.is_none(), "it has sent nothing");
        Ok(())
    }),
    ("write", |connection, waits| {
        let buffer = connection.buffer()?;
        waits();
        connection
            .start_write(one(buffer), &theirs(), 0)
            .and_then(|write| write.wait_timeout(LONG))
            .map(drop)
    }),
    ("read", |connection, waits| {
        let buffer = connection.buffer()?;
        waits();
        connection
            .start_read(one(buffer), &theirs(), 0)
            .and_then(|read| read.wait_timeout(LONG))
            .map(drop)
    }),
    ("compare_swap", |connection, waits| {
        waits();
        connection
            .start_compare_swap(&theirs(), 0, 1, 2)
            .and_then(|swap| swap.wait_timeout(LONG))
            .map(drop)
    }),
    ("fetch_add", |connection, waits| {
        waits();
        connection.start_fetch_add(&theirs(), 0, 1).and_then(|add| add.wait_timeout(LONG)).map(drop)
    }),
    ("buffer", |connection, waits| {
        let mut taken = Vec::new();
        while let Some(buffer) = now(connection.try_buffer()) {
            taken.push(buffer);
        }
        waits();
        connection.buffer_timeout(LONG).map(drop)
    }),
    ("post_bytes", |connection, waits| {
        let mut taken = Vec::new();
        while let Some(buffer) = now(connection.try_buffer()) {
            taken.push(buffer);
        }
        waits();
        connection.post_bytes(b"x")
    }),
    ("close", |connection, waits| {
        waits();
        connection.close(LONG)
    }),
];

/// One byte.
fn one(mut buffer: Buffer) -> Buffer {
    buffer.set_len(1).expect("it fits");
    buffer
}

/// Has each of the calls wait on a connection of its own, whose peer does not take `message`, until `goes` has happened.
/// Each is to say one of `ends`.
fn from_every_call<'a>(
    calls: impl IntoIterator<Item = (&'a Call, Connection)>,
    message: &[u8],
    goes: impl FnOnce(),
    ends: &[ErrorKind],
) {
    let calls: Vec<_> = calls.into_iter().collect();
    thread::scope(|scope| {
        let waiters = calls.iter().map(|((name, call), connection)| {
            connection.post_bytes(message).expect("post");
            let (says, hears) = mpsc::channel();
            let waiter = scope.spawn(move || call(connection, &mut || announce(&says)));
            asleep(hears.recv().expect("the thread begins"));
            (name, waiter)
        });
        let waiters: Vec<_> = waiters.collect();
        goes();
        for (name, waiter) in waiters {
            match waiter.join().expect("it comes back") {
                Ok(()) => assert_eq!((*name, &ends[0]), ("recv", &ErrorKind::Disconnected)),
                Err(error) => assert!(ends.contains(error.kind()), "{name}: {error}"),
            }
        }
    });
}

/// The same, with peers that have no buffer and are what `goes` makes of them.
fn from_every_call_to_low_peers(goes: impl Fn(Vec<Side>) -> Vec<Side>, ends: &[ErrorKind]) {
    let before = objects_at(rxe(0));
    let (connections, peers): (Vec<_>, Vec<_>) = CALLS.iter().map(|_| with_low_peer(None)).unzip();
    let mut left = Vec::new();
    from_every_call(CALLS.iter().zip(connections), b"nobody takes it", || left = goes(peers), ends);
    drop(left);
    assert_eq!(objects_at(rxe(0)), before);
}

const SILENCE: ErrorKind = ErrorKind::Failed(WcStatus::IB_WC_RETRY_EXC_ERR);

/// Its queue pair goes before this side hears of it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_peer_ends_it() {
    let end = |peers| {
        drop(peers);
        Vec::new()
    };
    from_every_call_to_low_peers(end, &[ErrorKind::Disconnected, SILENCE]);
}

/// Its queue pair is dead, of which nobody tells.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_peer_falls_silent() {
    let die = |peers: Vec<Side>| {
        peers.iter().for_each(|peer| bring(peer.io.qp(), QpState::IB_QPS_RESET));
        peers
    };
    from_every_call_to_low_peers(die, &[SILENCE]);
}

/// The wire takes nothing any more, until TCP gives up: what is sent first is more than that keeps.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_wire_is_cut() {
    // More than the largest packet; and siw of 6.1 lets all pairs together pin 8 MiB.
    const MESSAGE: usize = 96 << 10;
    let before = objects_at(siw(0));
    let kept = Sysctl::new("net/ipv4/tcp_wmem", "4096 4096 4096");
    let [ours, theirs] = [2, 1].map(|send_buffers| Settings {
        send_buffers,
        receive_buffers: 1,
        send_buffer_size: MESSAGE,
        receive_buffer_size: MESSAGE,
        ..Settings::default()
    });
    // siw has no atomics.
    let calls = CALLS.iter().filter(|(name, _)| !["compare_swap", "fetch_add"].contains(name));
    let (calls, peers): (Vec<_>, Vec<_>) = calls
        .map(|call| {
            let [client, server] = pair_of(siw(0), [&ours, &theirs]);
            ((call, client), server)
        })
        .unzip();
    let cut = Cut::new();
    from_every_call(calls, &[0; MESSAGE], || {}, &[ErrorKind::Disconnected]);
    drop((cut, kept, peers));
    assert_eq!(objects_at(siw(0)), before);
}

/// Closing waits for the peer's answer when all was sent; that the peer is gone is one too.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_peer_ends_it_instead_of_answering() {
    let [client, server] = pair(rxe(0), &Settings::default());
    let (says, hears) = mpsc::channel();
    thread::scope(|scope| {
        let closes = scope.spawn(|| {
            announce(&says);
            client.close(LONG)
        });
        asleep(hears.recv().expect("the thread begins"));
        drop(server);
        closes.join().expect("it comes back").expect("nothing was lost");
    });
}

/// The last message and the end come so close together that a thread which wakes late finds both.
fn the_end_comes_after_the_message(address: SocketAddr) {
    for round in 0..10 {
        let [client, server] = pair(address, &Settings::default());
        let (says, hears) = mpsc::channel();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                announce(&says);
                let message = server.recv_timeout(LONG).expect("receive");
                assert_eq!(*message.expect("the message is first"), [round]);
                assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
            });
            asleep(hears.recv().expect("the thread begins"));
            client.post(filled(&client, &[round])).expect("post");
            client.close(LONG).expect("close");
            receiver.join().expect("it receives");
        });
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_the_end_comes_after_the_message() {
    the_end_comes_after_the_message(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_end_comes_after_the_message() {
    the_end_comes_after_the_message(siw(0));
}
