//! The safe tier: what a connection counts.

use std::net::SocketAddr;

use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, Counters, Memory, Rights, Settings};

use crate::bed::{LONG, rxe, siw};
use crate::child::in_child;
use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};

fn counters(connection: &Connection) -> Counters {
    connection.counters().expect("count")
}

fn what_was_done_is_counted(address: SocketAddr) {
    let [client, server] = pair(address, &Settings::default());
    assert_eq!((counters(&client), counters(&server)), (Counters::default(), Counters::default()));
    client.post(filled(&client, &[1; 100])).expect("post");
    client.post(filled(&client, &[])).expect("post");
    receives(&server, &[1; 100]);
    let second = server.recv_timeout(LONG).expect("receive").expect("a message");
    let so_far = counters(&server);
    assert_eq!((so_far.messages_received, so_far.bytes_received), (2, 100));
    assert_eq!(so_far.receives_reposted, 1, "the other is kept");
    drop(second);
    let memory = Memory::new(4096).expect("memory");
    let export = server.export(&memory, Rights::READ | Rights::WRITE).expect("export");
    let remote = export.remote();
    client.post_write(filled(&client, &[2; 7]), &remote, 0).expect("post");
    let buffer = client
        .start_write(filled(&client, &[2; 30]), &remote, 7)
        .and_then(|write| write.wait_timeout(LONG));
    let mut buffer = buffer.expect("write");
    buffer.set_len(30).expect("it fits");
    drop(
        client
            .start_read(buffer, &remote, 0)
            .and_then(|read| read.wait_timeout(LONG))
            .expect("read"),
    );
    drop(client.read(filled(&client, &[0; 8]), &remote, 4090).expect_err("it is not within"));
    server
        .start_send(filled(&server, b"five!"))
        .and_then(|send| send.wait_timeout(LONG))
        .expect("send");
    receives(&client, b"five!");
    let [here, there] = [&client, &server].map(counters);
    assert_eq!((here.messages_sent, here.bytes_sent), (2, 100));
    assert_eq!((here.writes, here.bytes_written), (2, 37));
    assert_eq!((here.reads, here.bytes_read), (1, 30), "what is refused here is not posted");
    assert_eq!((here.messages_received, here.bytes_received, here.receives_reposted), (1, 5, 1));
    assert_eq!((there.messages_sent, there.bytes_sent, there.receives_reposted), (1, 5, 2));
    assert_eq!((there.writes, there.reads, there.atomics), (0, 0, 0), "those are the peer's");
    // What is cut off does not count as failed, and the numbers outlive the connection.
    // On iWARP that is all.
    if let Err(error) = client.try_close() {
        assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
    }
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the client has closed");
    client.close(LONG).expect("close");
    server.abort();
    assert_eq!([&client, &server].map(counters), [here, there]);
    assert_eq!((here.failures, there.failures), (0, 0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_what_was_done_is_counted() {
    what_was_done_is_counted(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_what_was_done_is_counted() {
    what_was_done_is_counted(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn atomics_and_failures_are_counted() {
    let [client, server] = pair(rxe(0), &Settings::default());
    let memory = Memory::new(64).expect("memory");
    let export = server.export(&memory, Rights::all()).expect("export");
    let remote = export.remote();
    client.start_fetch_add(&remote, 0, 1).and_then(|add| add.wait_timeout(LONG)).expect("add");
    client
        .start_compare_swap(&remote, 0, 1, 2)
        .and_then(|swap| swap.wait_timeout(LONG))
        .expect("compare");
    export.revoke().expect("deregister");
    let error = client
        .start_fetch_add(&remote, 0, 1)
        .and_then(|add| add.wait_timeout(LONG))
        .expect_err("the peer refuses it");
    assert!(matches!(error.kind(), ErrorKind::Failed(_)), "{error}");
    let counted = counters(&client);
    assert_eq!((counted.atomics, counted.failures), (3, 1));
    in_child(|| {
        let error = client.counters().expect_err("it is the parent's");
        assert!(matches!(error.kind(), ErrorKind::WrongProcess(_)), "{error}");
    });
}
