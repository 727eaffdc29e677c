//! Models of threads that lock, yield and time out: two threads in every order, three in most orders.
//!
//! In these models, a deadline passes at once.

use std::sync::Arc;

use super::*;
use crate::sync::{check, check_bounded, thread};

type Counter = Arc<HandoffMutex<usize>>;

fn lock(counter: &Counter) -> HandoffGuard<'_, usize> {
    counter.lock().expect("this thread should not hold it")
}

fn try_until_now(counter: &Counter) -> Option<HandoffGuard<'_, usize>> {
    counter.lock_until(Some(Instant::now())).expect("this thread should not hold it")
}

fn spawn(counter: &Counter, run: fn(&Counter)) -> thread::JoinHandle<()> {
    let counter = Arc::clone(counter);
    thread::spawn(move || run(&counter))
}

fn join<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("the thread should not panic");
    }
}

/// Asserts that no thread holds the mutex, waits for it, or is counted as waiting.
fn assert_unlocked(counter: &Counter) {
    assert_eq!(counter.holder.load(Ordering::Relaxed), 0);
    assert_eq!(counter.waiters(), 0);
}

#[test]
fn loom_lock_excludes_and_serves_every_waiter() {
    check_bounded(|| {
        let counter = Counter::default();
        let others = [(); 2].map(|()| spawn(&counter, |counter| *lock(counter) += 1));
        *lock(&counter) += 1;
        join(others);
        assert_eq!(*lock(&counter), 3);
        assert_unlocked(&counter);
    });
}

#[test]
fn loom_yield_lets_waiter_in_and_returns() {
    check(|| {
        let counter = Counter::default();
        let other = spawn(&counter, |counter| *lock(counter) += 1);
        let mut guard = lock(&counter);
        *guard += 1;
        let (before, is_waited_for) = (*guard, guard.is_waited_for());
        guard.yield_to_waiter();
        assert!(!is_waited_for || *guard == before + 1, "the waiter was passed over");
        *guard += 1;
        drop(guard);
        join([other]);
        assert_eq!(*lock(&counter), 3);
        assert_unlocked(&counter);
    });
}

#[test]
fn loom_threads_that_yield_to_each_other_continue() {
    check(|| {
        let counter = Counter::default();
        let yields = |counter: &Counter| {
            let mut guard = lock(counter);
            *guard += 1;
            guard.yield_to_waiter();
            *guard += 1;
        };
        let other = spawn(&counter, yields);
        yields(&counter);
        join([other]);
        assert_eq!(*lock(&counter), 4);
        assert_unlocked(&counter);
    });
}

#[test]
fn loom_timed_out_thread_holds_or_leaves() {
    check(|| {
        let counter = Counter::default();
        let times_out = spawn(&counter, |counter| {
            if let Some(mut guard) = try_until_now(counter) {
                *guard += 1;
            }
        });
        *lock(&counter) += 1;
        *lock(&counter) += 1;
        join([times_out]);
        assert!(matches!(*lock(&counter), 2 | 3));
        assert_unlocked(&counter);
    });
}

#[test]
fn loom_waiter_is_granted_past_timed_out_one() {
    check_bounded(|| {
        let counter = Counter::default();
        let waits = spawn(&counter, |counter| *lock(counter) += 1);
        let times_out = spawn(&counter, |counter| drop(try_until_now(counter)));
        *lock(&counter) += 1;
        join([waits, times_out]);
        assert_eq!(*lock(&counter), 2);
        assert_unlocked(&counter);
    });
}
