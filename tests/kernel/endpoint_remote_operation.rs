//! The safe tier: reads and changes of the peer's memory that are under way while the program does other things.

use std::net::SocketAddr;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::endpoint::{
    Buffer, Connection, Export, Memory, Message, Remote, RemoteOperation, Rights, Settings,
};
use rdmacm::{ErrorKind, Result};

use crate::bed::{LONG, assert_invalid, rxe, siw};
use crate::endpoint_connect::pair;
use crate::endpoint_keep_alive::Cut;
use crate::endpoint_loop::{becomes_readable, eventually, is_readable, now, settles};
use crate::endpoint_messages::{filled, receives};

/// A pair of which the second side has exported memory, in which each byte says where it is.
fn exported(address: SocketAddr, settings: &Settings) -> ([Connection; 2], Memory, Export) {
    let [client, server] = pair(address, settings);
    client.post(filled(&client, b"hello")).expect("post");
    receives(&server, b"hello");
    client.flush_timeout(LONG).expect("flush");
    let mut memory = Memory::new(128).expect("memory");
    memory.write(0, &(0..128).collect::<Vec<_>>()).expect("within");
    // siw has no atomics.
    let atomic = if address.ip() == rxe(0).ip() { Rights::ATOMIC } else { Rights::empty() };
    let export = server.export(&memory, Rights::READ | atomic).expect("export");
    ([client, server], memory, export)
}

fn start(client: &Connection, remote: &Remote, offset: u8) -> Result<RemoteOperation<Buffer>> {
    let mut buffer = client.buffer_timeout(LONG).expect("a buffer");
    buffer.set_len(4).expect("it fits");
    client.start_read(buffer, remote, u64::from(offset))
}

/// Messages for which the peer has no buffer, until it lets go of what is returned: behind them nothing is done on rxe.
fn held_up(client: &Connection, server: &Connection) -> Message {
    client.post(filled(client, b"first")).expect("post");
    let held = server.recv_timeout(LONG).expect("receive").expect("a message");
    client.flush_timeout(LONG).expect("flush");
    client.post(filled(client, b"second")).expect("post");
    held
}

fn reads_are_under_way(address: SocketAddr) {
    let ([client, _server], _memory, export) = exported(address, &Settings::default());
    let remote = export.remote();
    let mut pending: Vec<_> =
        (0..16).map(|number| start(&client, &remote, number * 8).expect("start")).collect();
    assert!(now(client.try_buffer()).is_none(), "all are on their way");
    // In any order, by who does not wait and by who does.
    let buffer = eventually(&client, || pending[9].try_wait());
    assert_eq!(*buffer, [72, 73, 74, 75]);
    let error = pending[9].try_wait().expect_err("it is over");
    assert_invalid(&error, &["wait for", "returned already"]);
    drop(buffer);
    for (number, read) in (0..16).zip(pending).rev().filter(|(number, _)| *number != 9) {
        let buffer = match number % 2 {
            0 => read.wait().expect("read"),
            _ => read.wait_timeout(LONG).expect("read"),
        };
        assert_eq!(*buffer, [0, 1, 2, 3].map(|place| number * 8 + place));
    }
    // Nobody needs to hear of it.
    drop(start(&client, &remote, 0).expect("start"));
    let all: Vec<_> = (0..16).map(|_| client.buffer_timeout(LONG).expect("it is back")).collect();
    assert!(all.iter().all(|buffer| buffer.len() == buffer.capacity()));
    let [mut first, ..] = <[_; 16]>::try_from(all).expect("16 of them");
    first.set_len(4).expect("it fits");
    let error = client.start_read(first, &remote, 125).expect_err("beyond the end");
    assert_invalid(&error, &["4 bytes at offset 125"]);
    drop(client.try_buffer().expect("what is refused is back"));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_reads_are_under_way() {
    reads_are_under_way(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_reads_are_under_way() {
    reads_are_under_way(siw(0));
}

/// It makes the descriptor readable when it is done, and not before, whichever call has polled it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_descriptor_tells_of_it() {
    let settings = Settings { receive_buffers: 1, ..Settings::default() };
    let ([client, server], memory, export) = exported(rxe(0), &settings);
    let remote = export.remote();
    for polls in [false, true] {
        let held = held_up(&client, &server);
        let mut read = start(&client, &remote, 40).expect("start");
        let mut added = client.start_fetch_add(&remote, 0, 1).expect("start");
        let mut swapped = client.start_compare_swap(&remote, 8, 0, 7).expect("start");
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
        memory.read(8, &mut before).expect("within");
        becomes_readable(&client);
        assert_eq!(eventually(&client, || swapped.try_wait()), u64::from_ne_bytes(before));
        // Which has polled these too, as they were before it in the queue.
        let first = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]) + u64::from(polls);
        becomes_readable(&client);
        assert_eq!(now(added.try_wait()), Some(first));
        becomes_readable(&client);
        assert_eq!(*now(read.try_wait()).expect("it is done"), [40, 41, 42, 43]);
        // What nobody has tried to have the descriptor tells nobody of.
        let kept = start(&client, &remote, 44).expect("start");
        client.flush_timeout(LONG).expect("flush");
        settles(&client, || assert!(now(client.try_recv()).is_none()));
        assert_eq!(*kept.wait_timeout(LONG).expect("read"), [44, 45, 46, 47]);
    }
}

/// Also of its failure, when another call has heard of the end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_descriptor_tells_of_its_failure() {
    let ([client, _server], _memory, export) = exported(siw(0), &Settings::default());
    let cut = Cut::new();
    let mut read = start(&client, &export.remote(), 0).expect("start");
    assert!(now(read.try_wait()).is_none());
    assert!(eventually(&client, || client.try_recv()).is_none(), "TCP has given up");
    becomes_readable(&client);
    let error = read.try_wait().expect_err("nobody has answered");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    // The completion of the flushed read may raise its event after the end, which a later call reads.
    settles(&client, || assert!(client.try_recv().expect("receive").is_none(), "the end"));
    drop(cut);
}

/// Of one that is dropped when it is done, which nobody has heard, nothing is told any more.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_is_given_up_is_not_told_of() {
    let settings = Settings { receive_buffers: 1, ..Settings::default() };
    let ([client, server], _memory, export) = exported(rxe(0), &settings);
    let held = held_up(&client, &server);
    let mut read = start(&client, &export.remote(), 0).expect("start");
    settles(&client, || assert!(now(read.try_wait()).is_none()));
    drop(held);
    receives(&server, b"second");
    client.flush_timeout(LONG).expect("flush");
    assert!(now(client.try_recv()).is_none());
    assert!(is_readable(&client, PollTimeout::ZERO), "it is done");
    drop(read);
    // An event that the kernel reports late makes it readable without a reason, which the next call finds out.
    settles(&client, || assert!(now(client.try_recv()).is_none()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_cannot_begin_does_not() {
    let settings = Settings { receive_buffers: 1, send_buffers: 2, ..Settings::default() };
    let ([client, server], memory, export) = exported(rxe(0), &settings);
    let remote = export.remote();
    let reads = server.export(&memory, Rights::READ).expect("export").remote();
    let error = client.start_fetch_add(&reads, 0, 1).expect_err("not given");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    let held = held_up(&client, &server);
    let last = client.try_buffer().expect("a buffer");
    assert!(now(client.start_fetch_add(&remote, 0, 1)).is_none(), "no buffer for the answer");
    drop(last);
    // Nor is it done that was begun, where the time is over, or the connection.
    let late = client.start_compare_swap(&remote, 8, 0, 7).expect("start");
    let error = late.wait_timeout(Duration::ZERO).expect_err("it is held up");
    assert_eq!(*error.kind(), ErrorKind::TimedOut);
    drop(held);
    receives(&server, b"second");
    let mut ended = start(&client, &remote, 0).expect("start");
    client.abort();
    assert_eq!(*ended.try_wait().expect_err("it has ended").kind(), ErrorKind::Disconnected);
    let error = ended.try_wait().expect_err("it is over");
    assert_invalid(&error, &["returned already"]);
    let none = Settings { initiator_depth: 0, ..Settings::default() };
    let [client, _server] = pair(rxe(0), &none);
    let error = start(&client, &remote, 0).expect_err("no depth");
    assert_invalid(&error, &["initiator depth"]);
}
