//! The safe tier: statistics of a connection.

use std::net::SocketAddr;

use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, ConnectionConfig, DmaMemory, EndpointStats, RemoteAccess};

use crate::child::in_child;
use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{LONG, roce, siw};

fn counters(connection: &Connection) -> EndpointStats {
    connection.stats().expect("count")
}

fn operations_are_counted(address: SocketAddr) {
    let [client, server] = pair(address, &ConnectionConfig::default());
    assert_eq!(
        (counters(&client), counters(&server)),
        (EndpointStats::default(), EndpointStats::default())
    );
    client.post_send(filled(&client, &[1; 100])).expect("post");
    client.post_send(filled(&client, &[])).expect("post");
    receives(&server, &[1; 100]);
    let second = server.recv_timeout(LONG).expect("receive").expect("a message");
    let so_far = counters(&server);
    assert_eq!((so_far.messages_received, so_far.bytes_received), (2, 100));
    assert_eq!(so_far.receives_reposted, 1, "the kept message should not be reposted");
    drop(second);
    let memory = DmaMemory::new(4096).expect("memory");
    let export =
        server.export(&memory, .., RemoteAccess::READ | RemoteAccess::WRITE).expect("export");
    let remote = export.remote_memory();
    client.post_write(filled(&client, &[2; 7]), &remote, 0).expect("post");
    let buffer = client
        .start_write(filled(&client, &[2; 30]), &remote, 7)
        .and_then(|write| write.wait_timeout(LONG));
    let mut buffer = buffer.expect("write");
    buffer.set_len(30).expect("the length should fit");
    drop(
        client
            .start_read(buffer, &remote, 0)
            .and_then(|read| read.wait_timeout(LONG))
            .expect("read"),
    );
    drop(
        client
            .start_read(filled(&client, &[0; 8]), &remote, 4090)
            .expect_err("the bytes should not be within the memory"),
    );
    server
        .start_send(filled(&server, b"five!"))
        .and_then(|send| send.wait_timeout(LONG))
        .expect("send");
    receives(&client, b"five!");
    let [here, there] = [&client, &server].map(counters);
    assert_eq!((here.messages_sent, here.bytes_sent), (2, 100));
    assert_eq!((here.writes, here.bytes_written), (2, 37));
    assert_eq!((here.reads, here.bytes_read), (1, 30), "a refused read should not be posted");
    assert_eq!((here.messages_received, here.bytes_received, here.receives_reposted), (1, 5, 1));
    assert_eq!((there.messages_sent, there.bytes_sent, there.receives_reposted), (1, 5, 2));
    assert_eq!(
        (there.writes, there.reads, there.atomics),
        (0, 0, 0),
        "operations of the peer should not be counted"
    );
    // Flushed requests do not count as failed, and the counts outlive the connection.
    //
    // On iWARP `try_close` needs no answer, and succeeds.
    if let Err(error) = client.try_close() {
        assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
    }
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the client should have closed");
    client.close(LONG).expect("close");
    server.abort();
    assert_eq!([&client, &server].map(counters), [here, there]);
    assert_eq!((here.failures, there.failures), (0, 0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_operations_are_counted() {
    operations_are_counted(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_operations_are_counted() {
    operations_are_counted(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn atomics_and_failures_are_counted() {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., RemoteAccess::all()).expect("export");
    let remote = export.remote_memory();
    client
        .start_fetch_add(filled(&client, b""), &remote, 0, 1)
        .and_then(|add| add.wait_timeout(LONG))
        .expect("add");
    client
        .start_compare_swap(filled(&client, b""), &remote, 0, 1, 2)
        .and_then(|swap| swap.wait_timeout(LONG))
        .expect("compare");
    export.revoke().expect("deregister");
    let error = client
        .start_fetch_add(filled(&client, b""), &remote, 0, 1)
        .and_then(|add| add.wait_timeout(LONG))
        .expect_err("the peer should refuse the operation");
    assert!(matches!(error.kind(), ErrorKind::WorkRequestFailed(_)), "{error}");
    let counted = counters(&client);
    assert_eq!((counted.atomics, counted.failures), (3, 1));
    in_child(|| {
        let error = client.stats().expect_err("the object should belong to the parent");
        assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error}");
    });
}
