//! Detects that a message of the peer may have found no buffer, if that ends the connection without a reason.
//!
//! On iWARP such a message ends the connection, and the driver reports no reason to this side's program: the event, the
//! state of the queue pair and the completions are those of a peer that has ended it in good order (siw; the test
//! `siw_ending::nobody_says_why` shows that). Only the time at which there may have been no buffer can be known: with
//! every poll that leaves the completion queue empty, as many receives as are posted wait for later messages. If at least as
//! many complete until the next poll, there may have been a time without one. If a message comes in its turn after that,
//! nothing was lost before.
//!
//! A peer that keeps to the number of messages that the program has told it is never suspected: there are
//! [`RESERVED_RECEIVES`] receives more than that, and receives are polled after one was posted again while another one is
//! missing. So between two polls at most one message is answered that this side's program may still hold: the peer may
//! send one for it.

/// The number of buffers for receiving beyond those that the program has asked for.
pub(in crate::endpoint) const RESERVED_RECEIVES: u32 = 2;

/// The state of the detection.
#[derive(Debug)]
pub(super) struct Overrun {
    /// The number of receives that are posted when the program holds no message and none waits.
    all: usize,
    /// The number of receives that were posted at the last poll, which left the completion queue empty.
    ready: usize,
    /// The last poll that returned messages returned at least as many as there were receives posted.
    is_suspected: bool,
}

impl Overrun {
    /// A connection for which `receiving` receives are posted before any message can come.
    pub(super) fn new(receiving: usize) -> Self {
        Self { all: receiving, ready: receiving, is_suspected: false }
    }

    /// Records that a poll has returned `messages` and left the completion queue empty, and that `receiving` receives are
    /// posted.
    #[inline(always)]
    pub(super) fn has_polled(&mut self, messages: u64, receiving: usize) {
        if messages > 0 {
            self.is_suspected = usize::try_from(messages).map_or(true, |many| many >= self.ready);
        }
        self.ready = receiving;
    }

    /// Returns `true` if receives are to be polled after one was posted again and `receiving` are posted.
    #[inline(always)]
    pub(super) fn is_behind(&self, receiving: usize) -> bool {
        receiving < self.all
    }

    /// Returns `true` if a message without a buffer may have ended the connection.
    pub(super) fn is_suspected(&self) -> bool {
        self.is_suspected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_all_receives_are_suspected() {
        for (messages, suspected) in [(0, false), (2, false), (3, true), (4, true)] {
            let mut overrun = Overrun::new(3);
            overrun.has_polled(messages, 0);
            assert_eq!(overrun.is_suspected(), suspected, "{messages} messages");
        }
    }

    #[test]
    fn reposted_receives_count_from_next_poll() {
        let mut overrun = Overrun::new(3);
        overrun.has_polled(2, 3);
        overrun.has_polled(2, 1);
        assert!(!overrun.is_suspected());
        // Two were posted, possibly after the message.
        overrun.has_polled(1, 2);
        assert!(overrun.is_suspected());
    }

    #[test]
    fn only_message_clears_suspicion() {
        let mut overrun = Overrun::new(1);
        overrun.has_polled(1, 1);
        overrun.has_polled(0, 2);
        assert!(overrun.is_suspected());
        overrun.has_polled(1, 2);
        assert!(!overrun.is_suspected());
    }
}
