//! Work that may block, which runs on threads where blocking is allowed.

use std::future::poll_fn;
use std::mem;
use std::ops::Deref;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

use super::runtime::ProcessRuntime;
use crate::lock::ignore_poison;

/// Runs `work` on a thread that may block, or here if the runtime has none.
///
/// A forked child runs it here.
///
/// Returns `None` if the runtime drops the work because it ends. A panic of `work` continues here.
///
/// # Cancel safety
///
/// If the future is dropped, work that has begun continues, and its result is dropped.
pub(super) async fn run_blocking<T: Send + 'static>(
    runtime: &ProcessRuntime,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let outcome = Arc::new(Outcome(Mutex::new(Progress::Pending(None))));
    let promise = Promise(Arc::clone(&outcome));
    let work = move || promise.complete(panic::catch_unwind(AssertUnwindSafe(work)));
    if let Err(work) = runtime.run_blocking(Box::new(work)) {
        work();
    }
    let done = poll_fn(|context| {
        let mut progress = ignore_poison(outcome.0.lock());
        match mem::replace(&mut *progress, Progress::Pending(Some(context.waker().clone()))) {
            Progress::Pending(former) => {
                drop(progress);
                drop(former);
                Poll::Pending
            }
            Progress::Done(result) => Poll::Ready(result),
        }
    });
    match done.await? {
        Ok(done) => Some(done),
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// The outcome of work on another thread.
struct Outcome<T>(Mutex<Progress<T>>);

enum Progress<T> {
    /// The work has not ended. The waker is that of the task that waits.
    Pending(Option<Waker>),
    /// `None` if the work was dropped before it began.
    Done(Option<thread::Result<T>>),
}

/// The handle with which the work sets the outcome.
///
/// Dropping it notifies the waiting task that the work was dropped.
struct Promise<T>(Arc<Outcome<T>>);

impl<T> Promise<T> {
    fn complete(self, result: thread::Result<T>) {
        self.set_result(Some(result));
    }

    fn set_result(&self, result: Option<thread::Result<T>>) {
        let mut progress = ignore_poison(self.0.0.lock());
        let Progress::Pending(waker) = &mut *progress else { return };
        let waker = waker.take();
        *progress = Progress::Done(result);
        drop(progress);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.set_result(None);
    }
}

/// A value that is dropped on a thread that may block, or in place if the runtime has none.
///
/// A forked child drops it in place.
#[derive(Debug)]
pub(super) struct DropOnBlockingPool<T: Send + 'static> {
    value: Option<T>,
    runtime: ProcessRuntime,
}

const PRESENT: &str = "the value is taken out only when this is dropped";

impl<T: Send + 'static> DropOnBlockingPool<T> {
    pub(super) fn new(value: T, runtime: &ProcessRuntime) -> Self {
        Self { value: Some(value), runtime: runtime.clone() }
    }

    pub(super) fn into_inner(mut self) -> T {
        self.value.take().expect(PRESENT)
    }

    pub(super) fn runtime(&self) -> &ProcessRuntime {
        &self.runtime
    }
}

impl<T: Send + 'static> Deref for DropOnBlockingPool<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(PRESENT)
    }
}

impl<T: Send + 'static> Drop for DropOnBlockingPool<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        // If the runtime ends before, it drops the work, and the value with it.
        if let Err(work) = self.runtime.run_blocking(Box::new(move || drop(value))) {
            work();
        }
    }
}

#[cfg(test)]
mod tests;
