//! The safe tier: removal of a device in use.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use ::tokio::runtime::Builder;
use rdmacm::endpoint::tokio;
use rdmacm::endpoint::{Connecting, Connection, ConnectionConfig, Connector, Listener};
use rdmacm::{Error, ErrorKind, Result};

use crate::endpoint_connect::pair;
use crate::endpoint_connecting::{ANSWER, finish, waiting_for};
use crate::endpoint_messages::{filled, receives};
use crate::endpoint_nonblocking::{eventually, now};
use crate::executor::in_time;
use crate::fixtures::{LONG, announce, asleep, is_card};
use crate::removal::Own;

/// A call with which a thread waits on a connection.
type Call = fn(&Connection) -> Result<Option<()>>;

fn is_removal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceRemoved(_))
}

/// Asserts that a connection has ended.
///
/// The device was removed, or the other side, which also uses it, ended earlier.
#[track_caller]
fn is_over<T>(result: Result<Option<T>>) {
    match result {
        Ok(end) => assert!(end.is_none(), "connection should have ended"),
        Err(error) => {
            assert!(is_removal(&error) || *error.kind() == ErrorKind::Disconnected, "{error}");
        }
    }
}

/// Asserts that an attempt failed because the device was removed or the other side ended earlier.
#[track_caller]
fn has_failed(connecting: Connecting) {
    let error = match finish(connecting) {
        // The connection was established before the removal.
        Ok(connection) => return is_over(connection.recv_timeout(LONG)),
        Err(error) => error,
    };
    let other_was_first = matches!(
        error.kind(),
        ErrorKind::Rejected(_) | ErrorKind::Unreachable(_) | ErrorKind::Disconnected
    );
    assert!(is_removal(&error) || other_was_first, "{error}");
}

/// Connections, attempts and a listener, each with a waiting thread.
fn removal_ends_every_call(own: &Own) {
    let listener = Listener::bind(own.address).expect("listen");
    let server: SocketAddr = listener.local_addr().expect("an IP address");
    let config = ConnectionConfig::new().send_buffers(1);
    let waits = pair(own.address, &config);
    let [loops, quiet] = pair(own.address, &config);
    waits[0].post_send(filled(&waits[0], b"kept")).expect("post");
    let message = waits[1].recv_timeout(LONG).expect("receive").expect("a message");
    let buffer = waits[1].acquire_buffer().expect("the only buffer should be free");
    let connector = Connector::new().total_timeout(LONG);
    let unanswered = waiting_for(&connector, &listener, ANSWER);
    let request = listener.accept_timeout(LONG).expect("a request");
    let unfinished = waiting_for(&connector, &listener, ANSWER);
    let incoming = listener.accept_timeout(LONG).expect("a request");
    let accepting = incoming.start_accept(&config, &[], LONG).expect("start");
    let resolving = connector.start_connect(server).expect("start");
    assert!(now(loops.try_recv()).is_none());

    let (tx, rx) = mpsc::channel();
    let deletion = thread::scope(|scope| {
        let receive: Call = |connection| Ok(connection.recv_timeout(LONG)?.map(drop));
        let take: Call = |connection| connection.acquire_buffer_timeout(LONG).map(drop).map(Some);
        let sleepers: Vec<_> = [(&waits[0], receive), (&waits[1], receive), (&waits[1], take)]
            .into_iter()
            .map(|(connection, call)| {
                let tx = tx.clone();
                scope.spawn(move || {
                    announce(&tx);
                    call(connection)
                })
            })
            .collect();
        let listens = scope.spawn(|| {
            announce(&tx);
            listener.accept_timeout(LONG).expect_err("no request should come")
        });
        (0..4).for_each(|_| asleep(rx.recv().expect("a thread should begin")));
        let deletion = own.delete();
        for sleeper in sleepers {
            is_over(sleeper.join().expect("thread should not panic"));
        }
        let error = listens.join().expect("thread should not panic");
        assert!(is_removal(&error), "{error}");
        deletion
    });
    eventually(&loops, || match loops.try_recv() {
        Err(error) if *error.kind() == ErrorKind::WouldBlock => Err(error),
        other => {
            is_over(other);
            Ok(())
        }
    });
    for attempt in [unanswered, unfinished, accepting, resolving] {
        has_failed(attempt);
    }
    request.accept(&config, &[], LONG).expect_err("device should be removed");
    // Calls that do not wait report the removal, too.
    is_over(quiet.recv_timeout(LONG));
    is_over(quiet.acquire_buffer().map(Some));
    for connection in [&loops, &quiet] {
        connection.close(LONG).expect("no message should be lost");
    }
    drop((listener, waits, loops, quiet));
    assert_eq!(*message, *b"kept");
    // The driver of the card ends the context, whose memory is registered no more.
    assert!(is_card() || deletion.waits(), "the deletion should wait for the memory");
    drop(message);
    drop(buffer);
    deletion.finish();
    own.comes_back();
    let [client, server] = pair(own.address, &config);
    client.post_send(filled(&client, b"again")).expect("post");
    receives(&server, b"again");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn removal_ends_every_call_on_rxe() {
    removal_ends_every_call(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn removal_ends_every_call_on_siw() {
    removal_ends_every_call(&Own::siw());
}

/// Checks that a close that waits for the peer's answer returns when the device is removed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_does_not_wait_for_removed_device() {
    let own = Own::roce();
    // The peers make no calls, and so do not answer.
    let [waits, silent] = pair(own.address, &ConnectionConfig::default());
    let [unaware, idle] = pair(own.address, &ConnectionConfig::default());
    // With several connections, some queues report posted requests after the removal of the device.
    let (try_to, mute): (Vec<_>, Vec<_>) =
        (0..16).map(|_| <(_, _)>::from(pair(own.address, &ConnectionConfig::default()))).unzip();
    for tries in &try_to {
        assert!(now(tries.try_close()).is_none(), "no peer should answer");
    }
    let (tx, rx) = mpsc::channel();
    let deletion = thread::scope(|scope| {
        let closing = scope.spawn(|| {
            announce(&tx);
            waits.close(LONG)
        });
        asleep(rx.recv().expect("the thread should begin"));
        let deletion = own.delete();
        closing.join().expect("thread should not panic").expect("no message should be lost");
        deletion
    });
    for tries in &try_to {
        eventually(tries, || tries.try_close());
    }
    // These connections have not detected the removal.
    unaware.close(LONG).expect("no message should be lost");
    idle.try_close().expect("no message should be lost");
    drop((waits, silent, try_to, mute, unaware, idle));
    deletion.finish();
    own.comes_back();
}

/// Checks that the descriptor reports the removal of the device once.
///
/// A listener that is converted from threads to tasks still reports it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn removal_is_known_after_listener_conversion() {
    let own = Own::roce();
    let listener = Listener::bind(own.address).expect("listen");
    let deletion = own.delete();
    let error = listener.accept_timeout(LONG).expect_err("no request should come");
    assert!(is_removal(&error), "{error}");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener =
            tokio::Listener::from_blocking(listener).expect("the runtime should watch the object");
        for _ in 0..2 {
            let error = in_time(listener.accept()).await.expect_err("no request should come");
            assert!(is_removal(&error), "{error}");
        }
    });
    drop(runtime);
    deletion.finish();
    own.comes_back();
}
