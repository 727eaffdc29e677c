//! The safe tier: the kernel ends a connection whose message finds no buffer, without an error.

use std::sync::{Mutex, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, ConnectionConfig, DmaMemory, Message, RemoteAccess};

use crate::endpoint_connect::pair;
use crate::endpoint_messages::filled;
use crate::endpoint_nonblocking::becomes_readable;
use crate::endpoint_tokio;
use crate::executor::{self, in_time, on_each_executor};
use crate::fixtures::{LONG, siw};

/// Receives that this side's connection keeps in reserve.
const RESERVE: u32 = 2;

fn buffers(receive_buffers: u32) -> ConnectionConfig {
    ConnectionConfig::new().receive_buffers(receive_buffers)
}

/// Returns a config with a keep-alive interval so short that probes are sent between messages.
fn kept_alive(receive_buffers: u32) -> ConnectionConfig {
    buffers(receive_buffers).keep_alive_interval(Some(Duration::from_millis(1)))
}

fn post(connection: &Connection, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        connection.post_send(filled(connection, &number.to_ne_bytes())).expect("post");
    }
}

#[track_caller]
fn next(connection: &Connection) -> Option<(u32, Message)> {
    let message = connection.recv_timeout(LONG).expect("receive")?;
    Some((
        u32::from_ne_bytes(message[..].try_into().expect("the slice should have 4 bytes")),
        message,
    ))
}

#[track_caller]
fn assert_overrun(connection: &Connection) {
    let error = connection.recv_timeout(LONG).expect_err("messages should be lost");
    assert_eq!(
        (error.kind(), error.errno()),
        (&ErrorKind::ReceiveOverrun, libc::ENOBUFS),
        "{error}"
    );
    assert!(error.to_string().contains("no buffer"), "{error}");
    let error = connection.post_bytes(b"late").expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::ReceiveOverrun, "{error}");
}

/// Waits until the kernel has ended the connection. The side `sends` detects the end.
#[track_caller]
fn ends(sends: &Connection) {
    assert!(next(sends).is_none(), "sender should get no message");
}

/// Checks that the overrun is reported whenever the program receives.
///
/// The program receives before the overrun, in between, or only at the end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_overrun_is_reported() {
    for (before, config) in (0..=3).flat_map(|n| [(n, buffers(3)), (n, kept_alive(3))]) {
        let [client, server] = pair(siw(0), &config);
        post(&client, 0..before);
        // These messages are held, so that the receive queue has no more free buffers than expected.
        let kept: Vec<_> = (0..before).map(|_| next(&server).expect("a message")).collect();
        let all = 3 + RESERVE;
        post(&client, before..all + 1);
        ends(&client);
        for (place, (number, message)) in kept.into_iter().enumerate() {
            assert_eq!(usize::try_from(number), Ok(place));
            drop(message);
        }
        for number in before..all {
            assert_eq!(
                next(&server).expect("a message").0,
                number,
                "every message with a buffer should arrive"
            );
        }
        assert_overrun(&server);
        assert_overrun(&server);
        server.close(LONG).expect("no message of this side should be lost");
    }
}

/// Buffers that return after the overrun do not hide the overrun.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_overrun_is_reported_to_continuing_receiver() {
    let [client, server] = pair(siw(0), &buffers(1));
    post(&client, 0..3);
    let (_, kept) = next(&server).expect("a message");
    post(&client, [3]);
    ends(&client);
    // This side has not detected the end yet.
    drop(kept);
    assert_eq!(next(&server).expect("a message").0, 1);
    assert_eq!(next(&server).expect("a message").0, 2);
    assert_overrun(&server);
}

/// Receives as many messages as there are receive buffers, from a peer that then disconnects.
///
/// This side receives only afterwards.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_full_receive_queue_is_no_overrun() {
    for count in [1, 4] {
        let [client, server] = pair(siw(0), &buffers(count));
        post(&client, 0..count);
        // This side detects the end before it receives the messages.
        client.close(LONG).expect("close");
        for number in 0..count {
            assert_eq!(next(&server).expect("a message").0, number);
        }
        assert!(next(&server).is_none());
    }
}

/// Receives from a peer that has as many messages in flight as there are buffers.
///
/// This side answers while it holds the messages, or after their buffers have returned. The peer ends the connection
/// after the last answer, or without waiting for it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_answered_messages_are_no_overrun() {
    const ROUNDS: u32 = 40;
    for turn in 0..24 {
        let (count, holds, waits) = ([1, 2, 5][turn % 3], turn / 3 % 2 == 0, turn / 6 % 2 == 0);
        let config = if turn / 12 == 0 { buffers(count) } else { kept_alive(count) };
        let config = config.send_buffers(8);
        let [client, server] = pair(siw(0), &config);
        let all = count * ROUNDS;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut received = 0;
                while let Some((number, message)) = next(&server) {
                    assert_eq!(number, received);
                    received += 1;
                    // The client may end before it gets the last answers, and its end may discard messages.
                    let held = holds.then_some(message);
                    let answered = server.post_bytes(&number.to_ne_bytes());
                    assert!(answered.is_ok() || received > all - count, "{answered:?}");
                    drop(held);
                }
                assert!(received == all || !waits, "{received} of {all}");
            });
            post(&client, 0..count);
            for number in count..all {
                assert_eq!(next(&client).expect("an answer").0, number - count);
                post(&client, [number]);
            }
            if waits {
                (all - count..all).for_each(|number| {
                    assert_eq!(next(&client).expect("an answer").0, number);
                });
            }
            client.close(LONG).expect("close");
        });
    }
}

/// Takes all messages, then answers each and drops it.
///
/// No message waits while receives are missing.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_batched_answers_are_no_overrun() {
    for count in [2, 5, 16] {
        let [client, server] = pair(siw(0), &buffers(count));
        let memory = DmaMemory::new(64).expect("memory");
        let export = server.export(&memory, .., RemoteAccess::READ).expect("export");
        let remote = export.remote_memory();
        post(&client, 0..count);
        let batch: Vec<_> = (0..count).map(|_| next(&server).expect("a message")).collect();
        let answer = |(number, message): (u32, Message)| {
            post(&server, [number]);
            drop(message);
        };
        batch.into_iter().for_each(answer);
        for number in 0..count {
            assert_eq!(next(&client).expect("an answer").0, number);
            post(&client, [count + number]);
        }
        // When the read completes, the message that was sent before it has arrived, without a call of the server.
        drop(
            client
                .start_read(filled(&client, b"bytes"), &remote, 0)
                .and_then(|read| read.wait_timeout(LONG))
                .expect("read"),
        );
        (0..count).for_each(|_| answer(next(&server).expect("a message")));
        for number in count..2 * count {
            assert_eq!(next(&client).expect("an answer").0, number);
        }
        client.close(LONG).expect("close");
        assert!(next(&server).is_none());
    }
}

/// Receives in one thread, and returns the buffers in other threads before they answer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_overrun_is_exact_with_several_threads() {
    const THREADS: usize = 3;
    const COUNT: u32 = 4;
    const ALL: u32 = 300;
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Peer {
        /// Keeps as many messages in flight as there are buffers.
        Waits,
        /// Sends while the threads return buffers.
        Races,
        /// Sends until the end. The threads return no buffer before the end.
        Floods,
    }
    let peers = [Peer::Waits, Peer::Races, Peer::Floods];
    for (turn, peer) in peers.into_iter().cycle().take(24).enumerate() {
        let config = if turn / 12 == 0 { buffers(COUNT) } else { kept_alive(COUNT) };
        let [client, server] = pair(siw(0), &config);
        let (sender, receiver) = (server.clone(), server);
        let (hand, take) = mpsc::channel::<(u32, Message)>();
        let (take, gate) = (Mutex::new(take), RwLock::new(()));
        let next_work = || take.lock().expect("no thread should panic").recv();
        let answers = || {
            while let Ok((number, message)) = next_work() {
                drop(gate.read().expect("no thread should panic"));
                drop(message);
                if peer == Peer::Waits {
                    sender.post_bytes(&number.to_ne_bytes()).expect("answer");
                }
            }
        };
        let receives = move || {
            let mut received = 0;
            loop {
                match receiver.recv_timeout(LONG) {
                    Ok(Some(message)) => {
                        assert_eq!(message[..], u32::to_ne_bytes(received));
                        received += 1;
                        hand.send((received, message)).expect("the threads should receive");
                    }
                    Ok(None) => return (received, None),
                    Err(error) => return (received, Some(error)),
                }
            }
        };
        let (received, error) = thread::scope(|scope| {
            let closed =
                (peer == Peer::Floods).then(|| gate.write().expect("no thread should panic"));
            (0..THREADS).for_each(|_| drop(scope.spawn(answers)));
            let receiving = scope.spawn(receives);
            match peer {
                Peer::Waits => {
                    post(&client, 0..COUNT);
                    for number in COUNT..ALL {
                        next(&client).expect("an answer");
                        post(&client, [number]);
                    }
                    (0..COUNT).for_each(|_| drop(next(&client).expect("an answer")));
                }
                Peer::Races => {
                    let posts = |number: &u32| client.post_bytes(&number.to_ne_bytes()).is_ok();
                    let _ended = (0..ALL).take_while(posts).count();
                }
                Peer::Floods => {
                    let posts = |number: &u32| client.post_bytes(&number.to_ne_bytes()).is_ok();
                    (0..).take_while(posts).for_each(drop);
                }
            }
            drop(closed);
            // If the kernel has ended the connection, this call is refused.
            let _ended = client.close(LONG);
            receiving.join().expect("thread should not panic")
        });
        let kind = error.as_ref().map(|error| error.kind());
        match peer {
            Peer::Waits => assert_eq!((received, kind), (ALL, None)),
            Peer::Races => match kind {
                None => assert_eq!(received, ALL, "an end without an error should lose no message"),
                Some(kind) => assert_eq!(*kind, ErrorKind::ReceiveOverrun),
            },
            Peer::Floods => {
                assert_eq!((received, kind), (COUNT + RESERVE, Some(&ErrorKind::ReceiveOverrun)));
            }
        }
    }
}

/// Checks that an event loop gets the overrun, and the descriptor also reports the end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_overrun_is_reported_to_event_loop() {
    let [client, server] = pair(siw(0), &buffers(2));
    post(&client, 0..2 + RESERVE + 1);
    ends(&client);
    let mut received = 0;
    let error = loop {
        match server.try_recv() {
            Ok(message) => {
                message.expect("the connection should end with an error");
                received += 1;
            }
            Err(error) if *error.kind() == ErrorKind::WouldBlock => becomes_readable(&server),
            Err(error) => break error,
        }
    };
    assert_eq!((received, error.kind()), (2 + RESERVE, &ErrorKind::ReceiveOverrun));
}

/// Checks that a task that holds all messages and waits for more gets the overrun.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_overrun_is_reported_to_task() {
    on_each_executor(siw(0), || async {
        let [client, server] = endpoint_tokio::pair(siw(0), &buffers(2)).await;
        let receiving = executor::spawn(async move {
            let mut kept = Vec::new();
            loop {
                match in_time(server.recv()).await {
                    Ok(message) => {
                        kept.push(message.expect("the connection should end with an error"))
                    }
                    Err(error) => return (kept.len(), error),
                }
            }
        });
        for _ in 0..=2 + RESERVE {
            in_time(client.post_bytes(b"")).await.expect("post");
        }
        assert!(
            in_time(client.recv()).await.expect("receive").is_none(),
            "the sender should get no error"
        );
        let (received, error) = in_time(receiving).await.expect("task should not panic");
        assert_eq!((received, error.kind()), (4, &ErrorKind::ReceiveOverrun));
    });
}
