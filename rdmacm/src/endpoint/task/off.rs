//! Away from the threads that run tasks: what takes its time in the kernel.

use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind};
use crate::lock::unpoisoned;

/// Does `work` on a thread that may wait, or here where there is none. `None` where the runtime ends
/// before it is begun; it is dropped then.
///
/// It goes on where nobody waits for it any more; what comes of it is dropped there.
pub(super) async fn off<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let Ok(runtime) = Handle::try_current() else { return Some(work()) };
    let begun = match begin(&runtime, work) {
        Ok(begun) => begun,
        Err(work) => return work.map(|work| work()),
    };
    match begun.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(_) => None,
        },
    }
}

/// Has a thread of `runtime` do `work`, or gives it back where the system has no thread for that: tokio
/// panics then, and keeps the task for a thread that it may have later, which may have begun it.
fn begin<T, W>(runtime: &Handle, work: W) -> Result<JoinHandle<Option<T>>, Option<W>>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let place = Arc::new(Mutex::new(Some(work)));
    let theirs = Arc::clone(&place);
    let task = move || {
        let work = unpoisoned(theirs.lock()).take();
        work.map(|work| work())
    };
    let begun = panic::catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(task)));
    begun.map_err(|_| unpoisoned(place.lock()).take())
}

/// What takes its time to drop: that is done on a thread that may wait, where there is a runtime,
/// and otherwise where it is dropped.
#[derive(Debug)]
pub(super) struct Slow<T: Send + 'static>(Option<T>);

const HELD: &str = "it is taken out only where the value goes";

impl<T: Send + 'static> Slow<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn into_inner(mut self) -> T {
        self.0.take().expect(HELD)
    }
}

impl<T: Send + 'static> Deref for Slow<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T: Send + 'static> DerefMut for Slow<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

impl<T: Send + 'static> Drop for Slow<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        if let Ok(runtime) = Handle::try_current() {
            // Where the runtime ends before, this is dropped there, and the value with it; and where
            // the work comes back it is dropped here.
            drop(begin(&runtime, move || drop(value)));
        }
    }
}

/// The error of what the runtime has not begun when it ends.
pub(super) fn cancelled(
    operation: &'static str,
    subject: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    Error::new(operation, subject, ErrorKind::Os(libc::ECANCELED))
}

/// The error of a runtime that does not do what it is asked: it has ended, or the kernel refuses.
pub(super) fn refused(
    operation: &'static str,
    subject: impl Into<std::borrow::Cow<'static, str>>,
    error: &io::Error,
) -> Error {
    let errno = error.raw_os_error().unwrap_or(libc::ECANCELED);
    Error::new(operation, subject, ErrorKind::Os(errno))
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// One that has threads for blocking work, or for which the system has not the memory.
    fn runtime(has_threads: bool) -> Runtime {
        let stack = if has_threads { 1 << 20 } else { 1 << 46 };
        Builder::new_current_thread().thread_stack_size(stack).build().expect("a runtime")
    }

    /// Tells which thread drops it.
    struct Telling(Arc<Mutex<Option<ThreadId>>>);

    impl Drop for Telling {
        fn drop(&mut self) {
            *unpoisoned(self.0.lock()) = Some(thread::current().id());
        }
    }

    #[test]
    fn what_takes_its_time_is_done_here_where_there_is_no_other_thread() {
        let here = thread::current().id();
        for has_threads in [true, false] {
            let runtime = runtime(has_threads);
            let done = runtime.block_on(off(|| thread::current().id()));
            assert_eq!(done.expect("it is done") == here, !has_threads);
            let dropped = Arc::default();
            let value = Slow::new(Telling(Arc::clone(&dropped)));
            runtime.block_on(async { drop(value) });
            if !has_threads {
                assert_eq!(*unpoisoned(dropped.lock()), Some(here), "at once");
            }
            drop(runtime);
            let who = unpoisoned(dropped.lock()).expect("it is dropped");
            assert_eq!(who == here, !has_threads);
        }
    }

    #[test]
    fn what_panics_there_panics_here() {
        let panics = || runtime(true).block_on(off(|| -> u8 { panic!("of the work") }));
        let payload = panic::catch_unwind(panics).expect_err("it panics");
        assert_eq!(payload.downcast_ref(), Some(&"of the work"));
    }
}
