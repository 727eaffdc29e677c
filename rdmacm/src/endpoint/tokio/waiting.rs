//! Waiting as a task does.
//!
//! A task sleeps until one of two tells it: the runtime, that the descriptor has become readable,
//! and whoever else changes the state of the connection, thread or task, that it has.
//!
//! What keeps a task from sleeping while there is something for it:
//!
//! - It asks to be told of changes before it looks at the state, and looks with the state locked.
//!   So of every change that it has not seen it is told.
//! - When it has found nothing, the completion queue is armed, the event channel has been read to its
//!   end, and the completion channel has told of all that was in it; or a thread sleeps on them, and
//!   tells when it wakes. What the kernel reports later makes the descriptor readable anew.
//! - That it has become readable the runtime keeps in mind until somebody says that it was read,
//!   and only who has found nothing since says so. Who finds what it wants does not, and may leave
//!   something in the channels, or the queue unarmed: then the next one looks, and the others are
//!   told when a channel has told of something. Who leaves something there because it was too much
//!   tells everybody, and itself.
//!
//! So a task that stops waiting, by having what it wanted or by being dropped, takes nothing along
//! that another one waits for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::off::refused;
use crate::endpoint::shared::{Operation, Patience, Shared};
use crate::endpoint::state::State;
use crate::endpoint::traffic::End;
use crate::error::{ErrorKind, Result};
use crate::sys::reactor::{Readable, Watched};

/// Waits until `done` finds the state of the connection as it wants it: [`Shared::until`]. What it
/// takes is there at once for who awaits this: it is not lost where this is dropped.
pub(super) async fn until<T>(
    shared: &Shared,
    watched: &Watched,
    operation: Operation,
    mut done: impl FnMut(&mut State) -> Option<Result<T, End>>,
) -> Result<T> {
    let waiting = shared.tasks.enter();
    let mut readable = None;
    loop {
        // Other tasks have their turn, however much there is for this one.
        tokio::task::consume_budget().await;
        let mut changed = pin!(waiting.changed());
        match shared.until(operation, Patience::Task, &mut done) {
            Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
            finished => return finished,
        }
        if let Some(readable) = readable.take() {
            Readable::used_up(readable);
        }
        let mut becomes_readable = pin!(watched.readable());
        let woken = poll_fn(|context| match changed.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => becomes_readable.as_mut().poll(context).map(Some),
        });
        if let Some(ready) = woken.await {
            let failed = |error| refused(operation.name(), shared.name.clone(), &error);
            readable = Some(ready.map_err(failed)?);
        }
    }
}
