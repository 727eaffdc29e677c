//! The safe tier: memory of the peer.

use std::net::SocketAddr;

use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, Remote, Rights, Settings};
use rdmacm::verbs::WcStatus;

use crate::bed::{LONG, assert_invalid, rxe, siw};
use crate::endpoint_connect::{objects_at, pair};
use crate::endpoint_messages::filled;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

/// Sends a descriptor from one side to the other.
fn sent(from: &Connection, to: &Connection, descriptor: &[u8]) -> Remote {
    from.post(filled(from, descriptor)).expect("post");
    let message = to.recv_timeout(LONG).expect("receive").expect("a message");
    Remote::from_bytes(&message).expect("a descriptor")
}

/// A pair whose first side has sent a message, which on iWARP is to be the first.
fn begun(address: SocketAddr) -> [Connection; 2] {
    let [client, server] = pair(address, &Settings::default());
    client.post(filled(&client, b"hello")).expect("post");
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    [client, server]
}

fn memory_is_written_and_read(address: SocketAddr) {
    let before = objects_at(address);
    let [client, server] = begun(address);
    let mut export = server.export(10_000, BOTH).expect("export");
    let remote = sent(&server, &client, &export.descriptor());
    assert_eq!((remote.len(), remote.rights()), (10_000, BOTH));
    let buffer = filled(&client, b"written");
    let buffer = client.write_timeout(buffer, &remote, 9_993, LONG).expect("write");
    client.post_write(buffer, &remote, 0).expect("post");
    // What was written is there before a message that is sent later.
    client.post(filled(&client, b"look")).expect("post");
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    let mut bytes = [0; 7];
    for offset in [0, 9_993] {
        export.read(offset, &mut bytes).expect("within");
        assert_eq!(bytes, *b"written", "at {offset}");
    }
    export.write(100, b"the server's").expect("within");
    let mut buffer = client.buffer().expect("a buffer");
    buffer.set_len(6).expect("it fits");
    let buffer = client.read_timeout(buffer, &remote, 104, LONG).expect("read");
    assert_eq!(*buffer, *b"server");
    // What is known to be wrong is refused here, and does no harm.
    let error = client.read(buffer, &remote, 9_995).expect_err("beyond the end");
    assert_invalid(&error, &["6 bytes at offset 9995", "10000 bytes"]);
    let error = client.fetch_add(&remote, 0, 1).expect_err("not given");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    let small = server.export(8, Rights::READ).expect("export");
    let only = sent(&server, &client, &small.descriptor());
    let error = client.write(filled(&client, b"x"), &only, 0).expect_err("not given");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    drop((client, server, small));
    // The memory outlives its connection.
    export.read(0, &mut bytes).expect("within");
    assert_eq!(bytes, *b"written");
    export.revoke().expect("deregister");
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_memory_is_written_and_read() {
    memory_is_written_and_read(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_memory_is_written_and_read() {
    memory_is_written_and_read(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn numbers_are_changed_at_once() {
    let [client, server] = begun(rxe(0));
    let mut export = server.export(64, Rights::ATOMIC).expect("export");
    export.write(8, &5_u64.to_ne_bytes()).expect("within");
    let remote = sent(&server, &client, &export.descriptor());
    assert_eq!(client.fetch_add_timeout(&remote, 8, 3, LONG).expect("add"), 5);
    assert_eq!(client.compare_swap(&remote, 8, 7, 1).expect("compare"), 8, "they differ");
    assert_eq!(client.compare_swap_timeout(&remote, 8, 8, 100, LONG).expect("compare"), 8);
    assert_eq!(client.fetch_add(&remote, 8, u64::MAX).expect("add"), 100);
    let mut bytes = [0; 8];
    export.read(8, &mut bytes).expect("within");
    assert_eq!(u64::from_ne_bytes(bytes), 99);
    assert_invalid(&client.fetch_add(&remote, 9, 1).expect_err("not aligned"), &["multiple of 8"]);
    assert_invalid(&client.fetch_add(&remote, 64, 1).expect_err("beyond"), &["64 bytes"]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_changes_no_numbers() {
    let [client, server] = begun(siw(0));
    let export = server.export(64, Rights::READ | Rights::ATOMIC);
    // Whether siw gives the right or not, it has no such operation.
    if let Ok(export) = export {
        let remote = sent(&server, &client, &export.descriptor());
        let error = client.fetch_add(&remote, 0, 1).expect_err("siw has none");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}

/// What the peer has taken back, or never gave, ends the connection, and harms nobody.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_was_revoked_or_forged_is_refused_there() {
    for forged in [false, true] {
        let [client, server] = begun(rxe(0));
        let export = server.export(64, BOTH).expect("export");
        let mut descriptor = export.descriptor();
        if forged {
            descriptor[7] ^= 0xff;
        }
        let remote = sent(&server, &client, &descriptor);
        let kept =
            if forged { Some(export) } else { export.revoke().map(|()| None).expect("revoke") };
        let error = client.write_timeout(filled(&client, b"x"), &remote, 0, LONG);
        let error = error.expect_err("the peer refuses it");
        assert_eq!(*error.kind(), ErrorKind::Failed(WcStatus::IB_WC_REM_ACCESS_ERR), "{error}");
        if let Some(export) = kept {
            let mut bytes = [1; 64];
            export.read(0, &mut bytes).expect("within");
            assert_eq!(bytes, [0; 64]);
        }
    }
}
