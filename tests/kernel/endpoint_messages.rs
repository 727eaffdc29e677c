//! The safe tier: buffers and messages.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::{Buffer, Connection, Settings};
use rdmacm::verbs::WcStatus;
use rdmacm_tests::heap::allocations;

use crate::bed::{LONG, announce, asleep, assert_invalid, rxe, siw};
use crate::child::in_child;
use crate::endpoint_connect::{objects_at, pair, pair_of};
use crate::process::forked;

/// A buffer with `bytes`.
pub(crate) fn filled(connection: &Connection, bytes: &[u8]) -> Buffer {
    let mut buffer = connection.buffer_timeout(LONG).expect("a buffer");
    buffer.copy_from(bytes).expect("it fits");
    buffer
}

/// Receives a message, which must be `bytes`.
#[track_caller]
pub(crate) fn receives(connection: &Connection, bytes: &[u8]) {
    let message = connection.recv_timeout(LONG).expect("receive").expect("a message");
    assert!(*message == *bytes, "{message:?} is not what was sent");
}

fn messages_go_both_ways(address: SocketAddr) {
    let [client, server] = pair(address, &Settings::default());
    let all = [7; 4096];
    for length in [1, 0, 4095, 16, 4096, 5, 1000] {
        let message = &all[..length];
        let buffer = client
            .start_send(filled(&client, message))
            .and_then(|send| send.wait_timeout(LONG))
            .expect("send");
        assert_eq!((buffer.len(), &buffer[..length]), (4096, message), "all of it is back");
        receives(&server, message);
        server.post(filled(&server, message)).expect("post");
        receives(&client, message);
    }
    server.flush().expect("flush");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_go_both_ways() {
    messages_go_both_ways(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_go_both_ways() {
    messages_go_both_ways(siw(0));
}

/// How often this thread has read from a descriptor.
fn reads() -> u32 {
    let counts = fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
    let count = counts.lines().find_map(|line| line.strip_prefix("syscr: "));
    count.expect("the reads").parse().expect("a number")
}

/// Each message that wakes a thread makes an event. It reads few of them, and yet does not leave them to the kernel.
fn events_are_read_many_at_once(address: SocketAddr) {
    const COUNT: u32 = 80;
    let [client, server] = pair(address, &Settings::default());
    thread::scope(|scope| {
        let (says, hears) = mpsc::channel();
        let reader = scope.spawn(move || {
            let before = reads();
            let of_counting = reads() - before;
            for number in 0..COUNT {
                announce(&says);
                receives(&server, &number.to_ne_bytes());
            }
            (reads() - before - 2 * of_counting, server)
        });
        for number in 0..COUNT {
            asleep(hears.recv().expect("it lives"));
            client.post(filled(&client, &number.to_ne_bytes())).expect("post");
        }
        let (made, _server) = reader.join().expect("it lives");
        assert!((1..COUNT / 8).contains(&made), "{made} reads");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_events_are_read_many_at_once() {
    events_are_read_many_at_once(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_events_are_read_many_at_once() {
    events_are_read_many_at_once(siw(0));
}

/// A stream in windows, each of which the receiver answers: on iWARP a message that finds no buffer ends the connection.
fn a_stream_arrives_in_order(address: SocketAddr) {
    const WINDOW: u32 = 16;
    const WINDOWS: u32 = 20;
    let [client, server] = pair(address, &Settings::default());
    let (sends, answers) = (client.clone(), client);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..WINDOW * WINDOWS {
                receives(&server, &number.to_ne_bytes());
                if number % WINDOW == WINDOW - 1 {
                    server.post(filled(&server, b"")).expect("post");
                }
            }
        });
        for window in 0..WINDOWS {
            for number in window * WINDOW..(window + 1) * WINDOW {
                let mut buffer = sends.buffer_timeout(LONG).expect("a buffer");
                buffer.copy_from(&number.to_ne_bytes()).expect("it fits");
                sends.post(buffer).expect("post");
            }
            let answer = answers.recv_timeout(LONG).expect("receive").expect("an answer");
            assert!(answer.is_empty());
        }
    });
    sends.flush_timeout(LONG).expect("flush");
    // The connection lives as long as one of its handles.
    drop(sends);
    server.post(filled(&server, b"still there")).expect("post");
    receives(&answers, b"still there");
    drop(answers);
    assert!(server.recv_timeout(LONG).expect("receive").is_none());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_stream_arrives_in_order() {
    a_stream_arrives_in_order(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_stream_arrives_in_order() {
    a_stream_arrives_in_order(siw(0));
}

/// Three threads send, each in its own way, and two receive, until the connection ends.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn many_threads_share_a_connection() {
    const EACH: u32 = 100;
    let settings = Settings { send_buffers: 4, receive_buffers: 4, ..Settings::default() };
    let [client, server] = pair(rxe(0), &settings);
    let ways: [fn(&Connection, Buffer); 3] = [
        |client, buffer| client.post(buffer).expect("post"),
        |client, buffer| {
            drop(client.start_send(buffer).and_then(|send| send.wait_timeout(LONG)).expect("send"))
        },
        |client, buffer| {
            client.post(buffer).expect("post");
            client.flush_timeout(LONG).expect("flush");
        },
    ];
    let mut received = thread::scope(|scope| {
        let receivers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut numbers = Vec::new();
                while let Some(message) = server.recv_timeout(LONG).expect("receive") {
                    numbers.push(u32::from_ne_bytes(message[..].try_into().expect("4 bytes")));
                }
                numbers
            })
        });
        let senders = [0, 1, 2].map(|which| {
            let (client, send) = (&client, ways[which]);
            let first = u32::try_from(which).expect("it fits") * EACH;
            scope.spawn(move || {
                for number in first..first + EACH {
                    send(client, filled(client, &number.to_ne_bytes()));
                }
            })
        });
        senders.into_iter().for_each(|sender| sender.join().expect("it has sent"));
        client.close(LONG).expect("close");
        receivers.map(|receiver| receiver.join().expect("it has received")).concat()
    });
    received.sort_unstable();
    assert!(received.into_iter().eq(0..3 * EACH), "each number once");
}

#[track_caller]
fn assert_kind<T>(result: rdmacm::Result<T>, kind: &ErrorKind) {
    let Err(error) = result else { panic!("it had success") };
    assert_eq!(error.kind(), kind, "{error}");
}

/// Messages that the program keeps have their buffers. On RoCE the peer waits with more.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_receiver_without_buffers_is_waited_for() {
    let [client, server] = pair(rxe(0), &Settings { receive_buffers: 2, ..Settings::default() });
    let messages = [1, 2].map(|number| {
        drop(
            client
                .start_send(filled(&client, &[number]))
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        server.recv_timeout(LONG).expect("receive").expect("a message")
    });
    client.post(filled(&client, &[3])).expect("post");
    assert_kind(client.flush_timeout(Duration::from_millis(50)), &ErrorKind::TimedOut);
    assert_kind(server.try_recv(), &ErrorKind::WouldBlock);
    assert_eq!((&*messages[0], &*messages[1]), (&[1][..], &[2][..]), "they are as they came");
    drop(messages);
    receives(&server, &[3]);
    client.flush_timeout(LONG).expect("flush");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn who_wants_a_buffer_waits_for_one() {
    let [client, server] = pair(rxe(0), &Settings { send_buffers: 2, ..Settings::default() });
    let both = [(); 2].map(|()| client.try_buffer().expect("a buffer"));
    assert_kind(client.try_buffer(), &ErrorKind::WouldBlock);
    assert_kind(client.buffer_timeout(Duration::from_millis(1)), &ErrorKind::TimedOut);
    let (says, hears) = mpsc::channel();
    let [dropped, mut sent] = both;
    // Of two that wait, one sleeps on the descriptors and one waits for that one.
    let two_wait_for = |comes_back: &mut dyn FnMut()| {
        thread::scope(|scope| {
            let waiting = [(); 2].map(|()| {
                let (says, client) = (says.clone(), &client);
                scope.spawn(move || {
                    announce(&says);
                    drop(client.buffer_timeout(LONG).expect("a buffer"));
                })
            });
            (0..2).for_each(|_| asleep(hears.recv().expect("a thread begins")));
            comes_back();
            waiting.into_iter().for_each(|thread| thread.join().expect("it has had a buffer"));
        });
    };
    let mut dropped = Some(dropped);
    two_wait_for(&mut || drop(dropped.take()));
    let other = client.buffer_timeout(LONG).expect("it is back");
    sent.set_len(3).expect("it fits");
    let mut sent = Some(sent);
    two_wait_for(&mut || client.post(sent.take().expect("once")).expect("post"));
    drop(other);
    drop(server.recv_timeout(LONG).expect("receive").expect("a message"));
    drop([(); 2].map(|()| client.buffer_timeout(LONG).expect("both are back")));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_does_not_fit_is_an_error() {
    let [client, server] = pair(rxe(0), &Settings { send_buffer_size: 100, ..Settings::default() });
    let mut buffer = client.buffer().expect("a buffer");
    let error = buffer.copy_from(&[1; 101]).expect_err("it has room for less");
    assert_invalid(&error, &["101 bytes", "room for 100"]);
    assert_eq!(error.errno(), libc::EMSGSIZE);
    assert_invalid(&buffer.set_len(101).expect_err("it has room for less"), &["100"]);
    assert_eq!(buffer.len(), 100, "as before");
    assert_invalid(&server.post(buffer).expect_err("another's"), &["another connection"]);
    assert_eq!(client.buffer().expect("it went home").capacity(), 100);
}

/// A side that sends short messages and receives long ones, and its peer.
fn sizes_differ_by_direction(address: SocketAddr) {
    // With a keep-alive write too, whose buffer lies behind the others.
    for keep_alive in [None, Some(Duration::from_millis(1))] {
        let some = Settings { keep_alive, send_buffers: 3, ..Settings::default() };
        let sizes = |send_buffer_size, receive_buffer_size| Settings {
            send_buffer_size,
            receive_buffer_size,
            ..some.clone()
        };
        let [client, server] = pair_of(address, [&sizes(10, 3000), &sizes(3000, 10)]);
        for (connection, size) in [(&client, 10), (&server, 3000)] {
            let buffer = connection.buffer_timeout(LONG).expect("a buffer");
            assert_eq!((buffer.len(), buffer.capacity()), (size, size));
            drop(buffer);
            let error = connection.post_bytes(&vec![0; size + 1]).expect_err("too long");
            assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
        }
        // Each buffer of both sides is used more than once.
        for round in 0..40 {
            client.post(filled(&client, &[round; 10])).expect("post");
            receives(&server, &[round; 10]);
            server.post(filled(&server, &[round + 1; 3000])).expect("post");
            receives(&client, &[round + 1; 3000]);
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_sizes_differ_by_direction() {
    sizes_differ_by_direction(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_sizes_differ_by_direction() {
    sizes_differ_by_direction(siw(0));
}

/// Each side has buffers of its own size: what is too long for the receiver's ends the connection.
fn a_message_is_too_long(address: SocketAddr) {
    let before = objects_at(address);
    let small = Settings { receive_buffer_size: 64, ..Settings::default() };
    let [client, server] = pair_of(address, [&Settings::default(), &small]);
    drop(
        client
            .start_send(filled(&client, &[1; 64]))
            .and_then(|send| send.wait_timeout(LONG))
            .expect("this fits"),
    );
    client.post(filled(&client, &[2; 65])).expect("post");
    receives(&server, &[1; 64]);
    let error = server.recv_timeout(LONG).expect_err("it is too long");
    assert_eq!(*error.kind(), ErrorKind::Failed(WcStatus::IB_WC_LOC_LEN_ERR), "{error}");
    assert_eq!(error.errno(), libc::EMSGSIZE);
    server.buffer().expect_err("the connection has ended");
    server.abort();
    // On iWARP it is sent when TCP has it, and what the peer says of it is the end of the connection.
    let error = loop {
        match client
            .buffer_timeout(LONG)
            .and_then(|buffer| client.start_send(buffer).and_then(|send| send.wait_timeout(LONG)))
        {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    match error.kind() {
        ErrorKind::Failed(status) => {
            assert_eq!(*status, WcStatus::IB_WC_REM_OP_ERR, "as rxe has it")
        }
        kind => assert_eq!((kind, address), (&ErrorKind::Disconnected, siw(0))),
    }
    client.abort();
    drop((client, server));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_message_is_too_long() {
    a_message_is_too_long(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_message_is_too_long() {
    a_message_is_too_long(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn immediate_data_comes_with_its_message() {
    let [client, server] = pair(rxe(0), &Settings::default());
    let mut buffer = filled(&client, b"text");
    buffer.set_imm_data(Some(0x0102_0304));
    client.post(buffer).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!((&*message, message.imm_data()), (&b"text"[..], Some(0x0102_0304)));
    client.post(filled(&client, b"more")).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!((&*message, message.imm_data()), (&b"more"[..], None));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_has_no_immediate_data() {
    let [client, server] = pair(siw(0), &Settings { send_buffers: 1, ..Settings::default() });
    let mut buffer = filled(&client, b"text");
    buffer.set_imm_data(Some(1));
    let error = client.post(buffer).expect_err("iWARP has none");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    // The buffer is there again, and the connection has come to no harm.
    client.post(filled(&client, b"text")).expect("post");
    receives(&server, b"text");
}

/// What a program holds stays usable when its connection is gone, and the kernel has its memory back after that.
fn buffers_outlive_their_connection(address: SocketAddr) {
    let before = objects_at(address);
    let [client, server] = pair(address, &Settings::default());
    client.post(filled(&client, b"kept")).expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    let mut buffer = server.buffer().expect("a buffer");
    // In the middle: messages are on their way, and receives posted.
    for _ in 0..8 {
        client.post(filled(&client, &[9; 4096])).expect("post");
    }
    drop((client, server));
    let regions =
        |objects: &rdmacm::device::Resources| objects.count("mr").expect("regions are counted");
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
fn rxe_buffers_outlive_their_connection() {
    buffers_outlive_their_connection(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_buffers_outlive_their_connection() {
    buffers_outlive_their_connection(siw(0));
}

fn messages_allocate_nothing(address: SocketAddr) {
    let [client, server] = pair(address, &Settings::default());
    let round = || {
        client.post(filled(&client, b"there")).expect("post");
        receives(&server, b"there");
        drop(
            server
                .start_send(filled(&server, b"back"))
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        receives(&client, b"back");
    };
    // What is made for the first message only.
    round();
    assert_eq!(allocations(|| (0..50).for_each(|_| round())), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_allocate_nothing() {
    messages_allocate_nothing(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_allocate_nothing() {
    messages_allocate_nothing(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_child_has_no_part_in_its_parents_connection() {
    let [client, server] = pair(rxe(0), &Settings::default());
    let buffer = filled(&client, b"the parent's");
    let buffers = (filled(&client, b"the child's"), filled(&client, b"posted"));
    // The child takes a copy of them.
    let mut all = Some((client, server, buffers));
    in_child(|| {
        let (client, server, (dropped, posted)) = all.take().expect("they are there");
        forked(client.buffer());
        forked(client.post(posted));
        forked(client.flush());
        forked(client.recv());
        forked(client.try_recv());
        forked(client.close(LONG));
        client.abort();
        drop((dropped, client, server));
    });
    let (client, server, buffers) = all.expect("only the child's are gone");
    client.post(buffer).expect("post");
    receives(&server, b"the parent's");
    drop(buffers);
    server.post(filled(&server, b"and back")).expect("post");
    receives(&client, b"and back");
}
