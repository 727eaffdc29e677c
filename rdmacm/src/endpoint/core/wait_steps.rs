//! The steps of a call that has found no result: it recovers, arms, reads reported events, and sleeps.
//!
//! The caller executes each step and then looks for its result again. Commands, descriptors and the lock are the
//! caller's, so the models for loom and the tests with queues in memory execute the same steps.

use super::Core;
use super::arming::ArmAction;
use super::operation::Interest;
use super::queue_io::{QueueIo, Slot};
use super::recovery::RecoveryAction;
use super::waiters::{WaiterId, WaiterKind, WaiterList};

/// The maximum number of counted reads of events in one call.
const MAX_READS_PER_CALL: u32 = 4;

/// The next step of a call that has found no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum WaitStep {
    /// Issue the commands of the action.
    Recover(RecoveryAction),
    /// Poll again, after other callers had the time to lock the endpoint.
    PollAgain,
    /// Issue the commands of the action.
    Arm(ArmAction),
    /// Read the events that the descriptor reports, without sleeping.
    ReadEvents,
    /// Sleep until another thread or an event wakes this thread, or the deadline passes.
    Sleep,
    /// Check for the result again, and return even if there is none.
    Leave,
}

/// The progress of a call that has found no result.
#[derive(Debug, Clone, Copy)]
pub(in crate::endpoint) struct WaitSteps {
    kind: WaiterKind,
    has_armed: bool,
    /// `true` if the unread event was read in preparation for the next arming.
    has_read: bool,
    /// The number of reads with nothing left to recover or arm.
    reads: u32,
    /// `true` if the current read is one of `reads`.
    counts_read: bool,
    /// `true` if the last counted read found no CM event, and no request has completed since.
    at_end: bool,
    is_over: bool,
}

/// The facts about other callers on which a step depends.
pub(in crate::endpoint) struct Others<'a, W> {
    pub(in crate::endpoint) waiters: &'a WaiterList<W>,
    /// `true` if a thread sleeps on the descriptors.
    pub(in crate::endpoint) has_reader: bool,
    /// The waiter of the caller, if it is a thread that has slept.
    pub(in crate::endpoint) own: Option<WaiterId>,
}

impl WaitSteps {
    pub(in crate::endpoint) fn new(kind: WaiterKind) -> Self {
        Self {
            kind,
            has_armed: false,
            has_read: false,
            reads: 0,
            counts_read: false,
            at_end: false,
            is_over: false,
        }
    }

    /// Returns the next step of a caller that polls for `interest`.
    ///
    /// `io` is absent once this side has aborted the endpoint. `polls_again` decides if a thread polls instead of
    /// sleeping.
    pub(in crate::endpoint) fn next<B: Slot, S, W>(
        &mut self,
        core: &mut Core<B, S>,
        io: Option<&impl QueueIo<Buffer = B>>,
        interest: Interest,
        others: &Others<'_, W>,
        polls_again: impl FnOnce() -> bool,
    ) -> WaitStep {
        if let Some(action) = io.and_then(|io| core.next_recovery(io)) {
            return WaitStep::Recover(action);
        }
        let is_thread = self.kind == WaiterKind::Thread;
        if is_thread && polls_again() {
            return WaitStep::PollAgain;
        }
        // Another thread that is awake arms the queues and watches the descriptors.
        if is_thread && !others.has_reader && others.waiters.has_other_awake_thread(others.own) {
            return WaitStep::Sleep;
        }
        if io.is_some() {
            if core.has_unread_event() && core.may_be_unarmed(interest) && !self.has_read {
                // An event that was reported before the queues are armed does not disarm them.
                (self.has_read, self.counts_read) = (true, false);
                return WaitStep::ReadEvents;
            }
            if let Some(action) = core.next_arm_action(interest, others.has_reader) {
                (self.has_armed, self.has_read) = (true, false);
                return WaitStep::Arm(action);
            }
        }
        if is_thread {
            return WaitStep::Sleep;
        }
        // The level-triggered descriptor reports the events that are left to read to an event loop.
        let leaves_events = self.kind == WaiterKind::EventLoop && self.has_armed;
        if leaves_events && !core.has_unread_event() || self.at_end {
            self.is_over = true;
            return WaitStep::Leave;
        }
        self.reads += 1;
        self.counts_read = true;
        WaitStep::ReadEvents
    }

    /// Records the sources of the events that [`WaitStep::ReadEvents`] has read.
    pub(in crate::endpoint) fn on_read(&mut self, has_cm_event: bool, has_completion: bool) {
        if self.counts_read {
            self.at_end = !has_cm_event;
            self.is_over = self.at_end && !has_completion || self.has_read_often();
        }
    }

    /// Records that a request had completed.
    pub(in crate::endpoint) fn on_completed(&mut self) {
        self.at_end = false;
    }

    /// Returns `true` if the call returns without a result.
    pub(in crate::endpoint) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns `true` if there may be more events than one call reads.
    pub(in crate::endpoint) fn has_read_often(&self) -> bool {
        self.reads == MAX_READS_PER_CALL
    }
}

#[cfg(test)]
mod tests;
