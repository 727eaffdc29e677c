//! Waiting of tasks.
//!
//! The runtime wakes a task when the descriptor becomes readable. A thread or task that changes the state of the
//! endpoint wakes it too. No wakeup is lost:
//!
//! - A task that finds no result becomes a waiter of the endpoint before it unlocks the state. So every later change
//!   for its operation wakes it.
//! - After that, the completion queues are armed, the event channel has been read to its end, and the completion
//!   channel has reported all of its events. Alternatively, a thread sleeps on the descriptors, and wakes the waiters.
//!   Later events make the descriptor readable again, which wakes one of the tasks: see [`watch`](super::watch).
//! - A task that finds its result may leave events in the channels, or a queue unarmed. Then unlocking the state wakes
//!   the next waiter, and the next task that sleeps on the descriptor is woken too.
//!
//! A task stops waiting when it has its result or is dropped. It then removes its waiter, and another task is woken for
//! the resource for which it was woken.

use std::future::poll_fn;
use std::task::{Poll, ready};

use super::budget::{poll_budget, reset_budget};
use super::failure::refused;
use super::watch::{Sleeper, Watch};
use crate::endpoint::core::EndReason;
use crate::endpoint::core::operation::{Awaited, Operation};
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::state::State;
use crate::endpoint::wait::TaskWaiter;
use crate::error::{ErrorKind, Result};

/// A task that waits for a change of the endpoint. Dropping this removes its waiter.
struct Waiting<'a> {
    shared: &'a Shared,
    operation: Operation,
    waiter: TaskWaiter,
    // Declared last: fields drop in order, and the waiter must be removed first.
    sleeper: Sleeper<'a>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.forget(self.operation, &mut self.waiter);
    }
}

/// Waits until `done` returns a value for the state of the endpoint: see [`Shared::wait_for`].
///
/// # Cancel safety
///
/// Cancel safe: the poll in which `done` takes a result also returns it.
pub(super) async fn wait_for<T>(
    shared: &Shared,
    watch: &Watch,
    awaited: impl Into<Awaited>,
    mut done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
) -> Result<T> {
    let awaited = awaited.into();
    let operation = awaited.operation;
    let (waiter, sleeper) = (TaskWaiter::default(), watch.sleeper());
    let mut waiting = Waiting { shared, operation, waiter, sleeper };
    let failed = |error| refused(operation.name(), shared.name.clone(), &error);
    poll_fn(|context| {
        loop {
            ready!(poll_budget(context));
            waiting.sleeper.set_awake();
            let waker = context.waker();
            match shared.until_task(awaited, &mut waiting.waiter, waker, &mut done) {
                Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
                finished => return Poll::Ready(finished),
            }
            match waiting.sleeper.poll_readable(context) {
                Poll::Ready(readable) => readable.map_err(failed)?,
                Poll::Pending => {
                    reset_budget();
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}
