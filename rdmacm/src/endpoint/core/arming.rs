//! The completion queues that are armed, and the events that they raise.
//!
//! The kernel puts a completion into the queue, and then checks whether the queue is armed. If a thread polls that
//! completion in between and arms the queue again, the event of the polled completion disarms the queue. So after an
//! event without a completion it is unknown whether the queue is still armed, and the queue is armed again.
//!
//! Arming is a command of the kernel, which the caller issues while the endpoint is unlocked ([`ArmAction`]). The queue
//! counts as armed from the moment at which the action is returned, so that no second caller arms it too. A caller that
//! relies on that and sleeps loses no wakeup. The caller that has the action polls the queue after the command, and
//! wakes the other one if a request has completed. A completion that a third caller polls in between counts as one that
//! raised an event. If that completion arrived before the command, it raised no event. The next completion raises one,
//! because the command follows. If the command fails, no queue counts as armed any more: see
//! [`Arming::on_arm_failed`].

use super::queue_io::Queue;

/// The number of stale events that are read at once.
pub(in crate::endpoint) const STALE_EVENTS: usize = 16;

/// The state of a completion queue, which determines whether its next completion raises an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ArmState {
    /// The next completion raises no event.
    Off,
    /// The next completion raises an event, unless that event was already raised.
    ///
    /// A queue that a caller is about to arm is in this state too.
    Armed,
    /// The completion channel has reported an event since, which may have been that of this queue.
    Unknown,
}

/// Events whose completions have been polled.
///
/// They are in the completion channel, or will be soon. The queue was armed for each of them.
///
/// Each event wakes a sleeping thread once, so stale events are read only when there are many, unless
/// [`read_events_first`](Arming::read_events_first) is set. An event that has not been reported yet may be among the
/// events that are read. Therefore all armed queues then become [`ArmState::Unknown`], and a thread that is awake polls
/// them.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct StaleEvents {
    count: usize,
    /// `true` if the latest of these events may not have been reported yet.
    has_unread: bool,
}

/// A command that makes the next completions raise events.
///
/// The caller issues it while the endpoint is unlocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::endpoint) enum ArmAction {
    /// Read and discard up to [`STALE_EVENTS`] events of the completion channel.
    DiscardEvents,
    /// Arm these completion queues.
    Arm { receives: bool, sends: bool },
}

/// The state of the two completion queues of an endpoint.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(in crate::endpoint) struct Arming {
    receives: ArmState,
    sends: ArmState,
    stale: StaleEvents,
    /// `true` if the channel has reported an event since [`ArmAction::DiscardEvents`] was last returned.
    ///
    /// The device may have raised that event after its completion was polled and after events were read. Arming the
    /// queue would then have no effect.
    has_reported_event: bool,
    /// Set by [`read_events_first`](Self::read_events_first).
    reads_events_first: bool,
}

impl Arming {
    /// Creates the state of a new endpoint, whose completion queue for receives is armed.
    pub(in crate::endpoint) fn new() -> Self {
        let (receives, sends) = (ArmState::Armed, ArmState::Off);
        let stale = StaleEvents::default();
        Self { receives, sends, stale, has_reported_event: false, reads_events_first: false }
    }

    /// Makes callers read stale events before they arm a queue again, if `reads_events_first` is set.
    ///
    /// This is necessary for a device that raises one event per event that was read.
    ///
    /// An event that the channel reports later makes the state of an armed queue unknown, and the queue is armed again.
    /// If the queue is not armed, the next action is [`ArmAction::DiscardEvents`].
    pub(in crate::endpoint) fn read_events_first(&mut self, reads_events_first: bool) {
        self.reads_events_first = reads_events_first;
    }

    fn state(&mut self, queue: Queue) -> &mut ArmState {
        match queue {
            Queue::Receive => &mut self.receives,
            Queue::Send => &mut self.sends,
        }
    }

    /// Returns `true` if an event of `queue` may have been reported whose completion has not been polled.
    #[inline(always)]
    pub(in crate::endpoint) fn is_unknown(&self, queue: Queue) -> bool {
        let state = match queue {
            Queue::Receive => self.receives,
            Queue::Send => self.sends,
        };
        state == ArmState::Unknown
    }

    /// Records that a poll of `queue` has returned `count` completions, and left none.
    #[inline(always)]
    pub(in crate::endpoint) fn on_polled(&mut self, queue: Queue, count: usize) {
        let stale = &mut self.stale;
        let state = match queue {
            Queue::Receive => &mut self.receives,
            Queue::Send => &mut self.sends,
        };
        *state = match (*state, count) {
            (ArmState::Off, _) => ArmState::Off,
            (ArmState::Armed, 0) => ArmState::Armed,
            (was, _) => {
                stale.count += 1;
                stale.has_unread |= was == ArmState::Armed;
                ArmState::Off
            }
        };
    }

    /// Records that the completion channel has reported an event.
    pub(in crate::endpoint) fn on_event(&mut self) {
        self.forget_armed();
        self.stale.has_unread = false;
        self.has_reported_event = true;
    }

    fn forget_armed(&mut self) {
        for state in [&mut self.receives, &mut self.sends] {
            if *state == ArmState::Armed {
                *state = ArmState::Unknown;
            }
        }
    }

    /// Returns `true` if the completion channel may still report an event whose completion has been polled.
    pub(in crate::endpoint) fn has_unread_event(&self) -> bool {
        self.stale.has_unread
    }

    /// Returns `true` if one of `queues` may be unarmed, so that its next completion raises no event.
    pub(in crate::endpoint) fn may_be_unarmed(&self, [receives, sends]: [bool; 2]) -> bool {
        receives && self.receives != ArmState::Armed || sends && self.sends != ArmState::Armed
    }

    /// Returns the next command for arming `queues`.
    ///
    /// After the commands, the next completion of each queue raises an event. The caller then polls the queues.
    pub(in crate::endpoint) fn next_action(
        &mut self,
        [receives, sends]: [bool; 2],
        has_epoll_waiter: bool,
    ) -> Option<ArmAction> {
        if self.stale.count >= STALE_EVENTS && !has_epoll_waiter {
            self.stale.count -= STALE_EVENTS;
            return Some(ArmAction::DiscardEvents);
        }
        let receives = receives && self.receives == ArmState::Off;
        let sends = sends && self.sends == ArmState::Off;
        let may_have_events = self.stale.count > 0 || self.has_reported_event;
        if self.reads_events_first && may_have_events && (receives || sends) {
            self.stale.count = 0;
            self.has_reported_event = false;
            return Some(ArmAction::DiscardEvents);
        }
        for (queue, is_wanted) in [(Queue::Receive, receives), (Queue::Send, sends)] {
            if is_wanted {
                *self.state(queue) = ArmState::Armed;
            }
        }
        (receives || sends).then_some(ArmAction::Arm { receives, sends })
    }

    /// Records the result of `action`.
    pub(in crate::endpoint) fn on_action(&mut self, action: ArmAction, is_done: bool) {
        match (action, is_done) {
            (ArmAction::DiscardEvents, true) => self.on_discarded(),
            (ArmAction::DiscardEvents, false) => self.on_discard_failed(),
            (ArmAction::Arm { .. }, true) => {}
            (ArmAction::Arm { receives, sends }, false) => self.on_arm_failed([receives, sends]),
        }
    }

    /// Records that events were discarded.
    ///
    /// An event that was not reported yet may be among them, also the event of a queue that was armed meanwhile. So
    /// every armed queue must be polled.
    fn on_discarded(&mut self) {
        self.stale.has_unread = false;
        self.forget_armed();
    }

    /// Records that events were not discarded, as the kernel refused.
    ///
    /// Another caller may have armed a queue meanwhile, as if the events had been read. That queue must be armed again.
    fn on_discard_failed(&mut self) {
        self.stale.count += STALE_EVENTS;
        self.forget_armed();
    }

    /// Records that the queues of an action were not armed.
    ///
    /// Completions that were polled meanwhile may have raised no event.
    fn on_arm_failed(&mut self, [receives, sends]: [bool; 2]) {
        for (queue, has_failed) in [(Queue::Receive, receives), (Queue::Send, sends)] {
            if has_failed {
                *self.state(queue) = ArmState::Off;
            }
        }
        self.stale.has_unread = false;
    }
}

#[cfg(test)]
mod tests;
