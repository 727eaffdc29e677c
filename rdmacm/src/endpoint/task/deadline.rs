//! Deadlines of tasks.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use super::runtime::ProcessRuntime;

/// Waits for `future` until `deadline`, if there is one. Returns `None` if the deadline passes first.
///
/// # Errors
///
/// The error of a runtime that cannot wait until then.
pub(super) async fn until_deadline<F: Future>(
    runtime: &ProcessRuntime,
    deadline: Option<Instant>,
    future: F,
) -> io::Result<Option<F::Output>> {
    let mut future = pin!(future);
    let mut timer = None;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(Some(output)));
        }
        let Some(deadline) = deadline else { return Poll::Pending };
        let timer = match &mut timer {
            Some(timer) => timer,
            // A future that is ready at once needs no timer.
            None => timer.insert(runtime.start_timer(deadline)?),
        };
        timer.poll_elapsed(context).map(|()| Ok(None))
    })
    .await
}
