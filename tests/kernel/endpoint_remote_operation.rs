//! The safe tier: operations on the peer's memory that are in flight while the program does other work.

use std::net::SocketAddr;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::endpoint::{
    Buffer, Connection, ConnectionConfig, DmaMemory, ExportedMemory, Message, RemoteAccess,
    RemoteMemory, RemoteOperation,
};
use rdmacm::{ErrorKind, Result};

use crate::endpoint_connect::pair;
use crate::endpoint_keep_alive::Cut;
use crate::endpoint_messages::{filled, receives};
use crate::endpoint_nonblocking::{becomes_readable, eventually, is_readable, now, settles};
use crate::fixtures::{LONG, assert_invalid, roce, siw};

/// Returns a pair whose second side has exported memory.
///
/// Each byte of the memory has its offset as its value.
fn exported(
    address: SocketAddr,
    config: &ConnectionConfig,
) -> ([Connection; 2], DmaMemory, ExportedMemory) {
    let [client, server] = pair(address, config);
    client.post_send(filled(&client, b"hello")).expect("post");
    receives(&server, b"hello");
    client.flush_timeout(LONG).expect("flush");
    let mut memory = DmaMemory::new(128).expect("memory");
    memory.write(0, &(0..128).collect::<Vec<_>>()).expect("the range should be within the memory");
    // siw has no atomics.
    let atomic =
        if address.ip() == roce(0).ip() { RemoteAccess::ATOMIC } else { RemoteAccess::empty() };
    let export = server.export(&memory, .., RemoteAccess::READ | atomic).expect("export");
    ([client, server], memory, export)
}

fn start(
    client: &Connection,
    remote: &RemoteMemory,
    offset: u8,
) -> Result<RemoteOperation<Buffer>> {
    let mut buffer = client.acquire_buffer_timeout(LONG).expect("a buffer");
    buffer.set_len(4).expect("the length should fit");
    client.start_read(buffer, remote, u64::from(offset))
}

/// Sends messages without receive buffers at the peer, until the returned message is dropped.
///
/// rxe does not execute later requests meanwhile.
fn held_up(client: &Connection, server: &Connection) -> Message {
    client.post_send(filled(client, b"first")).expect("post");
    let held = server.recv_timeout(LONG).expect("receive").expect("a message");
    client.flush_timeout(LONG).expect("flush");
    client.post_send(filled(client, b"second")).expect("post");
    held
}

fn reads_run_concurrently(address: SocketAddr) {
    let ([client, _server], _memory, export) = exported(address, &ConnectionConfig::default());
    let remote = export.remote_memory();
    let mut pending: Vec<_> =
        (0..16).map(|number| start(&client, &remote, number * 8).expect("start")).collect();
    assert!(now(client.try_acquire_buffer()).is_none(), "all buffers should be in flight");
    // Results can be taken in any order, by calls that wait and by calls that do not.
    let buffer = eventually(&client, || pending[9].try_wait());
    assert_eq!(*buffer, [72, 73, 74, 75]);
    let error = pending[9].try_wait().expect_err("the result should be returned once");
    assert_invalid(&error, &["wait for", "returned already"]);
    drop(buffer);
    for (number, read) in (0..16).zip(pending).rev().filter(|(number, _)| *number != 9) {
        let buffer = match number % 2 {
            0 => read.wait().expect("read"),
            _ => read.wait_timeout(LONG).expect("read"),
        };
        assert_eq!(*buffer, [0, 1, 2, 3].map(|place| number * 8 + place));
    }
    // A program need not read the result of an operation.
    drop(start(&client, &remote, 0).expect("start"));
    let all: Vec<_> = (0..16)
        .map(|_| client.acquire_buffer_timeout(LONG).expect("the buffer should have returned"))
        .collect();
    assert!(all.iter().all(|buffer| buffer.len() == buffer.capacity()));
    let [mut first, ..] = <[_; 16]>::try_from(all).expect("16 buffers should be free");
    first.set_len(4).expect("the length should fit");
    let error = client
        .start_read(first, &remote, 125)
        .expect_err("a range beyond the end should be refused");
    assert_invalid(&error, &["4 bytes at offset 125"]);
    drop(client.try_acquire_buffer().expect("a refused buffer should be free"));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_reads_run_concurrently() {
    reads_run_concurrently(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_reads_run_concurrently() {
    reads_run_concurrently(siw(0));
}

/// Checks that a completed operation makes the descriptor readable.
///
/// This holds whichever call has polled its completion.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_reports_completed_operation() {
    let config = ConnectionConfig::new().receive_buffers(1);
    let ([client, server], memory, export) = exported(roce(0), &config);
    let remote = export.remote_memory();
    for polls in [false, true] {
        let held = held_up(&client, &server);
        let mut read = start(&client, &remote, 40).expect("start");
        let mut added = client.start_fetch_add(filled(&client, b""), &remote, 0, 1).expect("start");
        let mut swapped =
            client.start_compare_swap(filled(&client, b""), &remote, 8, 0, 7).expect("start");
        let mut nothing_is_done = || {
            assert!(now(read.try_wait()).is_none());
            assert!(now(added.try_wait()).is_none());
            assert!(now(swapped.try_wait()).is_none());
        };
        settles(&client, &mut nothing_is_done);
        drop(held);
        receives(&server, b"second");
        if polls {
            client.flush_timeout(LONG).expect("flush");
        }
        let mut before = [0; 8];
        memory.read(8, &mut before).expect("the range should be within the memory");
        becomes_readable(&client);
        assert_eq!(eventually(&client, || swapped.try_wait()), u64::from_ne_bytes(before));
        // This call has also polled the earlier operations, because their completions precede its own.
        let first = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]) + u64::from(polls);
        becomes_readable(&client);
        assert_eq!(now(added.try_wait()), Some(first));
        becomes_readable(&client);
        assert_eq!(
            *now(read.try_wait()).expect("the operation should have completed"),
            [40, 41, 42, 43]
        );
        // The descriptor does not report results for which no call has tried.
        let kept = start(&client, &remote, 44).expect("start");
        client.flush_timeout(LONG).expect("flush");
        settles(&client, || assert!(now(client.try_recv()).is_none()));
        assert_eq!(*kept.wait_timeout(LONG).expect("read"), [44, 45, 46, 47]);
    }
}

/// Checks that the descriptor reports a failed operation whose end another call has detected.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_descriptor_reports_failed_operation() {
    let ([client, _server], _memory, export) = exported(siw(0), &ConnectionConfig::default());
    let cut = Cut::new();
    let mut read = start(&client, &export.remote_memory(), 0).expect("start");
    assert!(now(read.try_wait()).is_none());
    assert!(eventually(&client, || client.try_recv()).is_none(), "TCP should have given up");
    becomes_readable(&client);
    let error = read.try_wait().expect_err("no answer should have come");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    // The completion of the flushed read may raise its event after the end. A later call reads this event.
    settles(&client, || {
        assert!(client.try_recv().expect("receive").is_none(), "the connection should have ended")
    });
    drop(cut);
}

/// Checks that a dropped operation that has completed does not make the descriptor readable later.
///
/// No call has seen its result before.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_ignores_dropped_operation() {
    let config = ConnectionConfig::new().receive_buffers(1);
    let ([client, server], _memory, export) = exported(roce(0), &config);
    let held = held_up(&client, &server);
    let mut read = start(&client, &export.remote_memory(), 0).expect("start");
    settles(&client, || assert!(now(read.try_wait()).is_none()));
    drop(held);
    receives(&server, b"second");
    client.flush_timeout(LONG).expect("flush");
    assert!(now(client.try_recv()).is_none());
    assert!(is_readable(&client, PollTimeout::ZERO), "the operation should have completed");
    drop(read);
    // A late event of the kernel may make the descriptor readable without a result. The next call finds none.
    settles(&client, || assert!(now(client.try_recv()).is_none()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_operation_never_starts() {
    let config = ConnectionConfig::new().receive_buffers(1).send_buffers(2);
    let ([client, server], memory, export) = exported(roce(0), &config);
    let remote = export.remote_memory();
    let reads = server.export(&memory, .., RemoteAccess::READ).expect("export").remote_memory();
    let error = client
        .start_fetch_add(filled(&client, b""), &reads, 0, 1)
        .expect_err("the right should be missing");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    let held = held_up(&client, &server);
    // An operation whose deadline has passed returns no result, nor does one whose connection has ended.
    let late = client.start_compare_swap(filled(&client, b""), &remote, 8, 0, 7).expect("start");
    let error = late.wait_timeout(Duration::ZERO).expect_err("the operation should be delayed");
    assert_eq!(*error.kind(), ErrorKind::TimedOut);
    drop(held);
    receives(&server, b"second");
    let mut ended = start(&client, &remote, 0).expect("start");
    client.abort();
    assert_eq!(
        *ended.try_wait().expect_err("the connection should have ended").kind(),
        ErrorKind::Disconnected
    );
    let error = ended.try_wait().expect_err("the result should be returned once");
    assert_invalid(&error, &["returned already"]);
    let none = ConnectionConfig::new().initiator_depth(0);
    let [client, _server] = pair(roce(0), &none);
    let error = start(&client, &remote, 0).expect_err("reads should not be negotiated");
    assert_invalid(&error, &["initiator depth"]);
    // The answer of an atomic operation has 8 bytes. The refused buffer returns to the connection.
    let small = ConnectionConfig::new().send_buffer_size(7).send_buffers(1);
    let [client, _server] = pair(roce(0), &small);
    let error = client
        .start_fetch_add(filled(&client, b""), &remote, 0, 1)
        .expect_err("the buffer should be too small");
    assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
    drop(client.try_acquire_buffer().expect("the only buffer should be free"));
}
