//! The safe tier: memory windows and messages that invalidate a key.

use rdmacm::ErrorKind;
use rdmacm::endpoint::{
    Connection, ConnectionConfig, DatagramConfig, DatagramSocket, DmaMemory, ExportedMemory,
    RegisteredMemory, RemoteAccess, RemoteMemory,
};
use rdmacm::verbs::WcStatus;

use crate::endpoint_connect::{objects_at, pair};
use crate::endpoint_messages::filled;
use crate::endpoint_remote::{BOTH, begun, sent};
use crate::fixtures::{LONG, assert_invalid, is_card, roce, siw};

/// Returns a pair of connections, whose second side exports a window to the first one.
///
/// The other values are the memory, the export, and the window as the peer sees it.
fn with_window() -> ([Connection; 2], RegisteredMemory, ExportedMemory, RemoteMemory) {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let pd = server.protection_domain().expect("side should be connected");
    let memory = DmaMemory::new(4096).expect("memory");
    let registered = RegisteredMemory::new(&pd, &memory, RemoteAccess::empty()).expect("register");
    let export = server
        .start_export_window(filled(&server, b""), &registered, 64..128, BOTH)
        .and_then(|export| export.wait_timeout(LONG))
        .expect("bind");
    let remote = sent(&server, &client, &export.remote_memory().to_bytes());
    assert_eq!((remote.len(), remote.access()), (64, BOTH));
    ([client, server], registered, export, remote)
}

/// Checks that a message invalidates the key of a window.
///
/// The message reports the key, and the export records the invalidation.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_invalidates_window() {
    let before = objects_at(roce(0));
    let ([client, server], registered, export, remote) = with_window();
    client
        .start_write(filled(&client, b"through a window"), &remote, 8)
        .and_then(|write| write.wait_timeout(LONG))
        .expect("write");
    let mut buffer = filled(&client, b"done");
    buffer.set_imm_data(Some(7));
    buffer.set_invalidated(Some(&remote));
    assert!(!export.is_invalidated(), "the key should be valid");
    client.post_send(buffer).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message should arrive");
    assert_eq!(
        (&*message, message.imm_data()),
        (&b"done"[..], None),
        "the key should take the place of the immediate data"
    );
    assert_eq!(message.invalidated_key(), Some(remote.rkey()));
    drop(message);
    assert!(export.is_invalidated());
    let write = client.start_write(filled(&client, b"late"), &remote, 0).expect("post");
    let error = write.wait_timeout(LONG).expect_err("the key should be invalid");
    assert_eq!(
        *error.kind(),
        ErrorKind::WorkRequestFailed(WcStatus::IB_WC_REM_ACCESS_ERR),
        "{error}"
    );
    export.revoke().expect("destroy");
    registered.revoke().expect("deregister");
    drop((client, server));
    assert_eq!(objects_at(roce(0)), before);
}

/// Checks that the peer cannot use a window that this side has revoked.
///
/// The memory stays until the last window is destroyed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn revoked_window_refuses_peer() {
    let ([client, server], registered, export, remote) = with_window();
    let other = server
        .start_export_window(filled(&server, b""), &registered, 0..8, RemoteAccess::READ)
        .expect("bind")
        .wait()
        .expect("bind");
    let error = registered.revoke().expect_err("exported windows should refer to the memory");
    assert_invalid(&error, &["registered memory", "revoke them first"]);
    assert_eq!(error.errno(), libc::EBUSY);
    export.revoke().expect("destroy");
    drop(other);
    client.post_send(filled(&client, b"still connected")).expect("post");
    drop(server.recv_timeout(LONG).expect("receive").expect("a message should arrive"));
    let write = client.start_write(filled(&client, b"late"), &remote, 0).expect("post");
    let error = write.wait_timeout(LONG).expect_err("window should be revoked");
    assert_eq!(
        *error.kind(),
        ErrorKind::WorkRequestFailed(WcStatus::IB_WC_REM_ACCESS_ERR),
        "{error}"
    );
}

/// Checks that failed and abandoned exports of windows do not affect the connection.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abandoned_window_leaves_connection_intact() {
    let before = objects_at(roce(0));
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let pd = server.protection_domain().expect("side should be connected");
    let memory = DmaMemory::new(4096).expect("memory");
    let registered = RegisteredMemory::new(&pd, &memory, RemoteAccess::empty()).expect("register");
    for _ in 0..20 {
        drop(
            server
                .start_export_window(filled(&server, b""), &registered, 0..64, BOTH)
                .expect("a buffer should be free"),
        );
        server.flush_timeout(LONG).expect("flush");
    }
    let foreign = client.protection_domain().expect("side should be connected");
    let theirs = RegisteredMemory::new(&foreign, &memory, RemoteAccess::empty()).expect("register");
    let error = server
        .start_export_window(filled(&server, b""), &theirs, 0..64, BOTH)
        .expect_err("memory of the other side should be refused");
    assert_invalid(&error, &["another protection domain"]);
    let error = server
        .start_export_window(filled(&server, b""), &registered, 4000..4097, BOTH)
        .expect_err("a range beyond the end should be refused");
    assert_invalid(&error, &["4000 to 4097", "4096 bytes"]);
    for (from, to) in [(&client, &server), (&server, &client)] {
        from.post_send(filled(from, b"still connected")).expect("post");
        drop(to.recv_timeout(LONG).expect("receive").expect("a message should arrive"));
    }
    drop((client, server, pd, foreign, registered, theirs));
    assert_eq!(objects_at(roce(0)), before);
}

/// Posts a message to the server that invalidates the key of memory that the server exports.
fn post_invalidation(
    client: &Connection,
    server: &Connection,
) -> (DmaMemory, ExportedMemory, RemoteMemory) {
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., BOTH).expect("export");
    let remote = sent(server, client, &export.remote_memory().to_bytes());
    let mut buffer = filled(client, b"done");
    buffer.set_invalidated(Some(&remote));
    client.post_send(buffer).expect("post");
    (memory, export, remote)
}

/// Checks that siw invalidates the key of any export, and reports this to no program.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_invalidation_is_not_reported() {
    let [client, server] = begun(siw(0));
    let (memory, export, remote) = post_invalidation(&client, &server);
    let message = server.recv_timeout(LONG).expect("receive").expect("a message should arrive");
    assert_eq!((&*message, message.invalidated_key()), (&b"done"[..], None));
    assert!(!export.is_invalidated());
    let pd = server.protection_domain().expect("side should be connected");
    let registered = RegisteredMemory::new(&pd, &memory, BOTH).expect("register");
    let error = server
        .start_export_window(filled(&server, b""), &registered, 0..8, BOTH)
        .expect_err("siw should have no windows");
    assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
    let read = client.start_read(filled(&client, b"late"), &remote, 0).expect("post");
    let error = read.wait_timeout(LONG).expect_err("the key should be invalid");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
}

/// Checks that rxe does not invalidate the key of an export that is no window.
///
/// This side reports the message as the cause. The peer's send succeeds.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_invalidation_of_region_is_refused() {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let (_memory, export, _) = post_invalidation(&client, &server);
    let error = server.recv_timeout(LONG).expect_err("the connection should have failed");
    match is_card() {
        true => assert_eq!(
            *error.kind(),
            ErrorKind::WorkRequestFailed(WcStatus::IB_WC_LOC_ACCESS_ERR),
            "{error}"
        ),
        false => assert!(error.to_string().contains("invalidates a key"), "{error}"),
    }
    assert!(!export.is_invalidated());
}

/// Checks that a datagram cannot invalidate a key.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_that_invalidates_is_refused() {
    let socket = DatagramSocket::bind(roce(0), &DatagramConfig::default()).expect("bind");
    let peer = socket
        .start_resolve_peer(socket.local_addr().expect("the id should have an address"))
        .and_then(|peer| peer.wait_timeout(LONG))
        .expect("resolve");
    let mut buffer = socket.acquire_buffer().expect("a buffer should be free");
    let remote = RemoteMemory::new(0x1000, 5, 8, BOTH).expect("the address should be valid");
    buffer.set_invalidated(Some(&remote));
    let error = socket.post_send_to(buffer, &peer).expect_err("a datagram should be refused");
    assert_invalid(&error, &["datagram", "invalidate a key"]);
}
