//! The safe tier: a peer that leaves while a thread waits for it, in each call.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use rdmacm::endpoint::{Buffer, Connection, ConnectionConfig, RemoteAccess, RemoteMemory};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm::{ErrorKind, Result};

use crate::endpoint_close::with_low_peer;
use crate::endpoint_connect::{objects_at, pair, pair_of};
use crate::endpoint_keep_alive::Cut;
use crate::endpoint_messages::filled;
use crate::endpoint_nonblocking::now;
use crate::fixtures::{LONG, Side, announce, asleep, roce, siw};
use crate::modify::bring;
use crate::netdev::Sysctl;

/// Returns remote memory that only the peer can access.
fn theirs() -> RemoteMemory {
    RemoteMemory::new(0x1000, 1, 8, RemoteAccess::READ | RemoteAccess::WRITE | RemoteAccess::ATOMIC)
        .expect("the address should be valid")
}

/// A waiting call with its name. The call announces that it will wait, and returns its result.
pub(crate) type Call = (&'static str, fn(&Connection, &mut dyn FnMut()) -> Result<()>);

/// All waiting calls, on a connection whose peer has no buffer for the first message.
///
/// Each operation that needs the peer waits behind this message. Each call announces that it will wait.
pub(crate) const CALLS: [Call; 10] = [
    ("send", |connection, waits| {
        let buffer = connection.acquire_buffer()?;
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
        assert!(message.is_none(), "the peer should have sent no message");
        Ok(())
    }),
    ("write", |connection, waits| {
        let buffer = connection.acquire_buffer()?;
        waits();
        connection
            .start_write(one(buffer), &theirs(), 0)
            .and_then(|write| write.wait_timeout(LONG))
            .map(drop)
    }),
    ("read", |connection, waits| {
        let buffer = connection.acquire_buffer()?;
        waits();
        connection
            .start_read(one(buffer), &theirs(), 0)
            .and_then(|read| read.wait_timeout(LONG))
            .map(drop)
    }),
    ("compare_swap", |connection, waits| {
        let buffer = connection.acquire_buffer()?;
        waits();
        connection
            .start_compare_swap(buffer, &theirs(), 0, 1, 2)
            .and_then(|swap| swap.wait_timeout(LONG))
            .map(drop)
    }),
    ("fetch_add", |connection, waits| {
        let buffer = connection.acquire_buffer()?;
        waits();
        connection
            .start_fetch_add(buffer, &theirs(), 0, 1)
            .and_then(|add| add.wait_timeout(LONG))
            .map(drop)
    }),
    ("buffer", |connection, waits| {
        let mut taken = Vec::new();
        while let Some(buffer) = now(connection.try_acquire_buffer()) {
            taken.push(buffer);
        }
        waits();
        connection.acquire_buffer_timeout(LONG).map(drop)
    }),
    ("post_bytes", |connection, waits| {
        let mut taken = Vec::new();
        while let Some(buffer) = now(connection.try_acquire_buffer()) {
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

/// Sets the length of a buffer to one byte.
fn one(mut buffer: Buffer) -> Buffer {
    buffer.set_len(1).expect("the length should fit");
    buffer
}

/// Makes each call wait on its own connection until `goes` has returned.
///
/// The peer does not receive `message`. Each call must return one of `ends`.
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
            let (tx, rx) = mpsc::channel();
            let waiter = scope.spawn(move || call(connection, &mut || announce(&tx)));
            asleep(rx.recv().expect("the thread should begin"));
            (name, waiter)
        });
        let waiters: Vec<_> = waiters.collect();
        goes();
        for (name, waiter) in waiters {
            match waiter.join().expect("thread should not panic") {
                Ok(()) => assert_eq!((*name, &ends[0]), ("recv", &ErrorKind::Disconnected)),
                Err(error) => assert!(ends.contains(error.kind()), "{name}: {error}"),
            }
        }
    });
}

/// Runs [`from_every_call`] with low-level peers without receives, and passes the peers to `goes`.
fn from_every_call_to_low_peers(goes: impl Fn(Vec<Side>) -> Vec<Side>, ends: &[ErrorKind]) {
    let before = objects_at(roce(0));
    let (connections, peers): (Vec<_>, Vec<_>) = CALLS.iter().map(|_| with_low_peer(None)).unzip();
    let mut left = Vec::new();
    from_every_call(CALLS.iter().zip(connections), b"without receive", || left = goes(peers), ends);
    drop(left);
    assert_eq!(objects_at(roce(0)), before);
}

const SILENCE: ErrorKind = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RETRY_EXC_ERR);

/// Destroys the peer's queue pair before this side gets the event.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn disconnect_by_peer_ends_every_call() {
    let end = |peers| {
        drop(peers);
        Vec::new()
    };
    from_every_call_to_low_peers(end, &[ErrorKind::Disconnected, SILENCE]);
}

/// Checks that every call ends if the peer's queue pair has failed, which no event reports.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn silent_peer_ends_every_call() {
    let die = |peers: Vec<Side>| {
        peers.iter().for_each(|peer| bring(peer.io.qp(), QpState::IB_QPS_RESET));
        peers
    };
    from_every_call_to_low_peers(die, &[SILENCE]);
}

/// Drops all packets until TCP gives up. The first messages exceed the buffers of TCP.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_cut_wire_ends_every_call() {
    // A message exceeds the largest packet. On Linux 6.1, siw lets all pairs together pin 8 MiB.
    const MESSAGE: usize = 96 << 10;
    let before = objects_at(siw(0));
    let kept = Sysctl::new("net/ipv4/tcp_wmem", "4096 4096 4096");
    let [ours, theirs] = [2, 1].map(|send_buffers| {
        ConnectionConfig::new()
            .send_buffers(send_buffers)
            .receive_buffers(1)
            .send_buffer_size(MESSAGE)
            .receive_buffer_size(MESSAGE)
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

/// Checks that the end of the peer counts as an answer for a close that waits.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_succeeds_when_peer_leaves_unanswered() {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let closes = scope.spawn(|| {
            announce(&tx);
            client.close(LONG)
        });
        asleep(rx.recv().expect("the thread should begin"));
        drop(server);
        closes.join().expect("thread should not panic").expect("no message should be lost");
    });
}

/// Checks that the last message arrives before the end, even if a thread that wakes late finds both.
fn messages_precede_end(address: SocketAddr) {
    for round in 0..10 {
        let [client, server] = pair(address, &ConnectionConfig::default());
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                announce(&tx);
                let message = server.recv_timeout(LONG).expect("receive");
                assert_eq!(*message.expect("the message should precede the end"), [round]);
                assert!(
                    server.recv_timeout(LONG).expect("receive").is_none(),
                    "the connection should have ended"
                );
            });
            asleep(rx.recv().expect("the thread should begin"));
            client.post_send(filled(&client, &[round])).expect("post");
            client.close(LONG).expect("close");
            receiver.join().expect("receiver should not panic");
        });
    }
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
