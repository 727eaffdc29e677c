//! Calls of tasks.
//!
//! A task that finds no result is a waiter of the endpoint, until it is polled again and finds a result, or until its
//! future is dropped.

use std::task::Waker;

use super::caller::Caller;
use super::caller::TaskWaiter;
use crate::endpoint::core::EndReason;
use crate::endpoint::core::WaiterKind;
use crate::endpoint::core::operation::Awaited;
use crate::endpoint::core::operation::Operation;
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::SharedStateGuard;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::waker::Wake;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Shared {
    /// Polls an operation for a task, which does not wait.
    ///
    /// This is [`wait_for`](Self::wait_for) for tasks. After [`ErrorKind::WouldBlock`], the `waker` is called when the
    /// state has changed for the task. The task must watch the descriptor too.
    pub(in crate::endpoint) fn until_task<T>(
        &self,
        awaited: impl Into<Awaited>,
        task: &mut TaskWaiter,
        waker: &Waker,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        self.wait_as(Caller::Task(task, waker), awaited.into(), done)
    }

    /// Removes the waiter of a task that stops waiting.
    ///
    /// If it was woken for a resource, another waiter is woken.
    pub(in crate::endpoint) fn forget(&self, operation: Operation, task: &mut TaskWaiter) {
        let Some(id) = task.0.take() else { return };
        if let Ok(mut guarded) = self.lock_for(operation) {
            guarded.remove_waiter(id);
        }
    }
}

impl SharedStateGuard<'_> {
    /// Records the result of a call of a task, and unlocks the state.
    pub(in crate::endpoint) fn update_task_waiter(
        mut self,
        awaited: Awaited,
        task: &mut TaskWaiter,
        waker: &Waker,
        is_done: bool,
    ) {
        if is_done {
            if let Some(id) = task.0.take() {
                self.remove_waiter(id);
            }
            return;
        }
        let id = match task.0 {
            Some(id) => id,
            None => self.add_waiter(awaited, WaiterKind::Task),
        };
        task.0 = Some(id);
        self.waiters.set_asleep(id, Wake::Task(waker.clone()));
    }
}
