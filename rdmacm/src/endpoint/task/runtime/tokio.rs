//! Tokio as a [`Runtime`].

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::time;

use super::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};
use crate::lock::ignore_poison;
use crate::sys::reactor::AsyncEpoll;

/// The Tokio runtime of the context in which the value is used.
///
/// The runtime has to have I/O and time ([`enable_all`]). Blocking work runs on the threads of [`spawn_blocking`];
/// outside of a runtime, or if the system refuses a thread, it runs on the calling thread.
///
/// [`enable_all`]: https://docs.rs/tokio/1/tokio/runtime/struct.Builder.html#method.enable_all
/// [`spawn_blocking`]: https://docs.rs/tokio/1/tokio/task/fn.spawn_blocking.html
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use rdmacm::endpoint::{Connector, task::Connection, tokio::TokioRuntime};
///
/// # async fn connect() -> rdmacm::Result<()> {
/// let runtime = Arc::new(TokioRuntime);
/// let _connection = Connection::connect_with(&Connector::new(), "10.0.0.1:7471", runtime).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioRuntime;

const NOT_ENABLED: &str =
    "the Tokio runtime has no I/O or no time; build it with `Builder::enable_all`";
const NOT_INSIDE: &str =
    "no Tokio runtime is active on this thread; call this in the context of one";

fn unsupported(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Runs `make` in the current runtime.
///
/// Tokio reports only by a panic that the runtime has no I/O or no time.
fn in_runtime<T>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if Handle::try_current().is_err() {
        return Err(unsupported(NOT_INSIDE));
    }
    panic::catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| Err(unsupported(NOT_ENABLED)))
}

impl Runtime for TokioRuntime {
    fn register(&self, descriptor: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        in_runtime(|| {
            let watched = AsyncEpoll::new(descriptor.into_epoll())?;
            // Reports now, and not at the first deadline, that the runtime has no time.
            drop(time::sleep_until(Instant::now().into()));
            Ok(Box::new(Registered(watched)) as Box<dyn RegisteredFd>)
        })
    }

    fn sleep_until(&self, deadline: Instant) -> io::Result<Sleep> {
        in_runtime(|| Ok(Box::pin(time::sleep_until(deadline.into())) as Sleep))
    }

    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        let Ok(runtime) = Handle::try_current() else { return Err(work) };
        // If the system has no thread, Tokio panics and keeps the task for a later thread. Either the task or this
        // function takes the work out of `place`, so the work runs once.
        let place = Arc::new(Mutex::new(Some(work)));
        let theirs = Arc::clone(&place);
        let task = move || {
            let work = ignore_poison(theirs.lock()).take();
            if let Some(work) = work {
                work();
            }
        };
        match panic::catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(task))) {
            Ok(_begun) => Ok(()),
            Err(_) => ignore_poison(place.lock()).take().map_or(Ok(()), Err),
        }
    }
}

#[derive(Debug)]
struct Registered(AsyncEpoll);

impl RegisteredFd for Registered {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_readable(cx)
    }
}

#[cfg(test)]
mod tests;
