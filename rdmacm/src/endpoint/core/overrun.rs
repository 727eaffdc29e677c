//! Detects that a message of the peer may have found no buffer.
//!
//! On iWARP such a message ends the connection, and the driver reports no reason to this side's program. The event, the
//! state of the queue pair and the completions are the same as after an orderly end by the peer (siw; the test
//! `siw_ending::end_has_no_reason` shows that). The library can only detect periods in which there may have been no
//! buffer. After every poll that leaves the completion queue empty, the posted receives wait for later messages. If at
//! least as many complete until the next poll, there may have been a time without a receive. If a message arrives in
//! order after that, no message was lost before.
//!
//! A peer that respects the agreed number of messages is never suspected. There are [`RESERVED_RECEIVES`] more receives
//! than that number. If a receive was posted again while another one is missing, the receives are polled. So between
//! two polls, the program answers at most one message that it may still hold. For that message the peer may send
//! another one.

/// The number of buffers for receiving beyond those that the program has asked for.
pub(in crate::endpoint) const RESERVED_RECEIVES: u32 = 2;

/// The state of the detection.
#[derive(Debug)]
pub(super) struct Overrun {
    /// The number of receives that are posted when the program holds no message and none waits.
    all: usize,
    /// The number of receives that were posted at the last poll, which left the completion queue empty.
    ready: usize,
    /// `true` if the last poll with messages returned at least as many as there were receives posted.
    is_suspected: bool,
}

impl Overrun {
    /// Creates the detector of a connection with `receiving` receives.
    ///
    /// The receives are posted before any message can arrive.
    pub(super) fn new(receiving: usize) -> Self {
        Self { all: receiving, ready: receiving, is_suspected: false }
    }

    /// Records a poll that has returned `messages` and left the completion queue empty.
    ///
    /// `receiving` is the number of posted receives.
    #[inline(always)]
    pub(super) fn on_polled(&mut self, messages: u64, receiving: usize) {
        if messages > 0 {
            self.is_suspected = usize::try_from(messages).map_or(true, |many| many >= self.ready);
        }
        self.ready = receiving;
    }

    /// Returns `true` if the receives must be polled after one was posted again and `receiving` are posted.
    #[inline(always)]
    pub(super) fn must_poll_receives(&self, receiving: usize) -> bool {
        receiving < self.all
    }

    /// Returns `true` if a message without a buffer may have ended the connection.
    pub(super) fn is_suspected(&self) -> bool {
        self.is_suspected
    }
}

#[cfg(test)]
mod tests;
