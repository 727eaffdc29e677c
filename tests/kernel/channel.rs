//! Reading events: blocking, non-blocking, with deadlines, interrupted and from several threads.

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, EventChannel, EventType};

use crate::child::let_sigusr1_interrupt;
use crate::fixtures::{Ending, LONG, channel, id, roce};

/// Returns an id that causes an event on `channel`.
fn cause(channel: &EventChannel) -> CmId {
    let id = id(channel);
    id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
    id
}

pub(crate) fn readable(channel: &EventChannel, timeout: PollTimeout) -> bool {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).expect("poll") > 0
}

fn would_block(channel: &EventChannel) {
    let error = channel.get_event().expect_err("no event should be pending");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    assert_eq!(error.errno(), libc::EAGAIN);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn nonblocking_channel_returns_would_block() {
    let channel = channel();
    channel.set_nonblocking(true).expect("make it non-blocking");
    would_block(&channel);
    assert!(!readable(&channel, PollTimeout::ZERO));
    let id = cause(&channel);
    assert!(readable(&channel, PollTimeout::NONE));
    let event = channel.get_event().expect("an event");
    assert_eq!((event.event_type(), event.token()), (EventType::AddrResolved, id.token()));
    would_block(&channel);
    assert!(!readable(&channel, PollTimeout::ZERO));
    // A deadline also works on a non-blocking channel, and does not change the channel.
    assert!(channel.get_event_timeout(Duration::from_millis(5)).expect("wait").is_none());
    would_block(&channel);
    channel.set_nonblocking(false).expect("make it blocking");
    blocks(&channel);
}

/// Checks that `get_event` waits for a later event.
fn blocks(channel: &EventChannel) {
    thread::scope(|scope| {
        let reader = scope.spawn(|| channel.get_event().expect("an event").token());
        // If the call did not wait, it would return in the time of these calls.
        let other = crate::fixtures::channel();
        for _ in 0..5 {
            let _id = cause(&other);
            other.get_event().expect("an event");
            assert!(!reader.is_finished(), "the call should wait");
        }
        let id = cause(channel);
        assert_eq!(reader.join().expect("reader should not panic"), id.token());
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn deadline_leaves_channel_blocking() {
    let channel = channel();
    blocks(&channel);
    let timeout = Duration::from_millis(50);
    let started = Instant::now();
    assert!(channel.get_event_timeout(timeout).expect("wait").is_none());
    assert!(started.elapsed() >= timeout, "{:?}", started.elapsed());
    blocks(&channel);
    assert!(channel.get_event_timeout(Duration::ZERO).expect("look").is_none());
    let wanted = EventType::AddrResolved;
    let error = channel.expect_event_timeout(wanted, timeout).expect_err("no event should arrive");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    assert!(error.to_string().contains("RDMA_CM_EVENT_ADDR_RESOLVED"), "{error}");
    let id = cause(&channel);
    let event = channel.get_event_timeout(Duration::MAX).expect("wait").expect("an event");
    assert_eq!(event.token(), id.token());
    let id = cause(&channel);
    let event = channel.expect_event_timeout(wanted, Duration::MAX).expect("an event");
    assert_eq!(event.token(), id.token());
    let _id = cause(&channel);
    let error = channel
        .expect_event_timeout(EventType::Established, LONG)
        .expect_err("another event should arrive");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    blocks(&channel);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn one_of_two_timed_readers_gets_event() {
    let channel = channel();
    let timeout = Duration::from_millis(400);
    let started = Instant::now();
    let (got, id) = thread::scope(|scope| {
        let wait = || channel.get_event_timeout(timeout).expect("wait").map(|event| event.token());
        let readers = [scope.spawn(wait), scope.spawn(wait)];
        let id = cause(&channel);
        (readers.map(|reader| reader.join().expect("reader should not panic")), id)
    });
    assert!(started.elapsed() >= timeout, "{:?}", started.elapsed());
    let got: Vec<_> = got.into_iter().flatten().collect();
    assert_eq!(got, [id.token()]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn deadline_holds_while_other_thread_reads() {
    let channel = channel();
    let end = AtomicBool::new(false);
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _ending = Ending(&end);
        scope.spawn(|| {
            while !end.load(Ordering::SeqCst) {
                let event = channel.get_event_timeout(Duration::ZERO).expect("look");
                taken.fetch_add(usize::from(event.is_some()), Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            // A dropped id drops its events, so the last ids are kept.
            let mut ids = VecDeque::new();
            while !end.load(Ordering::SeqCst) {
                ids.push_back(cause(&channel));
                if ids.len() > 16 {
                    ids.pop_front();
                }
            }
        });
        let mut rounds = 0;
        while rounds < 20 || taken.load(Ordering::SeqCst) == 0 {
            let started = Instant::now();
            let event = channel.get_event_timeout(Duration::from_millis(20)).expect("wait");
            assert!(event.is_some() || started.elapsed() >= Duration::from_millis(20));
            rounds += 1;
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_event_reaches_one_of_two_readers() {
    const EACH: usize = 100;
    let channel = channel();
    let (ids, read) = thread::scope(|scope| {
        let read = || {
            let next = || channel.get_event().expect("an event").token();
            (0..EACH).map(|_| next()).collect::<Vec<_>>()
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        let ids: Vec<CmId> = (0..2 * EACH).map(|_| cause(&channel)).collect();
        (ids, readers.map(|reader| reader.join().expect("reader should not panic")))
    });
    let read: HashSet<_> = read.concat().into_iter().collect();
    assert_eq!(read.len(), 2 * EACH, "each event should arrive once");
    assert_eq!(read, ids.iter().map(CmId::token).collect());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn signal_ends_wait_without_losing_events() {
    let_sigusr1_interrupt();
    for deadline in [false, true] {
        let channel = channel();
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                tx.send(pthread_self()).expect("the test should receive");
                let error = match deadline {
                    false => channel.get_event().map(drop),
                    true => channel.get_event_timeout(LONG).map(drop),
                };
                error.expect_err("a signal should interrupt the call")
            });
            let thread = rx.recv().expect("thread should send its id");
            // A signal before the thread waits interrupts no call. So the signals are repeated.
            while !waiter.is_finished() {
                pthread_kill(thread, Signal::SIGUSR1).expect("signal");
                thread::yield_now();
            }
            let error = waiter.join().expect("waiter should not panic");
            assert_eq!(error.errno(), libc::EINTR, "{error}");
        });
        let id = cause(&channel);
        assert_eq!(channel.get_event().expect("an event").token(), id.token());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn frequent_signals_lose_and_repeat_no_event() {
    const EVENTS: usize = 60;
    let_sigusr1_interrupt();
    let channel = channel();
    let (tx, rx) = mpsc::channel();
    let interrupted = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            tx.send(pthread_self()).expect("the test should receive");
            let mut tokens = Vec::new();
            while tokens.len() < EVENTS {
                match channel.get_event() {
                    Ok(event) => tokens.push(event.token()),
                    Err(error) => {
                        assert_eq!(error.errno(), libc::EINTR, "{error}");
                        interrupted.store(true, Ordering::SeqCst);
                    }
                }
            }
            tokens
        });
        let thread = rx.recv().expect("thread should send its id");
        let causer = scope.spawn(|| {
            while !interrupted.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            (0..EVENTS).map(|_| cause(&channel)).collect::<Vec<_>>()
        });
        while !reader.is_finished() {
            pthread_kill(thread, Signal::SIGUSR1).expect("signal");
            thread::yield_now();
        }
        let ids = causer.join().expect("causer should not panic");
        let mut tokens = reader.join().expect("reader should not panic");
        let mut wanted: Vec<_> = ids.iter().map(CmId::token).collect();
        tokens.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(tokens, wanted);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn readers_block_beside_timed_readers() {
    let channel = channel();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            while !end.load(Ordering::SeqCst) {
                channel.get_event().expect("an event should arrive");
            }
        };
        let readers = [(); 3].map(|()| scope.spawn(read));
        scope.spawn(|| {
            let _ending = Ending(&end);
            for _ in 0..20_000 {
                channel.get_event_timeout(Duration::ZERO).expect("look");
                channel.set_nonblocking(false).expect("the channel should stay blocking");
            }
        });
        while !readers.iter().all(ScopedJoinHandle::is_finished) {
            cause(&channel);
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_outlive_their_channel() {
    let channel = channel();
    let id = cause(&channel);
    channel.get_event().expect("an event");
    drop(channel);
    id.resolve_route(LONG).expect("the channel should still be open");
    id.destroy().expect("destroy");
}
