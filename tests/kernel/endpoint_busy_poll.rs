//! The safe tier: polling before sleeping.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::ConnectionConfig;

use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{LONG, roce, siw};

/// Checks that a polling thread gets messages, deadlines and the end like a sleeping thread.
///
/// Another thread gets them meanwhile, too.
fn busy_polling_misses_no_message(address: SocketAddr) {
    let config = |busy_poll| ConnectionConfig::new().send_buffers(1).busy_poll(busy_poll);
    let [client, server] = pair(address, &config(LONG));
    // On iWARP the client must send first.
    client.post_send(filled(&client, b"first")).expect("post");
    receives(&server, b"first");
    thread::scope(|scope| {
        let polls = scope.spawn(|| receives(&server, b"a question"));
        // The other thread polls meanwhile.
        server.post_send(filled(&server, b"an answer")).expect("post");
        drop(server.acquire_buffer_timeout(LONG).expect("the buffer should return"));
        receives(&client, b"an answer");
        client.post_send(filled(&client, b"a question")).expect("post");
        polls.join().expect("receiver should not panic");
    });
    let error =
        server.recv_timeout(Duration::from_millis(2)).expect_err("no message should arrive");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");

    for busy_poll in [Duration::from_millis(2), Duration::MAX] {
        let [client, server] = pair(address, &config(busy_poll));
        thread::scope(|scope| {
            scope.spawn(|| {
                client.post_send(filled(&client, b"last")).expect("post");
                client.close(LONG).expect("close");
            });
            receives(&server, b"last");
            assert!(
                server.recv_timeout(LONG).expect("receive").is_none(),
                "the connection should have ended"
            );
        });
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_busy_polling_misses_no_message() {
    busy_polling_misses_no_message(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_busy_polling_misses_no_message() {
    busy_polling_misses_no_message(siw(0));
}
