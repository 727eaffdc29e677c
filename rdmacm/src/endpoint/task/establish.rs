//! Connections that are being established.

use super::blocking_pool::{DropOnBlockingPool, run_blocking};
use super::deadline::until_deadline;
use super::failure::{canceled, refused};
use super::runtime::ProcessRuntime;
use super::watch::Watch;
use crate::endpoint::{self, Connecting};
use crate::error::{ErrorKind, Result};

const WAIT_FOR: &str = "wait for";
const SUBJECT: &str = "a connection to be established";

/// A connection that was established, and the watch of its descriptor if it had to be waited for.
pub(super) type Established = (DropOnBlockingPool<endpoint::Connection>, Option<Watch>);

/// The state of an attempt.
enum Step {
    Pending(DropOnBlockingPool<Connecting>),
    Ended(Result<DropOnBlockingPool<endpoint::Connection>>),
}

impl Step {
    fn of(mut connecting: Connecting, runtime: &ProcessRuntime) -> Self {
        match connecting.try_wait() {
            Err(error) if *error.kind() == ErrorKind::WouldBlock => {
                Self::Pending(DropOnBlockingPool::new(connecting, runtime))
            }
            ended => Self::Ended(ended.map(|ended| DropOnBlockingPool::new(ended, runtime))),
        }
    }
}

/// Starts an attempt, and waits until it has ended.
///
/// The kernel commands are issued on threads that may block. Objects that are dropped meanwhile are dropped there.
pub(super) async fn establish(
    runtime: &ProcessRuntime,
    start: impl FnOnce() -> Result<Connecting> + Send + 'static,
) -> Result<Established> {
    let ended = || canceled(WAIT_FOR, SUBJECT);
    let failed = |error| refused(WAIT_FOR, SUBJECT, &error);
    let owner = runtime.clone();
    let started = run_blocking(runtime, move || start().map(|begun| Step::of(begun, &owner)));
    let mut step = started.await.ok_or_else(ended)??;
    let mut watch = None;
    loop {
        let connecting = match step {
            Step::Pending(connecting) => connecting,
            Step::Ended(ended) => return Ok((ended?, watch)),
        };
        let watched = match &watch {
            Some(watched) => watched,
            None => watch.insert(Watch::new(runtime, connecting.epoll()).map_err(failed)?),
        };
        let readable = until_deadline(runtime, connecting.deadline(), watched.readable()).await;
        // If the deadline has passed, the next step returns the timeout error.
        readable.map_err(failed)?.unwrap_or(Ok(())).map_err(failed)?;
        let owner = runtime.clone();
        let next = run_blocking(runtime, move || Step::of(connecting.into_inner(), &owner));
        step = next.await.ok_or_else(ended)?;
    }
}
