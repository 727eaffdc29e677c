//! The steps of a call without a result: it polls, arms, reads reported events, and sleeps.

use std::hint;
use std::time::Instant;

use super::caller::{Caller, SlowWait};
use super::operation::Interest;
use super::readiness::Ready;
use super::shared::{Shared, SharedStateGuard};
use super::state::State;
use crate::error::Result;

/// The number of times that one call reads events, if it does not wait.
pub(super) const MAX_READS_PER_CALL: u32 = 4;

/// The result of looking at the state once.
pub(super) enum Progress<T> {
    Found(T),
    /// There is no result, but a request had completed.
    Changed,
    Nothing,
}

impl Shared {
    /// Returns the locked state, and `true` if `done` has found its result.
    pub(super) fn wait_loop<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        wait: &mut SlowWait<'_>,
        done: &mut dyn FnMut(&mut State) -> Option<()>,
    ) -> Result<(SharedStateGuard<'a>, bool)> {
        let own = wait.awaited.operation.interest();
        let mut is_over = false;
        let mut armed = false;
        let mut has_read_event = false;
        let mut at_end = false;
        loop {
            // A caller that sleeps has armed for all that do.
            let interest = guarded.waiters.interest(Some(own)).unwrap_or(own);
            let mut has_issued = false;
            if guarded.state.core.qp_failed() {
                (guarded, has_issued) = self.recover(guarded)?;
            }
            if has_issued {
                // Flushed requests may have completed meanwhile.
            } else if busy_polls(&guarded, wait) {
                if wait.spin.should_check_fds() {
                    (guarded, _) = self.read_now(guarded, &wait.caller)?;
                }
                // Other threads may want to post meanwhile.
                drop(guarded);
                hint::spin_loop();
                guarded = self.lock_here();
            } else if let Some(deadline) = leaves_watching(&guarded, wait) {
                guarded = self.sleep(guarded, wait, deadline)?;
                is_over = wait.caller.deadline_passed();
            } else if guarded.state.core.has_unread_event()
                && guarded.state.may_be_unarmed(interest)
                && !has_read_event
            {
                // An event that was reported before the queues are armed does not disarm them.
                has_read_event = true;
                (guarded, _) = self.read_now(guarded, &wait.caller)?;
            } else {
                (guarded, has_issued) = self.arm(guarded, interest)?;
                if has_issued {
                    armed = true;
                    has_read_event = false;
                } else {
                    is_over = match wait.caller {
                        // The level-triggered descriptor reports the events that are left to read.
                        Caller::EventLoop if armed && !guarded.state.core.has_unread_event() => {
                            true
                        }
                        Caller::Thread(deadline) => {
                            guarded = self.sleep(guarded, wait, deadline)?;
                            wait.caller.deadline_passed()
                        }
                        // No request of the reported events had completed.
                        _ if at_end => true,
                        _ => {
                            wait.reads += 1;
                            let ready;
                            (guarded, ready) = self.read_now(guarded, &wait.caller)?;
                            at_end = !ready.event;
                            at_end && !ready.completion || wait.reads == MAX_READS_PER_CALL
                        }
                    };
                }
            }
            // A call that has timed out checks again: it may not have had the time before.
            match poll_ready(&mut guarded, interest, &wait.caller, &mut *done)? {
                Progress::Found(()) => return Ok((guarded, true)),
                Progress::Changed => {
                    at_end = false;
                    is_over |= wait.caller.deadline_passed();
                }
                Progress::Nothing => {}
            }
            if is_over {
                return Ok((guarded, false));
            }
        }
    }

    /// Reads the events that the descriptor reports, without sleeping, and returns their sources.
    ///
    /// Two callers may do so at once, and each gets a part of the reports. A completion event that one of them gets
    /// makes all armed queues unknown. The caller that polls next polls those queues too, and wakes the other one.
    pub(super) fn read_now<'a>(
        &'a self,
        guarded: SharedStateGuard<'a>,
        caller: &Caller<'_>,
    ) -> Result<(SharedStateGuard<'a>, Ready)> {
        let uses_thread_epoll = guarded.has_event_loop && matches!(caller, Caller::Thread(_));
        if guarded.reader.is_some_and(|reader| reader.uses_thread_epoll == uses_thread_epoll) {
            // The thread that sleeps there reads it.
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
    pub(super) fn apply<'a>(
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
pub(super) fn poll_ready<T>(
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

/// Returns the deadline of a thread that neither arms the queues nor watches the descriptor.
///
/// Another thread that is awake does that.
fn leaves_watching(guarded: &SharedStateGuard<'_>, wait: &SlowWait<'_>) -> Option<Option<Instant>> {
    match wait.caller {
        Caller::Thread(deadline)
            if guarded.reader.is_none() && guarded.waiters.has_other_awake_thread(wait.waiter) =>
        {
            Some(deadline)
        }
        _ => None,
    }
}

/// Returns `true` if a thread without a result polls again instead of sleeping.
#[inline]
fn busy_polls(guarded: &SharedStateGuard<'_>, wait: &mut SlowWait<'_>) -> bool {
    match (&wait.caller, &guarded.state.parts) {
        (Caller::Thread(deadline), Some(parts)) => {
            wait.spin.should_poll(parts.busy_poll, *deadline)
        }
        _ => false,
    }
}
