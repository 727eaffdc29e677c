//! The safe tier: commands that the kernel refuses, to one thread and for once, in the middle of something.

use std::net::SocketAddr;

use rdmacm::endpoint::{Connection, DatagramSettings, DatagramSocket, Settings};
use rdmacm::{Error, ErrorKind, Result, WrongProcess};

use crate::bed::{LONG, rxe, siw};
use crate::child::by_a_stranger;
use crate::endpoint_connect::pair;
use crate::endpoint_datagrams::{self, Nowhere, becomes_readable, no_route, with_nowhere};
use crate::endpoint_loop;
use crate::endpoint_messages::{filled, receives};

/// The error of a call whose command was refused.
#[track_caller]
fn refused<T>(result: Result<T>) -> Error {
    let Err(error) = result else { panic!("it had success") };
    let how = WrongProcess::Credentials;
    assert_eq!(*error.kind(), ErrorKind::WrongProcess(how), "{error}");
    error
}

/// That all the buffers are there, and no more.
fn has_all_buffers(socket: &DatagramSocket) {
    let all = DatagramSettings::default().send_buffers;
    let taken: Vec<_> = (0..all).map(|_| socket.buffer_timeout(LONG).expect("a buffer")).collect();
    assert!(endpoint_datagrams::now(socket.try_buffer()).is_none());
    drop(taken);
}

/// A socket that has failed is set up again by the next call that can, and loses no buffer by those that cannot.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_socket_is_set_up_again_later() {
    let Nowhere { client, server, back, nowhere } = with_nowhere();
    for round in 0..3_u8 {
        let filled = |bytes: &[u8]| endpoint_datagrams::filled(&client, bytes);
        drop(client.send_to_timeout(filled(&[round]), &back, LONG).expect("send"));
        endpoint_datagrams::receives(&server, &[round]);
        let held = filled(b"held");
        assert!(endpoint_datagrams::now(client.try_recv_from()).is_none());
        client.post_to(filled(b"lost"), &nowhere).expect("post");
        by_a_stranger(|| {
            refused(loop {
                becomes_readable(&[&client]);
                match client.try_recv_from() {
                    // It was readable for nothing.
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
                    other => break other,
                }
            });
            refused(client.post_to(held, &back));
            refused(client.recv_from_timeout(LONG));
        });
        let error = client.flush_timeout(LONG).expect_err("one is lost");
        assert!(no_route(&error), "{error}");
        has_all_buffers(&client);
    }
}

fn has_all_of(connection: &Connection) {
    let all = Settings::default().send_buffers;
    let taken: Vec<_> =
        (0..all).map(|_| connection.buffer_timeout(LONG).expect("a buffer")).collect();
    assert!(endpoint_loop::now(connection.try_buffer()).is_none());
    drop(taken);
}

/// A message that stands in the queue, of which the device was not told, goes out with the next one, and its buffer
/// comes back to the connection, as nobody waits for it.
fn a_message_goes_later(address: SocketAddr) {
    let [client, server] = pair(address, &Settings::default());
    client.post(filled(&client, b"first")).expect("post");
    receives(&server, b"first");
    client.flush_timeout(LONG).expect("flush");
    let second = filled(&client, b"second");
    by_a_stranger(|| refused(client.send_timeout(second, LONG)));
    by_a_stranger(|| refused(client.post_bytes_timeout(b"third", LONG)));
    client.post(filled(&client, b"fourth")).expect("post");
    receives(&server, b"second");
    receives(&server, b"third");
    receives(&server, b"fourth");
    client.flush_timeout(LONG).expect("flush");
    has_all_of(&client);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_message_goes_later() {
    a_message_goes_later(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_message_goes_later() {
    a_message_goes_later(siw(0));
}
