use super::*;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Waits until `count` threads are in the queue.
fn await_waiters<T>(mutex: &HandoffMutex<T>, count: usize) {
    while mutex.waiters() < count {
        thread::yield_now();
    }
}

#[test]
fn holder_gets_error_and_others_wait() {
    let mutex = HandoffMutex::new(0);
    let mut guard = mutex.lock().expect("no thread should hold it");
    mutex.lock().expect_err("this thread should hold it");
    mutex.lock_until(Some(Instant::now())).expect_err("this thread should hold it");
    assert!(mutex.is_held_by_this_thread());
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(!mutex.is_held_by_this_thread());
            *mutex.lock().expect("another thread should hold it")
        });
        await_waiters(&mutex, 1);
        mutex.lock().expect_err("this thread should hold it while another one waits");
        *guard = 7;
        drop(guard);
        assert_eq!(other.join().expect("the thread should not panic"), 7);
    });
    mutex.lock().expect("no thread should hold it any more");
}

#[test]
fn threads_lock_in_order_of_arrival() {
    let mutex = HandoffMutex::new(Vec::new());
    let guard = mutex.lock().expect("no thread should hold it");
    thread::scope(|scope| {
        for number in 0..4 {
            let mutex = &mutex;
            scope.spawn(move || mutex.lock().expect("another thread").push(number));
            await_waiters(mutex, number + 1);
        }
        drop(guard);
    });
    assert_eq!(*mutex.lock().expect("no thread should hold it"), [0, 1, 2, 3]);
}

#[test]
fn waiter_precedes_thread_that_locks_again() {
    let mutex = HandoffMutex::new(0);
    let guard = mutex.lock().expect("no thread should hold it");
    thread::scope(|scope| {
        scope.spawn(|| *mutex.lock().expect("another thread should hold it") = 7);
        await_waiters(&mutex, 1);
        drop(guard);
        assert_eq!(*mutex.lock().expect("another thread should hold it"), 7);
    });
}

#[test]
fn yield_lets_all_waiters_in() {
    let mutex = HandoffMutex::new(0);
    let mut guard = mutex.lock().expect("no thread should hold it");
    guard.yield_to_waiter();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| *mutex.lock().expect("another thread should hold it") += 1);
        }
        await_waiters(&mutex, 2);
        assert!(guard.is_waited_for());
        guard.yield_to_waiter();
        assert_eq!(*guard, 2, "both came before this thread");
        assert!(!guard.is_waited_for());
        mutex.lock().expect_err("this thread should hold the mutex again");
    });
}

#[test]
fn yield_waits_while_other_thread_keeps_guard() {
    let mutex = &HandoffMutex::new(0);
    let (release, released) = mpsc::channel();
    let mut guard = mutex.lock().expect("no thread should hold it");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut guard = mutex.lock().expect("another thread should hold it");
            await_waiters(mutex, 1);
            released.recv().expect("the test should release the guard");
            *guard += 1;
        });
        scope.spawn(move || {
            while mutex.waiters() == 0 {
                thread::yield_now();
            }
            release.send(()).expect("the thread should wait");
        });
        while !guard.is_waited_for() {
            thread::yield_now();
        }
        guard.yield_to_waiter();
        assert_eq!(*guard, 1);
    });
}

#[test]
fn deadline_ends_wait() {
    let mutex = HandoffMutex::new(0);
    let guard = mutex.lock().expect("no thread should hold it");
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let timed_out = |milliseconds| {
                let deadline = Instant::now() + Duration::from_millis(milliseconds);
                let locked = mutex.lock_until(Some(deadline)).expect("another thread");
                locked.is_none() && Instant::now() >= deadline
            };
            timed_out(0) && timed_out(1)
        });
        assert!(other.join().expect("the thread should not panic"));
        assert_eq!(mutex.waiters(), 0);
        assert!(!guard.is_waited_for(), "no thread should wait any more");
        drop(guard);
    });
    let now = Some(Instant::now());
    assert!(mutex.lock_until(now).expect("no thread should hold it").is_some());
}

#[test]
fn unlock_before_deadline_ends_wait() {
    let mutex = HandoffMutex::new(0);
    let mut guard = mutex.lock().expect("no thread should hold it");
    thread::scope(|scope| {
        let deadline = Instant::now().checked_add(Duration::from_secs(600));
        for deadline in [deadline, None] {
            let mutex = &mutex;
            scope.spawn(move || {
                let locked = mutex.lock_until(deadline).expect("another thread");
                *locked.expect("the mutex should be unlocked in time") += 1;
            });
        }
        await_waiters(&mutex, 2);
        guard.yield_to_waiter();
        assert_eq!(*guard, 2);
    });
}

#[test]
fn timed_out_thread_leaves_others_waiting() {
    let mutex = HandoffMutex::new(0);
    let guard = mutex.lock().expect("no thread should hold it");
    thread::scope(|scope| {
        scope.spawn(|| *mutex.lock().expect("another thread should hold it") += 1);
        await_waiters(&mutex, 1);
        let timed_out = scope.spawn(|| {
            let deadline = Some(Instant::now() + Duration::from_millis(1));
            mutex.lock_until(deadline).expect("another thread should hold it").is_none()
        });
        assert!(timed_out.join().expect("the thread should not panic"));
        assert!(guard.is_waited_for(), "the first thread still waits");
        drop(guard);
    });
    assert_eq!(*mutex.lock().expect("no thread should hold it"), 1);
}

#[test]
fn forgotten_guard_is_reported_too() {
    let mutex = HandoffMutex::new(());
    std::mem::forget(mutex.lock().expect("no thread should hold it"));
    mutex.lock().expect_err("this thread should hold it forever");
}

#[test]
fn free_mutex_is_locked_at_once() {
    let mutex = HandoffMutex::new(1);
    let mut guard = mutex.try_lock().expect("no thread holds the mutex");
    *guard = 2;
    assert!(mutex.try_lock().is_none());
    drop(guard);
    assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
}
