//! Tests of connections on the null driver, without a kernel.

mod errors;
mod flush;
#[cfg(feature = "tracing")]
mod subscriber;
mod waiting_threads;

use std::io::Write;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use verbs_abi::{AlignedU64, ib_uverbs_comp_event_desc};
use zerocopy::IntoBytes;

use super::Loopback;
use crate::endpoint::core::EndReason;
use crate::endpoint::shared::SharedState;
use crate::endpoint::wait::WaitMode;
use crate::endpoint::{Buffer, Message};
use crate::error::{ErrorKind, Result};
use crate::lock::ignore_poison;
use crate::verbs::Context;

const SENDS: usize = 3;
const RECEIVES: usize = 4;
const LENGTH: usize = 64;
const LONG: Duration = Duration::from_secs(60);

/// Creates a connection to itself, with few buffers.
fn loopback() -> Loopback {
    loopback_on(&Context::null())
}

fn loopback_on(context: &Context) -> Loopback {
    let [sends, receives] =
        [SENDS, RECEIVES].map(|count| u32::try_from(count).expect("the count fits"));
    Loopback::new(context, sends, receives, LENGTH).expect("the connection should be created")
}

impl Loopback {
    /// Raises a completion event of the receive queue.
    fn raise_event(&self) {
        let cq_handle = AlignedU64::from(self.recv_cq.token().get());
        let event = ib_uverbs_comp_event_desc { cq_handle };
        (&self.events).write_all(event.as_bytes()).expect("write should succeed");
    }

    /// Returns `true` if the descriptor of the connection becomes readable.
    fn is_readable(&self, timeout: PollTimeout) -> bool {
        let mut descriptors = [PollFd::new(self.connection.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, timeout).expect("poll") > 0
    }

    /// Sends a message of `length` bytes.
    fn send(&self, length: usize) {
        self.connection.post_bytes(&vec![1; length]).expect("post");
    }

    /// Calls `inspect` with the locked state. Unlocking it afterwards neither wakes a waiter nor flushes.
    fn with_state<T>(&self, inspect: impl FnOnce(&SharedState) -> T) -> T {
        let locked = ignore_poison(self.connection.shared.locked.lock());
        inspect(&locked)
    }

    /// Receives messages until a call fails. Returns their lengths, and the error.
    fn lengths_until_end(&self) -> (Vec<usize>, ErrorKind) {
        let mut lengths = Vec::new();
        loop {
            match self.connection.try_recv() {
                Ok(message) => lengths
                    .push(message.expect("the peer should not have ended the connection").len()),
                Err(error) => return (lengths, error.kind().clone()),
            }
        }
    }

    fn lengths(&self) -> Vec<usize> {
        let received = std::iter::from_fn(|| would_block(self.connection.try_recv()));
        received.map(|message| message.expect("the endpoint should not have ended").len()).collect()
    }
}

/// Returns the value, or `None` if the call would block.
fn would_block<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
            None
        }
    }
}

/// Waits until `condition` is `true`.
#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LONG, "the condition should become true");
        thread::yield_now();
    }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(drop).expect_err("the call should fail").kind().clone()
}

#[test]
fn messages_arrive_in_order() {
    let own = loopback();
    for length in [5, 0, LENGTH] {
        own.send(length);
    }
    assert_eq!(own.lengths(), [5, 0, LENGTH]);
    assert!(would_block(own.connection.try_recv()).is_none());
}

#[test]
fn send_buffers_are_limited_and_return() {
    let own = loopback();
    let take = || would_block(own.connection.try_acquire_buffer());
    let mut held: Vec<Buffer> = std::iter::from_fn(take).collect();
    assert_eq!(held.len(), SENDS);
    assert_eq!(kind(own.connection.try_post_bytes(b"x")), ErrorKind::WouldBlock);
    drop(held.pop());
    own.connection.post_send(take().expect("the dropped buffer should be free")).expect("post");
    let returned = take().expect("the buffer of the sent message should be free");
    assert_eq!(returned.len(), LENGTH, "a buffer is full at first");
    drop(held);
    assert_eq!(own.lengths(), [LENGTH]);
}

#[test]
fn kept_messages_hold_their_receive_buffers() {
    let own = loopback();
    let mut kept: Vec<Message> = Vec::new();
    for length in 0..RECEIVES {
        own.send(length);
        kept.push(own.connection.recv().expect("receive").expect("a message should have arrived"));
    }
    let reposted = || own.connection.stats().expect("stats should succeed").receives_reposted;
    assert_eq!(reposted(), 0);
    // The device has no receive for the next message.
    own.send(9);
    assert!(would_block(own.connection.try_recv()).is_none());
    kept.clear();
    assert_eq!(reposted(), u64::try_from(RECEIVES).expect("the count fits"));
    own.send(10);
    assert_eq!(own.lengths().last(), Some(&10));
}

/// Checks a removal whose event another connection of the device has read.
#[test]
fn messages_before_removal_are_received() {
    let own = loopback();
    own.send(5);
    own.connection.shared.lock_here().state.on_device_removed();
    own.connection.flush().expect("all has been sent");
    assert_eq!(own.lengths_until_end(), ([5].into(), ErrorKind::DeviceRemoved(libc::ENODEV)));
}

/// Checks messages that arrive while the peer has not answered the end yet.
#[test]
fn messages_after_own_close_are_received() {
    let own = loopback();
    own.send(5);
    // Only the end matters: the id has no device, so the command that notifies the peer fails.
    own.connection.shared.finish(WaitMode::NonBlocking).expect_err("the id has no device");
    assert_eq!(own.with_state(|locked| locked.state.core.end()), Some(EndReason::Local));
    assert_eq!(own.lengths_until_end(), ([5].into(), ErrorKind::Disconnected));
}

/// Checks a receive that cannot be posted again, because the device was removed.
#[test]
fn refused_repost_hides_no_message() {
    let context = Context::null();
    let own = loopback_on(&context);
    own.send(5);
    let held = own.connection.try_recv().expect("receive");
    own.send(6);
    context.mark_removed();
    drop(held);
    assert_eq!(own.lengths_until_end(), ([6].into(), ErrorKind::DeviceRemoved(libc::ENODEV)));
    let end = own.with_state(|locked| locked.state.core.end());
    assert_eq!(end, Some(EndReason::DeviceRemoved));
}

#[test]
fn long_message_is_refused_without_loss() {
    let own = loopback();
    let error =
        own.connection.post_bytes(&[0; LENGTH + 1]).expect_err("the length should be refused");
    assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
    assert!(error.to_string().contains("65"), "{error}");
    let mut buffer = own.connection.acquire_buffer().expect("a buffer should be free");
    assert_eq!(buffer.capacity(), LENGTH);
    assert_eq!(
        buffer.set_len(LENGTH + 1).expect_err("the length should be refused").errno(),
        libc::EMSGSIZE
    );
    assert_eq!(buffer.len(), LENGTH);
    drop(buffer);
    (0..SENDS).for_each(|_| own.send(1));
    assert_eq!(own.lengths(), [1; SENDS]);
}

#[test]
fn buffer_of_another_connection_is_refused() {
    let (own, other) = (loopback(), loopback());
    let buffer = other.connection.acquire_buffer().expect("a buffer should be free");
    let error = own
        .connection
        .post_send(buffer)
        .expect_err("a buffer of another connection should be refused");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    let take = || would_block(other.connection.try_acquire_buffer());
    let held: Vec<Buffer> = std::iter::from_fn(take).collect();
    assert_eq!(held.len(), SENDS, "the buffer has returned to its connection");
}

#[test]
fn flush_and_statistics_follow_completions() {
    let own = loopback();
    own.send(7);
    let operation = own
        .connection
        .start_send(own.connection.acquire_buffer().expect("a buffer should be free"));
    own.connection.flush_timeout(LONG).expect("flush");
    operation.expect("post").wait_timeout(LONG).expect("the message should be sent");
    assert_eq!(own.lengths(), [7, LENGTH]);
    let stats = own.connection.stats().expect("stats should succeed");
    assert_eq!((stats.messages_sent, stats.messages_received), (2, 2));
    let bytes = u64::try_from(7 + LENGTH).expect("the count fits");
    assert_eq!((stats.bytes_sent, stats.bytes_received), (bytes, bytes));
    assert_eq!(stats.failures, 0);
}

#[test]
fn abort_ends_every_handle_and_wakes_threads() {
    let own = loopback();
    let clone = own.connection.clone();
    let kept = own.connection.acquire_buffer().expect("a buffer should be free");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| clone.recv());
        own.connection.abort();
        assert_eq!(
            kind(waiting.join().expect("the thread should not panic")),
            ErrorKind::Disconnected
        );
    });
    assert_eq!(kind(clone.acquire_buffer()), ErrorKind::Disconnected);
    assert_eq!(kind(clone.post_send(kept)), ErrorKind::Disconnected);
    clone.flush().expect("all was sent");
    clone.close(LONG).expect("closing an ended connection should succeed");
}

#[test]
fn dropped_handle_leaves_connection_to_its_clones() {
    let Loopback { connection, .. } = loopback();
    let clone = connection.clone();
    drop(connection);
    clone.post_bytes(b"one").expect("post");
    let message = clone.recv().expect("receive").expect("a message should have arrived");
    // A message outlives the last handle.
    drop(clone);
    assert_eq!(message.len(), 3);
}

#[test]
fn completion_event_wakes_blocked_thread() {
    let own = loopback();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| own.connection.recv_timeout(LONG));
        own.send(5);
        own.raise_event();
        let message = waiting
            .join()
            .expect("the thread should not panic")
            .expect("receive")
            .expect("a message should have arrived");
        assert_eq!(message.len(), 5);
    });
}

#[test]
fn completion_event_makes_descriptor_readable() {
    let own = loopback();
    assert!(would_block(own.connection.try_recv()).is_none());
    assert!(!own.is_readable(PollTimeout::ZERO));
    own.send(5);
    own.raise_event();
    assert!(own.is_readable(PollTimeout::try_from(LONG).expect("the timeout fits")));
    assert_eq!(own.lengths(), [5]);
    assert!(!own.is_readable(PollTimeout::ZERO), "the event was consumed");
}
