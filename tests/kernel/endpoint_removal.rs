//! The safe tier: a device that goes while it is in use.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use ::tokio::runtime::Builder;
use rdmacm::endpoint::tokio;
use rdmacm::endpoint::{Connecting, Connection, Connector, Listener, Settings};
use rdmacm::{Error, ErrorKind, Result};

use crate::bed::{LONG, announce, asleep};
use crate::endpoint_connect::pair;
use crate::endpoint_connecting::{finish, waiting_for};
use crate::endpoint_loop::{eventually, now};
use crate::endpoint_messages::{filled, receives};
use crate::executor::in_time;
use crate::removal::Own;

/// What a thread waits for on a connection.
type Call = fn(&Connection) -> Result<Option<()>>;

fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceGone(_))
}

/// That a connection is over: the device is gone, or the other side was before, which uses it too.
#[track_caller]
fn is_over<T>(result: Result<Option<T>>) {
    match result {
        Ok(end) => assert!(end.is_none(), "it goes on"),
        Err(error) => {
            assert!(is_gone(&error) || *error.kind() == ErrorKind::Disconnected, "{error}");
        }
    }
}

/// That an attempt is over, for one of the same reasons.
#[track_caller]
fn has_failed(connecting: Connecting) {
    let error = match finish(connecting) {
        // It stood before.
        Ok(connection) => return is_over(connection.recv_timeout(LONG)),
        Err(error) => error,
    };
    let other_was_first = matches!(
        error.kind(),
        ErrorKind::Rejected(_) | ErrorKind::Unreachable(_) | ErrorKind::Disconnected
    );
    assert!(is_gone(&error) || other_was_first, "{error}");
}

/// Connections, attempts and a listener, all of them waited for.
fn everybody_hears_of_it(own: &Own) {
    let listener = Listener::bind(own.address).expect("listen");
    let server: SocketAddr = listener.local_addr().expect("an IP address");
    let settings = Settings { send_buffers: 1, ..Settings::default() };
    let waits = pair(own.address, &settings);
    let [loops, quiet] = pair(own.address, &settings);
    waits[0].post(filled(&waits[0], b"kept")).expect("post");
    let message = waits[1].recv_timeout(LONG).expect("receive").expect("a message");
    let buffer = waits[1].buffer().expect("the only one");
    let connector = Connector::new().timeout(LONG);
    let unanswered = waiting_for(&connector, &listener, "ESTABLISHED");
    let request = listener.incoming_timeout(LONG).expect("a request");
    let unfinished = waiting_for(&connector, &listener, "ESTABLISHED");
    let incoming = listener.incoming_timeout(LONG).expect("a request");
    let accepting = incoming.start(&settings, &[], LONG).expect("start");
    let resolving = connector.start(server).expect("start");
    assert!(now(loops.try_recv()).is_none());

    let (says, hears) = mpsc::channel();
    let deletion = thread::scope(|scope| {
        let receive: Call = |connection| Ok(connection.recv_timeout(LONG)?.map(drop));
        let take: Call = |connection| connection.buffer_timeout(LONG).map(drop).map(Some);
        let sleepers: Vec<_> = [(&waits[0], receive), (&waits[1], receive), (&waits[1], take)]
            .into_iter()
            .map(|(connection, call)| {
                let says = says.clone();
                scope.spawn(move || {
                    announce(&says);
                    call(connection)
                })
            })
            .collect();
        let listens = scope.spawn(|| {
            announce(&says);
            listener.incoming_timeout(LONG).expect_err("nobody asks")
        });
        (0..4).for_each(|_| asleep(hears.recv().expect("a thread begins")));
        let deletion = own.delete();
        for sleeper in sleepers {
            is_over(sleeper.join().expect("it comes back"));
        }
        let error = listens.join().expect("it comes back");
        assert!(is_gone(&error), "{error}");
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
    request.accept(&settings, &[], LONG).expect_err("its device is gone");
    // What was not waited for says so too.
    is_over(quiet.recv_timeout(LONG));
    is_over(quiet.buffer().map(Some));
    for connection in [&loops, &quiet] {
        connection.close(LONG).expect("nothing was lost");
    }
    drop((listener, waits, loops, quiet));
    assert_eq!(*message, *b"kept");
    assert!(deletion.waits(), "there is memory of it");
    drop(message);
    drop(buffer);
    deletion.finish();
    own.comes_back();
    let [client, server] = pair(own.address, &settings);
    client.post(filled(&client, b"again")).expect("post");
    receives(&server, b"again");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn everybody_on_rxe_hears_of_it() {
    everybody_hears_of_it(&Own::rxe());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn everybody_on_siw_hears_of_it() {
    everybody_hears_of_it(&Own::siw());
}

/// What waits for the peer's answer to the end, when the device goes.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn who_closes_does_not_wait_for_a_device_that_is_gone() {
    let own = Own::rxe();
    // The peers do not look after their connections, and so do not answer.
    let [waits, silent] = pair(own.address, &Settings::default());
    let [unheard, idle] = pair(own.address, &Settings::default());
    // Several, of which some are told by their queue of what was posted when the device is gone already.
    let (try_to, mute): (Vec<_>, Vec<_>) =
        (0..16).map(|_| <(_, _)>::from(pair(own.address, &Settings::default()))).unzip();
    for tries in &try_to {
        assert!(now(tries.try_close()).is_none(), "nobody answers");
    }
    let (says, hears) = mpsc::channel();
    let deletion = thread::scope(|scope| {
        let closing = scope.spawn(|| {
            announce(&says);
            waits.close(LONG)
        });
        asleep(hears.recv().expect("the thread begins"));
        let deletion = own.delete();
        closing.join().expect("it comes back").expect("nothing was lost");
        deletion
    });
    for tries in &try_to {
        eventually(tries, || tries.try_close());
    }
    // Those that have not heard of it.
    unheard.close(LONG).expect("nothing was lost");
    idle.try_close().expect("nothing was lost");
    drop((waits, silent, try_to, mute, unheard, idle));
    deletion.finish();
    own.comes_back();
}

/// That the device is gone the descriptor tells once; a listener that has passed from a thread to a task knows it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_listener_whose_device_is_gone_is_passed_on() {
    let own = Own::rxe();
    let listener = Listener::bind(own.address).expect("listen");
    let deletion = own.delete();
    let error = listener.incoming_timeout(LONG).expect_err("nobody asks");
    assert!(is_gone(&error), "{error}");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::Listener::from_blocking(listener).expect("the runtime watches it");
        for _ in 0..2 {
            let error = in_time(listener.accept()).await.expect_err("nobody asks");
            assert!(is_gone(&error), "{error}");
        }
    });
    drop(runtime);
    deletion.finish();
    own.comes_back();
}
