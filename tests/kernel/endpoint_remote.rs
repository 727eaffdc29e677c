//! The safe tier: memory of the peer.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::endpoint::{
    Buffer, Connection, ConnectionConfig, DmaMemory, RegisteredMemory, RemoteAccess, RemoteMemory,
};
use rdmacm::verbs::{SendFlags, SendOperation, WcStatus};
use rdmacm::{ErrorKind, Result};

use crate::endpoint_close::with_low_peer;
use crate::endpoint_connect::{objects_at, pair, pair_of};
use crate::endpoint_messages::filled;
use crate::fixtures::{DEFAULT_SEND_BUFFERS, LONG, assert_invalid, roce, siw};

pub(crate) const BOTH: RemoteAccess = RemoteAccess::READ.union(RemoteAccess::WRITE);

/// Sends a descriptor from one side to the other, and returns the memory that it names.
pub(crate) fn sent(from: &Connection, to: &Connection, descriptor: &[u8]) -> RemoteMemory {
    from.post_send(filled(from, descriptor)).expect("post");
    let message = to.recv_timeout(LONG).expect("receive").expect("a message");
    RemoteMemory::from_bytes(&message).expect("a descriptor")
}

/// Reads `length` bytes at `offset` of the peer's memory.
fn read(from: &Connection, remote: &RemoteMemory, offset: u64, length: usize) -> Result<Buffer> {
    let mut buffer = from.acquire_buffer()?;
    buffer.set_len(length)?;
    from.start_read(buffer, remote, offset)?.wait_timeout(LONG)
}

/// Returns a pair whose first side has sent a message, because on iWARP this side must send first.
pub(crate) fn begun(address: SocketAddr) -> [Connection; 2] {
    let [client, server] = pair(address, &ConnectionConfig::default());
    client.post_send(filled(&client, b"hello")).expect("post");
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    [client, server]
}

/// Checks that a peer's write with immediate data arrives as an empty message.
///
/// The earlier contents of its buffer do not matter.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn write_with_immediate_is_empty_message() {
    let (connection, mut peer) = with_low_peer(None);
    let memory = DmaMemory::new(64).expect("memory");
    let export = connection.export(&memory, .., RemoteAccess::WRITE).expect("export");
    let remote = export.remote_memory();
    peer.io.fill(0, &[7; 64]);
    let (remote_addr, rkey) = (remote.addr(), remote.rkey());
    let write = SendOperation::WriteWithImm { remote_addr, rkey, imm_data: 5 };
    peer.io.post(1, write, 0..64, SendFlags::SIGNALED).expect("post a write");
    let message = connection.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!((message.len(), message.imm_data()), (0, Some(5)));
    let mut bytes = [0; 64];
    memory.read(0, &mut bytes).expect("the range should be within the memory");
    assert_eq!(bytes, [7; 64]);
    peer.io.done(1);
    assert_eq!(connection.stats().expect("count").bytes_received, 0);
}

fn memory_is_written_and_read(address: SocketAddr) {
    let before = objects_at(address);
    let [client, server] = begun(address);
    let mut memory = DmaMemory::new(10_000).expect("memory");
    let export = server.export(&memory, .., BOTH).expect("export");
    let remote = sent(&server, &client, &export.remote_memory().to_bytes());
    assert_eq!((remote.len(), remote.access()), (10_000, BOTH));
    let buffer = filled(&client, b"written");
    let buffer = client
        .start_write(buffer, &remote, 9_993)
        .and_then(|write| write.wait_timeout(LONG))
        .expect("write");
    client.post_write(buffer, &remote, 0).expect("post");
    // Written bytes arrive before a message that is sent later.
    client.post_send(filled(&client, b"look")).expect("post");
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    let mut bytes = [0; 7];
    for offset in [0, 9_993] {
        memory.read(offset, &mut bytes).expect("the range should be within the memory");
        assert_eq!(bytes, *b"written", "at {offset}");
    }
    memory.write(100, b"the server's").expect("the range should be within the memory");
    let buffer = read(&client, &remote, 104, 6).expect("read");
    assert_eq!(*buffer, *b"server");
    // Requests that are known to be wrong are refused locally.
    let error = client
        .start_read(buffer, &remote, 9_995)
        .expect_err("a range beyond the end should be refused");
    assert_invalid(&error, &["6 bytes at offset 9995", "10000 bytes"]);
    let error = client
        .start_fetch_add(filled(&client, b""), &remote, 0, 1)
        .expect_err("the access should be refused");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    let small = server.export(&memory, .., RemoteAccess::READ).expect("export");
    let only = sent(&server, &client, &small.remote_memory().to_bytes());
    let error = client
        .start_write(filled(&client, b"x"), &only, 0)
        .expect_err("the access should be refused");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    drop((client, server, small));
    // The memory and its export outlive the connection.
    export.revoke().expect("deregister");
    assert_eq!(objects_at(address), before);
    memory.read(0, &mut bytes).expect("the range should be within the memory");
    assert_eq!(bytes, *b"written");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_memory_is_written_and_read() {
    memory_is_written_and_read(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_memory_is_written_and_read() {
    memory_is_written_and_read(siw(0));
}

/// Lets two peers access one memory over two devices, and revokes the access of one of them.
///
/// After the program has dropped the memory, it exists until its last export is dropped.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_and_siw_peers_share_one_memory() {
    let before = [roce(0), siw(0)].map(objects_at);
    let pairs = [roce(0), siw(0)].map(begun);
    let memory = DmaMemory::new(64).expect("memory");
    let mut exports: Vec<_> = pairs
        .iter()
        .map(|[client, server]| {
            let export = server.export(&memory, .., BOTH).expect("export");
            let remote = sent(server, client, &export.remote_memory().to_bytes());
            assert_eq!(remote, export.remote_memory());
            (export, remote)
        })
        .collect();
    let write = |index: usize, remote: &RemoteMemory, text: &[u8]| {
        let client: &Connection = &pairs[index][0];
        drop(
            client
                .start_write(filled(client, text), remote, 0)
                .and_then(|write| write.wait_timeout(LONG))
                .expect("write"),
        );
        // On iWARP the written bytes have certainly arrived only when a later request has completed.
        assert_eq!(*read(client, remote, 0, text.len()).expect("read"), *text);
    };
    let mut bytes = [0; 5];
    for (index, text) in [(0, b"first"), (1, b"other")] {
        write(index, &exports[index].1, text);
        memory.read(0, &mut bytes).expect("the range should be within the memory");
        assert_eq!(bytes, *text);
    }
    exports.remove(0).0.revoke().expect("deregister");
    drop(memory);
    write(1, &exports[0].1, b"still");
    drop((pairs, exports));
    assert_eq!([roce(0), siw(0)].map(objects_at), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn atomics_change_remote_memory() {
    let [client, server] = begun(roce(0));
    let mut memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., RemoteAccess::ATOMIC).expect("export");
    memory.write(8, &5_u64.to_ne_bytes()).expect("the range should be within the memory");
    let remote = sent(&server, &client, &export.remote_memory().to_bytes());
    assert_eq!(
        client
            .start_fetch_add(filled(&client, b""), &remote, 8, 3)
            .and_then(|add| add.wait_timeout(LONG))
            .expect("add"),
        5
    );
    assert_eq!(
        client
            .start_compare_swap(filled(&client, b""), &remote, 8, 7, 1)
            .expect("compare")
            .wait()
            .expect("compare"),
        8,
        "the numbers should differ"
    );
    assert_eq!(
        client
            .start_compare_swap(filled(&client, b""), &remote, 8, 8, 100)
            .and_then(|swap| swap.wait_timeout(LONG))
            .expect("compare"),
        8
    );
    assert_eq!(
        client
            .start_fetch_add(filled(&client, b""), &remote, 8, u64::MAX)
            .expect("add")
            .wait()
            .expect("add"),
        100
    );
    let mut bytes = [0; 8];
    memory.read(8, &mut bytes).expect("the range should be within the memory");
    assert_eq!(u64::from_ne_bytes(bytes), 99);
    assert_invalid(
        &client
            .start_fetch_add(filled(&client, b""), &remote, 9, 1)
            .expect_err("an unaligned offset should be refused"),
        &["multiple of 8"],
    );
    assert_invalid(
        &client
            .start_fetch_add(filled(&client, b""), &remote, 64, 1)
            .expect_err("an offset beyond the end should be refused"),
        &["64 bytes"],
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_refuses_atomics() {
    let [client, server] = begun(siw(0));
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., RemoteAccess::READ | RemoteAccess::ATOMIC);
    // siw has no atomic operations, with or without the access flag.
    if let Ok(export) = export {
        let remote = sent(&server, &client, &export.remote_memory().to_bytes());
        let error = client
            .start_fetch_add(filled(&client, b""), &remote, 0, 1)
            .expect_err("siw should have no atomics");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        assert_eq!(error.operation(), "change a number over");
        let peer = client.peer_addr().expect("an IP address");
        assert_eq!(error.subject(), format!("the connection to {peer}"));
    }
}

/// Checks that an operation times out if it follows a message without a receive buffer at the peer.
///
/// The operation completes later nevertheless, and then returns its buffer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn timed_out_operation_completes_later() {
    let short = Duration::from_millis(20);
    let config = ConnectionConfig::new().receive_buffers(1);
    let [client, server] = pair(roce(0), &config);
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., RemoteAccess::all()).expect("export");
    let remote = export.remote_memory();
    client.post_send(filled(&client, b"one")).expect("post");
    let kept = server.recv_timeout(LONG).expect("receive").expect("a message");
    client.post_send(filled(&client, b"two")).expect("post");
    let buffer = || filled(&client, b"written!");
    for (name, late) in [
        (
            "write",
            client
                .start_write(buffer(), &remote, 8)
                .and_then(|write| write.wait_timeout(short))
                .map(drop),
        ),
        (
            "read",
            client
                .start_read(buffer(), &remote, 8)
                .and_then(|read| read.wait_timeout(short))
                .map(drop),
        ),
        (
            "compare_swap",
            client
                .start_compare_swap(filled(&client, b""), &remote, 0, 0, 5)
                .and_then(|swap| swap.wait_timeout(short))
                .map(drop),
        ),
        (
            "fetch_add",
            client
                .start_fetch_add(filled(&client, b""), &remote, 0, 3)
                .and_then(|add| add.wait_timeout(short))
                .map(drop),
        ),
        (
            "send",
            client
                .start_send(filled(&client, b"three"))
                .and_then(|send| send.wait_timeout(short))
                .map(drop),
        ),
        ("flush", client.flush_timeout(short)),
    ] {
        let error = late.expect_err(name);
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{name}: {error}");
    }
    let mut bytes = [1; 16];
    memory.read(0, &mut bytes).expect("the range should be within the memory");
    assert_eq!(bytes, [0; 16], "no operation should overtake the message");
    drop(kept);
    for text in [&b"two"[..], b"three"] {
        let message = server.recv_timeout(LONG).expect("receive").expect("a message");
        assert_eq!(*message, *text);
    }
    client.flush_timeout(LONG).expect("flush");
    memory.read(0, &mut bytes).expect("the range should be within the memory");
    assert_eq!((&bytes[..8], &bytes[8..]), (&8_u64.to_ne_bytes()[..], &b"written!"[..]));
    let buffers = (0..DEFAULT_SEND_BUFFERS).map(|_| client.try_acquire_buffer());
    let buffers =
        buffers.collect::<Result<Vec<_>, _>>().expect("all operations should have completed");
    drop(buffers);
    // No late result is returned for a new operation.
    assert_eq!(
        client
            .start_fetch_add(filled(&client, b""), &remote, 0, 1)
            .and_then(|add| add.wait_timeout(LONG))
            .expect("add"),
        8
    );
    client.post_send(filled(&client, b"four")).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!(*message, *b"four");
}

/// Checks that reads are refused if the sides have negotiated none.
///
/// This holds whichever side has disabled reads, because such reads would wait forever.
fn without_depth(address: SocketAddr, config: &ConnectionConfig) {
    let [client, server] = pair(address, config);
    client.post_send(filled(&client, b"hello")).expect("post");
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., BOTH).expect("export");
    let remote = sent(&server, &client, &export.remote_memory().to_bytes());
    let refused = client
        .start_read(filled(&client, &[0; 8]), &remote, 0)
        .and_then(|read| read.wait_timeout(LONG));
    assert_invalid(&refused.expect_err("reads should not be negotiated"), &["initiator depth"]);
    if address == roce(0) {
        let all =
            RemoteMemory::new(remote.addr(), remote.rkey(), remote.len(), RemoteAccess::all());
        let refused = client
            .start_fetch_add(
                filled(&client, b""),
                &all.expect("the description should be valid"),
                0,
                1,
            )
            .and_then(|add| add.wait_timeout(LONG));
        assert_invalid(&refused.expect_err("reads should not be negotiated"), &["initiator depth"]);
    }
    // Other operations still work.
    let buffer = client
        .start_write(filled(&client, b"written"), &remote, 0)
        .and_then(|write| write.wait_timeout(LONG))
        .expect("write");
    drop(client.start_send(buffer).and_then(|send| send.wait_timeout(LONG)).expect("send"));
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    let buffers = (0..DEFAULT_SEND_BUFFERS).map(|_| client.try_acquire_buffer());
    buffers.collect::<Result<Vec<_>, _>>().expect("all operations should have completed");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_reads_without_depth_are_refused() {
    without_depth(roce(0), &ConnectionConfig::new().initiator_depth(0));
    without_depth(roce(0), &ConnectionConfig::new().responder_resources(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_reads_without_depth_are_refused() {
    without_depth(siw(0), &ConnectionConfig::new().initiator_depth(0));
}

/// Checks that only the bytes of the exported part have a key.
fn part_is_exported_alone(address: SocketAddr) {
    let [client, server] = begun(address);
    let mut memory = DmaMemory::new(8192).expect("memory");
    memory.write(1000, &[1; 100]).expect("the range should be within the memory");
    let export = server.export(&memory, 1000..1100, BOTH).expect("export");
    let remote = sent(&server, &client, &export.remote_memory().to_bytes());
    assert_eq!(remote.len(), 100);
    assert_eq!(*read(&client, &remote, 0, 100).expect("read"), [1; 100]);
    for (part, reason) in
        [(0..0, "no bytes"), (8000..8193, "8192 bytes"), (9000..9001, "8192 bytes")]
    {
        let error = server
            .export(&memory, part, BOTH)
            .expect_err("the part should be outside of the memory");
        assert_invalid(&error, &["memory", reason]);
    }
    // A peer that uses an address outside of the part gets no bytes, and ends the connection.
    let outside = RemoteMemory::new(remote.addr() - 8, remote.rkey(), 8, BOTH)
        .expect("the address should be valid");
    let error = read(&client, &outside, 0, 8).expect_err("the access should be refused");
    assert!(
        matches!(error.kind(), ErrorKind::WorkRequestFailed(WcStatus::IB_WC_REM_ACCESS_ERR))
            || address == siw(0) && *error.kind() == ErrorKind::Disconnected,
        "{error}"
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_part_is_exported_alone() {
    part_is_exported_alone(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_part_is_exported_alone() {
    part_is_exported_alone(siw(0));
}

/// Lets the peers of two connections in one protection domain access memory registered once.
fn one_registration_serves_connections(address: SocketAddr) {
    let before = objects_at(address);
    let [first, ours] = begun(address);
    let pd = ours.protection_domain().expect("the connection should have a protection domain");
    let config = ConnectionConfig::new().protection_domain(Some(pd.clone()));
    let [second, theirs] = pair_of(address, [&ConnectionConfig::default(), &config]);
    second.post_send(filled(&second, b"hello")).expect("post");
    drop(theirs.recv_timeout(LONG).expect("receive").expect("a message"));
    assert_eq!(
        theirs.protection_domain().expect("the connection should have a protection domain"),
        pd
    );
    let mut memory = DmaMemory::new(200).expect("memory");
    let registered = RegisteredMemory::new(&pd, &memory, RemoteAccess::READ).expect("register");
    for (start, [client, server]) in [(0, [&first, &ours]), (100, [&second, &theirs])] {
        memory.write(start, b"for a peer").expect("the range should be within the memory");
        let part =
            registered.part(start..start + 10).expect("the range should be within the memory");
        let remote = sent(server, client, &part.to_bytes());
        assert_eq!(*read(client, &remote, 0, 10).expect("read"), *b"for a peer");
    }
    assert_invalid(
        &registered.part(199..201).expect_err("a range beyond the end should be refused"),
        &["199 to 201"],
    );
    registered.revoke().expect("deregister");
    drop((first, ours, second, theirs, config, pd));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_one_registration_serves_connections() {
    one_registration_serves_connections(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_one_registration_serves_connections() {
    one_registration_serves_connections(siw(0));
}
