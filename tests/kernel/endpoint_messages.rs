//! The safe tier: buffers and messages.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::{Buffer, Connection, ConnectionConfig};
use rdmacm::verbs::WcStatus;
use rdmacm_tests::heap::allocations;

use crate::child::in_child;
use crate::endpoint_connect::{objects_at, pair, pair_of};
use crate::fixtures::{LONG, announce, asleep, assert_invalid, is_card, roce, siw};
use crate::process::forked;

/// Returns a buffer with `bytes`.
pub(crate) fn filled(connection: &Connection, bytes: &[u8]) -> Buffer {
    let mut buffer = connection.acquire_buffer_timeout(LONG).expect("a buffer");
    buffer.copy_from(bytes).expect("the length should fit");
    buffer
}

/// Receives a message, which must be `bytes`.
#[track_caller]
pub(crate) fn receives(connection: &Connection, bytes: &[u8]) {
    let message = connection.recv_timeout(LONG).expect("receive").expect("a message");
    assert!(*message == *bytes, "{message:?} is not what was sent");
}

fn messages_go_both_ways(address: SocketAddr) {
    let [client, server] = pair(address, &ConnectionConfig::default());
    let all = [7; 4096];
    for length in [1, 0, 4095, 16, 4096, 5, 1000] {
        let message = &all[..length];
        let buffer = client
            .start_send(filled(&client, message))
            .and_then(|send| send.wait_timeout(LONG))
            .expect("send");
        assert_eq!(
            (buffer.len(), &buffer[..length]),
            (4096, message),
            "the buffer should have its full capacity"
        );
        receives(&server, message);
        server.post_send(filled(&server, message)).expect("post");
        receives(&client, message);
    }
    server.flush().expect("flush");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_go_both_ways() {
    messages_go_both_ways(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_go_both_ways() {
    messages_go_both_ways(siw(0));
}

/// Returns the number of reads from descriptors by this thread.
fn reads() -> u32 {
    let counts = fs::read_to_string("/proc/thread-self/io").expect("read the kernel's counter");
    let count = counts.lines().find_map(|line| line.strip_prefix("syscr: "));
    count.expect("the file should count reads").parse().expect("a number")
}

/// Checks that each message that wakes a thread raises an event.
///
/// The thread reads these events in batches, and leaves none in the kernel.
fn completion_events_are_read_in_batches(address: SocketAddr) {
    const COUNT: u32 = 80;
    let [client, server] = pair(address, &ConnectionConfig::default());
    thread::scope(|scope| {
        let (tx, rx) = mpsc::channel();
        let reader = scope.spawn(move || {
            let before = reads();
            let of_counting = reads() - before;
            for number in 0..COUNT {
                announce(&tx);
                receives(&server, &number.to_ne_bytes());
            }
            (reads() - before - 2 * of_counting, server)
        });
        for number in 0..COUNT {
            asleep(rx.recv().expect("receiver should not panic"));
            client.post_send(filled(&client, &number.to_ne_bytes())).expect("post");
        }
        let (made, _server) = reader.join().expect("thread should not panic");
        assert!((1..COUNT / 8).contains(&made), "{made} reads");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_completion_events_are_read_in_batches() {
    completion_events_are_read_in_batches(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_completion_events_are_read_in_batches() {
    completion_events_are_read_in_batches(siw(0));
}

/// Sends a stream whose receiver answers each window.
///
/// On iWARP a message without a receive buffer ends the connection.
fn stream_arrives_in_order(address: SocketAddr) {
    const WINDOW: u32 = 16;
    const WINDOWS: u32 = 20;
    let [client, server] = pair(address, &ConnectionConfig::default());
    let (sends, answers) = (client.clone(), client);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..WINDOW * WINDOWS {
                receives(&server, &number.to_ne_bytes());
                if number % WINDOW == WINDOW - 1 {
                    server.post_send(filled(&server, b"")).expect("post");
                }
            }
        });
        for window in 0..WINDOWS {
            for number in window * WINDOW..(window + 1) * WINDOW {
                let mut buffer = sends.acquire_buffer_timeout(LONG).expect("a buffer");
                buffer.copy_from(&number.to_ne_bytes()).expect("the length should fit");
                sends.post_send(buffer).expect("post");
            }
            let answer = answers.recv_timeout(LONG).expect("receive").expect("an answer");
            assert!(answer.is_empty());
        }
    });
    sends.flush_timeout(LONG).expect("flush");
    // The connection exists as long as one of its handles.
    drop(sends);
    server.post_send(filled(&server, b"still there")).expect("post");
    receives(&answers, b"still there");
    drop(answers);
    assert!(server.recv_timeout(LONG).expect("receive").is_none());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_stream_arrives_in_order() {
    stream_arrives_in_order(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_stream_arrives_in_order() {
    stream_arrives_in_order(siw(0));
}

/// Sends in three threads, each by another function, and receives in two until the end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn many_threads_share_one_connection() {
    const EACH: u32 = 100;
    let config = ConnectionConfig::new().send_buffers(4).receive_buffers(4);
    let [client, server] = pair(roce(0), &config);
    let ways: [fn(&Connection, Buffer); 3] = [
        |client, buffer| client.post_send(buffer).expect("post"),
        |client, buffer| {
            drop(client.start_send(buffer).and_then(|send| send.wait_timeout(LONG)).expect("send"))
        },
        |client, buffer| {
            client.post_send(buffer).expect("post");
            client.flush_timeout(LONG).expect("flush");
        },
    ];
    let mut received = thread::scope(|scope| {
        let receivers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut numbers = Vec::new();
                while let Some(message) = server.recv_timeout(LONG).expect("receive") {
                    numbers.push(u32::from_ne_bytes(
                        message[..].try_into().expect("the slice should have 4 bytes"),
                    ));
                }
                numbers
            })
        });
        let senders = [0, 1, 2].map(|which| {
            let (client, send) = (&client, ways[which]);
            let first = u32::try_from(which).expect("the value should fit") * EACH;
            scope.spawn(move || {
                for number in first..first + EACH {
                    send(client, filled(client, &number.to_ne_bytes()));
                }
            })
        });
        senders.into_iter().for_each(|sender| sender.join().expect("sender should not panic"));
        client.close(LONG).expect("close");
        receivers.map(|receiver| receiver.join().expect("receiver should not panic")).concat()
    });
    received.sort_unstable();
    assert!(received.into_iter().eq(0..3 * EACH), "each number should arrive once");
}

#[track_caller]
fn assert_kind<T>(result: rdmacm::Result<T>, kind: &ErrorKind) {
    let Err(error) = result else { panic!("the call should fail") };
    assert_eq!(error.kind(), kind, "{error}");
}

/// Messages that the program holds keep their buffers. On RoCE further messages wait at the peer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sender_waits_for_receive_buffers() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().receive_buffers(2));
    let messages = [1, 2].map(|number| {
        drop(
            client
                .start_send(filled(&client, &[number]))
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        server.recv_timeout(LONG).expect("receive").expect("a message")
    });
    client.post_send(filled(&client, &[3])).expect("post");
    assert_kind(client.flush_timeout(Duration::from_millis(50)), &ErrorKind::TimedOut);
    assert_kind(server.try_recv(), &ErrorKind::WouldBlock);
    assert_eq!(
        (&*messages[0], &*messages[1]),
        (&[1][..], &[2][..]),
        "held messages should not change"
    );
    drop(messages);
    receives(&server, &[3]);
    client.flush_timeout(LONG).expect("flush");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn acquire_waits_for_free_buffer() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().send_buffers(2));
    let both = [(); 2].map(|()| client.try_acquire_buffer().expect("a buffer"));
    assert_kind(client.try_acquire_buffer(), &ErrorKind::WouldBlock);
    assert_kind(client.acquire_buffer_timeout(Duration::from_millis(1)), &ErrorKind::TimedOut);
    let (tx, rx) = mpsc::channel();
    let [dropped, mut sent] = both;
    // One of two waiting threads waits on the descriptors, and the other one waits for the first.
    let two_wait_for = |comes_back: &mut dyn FnMut()| {
        thread::scope(|scope| {
            let waiting = [(); 2].map(|()| {
                let (tx, client) = (tx.clone(), &client);
                scope.spawn(move || {
                    announce(&tx);
                    drop(client.acquire_buffer_timeout(LONG).expect("a buffer"));
                })
            });
            (0..2).for_each(|_| asleep(rx.recv().expect("a thread should begin")));
            comes_back();
            waiting
                .into_iter()
                .for_each(|thread| thread.join().expect("every thread should get a buffer"));
        });
    };
    let mut dropped = Some(dropped);
    two_wait_for(&mut || drop(dropped.take()));
    let other = client.acquire_buffer_timeout(LONG).expect("the buffer should return");
    sent.set_len(3).expect("the length should fit");
    let mut sent = Some(sent);
    two_wait_for(&mut || {
        client.post_send(sent.take().expect("the buffer should be posted once")).expect("post")
    });
    drop(other);
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    drop(
        [(); 2].map(|()| client.acquire_buffer_timeout(LONG).expect("both buffers should be free")),
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn oversized_and_foreign_buffers_are_refused() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().send_buffer_size(100));
    let mut buffer = client.acquire_buffer().expect("a buffer");
    let error = buffer.copy_from(&[1; 101]).expect_err("the length should exceed the buffer");
    assert_invalid(&error, &["101 bytes", "room for 100"]);
    assert_eq!(error.errno(), libc::EMSGSIZE);
    assert_invalid(
        &buffer.set_len(101).expect_err("the length should exceed the buffer"),
        &["100"],
    );
    assert_eq!(buffer.len(), 100, "the length should not change");
    assert_invalid(
        &server.post_send(buffer).expect_err("a buffer of another connection should be refused"),
        &["another connection"],
    );
    assert_eq!(
        client.acquire_buffer().expect("the buffer should return to its connection").capacity(),
        100
    );
}

/// Exchanges short messages in one direction and long ones in the other.
fn sizes_differ_by_direction(address: SocketAddr) {
    // The buffer of keep-alive writes follows the other buffers.
    for keep_alive in [None, Some(Duration::from_millis(1))] {
        let some = ConnectionConfig::new().keep_alive_interval(keep_alive).send_buffers(3);
        let sizes = |send_buffer_size, receive_buffer_size| {
            some.clone().send_buffer_size(send_buffer_size).receive_buffer_size(receive_buffer_size)
        };
        let [client, server] = pair_of(address, [&sizes(10, 3000), &sizes(3000, 10)]);
        for (connection, size) in [(&client, 10), (&server, 3000)] {
            let buffer = connection.acquire_buffer_timeout(LONG).expect("a buffer");
            assert_eq!((buffer.len(), buffer.capacity()), (size, size));
            drop(buffer);
            let error = connection
                .post_bytes(&vec![0; size + 1])
                .expect_err("the message should be too long");
            assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
        }
        // Each buffer of both sides is used several times.
        for round in 0..40 {
            client.post_send(filled(&client, &[round; 10])).expect("post");
            receives(&server, &[round; 10]);
            server.post_send(filled(&server, &[round + 1; 3000])).expect("post");
            receives(&client, &[round + 1; 3000]);
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_sizes_differ_by_direction() {
    sizes_differ_by_direction(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_sizes_differ_by_direction() {
    sizes_differ_by_direction(siw(0));
}

/// Checks that a message that is longer than the receiver's buffers ends the connection.
///
/// Each side selects the size of its own buffers.
fn oversized_message_ends_connection(address: SocketAddr) {
    let before = objects_at(address);
    let small = ConnectionConfig::new().receive_buffer_size(64);
    let [client, server] = pair_of(address, [&ConnectionConfig::default(), &small]);
    drop(
        client
            .start_send(filled(&client, &[1; 64]))
            .and_then(|send| send.wait_timeout(LONG))
            .expect("the message should fit"),
    );
    client.post_send(filled(&client, &[2; 65])).expect("post");
    receives(&server, &[1; 64]);
    let error = server.recv_timeout(LONG).expect_err("the message should be too long");
    assert_eq!(*error.kind(), ErrorKind::WorkRequestFailed(WcStatus::IB_WC_LOC_LEN_ERR), "{error}");
    assert_eq!(error.errno(), libc::EMSGSIZE);
    server.acquire_buffer().expect_err("the connection should have ended");
    server.abort();
    // On iWARP a send completes when TCP has accepted the message, and the peer reports the fault only by ending the
    // connection.
    let error = loop {
        match client
            .acquire_buffer_timeout(LONG)
            .and_then(|buffer| client.start_send(buffer).and_then(|send| send.wait_timeout(LONG)))
        {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    match error.kind() {
        ErrorKind::WorkRequestFailed(status) => {
            // rxe does not report the status that the specification demands.
            let wanted = match is_card() {
                true => WcStatus::IB_WC_REM_INV_REQ_ERR,
                false => WcStatus::IB_WC_REM_OP_ERR,
            };
            assert_eq!(*status, wanted);
        }
        kind => assert_eq!((kind, address), (&ErrorKind::Disconnected, siw(0))),
    }
    client.abort();
    drop((client, server));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_oversized_message_ends_connection() {
    oversized_message_ends_connection(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_oversized_message_ends_connection() {
    oversized_message_ends_connection(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn immediate_data_arrives_with_message() {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let mut buffer = filled(&client, b"text");
    buffer.set_imm_data(Some(0x0102_0304));
    client.post_send(buffer).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!((&*message, message.imm_data()), (&b"text"[..], Some(0x0102_0304)));
    client.post_send(filled(&client, b"more")).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!((&*message, message.imm_data()), (&b"more"[..], None));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_refuses_immediate_data() {
    let [client, server] = pair(siw(0), &ConnectionConfig::new().send_buffers(1));
    let mut buffer = filled(&client, b"text");
    buffer.set_imm_data(Some(1));
    let error = client.post_send(buffer).expect_err("iWARP should have no immediate data");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    // The buffer is free again, and the connection still works.
    client.post_send(filled(&client, b"text")).expect("post");
    receives(&server, b"text");
}

/// Messages and buffers stay usable after their connection ends.
///
/// The kernel deregisters their memory only when they are dropped.
fn buffers_outlive_connection(address: SocketAddr) {
    let before = objects_at(address);
    let [client, server] = pair(address, &ConnectionConfig::default());
    client.post_send(filled(&client, b"kept")).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    let mut buffer = server.acquire_buffer().expect("a buffer");
    // The connection ends while messages are in flight and receives are posted.
    for _ in 0..8 {
        client.post_send(filled(&client, &[9; 4096])).expect("post");
    }
    drop((client, server));
    let regions = |objects: &rdmacm::device::ResourceCounts| {
        objects.count("mr").expect("the device should count regions")
    };
    let left = objects_at(address);
    assert_eq!(regions(&left), regions(&before) + 1);
    assert_eq!(left.count("qp"), before.count("qp"));
    assert_eq!(*message, *b"kept");
    buffer.fill(5);
    assert!(buffer.iter().all(|byte| *byte == 5));
    drop(message);
    assert_eq!(regions(&objects_at(address)), regions(&before) + 1);
    drop(buffer);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_buffers_outlive_connection() {
    buffers_outlive_connection(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_buffers_outlive_connection() {
    buffers_outlive_connection(siw(0));
}

fn messages_allocate_nothing(address: SocketAddr) {
    let [client, server] = pair(address, &ConnectionConfig::default());
    let round = || {
        client.post_send(filled(&client, b"there")).expect("post");
        receives(&server, b"there");
        drop(
            server
                .start_send(filled(&server, b"back"))
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        receives(&client, b"back");
    };
    // The first message creates objects.
    round();
    assert_eq!(allocations(|| (0..50).for_each(|_| round())), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_allocate_nothing() {
    messages_allocate_nothing(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_allocate_nothing() {
    messages_allocate_nothing(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_use_connection() {
    let [client, server] = pair(roce(0), &ConnectionConfig::default());
    let buffer = filled(&client, b"the parent's");
    let buffers = (filled(&client, b"the child's"), filled(&client, b"posted"));
    // The child gets copies of these objects.
    let mut all = Some((client, server, buffers));
    in_child(|| {
        let (client, server, (dropped, posted)) = all.take().expect("the objects should exist");
        forked(client.acquire_buffer());
        forked(client.post_send(posted));
        forked(client.flush());
        forked(client.recv());
        forked(client.try_recv());
        forked(client.close(LONG));
        client.abort();
        drop((dropped, client, server));
    });
    let (client, server, buffers) = all.expect("the parent's objects should still exist");
    client.post_send(buffer).expect("post");
    receives(&server, b"the parent's");
    drop(buffers);
    server.post_send(filled(&server, b"and back")).expect("post");
    receives(&client, b"and back");
}
