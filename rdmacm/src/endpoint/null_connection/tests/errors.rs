//! Tests of errors of connections: the failed call, the cause, and the hint.

use std::time::Duration;

use super::{LENGTH, Loopback, SENDS, loopback};
use crate::endpoint::Buffer;
use crate::error::{Error, ErrorKind, hint};

fn all_buffers(own: &Loopback) -> Vec<Buffer> {
    (0..SENDS)
        .map(|_| own.connection.try_acquire_buffer().expect("a buffer should be free"))
        .collect()
}

#[test]
fn acquire_timeout_names_send_buffers() {
    let own = loopback();
    let _held = all_buffers(&own);
    let error = own
        .connection
        .acquire_buffer_timeout(Duration::ZERO)
        .expect_err("no buffer should be free");
    assert_eq!((error.kind(), error.hint()), (&ErrorKind::TimedOut, Some(hint::SEND_BUFFERS)));
}

#[test]
fn long_message_hint_names_setting() {
    let own = loopback();
    let error =
        own.connection.post_bytes(&[0; LENGTH + 1]).expect_err("the length should be refused");
    assert_eq!((error.errno(), error.hint()), (libc::EMSGSIZE, Some(hint::SEND_BUFFER_SIZE)));
}

/// Checks that the errors of `post_bytes`, which acquires a buffer, name sending.
#[test]
fn ended_connection_names_call_and_side() {
    let own = loopback();
    own.connection.abort();
    let long = [0; LENGTH];
    let failures: [Error; 3] = [
        own.connection.post_bytes(b"x").expect_err("the connection should have ended"),
        own.connection.try_post_bytes(&long).expect_err("the connection should have ended"),
        own.connection.recv().map(drop).expect_err("the connection should have ended"),
    ];
    for (error, operation) in failures.iter().zip(["send on", "send on", "receive on"]) {
        assert_eq!((error.operation(), error.kind()), (operation, &ErrorKind::Disconnected));
        assert_eq!(error.hint(), Some(hint::ENDED_LOCALLY));
    }
}

#[test]
fn attempt_without_free_buffer_names_sending() {
    let own = loopback();
    let _held = all_buffers(&own);
    let error = own.connection.try_post_bytes(b"x").expect_err("no buffer should be free");
    assert_eq!((error.operation(), error.kind()), ("send on", &ErrorKind::WouldBlock));
    assert!(error.to_string().contains("send"), "{error}");
}

#[test]
fn flush_waits_for_posted_requests() {
    let own = loopback();
    own.send(1);
    let has_sent_all = || own.with_state(|locked| locked.state.core.has_sent_all());
    assert!(!has_sent_all(), "no completion was polled");
    own.connection.flush().expect("the request should complete");
    assert!(has_sent_all());
}

#[test]
fn dropped_operation_returns_buffer() {
    let own = loopback();
    for _ in 0..SENDS {
        let buffer = own.connection.acquire_buffer().expect("a buffer should be free");
        drop(own.connection.start_send(buffer).expect("post"));
    }
    own.connection.flush().expect("all requests should complete");
    assert_eq!(all_buffers(&own).len(), SENDS);
}

#[test]
fn command_without_result_is_over() {
    let own = loopback();
    let running_commands = || own.with_state(|locked| locked.running_commands);
    let running = own.connection.shared.lock_here().begin_command();
    assert_eq!(running_commands(), 1);
    // A call that returns early drops it. An abort would wait for it without end.
    drop(running);
    assert_eq!(running_commands(), 0);
    own.connection.abort();
}
