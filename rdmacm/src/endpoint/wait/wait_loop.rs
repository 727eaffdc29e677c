//! The loop of a call without a result, which executes its [steps](WaitStep).

use std::hint;
use std::time::Instant;

use super::caller::{Caller, SlowWait};
use crate::endpoint::core::operation::Interest;
use crate::endpoint::core::{Others, WaitStep};
use crate::endpoint::shared::readiness::Ready;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::{Shared, SharedState, SharedStateGuard};
use crate::error::Result;

/// The result of one check of the state.
pub(in crate::endpoint) enum Progress<T> {
    Found(T),
    /// There is no result, but a request had completed.
    Changed,
    Nothing,
}

impl Shared {
    /// Returns the locked state, and `true` if `done` has found its result.
    pub(in crate::endpoint) fn wait_loop<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        wait: &mut SlowWait<'_>,
        done: &mut dyn FnMut(&mut State) -> Option<()>,
    ) -> Result<(SharedStateGuard<'a>, bool)> {
        let own = wait.awaited.operation.interest();
        loop {
            let SharedState { state, waiters, reader, .. } = &mut *guarded;
            let interest = waiters.interest_with(own);
            let others = Others { waiters, has_reader: reader.is_some(), own: wait.waiter };
            let deadline = wait.caller.deadline();
            let polls_again = |period| wait.spin.should_poll(period, deadline);
            let mut is_over = false;
            match state.next_step(&mut wait.steps, interest, &others, polls_again) {
                WaitStep::Recover(action) => guarded = self.recover(guarded, action)?,
                WaitStep::PollAgain => {
                    if wait.spin.should_check_fds() {
                        (guarded, _) = self.read_now(guarded, &wait.caller)?;
                    }
                    // Other threads may want to post meanwhile.
                    drop(guarded);
                    hint::spin_loop();
                    guarded = self.lock_here();
                }
                WaitStep::Arm(action) => guarded = self.arm(guarded, action)?,
                WaitStep::ReadEvents => {
                    let ready;
                    (guarded, ready) = self.read_now(guarded, &wait.caller)?;
                    wait.steps.on_read(ready.event, ready.completion);
                }
                WaitStep::Sleep => {
                    guarded = self.sleep(guarded, wait)?;
                    is_over = wait.caller.deadline_passed();
                }
                WaitStep::Leave => {}
            }
            // A call that has timed out checks again: it may not have had the time before.
            match poll_ready(&mut guarded, interest, &wait.caller, &mut *done)? {
                Progress::Found(()) => return Ok((guarded, true)),
                Progress::Changed => {
                    wait.steps.on_completed();
                    is_over |= wait.caller.deadline_passed();
                }
                Progress::Nothing => {}
            }
            if is_over || wait.steps.is_over() {
                return Ok((guarded, false));
            }
        }
    }

    /// Reads the events that the descriptor reports, without sleeping, and returns their sources.
    ///
    /// Two callers may do so at once, and each gets a part of the reports. A completion event that one of them gets
    /// makes all armed queues unknown. The caller that polls next polls those queues too, and wakes the other one.
    pub(in crate::endpoint) fn read_now<'a>(
        &'a self,
        guarded: SharedStateGuard<'a>,
        caller: &Caller<'_>,
    ) -> Result<(SharedStateGuard<'a>, Ready)> {
        let uses_thread_epoll = guarded.has_event_loop && matches!(caller, Caller::Thread(_));
        if guarded.reader.is_some_and(|reader| reader.uses_thread_epoll == uses_thread_epoll) {
            // The thread that sleeps on these descriptors reads their events.
            return Ok((guarded, Ready::default()));
        }
        if uses_thread_epoll {
            self.prepare_thread_epoll(&guarded)?;
        }
        let unlocked = guarded.begin_command();
        let ready = match uses_thread_epoll {
            true => self.readiness.wait_on_thread_epoll(Some(Instant::now())),
            false => self.readiness.now(),
        };
        let guarded = unlocked.finish();
        let ready = ready?;
        Ok((self.apply(guarded, ready)?, ready))
    }

    /// Applies the events that the descriptor reported.
    pub(in crate::endpoint) fn apply<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        ready: Ready,
    ) -> Result<SharedStateGuard<'a>> {
        if ready.completion {
            guarded.state.core.on_completion_event();
        }
        if ready.device_removed {
            guarded.state.on_device_removed();
        }
        if ready.event {
            guarded = self.read_events(guarded)?;
        }
        if ready.timer {
            guarded.state.keep_alive()?;
        }
        Ok(guarded)
    }
}

/// Checks the state, and polls the completions.
#[inline(always)]
pub(in crate::endpoint) fn poll_ready<T>(
    guarded: &mut SharedStateGuard<'_>,
    interest: Interest,
    caller: &Caller<'_>,
    mut done: impl FnMut(&mut State) -> Option<T>,
) -> Result<Progress<T>> {
    let mut progress = Progress::Nothing;
    loop {
        if let Some(found) = done(&mut guarded.state) {
            return Ok(Progress::Found(found));
        }
        // Completions for other callers may never cease to arrive.
        let is_over = matches!(progress, Progress::Changed) && caller.deadline_passed();
        if is_over || !guarded.state.poll(interest)? {
            return Ok(progress);
        }
        progress = Progress::Changed;
    }
}
