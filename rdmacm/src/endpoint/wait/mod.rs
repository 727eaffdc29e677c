//! Waiting for a condition on the state of an endpoint: one loop for threads, event loops and tasks.
//!
//! A caller polls. If it finds no result, it arms the completion queues, polls again, and only then sleeps. The core
//! decides about these [steps](crate::endpoint::core::WaitStep). Each kind of caller sleeps differently: see
//! [`thread_wait`], [`event_loop`] and [`task_wait`]. Unlocking the state wakes sleeping callers: see
//! [`SharedStateGuard`].
//!
//! The commands and system calls in between are issued while the state is unlocked. Before a caller sleeps, it checks
//! the state again and becomes a waiter without unlocking the state in between. So every change happens either before
//! the check or after the waiter is recorded.

pub(super) mod busy_poll;
pub(super) mod caller;
pub(super) mod deadline;
pub(super) mod event_loop;
pub(super) mod task_wait;
pub(super) mod thread_wait;
pub(super) mod wait_loop;

use self::busy_poll::BusyPoll;
pub(super) use self::caller::WaitMode;
use self::caller::{Caller, SlowWait};
use self::wait_loop::{Progress, poll_ready};
use crate::endpoint::core::operation::{Awaited, Operation};
use crate::endpoint::core::{EndReason, WaitSteps};
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::{Shared, SharedStateGuard};
use crate::error::{Error, ErrorKind, Result};

pub(super) use self::caller::TaskWaiter;

impl Shared {
    /// Waits until `done` finds its result in the state, or finds that there will be none.
    ///
    /// If the endpoint has ended, `done` must find one or the other.
    #[inline]
    pub(super) fn wait_for<T>(
        &self,
        awaited: impl Into<Awaited>,
        mode: WaitMode,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        let caller = match mode {
            WaitMode::NonBlocking => Caller::EventLoop,
            WaitMode::Blocking(deadline) => Caller::Thread(deadline),
        };
        self.wait_as(caller, awaited.into(), done)
    }

    /// Waits like [`wait_for`](Self::wait_for), for any kind of caller.
    #[inline(always)]
    pub(super) fn wait_as<T>(
        &self,
        caller: Caller<'_>,
        awaited: Awaited,
        mut done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        let operation = awaited.operation;
        let is_thread = matches!(caller, Caller::Thread(_));
        let found = {
            let mut guarded = self.lock_for(operation)?;
            match poll_ready(&mut guarded, operation.interest(), &caller, &mut done)? {
                // There is nothing to record. The state is unlocked here, because moving it would copy it.
                Progress::Found(found) if is_thread && awaited.target.is_none() => Some(found),
                Progress::Found(found) => {
                    // The result must not be lost: a later call without a result reports the error.
                    let _ = self.update_readiness(guarded, awaited, caller, true);
                    Some(found)
                }
                Progress::Changed | Progress::Nothing => {
                    let mut found = None;
                    let spin = BusyPoll::default();
                    let steps = WaitSteps::new(caller.kind());
                    let wait = SlowWait { awaited, caller, waiter: None, spin, steps };
                    self.wait_slow(guarded, wait, &mut |state| {
                        found = done(state);
                        found.is_some().then_some(())
                    })?;
                    found
                }
            }
        };
        match found {
            Some(Ok(found)) => Ok(found),
            Some(Err(end)) => self.ended(operation, end, &mut done),
            None if is_thread => Err(self.error(operation, ErrorKind::TimedOut)),
            // The error omits the name of the endpoint, because it is frequent and copying the name would cost time.
            None => Err(Error::would_block(operation.wait())),
        }
    }

    /// Returns the result of an operation on an endpoint that has ended.
    ///
    /// If no reason is known, an event may have it.
    #[cold]
    fn ended<T>(
        &self,
        operation: Operation,
        end: EndReason,
        done: &mut dyn FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        let mut end = end;
        if end == EndReason::Unreported && self.read_reason(end) != end {
            match done(&mut self.lock_for(operation)?.state) {
                Some(Ok(found)) => return Ok(found),
                Some(Err(reason)) => end = reason,
                None => {}
            }
        }
        Err(self.error_after(operation, end))
    }

    /// Records the result of a call, and unlocks the state.
    ///
    /// A task or an event loop without a result sleeps from now on.
    #[inline(always)]
    fn update_readiness<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        awaited: Awaited,
        caller: Caller<'_>,
        is_done: bool,
    ) -> Result<()> {
        match caller {
            Caller::Thread(_) => {
                if awaited.target.is_some() {
                    // An event loop may have tried this operation before.
                    guarded.forget_loop(awaited);
                }
                Ok(())
            }
            Caller::EventLoop => self.update_loop_readiness(guarded, awaited, is_done),
            Caller::Task(task, waker) => {
                guarded.update_task_waiter(awaited, task, waker, is_done);
                Ok(())
            }
        }
    }

    /// Waits until `done` finds its result, or until the call may not wait any longer.
    #[inline(never)]
    fn wait_slow(
        &self,
        guarded: SharedStateGuard<'_>,
        mut wait: SlowWait<'_>,
        done: &mut dyn FnMut(&mut State) -> Option<()>,
    ) -> Result<()> {
        let waited = self.wait_loop(guarded, &mut wait, done);
        let SlowWait { awaited, caller, waiter, steps, .. } = wait;
        let (mut guarded, is_done) = match waited {
            Ok(waited) => waited,
            Err(error) => {
                if let Some(id) = waiter {
                    self.lock_here().remove_waiter(id);
                }
                return Err(error);
            }
        };
        if let Some(id) = waiter {
            guarded.remove_waiter(id);
        }
        let retry_waker = match &caller {
            // There may be more events than one call reads.
            Caller::Task(_, waker) if !is_done && steps.has_read_often() => Some(*waker),
            _ => None,
        };
        let updated = self.update_readiness(guarded, awaited, caller, is_done);
        if let Some(waker) = retry_waker {
            waker.wake_by_ref();
        }
        // The result must not be lost.
        if is_done { Ok(()) } else { updated }
    }
}
