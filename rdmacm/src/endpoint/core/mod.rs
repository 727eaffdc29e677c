//! The core of an endpoint: a state machine without descriptors, clock, locks or `unsafe` code.
//!
//! Its inputs are completions, which it polls through [`QueueIo`], and ends that events report. It has three kinds of
//! outputs:
//!
//! - Requests, which it posts through [`QueueIo`].
//! - [`Effects`], which the caller applies at once.
//! - Kernel commands ([`ArmAction`], [`RecoveryAction`]), which the caller issues while the endpoint is unlocked. Their
//!   results are inputs again.
//!
//! A call for a result returns `None` if the result is neither available nor known to fail. The caller then waits and
//! calls again.

mod arming;
mod completions;
mod effects;
mod events;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod keep_alive;
mod lifecycle;
pub(super) mod operation;
mod overrun;
mod posting;
mod protocol;
mod queue_io;
mod recovery;
mod send_slots;
pub(super) mod stats;
#[cfg(test)]
mod tests;
mod wait_steps;
mod waiters;
mod watched_keys;

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

pub(super) use self::arming::{ArmAction, Arming, STALE_EVENTS};
use self::effects::Changes;
pub(super) use self::effects::Effects;
pub(super) use self::keep_alive::FIRST_WRITE_INTERVAL;
pub(super) use self::lifecycle::EndReason;
use self::lifecycle::Lifecycle;
pub(super) use self::overrun::RESERVED_RECEIVES;
use self::protocol::Recovery;
pub(super) use self::protocol::{Datagrams, Messages, Protocol};
pub(super) use self::queue_io::{NotPosted, Outgoing, Queue, QueueIo, Slot};
pub(super) use self::recovery::RecoveryAction;
use self::send_slots::SendSlots;
pub(super) use self::wait_steps::{Others, WaitStep, WaitSteps};
pub(super) use self::waiters::{Available, WaiterId, WaiterKind, WaiterList};
pub(super) use self::watched_keys::WatchedKeys;
use crate::endpoint::core::operation::{Interest, Operation};
use crate::endpoint::core::stats::EndpointStats;
use crate::error::Result;
use crate::verbs::WcStatus;

/// The state of an endpoint, with buffers of type `B` and, for datagrams, senders of type `S`.
#[derive(Debug)]
pub(super) struct Core<B, S> {
    lifecycle: Lifecycle,
    arming: Arming,
    sends: SendSlots<B>,
    /// The indices of the buffers for receiving.
    receive_buffers: Range<usize>,
    receives_posted: usize,
    /// Buffers for receiving that could not be posted, or wait until the queue pair is set up again.
    unposted_receives: Vec<B>,
    /// Messages that no caller has taken.
    inbox: VecDeque<ReceivedMessage<B, S>>,
    protocol: Protocol<B>,
    effects: Effects,
    changes: Changes,
    stats: EndpointStats,
}

/// A message that was received.
#[derive(Debug)]
pub(super) struct ReceivedMessage<B, S> {
    pub(super) buffer: B,
    /// The offset of its first byte in the buffer.
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) imm_data: Option<u32>,
    /// The key of this side that the message took back.
    pub(super) invalidated_key: Option<u32>,
    /// The sender of a datagram.
    pub(super) sender: Option<S>,
}

/// Buffers that are dropped after the caller has unlocked the endpoint.
pub(super) type Released<B, S> = (Vec<B>, Vec<B>, VecDeque<ReceivedMessage<B, S>>, Option<B>);

impl<B: Slot, S> Core<B, S> {
    /// Creates an endpoint.
    ///
    /// `free` are the buffers for sending. `receives` buffers are posted, and their indices follow those of `free`. The
    /// completion queue for receives is armed.
    pub(super) fn new(free: Vec<B>, receives: usize, protocol: Protocol<B>) -> Self {
        let first = free.len();
        Self {
            lifecycle: Lifecycle::default(),
            arming: Arming::new(),
            sends: SendSlots::new(free),
            receive_buffers: first..first.saturating_add(receives),
            receives_posted: receives,
            unposted_receives: Vec::new(),
            inbox: VecDeque::new(),
            protocol,
            effects: Effects::empty(),
            changes: Changes::empty(),
            stats: EndpointStats::default(),
        }
    }

    /// Returns the reason of the end, if the endpoint has ended.
    #[inline(always)]
    pub(super) fn end(&self) -> Option<EndReason> {
        self.lifecycle.end()
    }

    pub(super) fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// Takes the actions for the caller.
    pub(super) fn take_effects(&mut self) -> Effects {
        mem::replace(&mut self.effects, Effects::empty())
    }

    #[inline(always)]
    pub(super) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    // Calls for a result.

    /// Takes a free buffer for sending.
    #[inline(always)]
    pub(super) fn acquire_buffer(&mut self) -> Option<Result<B, EndReason>> {
        match self.end() {
            None if self.loses_sends() => None,
            None => self.sends.take_free().map(Ok),
            Some(end) => Some(Err(end)),
        }
    }

    /// Takes the buffer for sending in slot `index`, if its request has completed.
    pub(super) fn completed_send(&mut self, index: usize) -> Option<Result<B, EndReason>> {
        match self.sends.status(index) {
            Some(WcStatus::IB_WC_SUCCESS) => self.sends.detach(index).map(|(buffer, _)| Ok(buffer)),
            // The buffer stays there until the caller detaches the slot.
            Some(status) if self.is_datagrams() => {
                self.sends.set_reported(index);
                Some(Err(EndReason::Failed(status)))
            }
            _ => self.end().map(Err),
        }
    }

    /// Records that no caller waits for slot `index` any more.
    ///
    /// Returns its buffer if the request has completed. The next flush reports the failure of a datagram that no caller
    /// has got.
    pub(super) fn detach_send(&mut self, index: usize) -> Option<B> {
        let (buffer, unreported) = self.sends.detach(index)?;
        let is_failure = |status: &WcStatus| *status != WcStatus::IB_WC_SUCCESS;
        if let Some(status) = unreported.filter(is_failure).filter(|_| self.is_datagrams()) {
            self.sends.set_error(status);
        }
        Some(buffer)
    }

    /// Returns the outcome of all posted requests, once it is known.
    pub(super) fn flushed(&mut self) -> Option<Result<(), EndReason>> {
        if !self.has_sent_all() {
            return self.end().map(Err);
        }
        Some(self.sends.take_error().map_or(Ok(()), |status| Err(EndReason::Failed(status))))
    }

    /// Takes the next message.
    #[inline(always)]
    pub(super) fn next_message(&mut self) -> Option<ReceivedMessage<B, S>> {
        self.inbox.pop_front()
    }

    /// Returns `true` if neither the peer nor the kernel will report another event.
    pub(super) fn has_no_more_events(&self) -> bool {
        self.lifecycle.has_no_more_events()
    }

    // Checks for a result.

    /// Returns the resources that waiters would find, and the changes since the last call.
    pub(super) fn take_available(&mut self) -> Available {
        let changes = self.forget_changes();
        Available {
            messages: self.inbox.len(),
            buffers: if self.loses_sends() { 0 } else { self.sends.free_count() },
            is_flushed: self.has_sent_all(),
            closes: self.has_progress_of_close(),
            has_completed: changes.contains(Changes::COMPLETED),
            has_answer: changes.contains(Changes::ANSWER),
            has_ended: changes.contains(Changes::END),
        }
    }

    /// Clears the recorded changes and returns them.
    pub(super) fn forget_changes(&mut self) -> Changes {
        mem::replace(&mut self.changes, Changes::empty())
    }

    /// Records that a peer may have answered.
    pub(super) fn on_cm_answer(&mut self) {
        self.changes |= Changes::ANSWER;
    }

    pub(super) fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(super) fn has_free_buffer(&self) -> bool {
        self.sends.free_count() > 0 && !self.loses_sends()
    }

    /// Returns `true` if all posted requests have been sent, or if one is known to have failed.
    pub(super) fn has_sent_all(&self) -> bool {
        self.sends.in_flight() == 0 && !self.is_ending()
    }

    /// Returns `true` if a caller that closes finds progress in [`flushed`](Self::flushed) or
    /// [`has_no_more_events`](Self::has_no_more_events).
    pub(super) fn has_progress_of_close(&self) -> bool {
        if self.end().is_none() { self.has_sent_all() } else { self.lifecycle.has_closed() }
    }

    /// Returns `true` if a call of `operation` would have a result now.
    ///
    /// Returns `None` if that depends on the target of the operation.
    pub(super) fn is_ready(&self, operation: Operation) -> Option<bool> {
        match operation {
            Operation::Close => Some(self.has_progress_of_close()),
            _ if self.end().is_some() => Some(true),
            Operation::Receive => Some(self.has_message()),
            Operation::AcquireBuffer => Some(self.has_free_buffer()),
            Operation::Flush => Some(self.has_sent_all()),
            _ => None,
        }
    }

    /// Returns `true` if a caller must arm a queue for `interest`, post receives or recover the queue pair.
    ///
    /// Possibly no event arrives before that.
    pub(super) fn needs_caller(&self, io: &impl QueueIo<Buffer = B>, interest: Interest) -> bool {
        // An event that has not been reported yet will wake a caller.
        let is_unarmed = self.may_be_unarmed(interest) && !self.has_unread_event();
        is_unarmed || self.must_post_receives() || self.pending_recovery(io).is_some()
    }

    /// Returns `true` if [`completed_send`](Self::completed_send) has a result before the endpoint ends.
    pub(super) fn has_outcome(&self, index: usize) -> bool {
        match self.sends.status(index) {
            Some(WcStatus::IB_WC_SUCCESS) => true,
            // The end of a connection has the reason why its request failed.
            Some(_) => self.is_datagrams(),
            None => false,
        }
    }

    /// Returns `true` if the queue pair has failed and must be recovered.
    #[inline(always)]
    pub(super) fn qp_failed(&self) -> bool {
        match &self.protocol {
            Protocol::Messages(_) => false,
            Protocol::Datagrams(datagrams) => datagrams.recovery != Recovery::Done,
        }
    }

    #[inline(always)]
    pub(super) fn is_datagrams(&self) -> bool {
        matches!(self.protocol, Protocol::Datagrams(_))
    }

    /// Returns `true` if a request of a connection has failed. The end will give the reason.
    pub(super) fn is_ending(&self) -> bool {
        self.sends.has_error() && !self.is_datagrams()
    }

    /// Returns `true` if a message that was posted now would be lost.
    #[inline(always)]
    pub(super) fn loses_sends(&self) -> bool {
        match &self.protocol {
            Protocol::Messages(_) => self.sends.has_error(),
            Protocol::Datagrams(_) => self.qp_failed(),
        }
    }
}
