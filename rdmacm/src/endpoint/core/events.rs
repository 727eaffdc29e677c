//! Inputs besides completions: events, time, and the end of an endpoint.

use std::mem;

use super::arming::ArmAction;
use super::effects::{Changes, Effects};
#[cfg(doc)]
use super::keep_alive::FIRST_WRITE_INTERVAL;
use super::operation::Interest;
use super::protocol::{Messages, Protocol};
use super::queue_io::{QueueIo, Slot};
use super::{Core, EndReason, Released};
use crate::error::Result;
use crate::verbs::AsyncEventType;

impl<B: Slot, S> Core<B, S> {
    pub(super) fn queues(&self, interest: Interest) -> [bool; 2] {
        [self.polls_receives(interest), self.polls_sends(interest)]
    }

    /// Records that the completion channel has reported an event.
    pub(in crate::endpoint) fn on_completion_event(&mut self) {
        self.arming.on_event();
    }

    /// Returns `true` if the completion channel may still report an event whose completion has been polled.
    pub(in crate::endpoint) fn has_unread_event(&self) -> bool {
        self.arming.has_unread_event()
    }

    /// Returns `true` if the next completion for `interest` may raise no event.
    pub(in crate::endpoint) fn may_be_unarmed(&self, interest: Interest) -> bool {
        self.arming.may_be_unarmed(self.queues(interest))
    }

    /// Returns the next command for arming the queues of `interest`, if one may be unarmed.
    ///
    /// After the commands, the next completion raises an event. The caller polls after the command, also if the command
    /// has failed.
    pub(in crate::endpoint) fn next_arm_action(
        &mut self,
        interest: Interest,
        has_epoll_waiter: bool,
    ) -> Option<ArmAction> {
        let queues = self.queues(interest);
        self.arming.next_action(queues, has_epoll_waiter)
    }

    /// Adapts arming to the device: see [`Arming::read_events_first`](super::Arming::read_events_first).
    pub(in crate::endpoint) fn read_events_first(&mut self, reads_events_first: bool) {
        self.arming.read_events_first(reads_events_first);
    }

    /// Records the result of `action`.
    pub(in crate::endpoint) fn on_arm_action(&mut self, action: ArmAction, is_done: bool) {
        self.arming.on_action(action, is_done);
    }

    /// Makes the keep-alive writes end after a few: see [`FIRST_WRITE_INTERVAL`].
    pub(in crate::endpoint) fn end_keep_alive_soon(&mut self) {
        if let Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) =
            &mut self.protocol
        {
            keep_alive.end_soon();
        }
    }

    /// Handles the time of a keep-alive write. Returns `true` if a request had completed.
    pub(in crate::endpoint) fn on_timer(
        &mut self,
        io: &mut impl QueueIo<Buffer = B, Sender = S>,
    ) -> Result<bool> {
        // The last write may have completed.
        let polled = self.poll(io, Interest::All)?;
        if let Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) =
            &mut self.protocol
        {
            if keep_alive.on_timer(io) {
                self.effects |= Effects::STOP_TIMER;
            }
        }
        Ok(polled)
    }

    /// Handles the event that the peer, or this side's kernel, has ended the connection.
    ///
    /// All completions before it are polled first. So messages are delivered before the end, and no flush counts as a
    /// failure. An error of that poll is returned; the connection has ended in any case.
    ///
    /// `failure` is the asynchronous event of a request of the peer that failed on this side, if any.
    pub(in crate::endpoint) fn on_disconnected(
        &mut self,
        io: Option<&mut impl QueueIo<Buffer = B, Sender = S>>,
        failure: Option<AsyncEventType>,
    ) -> Result<()> {
        let polled = io.map_or(Ok(false), |io| self.poll(io, Interest::All));
        let end = match (&self.protocol, failure) {
            (_, Some(event_type)) => EndReason::PeerRequestFailed(event_type),
            (Protocol::Messages(Messages { overrun: Some(overrun), .. }), None)
                if overrun.is_suspected() =>
            {
                EndReason::Overrun
            }
            _ => EndReason::Remote,
        };
        self.set_end(end);
        self.lifecycle.set_no_more_events();
        polled.map(drop)
    }

    /// Handles the removal of the device, after which the kernel reports no event.
    pub(in crate::endpoint) fn on_device_removed(&mut self) {
        self.set_end(EndReason::DeviceRemoved);
        self.lifecycle.set_no_more_events();
    }

    /// Records an end, unless a better reason is known.
    pub(in crate::endpoint) fn set_end(&mut self, end: EndReason) {
        if self.lifecycle.set_end(end) {
            self.effects |= Effects::REPORT_END;
            self.changes |= Changes::END;
            if let Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) =
                &mut self.protocol
            {
                if keep_alive.stop() {
                    self.effects |= Effects::STOP_TIMER;
                }
            }
        }
    }

    /// Ends the endpoint and returns its buffers.
    pub(in crate::endpoint) fn abort(&mut self) -> Released<B, S> {
        self.set_end(EndReason::Local);
        self.lifecycle.set_no_more_events();
        // `END` also wakes callers that wait for the answer of the peer.
        self.changes |= Changes::END;
        let keep_alive = match &mut self.protocol {
            Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) => {
                keep_alive.take_buffer()
            }
            _ => None,
        };
        let receives = mem::take(&mut self.unposted_receives);
        (self.sends.take_all_free(), receives, mem::take(&mut self.inbox), keep_alive)
    }
}
