//! The completion queues that are armed, and the events that they raise.
//!
//! The kernel puts a completion into the queue, and then checks whether the queue is armed. If a thread polls that
//! completion in between and arms the queue again, the event of the completion that was polled already disarms it. So
//! after an event without a completion it is unknown whether the queue is still armed, and the queue is armed once more.

use super::queue_io::{Queue, QueueIo};
use crate::error::Result;

/// The number of stale events that are read at once.
pub(in crate::endpoint) const STALE_EVENTS: usize = 16;

/// Whether the next completion of a completion queue raises an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArmState {
    /// The next completion raises no event.
    Off,
    /// The next completion raises an event, unless that event was already raised.
    Armed,
    /// The completion channel has reported an event since, which may have been that of this queue.
    Unknown,
}

/// Events whose completions have been polled: they are in the completion channel, or will be soon. Each was armed for.
///
/// A sleeping thread is woken by each event once, so stale events are read only when there are many. An event that has
/// not been reported yet may be among those: all armed queues become [`ArmState::Unknown`] then, and are polled by a
/// thread that is awake.
#[derive(Debug, Default)]
struct StaleEvents {
    count: usize,
    /// The latest of them may not have been reported yet.
    has_unread: bool,
}

/// The state of the two completion queues of an endpoint.
#[derive(Debug)]
pub(in crate::endpoint) struct Arming {
    receives: ArmState,
    sends: ArmState,
    stale: StaleEvents,
}

impl Arming {
    /// The state of a new endpoint, whose completion queue for receives is armed.
    pub(in crate::endpoint) fn new() -> Self {
        let (receives, sends) = (ArmState::Armed, ArmState::Off);
        Self { receives, sends, stale: StaleEvents::default() }
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
    pub(in crate::endpoint) fn has_polled(&mut self, queue: Queue, count: usize) {
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

    /// Arms those of `queues` that are not armed. Returns `true` if there was one, or if events were discarded: the queues
    /// are to be polled then.
    pub(in crate::endpoint) fn arm(
        &mut self,
        io: &mut impl QueueIo,
        [receives, sends]: [bool; 2],
        has_epoll_waiter: bool,
    ) -> Result<bool> {
        let discards = self.stale.count >= STALE_EVENTS && !has_epoll_waiter;
        let receives = receives && self.receives == ArmState::Off;
        let sends = sends && self.sends == ArmState::Off;
        if discards {
            io.discard_events()?;
            self.stale.count -= STALE_EVENTS;
            // It may be among those, and would be reported to no thread then.
            self.stale.has_unread = false;
            self.forget_armed();
        }
        for (queue, is_wanted) in [(Queue::Receive, receives), (Queue::Send, sends)] {
            if is_wanted {
                io.arm(queue)?;
                *self.state(queue) = ArmState::Armed;
            }
        }
        Ok(discards || receives || sends)
    }
}
