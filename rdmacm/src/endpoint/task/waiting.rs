//! Waiting as a task does.
//!
//! A task is woken by the runtime, when the descriptor becomes readable, or by the thread or task that changes the state of
//! the endpoint for it. No wakeup is lost:
//!
//! - A task that finds nothing becomes a waiter of the endpoint before it unlocks the state. So it is woken by every later
//!   change that it waits for.
//! - Then the completion queues are armed, the event channel has been read to its end, and the completion channel has
//!   reported all that was in it; or a thread sleeps on them, and wakes the waiters. Later events make the descriptor
//!   readable again.
//! - The runtime remembers that the descriptor has become readable until a task says that it was read, and only a task that
//!   has found nothing since says so. A task that finds what it wants may leave something in the channels, or a queue
//!   unarmed: then the next waiter is woken when the state is unlocked.
//!
//! A task that stops waiting, by having what it wanted or by being dropped, removes its waiter, and what it was woken for
//! wakes another one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::off::refused;
use crate::endpoint::core::EndReason;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::state::State;
use crate::endpoint::wait::TaskWaiter;
use crate::error::{ErrorKind, Result};
use crate::sys::reactor::{Readable, Watched};

/// A waiter of a task, which is removed when this is dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    operation: Operation,
    waiter: TaskWaiter,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.forget(self.operation, &mut self.waiter);
    }
}

/// Waits until `done` finds the state of the endpoint as it wants it: see [`Shared::until`].
///
/// # Cancel safety
///
/// What `done` takes is returned by the same poll: nothing is lost if the future is dropped.
pub(super) async fn until<T>(
    shared: &Shared,
    watched: &Watched,
    operation: Operation,
    mut done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
) -> Result<T> {
    let mut waiting = Waiting { shared, operation, waiter: TaskWaiter::default() };
    let mut readable = None;
    loop {
        // Other tasks have their turn, however much there is for this one.
        tokio::task::consume_budget().await;
        let tried = poll_fn(|context| {
            let waker = context.waker();
            Poll::Ready(shared.until_task(operation, &mut waiting.waiter, waker, &mut done))
        });
        match tried.await {
            Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
            finished => return finished,
        }
        if let Some(readable) = readable.take() {
            Readable::used_up(readable);
        }
        let mut becomes_readable = pin!(watched.readable());
        let mut is_asleep = false;
        let woken = poll_fn(|context| match becomes_readable.as_mut().poll(context) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            // Polled again: a change has woken the task, or it was polled for another reason.
            Poll::Pending if is_asleep => Poll::Ready(None),
            Poll::Pending => {
                is_asleep = true;
                Poll::Pending
            }
        });
        if let Some(ready) = woken.await {
            let failed = |error| refused(operation.name(), shared.name.clone(), &error);
            readable = Some(ready.map_err(failed)?);
        }
    }
}
