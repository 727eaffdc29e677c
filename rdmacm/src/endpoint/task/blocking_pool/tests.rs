use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::Context;
use std::thread::ThreadId;
use std::time::Instant;

use super::*;
use crate::endpoint::task::runtime::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};
use crate::endpoint::task::test_executor::block_on;
use crate::sys::process::in_child;

/// A runtime that treats all blocking work alike.
#[derive(Debug, Clone, Copy)]
enum Pool {
    Runs,
    Refuses,
    Drops,
    Forgets,
}

impl Runtime for Pool {
    fn register(&self, _: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        unreachable!("nothing is registered")
    }

    fn sleep_until(&self, _: Instant) -> io::Result<Sleep> {
        unreachable!("no task sleeps")
    }

    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        match self {
            Self::Runs => drop(thread::spawn(work)),
            Self::Refuses => return Err(work),
            Self::Drops => drop(work),
            Self::Forgets => mem::forget(work),
        }
        Ok(())
    }
}

fn pool(pool: Pool) -> ProcessRuntime {
    ProcessRuntime::new(Arc::new(pool))
}

/// A value that adds 1 when it is dropped.
struct Counts<'a>(&'a AtomicU32);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn forked_child_drops_value_itself() {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    let mut value = Some(DropOnBlockingPool::new(Counts(&DROPS), &pool(Pool::Refuses)));
    let mut forgotten = Some(DropOnBlockingPool::new(Counts(&DROPS), &pool(Pool::Forgets)));
    let child_drops_both = in_child(|| {
        drop([value.take(), forgotten.take()]);
        DROPS.load(Ordering::Relaxed) == 2
    });
    assert!(child_drops_both, "the child used the runtime of its parent");
    drop([value, forgotten]);
    assert_eq!(DROPS.load(Ordering::Relaxed), 1, "the parent should use its runtime");
}

/// Checks work of a forked child, which has no threads of the runtime.
#[test]
fn forked_child_runs_work_itself() {
    let pool = pool(Pool::Forgets);
    assert!(in_child(|| block_on(run_blocking(&pool, || 1)) == Some(1)));
}

/// A value that reports the thread that drops it.
struct Reports(mpsc::Sender<ThreadId>);

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

#[test]
fn work_runs_here_only_if_runtime_refuses() {
    let here = thread::current().id();
    for (kind, is_here) in [(Pool::Runs, false), (Pool::Refuses, true)] {
        let done = block_on(run_blocking(&pool(kind), || thread::current().id()));
        assert_eq!(done.expect("the work should be done") == here, is_here, "{kind:?}");
    }
    assert_eq!(block_on(run_blocking(&pool(Pool::Drops), || 1)), None);
}

#[test]
fn value_drops_here_only_if_runtime_does_not_run() {
    let here = thread::current().id();
    for (kind, is_here) in [(Pool::Runs, false), (Pool::Refuses, true), (Pool::Drops, true)] {
        let (reports, dropped) = mpsc::channel();
        drop(DropOnBlockingPool::new(Reports(reports), &pool(kind)));
        let dropped = dropped.recv().expect("the value should be dropped");
        assert_eq!(dropped == here, is_here, "{kind:?}");
    }
}

#[test]
fn panic_of_work_resumes_in_waiting_task() {
    for kind in [Pool::Runs, Pool::Refuses] {
        let work = || -> u8 { panic::resume_unwind(Box::new("of the work")) };
        let panics = || block_on(run_blocking(&pool(kind), work));
        let payload = panic::catch_unwind(panics).expect_err("the work panics");
        assert_eq!(payload.downcast_ref(), Some(&"of the work"));
    }
}

#[test]
fn result_without_waiting_task_is_dropped_there() {
    let (reports, dropped) = mpsc::channel();
    let (goes_on, waits) = mpsc::channel::<()>();
    let pool = pool(Pool::Runs);
    let work = move || {
        let _ = waits.recv();
        Reports(reports)
    };
    {
        let mut running = pin!(run_blocking(&pool, work));
        let polled = running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    drop(goes_on);
    let dropped = dropped.recv().expect("the result should be dropped");
    assert_ne!(dropped, thread::current().id());
}
