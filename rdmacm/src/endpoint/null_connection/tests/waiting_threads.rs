//! Tests of two threads that wait for one connection.
//!
//! One thread sleeps on the descriptors, and the other one is parked.
//!
//! A call whose timeout has elapsed checks for its result again. So a thread that was not woken gets its result too,
//! but late.

use std::thread::{Scope, ScopedJoinHandle};

use super::*;
use crate::endpoint::RemoteOperation;
use crate::endpoint::shared::waker::Reader;
use crate::verbs::{QpState, QueuePairAttributes};

/// A connection whose buffers for sending are all held, and the threads that wait for it.
struct Scene<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    own: &'e Loopback,
    held: Vec<Buffer>,
}

/// The purpose for which a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Receiver,
    Taker,
}

/// Calls `check` without an event loop, and with an event loop that waits for a message.
fn check(check: impl Fn(Scene<'_, '_>, bool)) {
    for has_event_loop in [false, true] {
        let own = loopback();
        let acquire = || own.connection.acquire_buffer().expect("a buffer should be free");
        let held = (0..SENDS).map(|_| acquire()).collect();
        if has_event_loop {
            assert!(would_block(own.connection.try_recv()).is_none());
        }
        thread::scope(|scope| check(Scene { scope, own: &own, held }, has_event_loop));
        own.with_state(|locked| {
            assert!(locked.reader.is_none());
            assert_eq!(locked.is_wakeup_enabled, locked.waiters.has_awake_loop());
        });
    }
}

/// Returns the result of `call`, which a wakeup must end before its timeout elapses.
fn in_time<T>(call: impl FnOnce() -> Result<T>) -> T {
    result_in_time(call).expect("the call should succeed")
}

/// Returns the result of `call`, which may be an error.
fn result_in_time<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    let result = call();
    assert!(begin.elapsed() < LONG, "no change has woken the thread");
    result
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("the thread should not panic")
}

impl<'s, 'e: 's> Scene<'s, 'e> {
    /// Starts a thread that receives a message, and waits until it sleeps.
    fn start_receiver(&self) -> ScopedJoinHandle<'s, usize> {
        let connection = &self.own.connection;
        self.start(move || {
            in_time(|| connection.recv_timeout(LONG))
                .expect("the endpoint should not have ended")
                .len()
        })
    }

    /// Starts a thread that waits for a buffer, and waits until it sleeps.
    fn start_taker(&self) -> ScopedJoinHandle<'s, Buffer> {
        let connection = &self.own.connection;
        self.start(move || in_time(|| connection.acquire_buffer_timeout(LONG)))
    }

    fn start<T: Send + 's>(&self, wait: impl FnOnce() -> T + Send + 's) -> ScopedJoinHandle<'s, T> {
        let sleeping = self.own.with_state(|locked| locked.waiters.sleeping_threads());
        let thread = self.scope.spawn(wait);
        wait_until(|| self.has_sleepers(sleeping + 1));
        thread
    }

    /// Starts both threads. The one with the role `reader` sleeps on the descriptors.
    fn start_both(
        &self,
        reader: Role,
    ) -> (ScopedJoinHandle<'s, usize>, ScopedJoinHandle<'s, Buffer>) {
        match reader {
            Role::Receiver => (self.start_receiver(), self.start_taker()),
            Role::Taker => {
                let taker = self.start_taker();
                (self.start_receiver(), taker)
            }
        }
    }

    /// Returns `true` if `count` threads sleep, one of them on the descriptors.
    fn has_sleepers(&self, count: u32) -> bool {
        self.own.with_state(|locked| {
            let is_watched = locked.reader.is_some_and(|reader| !reader.is_woken);
            is_watched && locked.waiters.sleeping_threads() == count
        })
    }

    fn reader(&self) -> Reader {
        self.own
            .with_state(|locked| locked.reader)
            .expect("a thread should sleep on the descriptors")
    }

    /// Sends a message whose buffer does not become free: the returned operation keeps it.
    #[must_use = "dropping the operation frees the buffer"]
    fn send_and_keep_buffer(&mut self) -> RemoteOperation<Buffer> {
        let buffer = self.held.pop().expect("a buffer should be held");
        let sent = self.own.connection.start_send(buffer).expect("post");
        self.own.raise_event();
        sent
    }

    /// Posts a message in a held buffer, and raises the event of its receive.
    fn send(&mut self) {
        let buffer = self.held.pop().expect("a buffer should be held");
        self.own.connection.post_send(buffer).expect("post");
        self.own.raise_event();
    }
}

#[test]
fn event_wakes_reader_and_parked_thread() {
    for reader in [Role::Receiver, Role::Taker] {
        check(|mut scene, _| {
            let (receiver, taker) = scene.start_both(reader);
            scene.send();
            assert_eq!(join(receiver), LENGTH);
            join(taker);
        });
    }
}

/// Checks a reader that polls a message for the parked thread while it waits for another result.
#[test]
fn reader_wakes_thread_of_other_operation() {
    check(|mut scene, _| {
        let (receiver, taker) = scene.start_both(Role::Taker);
        let _sent = scene.send_and_keep_buffer();
        assert_eq!(join(receiver), LENGTH);
        wait_until(|| scene.has_sleepers(1));
        scene.held.clear();
        join(taker);
    });
}

/// Checks a buffer that is given back, which no event reports.
#[test]
fn free_buffer_wakes_reader_which_hands_over() {
    check(|mut scene, has_event_loop| {
        let (receiver, taker) = scene.start_both(Role::Taker);
        let first = scene.reader();
        assert_eq!(first.uses_thread_epoll, has_event_loop);
        scene.held.pop();
        let _buffer = join(taker);
        wait_until(|| scene.has_sleepers(1));
        assert_ne!(scene.reader().id, first.id, "the receiver sleeps on the descriptors");
        assert!(!scene.own.is_readable(PollTimeout::ZERO), "an event loop has no result");
        scene.send();
        assert_eq!(join(receiver), LENGTH);
    });
}

#[test]
fn free_buffer_wakes_parked_thread_alone() {
    check(|mut scene, _| {
        let (receiver, taker) = scene.start_both(Role::Receiver);
        let reader = scene.reader().id;
        scene.held.pop();
        let _buffer = join(taker);
        assert!(
            scene.has_sleepers(1) && scene.reader().id == reader,
            "the reader should still be asleep"
        );
        scene.send();
        assert_eq!(join(receiver), LENGTH);
    });
}

/// Checks that the thread that takes the place of the reader gets a later message.
///
/// If the processor is slow, the receiver starts after the timeout of the reader, and shows nothing.
#[test]
fn timeout_of_reader_hands_descriptors_over() {
    check(|mut scene, _| {
        let connection = &scene.own.connection;
        let timeout = Duration::from_millis(300);
        let taker = scene.scope.spawn(move || connection.acquire_buffer_timeout(timeout));
        wait_until(|| scene.has_sleepers(1) || taker.is_finished());
        let receiver = scene.scope.spawn(|| in_time(|| connection.recv_timeout(LONG)));
        assert_eq!(kind(join(taker)), ErrorKind::TimedOut);
        wait_until(|| scene.has_sleepers(1));
        scene.send();
        assert_eq!(join(receiver).expect("the endpoint should not have ended").len(), LENGTH);
    });
}

/// Checks a reader on the descriptor that would take the events of an event loop that comes later.
#[test]
fn event_loop_moves_reader_to_thread_epoll() {
    check(|mut scene, has_event_loop| {
        let receiver = scene.start_receiver();
        assert_eq!(scene.reader().uses_thread_epoll, has_event_loop);
        assert!(would_block(scene.own.connection.try_acquire_buffer()).is_none());
        wait_until(|| scene.has_sleepers(1) && scene.reader().uses_thread_epoll);
        assert!(!scene.own.is_readable(PollTimeout::ZERO));
        scene.send();
        assert_eq!(join(receiver), LENGTH);
        assert!(scene.own.is_readable(PollTimeout::ZERO), "the event is reported to the loop too");
        let _buffer = scene.own.connection.try_acquire_buffer().expect("a buffer should be free");
        // The first of these calls arms the queues, and the second one reads the event.
        for _ in 0..2 {
            assert!(would_block(scene.own.connection.try_recv()).is_none());
        }
        assert!(!scene.own.is_readable(PollTimeout::ZERO), "the event was read");
    });
}

/// Checks that a thread on the thread epoll instance reads only the events of that instance.
#[test]
fn event_loop_reads_event_beside_reader() {
    check(|mut scene, _| {
        assert!(would_block(scene.own.connection.try_recv()).is_none());
        let (receiver, taker) = scene.start_both(Role::Receiver);
        let _sent = scene.send_and_keep_buffer();
        assert_eq!(join(receiver), LENGTH);
        wait_until(|| scene.has_sleepers(1));
        assert!(scene.own.is_readable(PollTimeout::ZERO));
        for _ in 0..2 {
            assert!(would_block(scene.own.connection.try_recv()).is_none());
        }
        assert!(!scene.own.is_readable(PollTimeout::ZERO), "the event was read");
        scene.held.clear();
        join(taker);
    });
}

/// Checks that a sleeping thread gets the error of a receive that another thread could not post.
#[test]
fn refused_repost_wakes_reader() {
    check(|mut scene, _| {
        scene.send();
        let message = scene
            .own
            .connection
            .recv()
            .expect("receive")
            .expect("the endpoint should not have ended");
        let connection = &scene.own.connection;
        let receiver = scene.start(|| result_in_time(|| connection.recv_timeout(LONG)));
        let qp = connection
            .shared
            .lock_here()
            .state
            .qp()
            .expect("the endpoint should have a queue pair");
        // In RESET the queue pair refuses all receives.
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RESET)).expect("modify");
        drop(message);
        let refused = join(receiver).expect_err("the receive should be refused");
        assert!(matches!(refused.kind(), ErrorKind::InvalidInput { .. }), "{refused}");
    });
}
