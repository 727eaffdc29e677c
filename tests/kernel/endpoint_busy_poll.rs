//! The safe tier: polling before sleeping.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::Settings;

use crate::bed::{LONG, rxe, siw};
use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};

/// It hears of messages, deadlines and the end as one that sleeps, and so does another thread meanwhile.
fn one_that_polls_misses_nothing(address: SocketAddr) {
    let settings = |busy_poll| Settings { send_buffers: 1, busy_poll, ..Settings::default() };
    let [client, server] = pair(address, &settings(LONG));
    // On iWARP the client is to be the first.
    client.post(filled(&client, b"first")).expect("post");
    receives(&server, b"first");
    thread::scope(|scope| {
        let polls = scope.spawn(|| receives(&server, b"a question"));
        // While that one polls.
        server.post(filled(&server, b"an answer")).expect("post");
        drop(server.buffer_timeout(LONG).expect("it is back"));
        receives(&client, b"an answer");
        client.post(filled(&client, b"a question")).expect("post");
        polls.join().expect("it is received");
    });
    let error = server.recv_timeout(Duration::from_millis(2)).expect_err("there is nothing");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");

    for busy_poll in [Duration::from_millis(2), Duration::MAX] {
        let [client, server] = pair(address, &settings(busy_poll));
        thread::scope(|scope| {
            scope.spawn(|| {
                client.post(filled(&client, b"last")).expect("post");
                client.close(LONG).expect("close");
            });
            receives(&server, b"last");
            assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
        });
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_one_that_polls_misses_nothing() {
    one_that_polls_misses_nothing(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_one_that_polls_misses_nothing() {
    one_that_polls_misses_nothing(siw(0));
}
