//! Whether a message of the peer may have found no buffer, where that ends the connection and nobody says so.
//!
//! On iWARP such a message ends the connection. Of the driver's reason nothing comes to this side's program: the
//! event, the queue pair's state and the completions are those of a peer that has ended it in good order (siw; the
//! test `siw_ending::nobody_says_why` holds that). What can be known here is when there may have been none: with
//! every poll that leaves the completion queue empty, so many receives as are posted then wait for what comes later. If
//! at least as many complete until the next poll, there may have been a time without one; if a message comes after that
//! in its turn, nothing was lost until then.
//!
//! A peer that keeps to the number of messages which the program has told it of is never suspected: there are
//! [`RESERVE`] receives more than that, and after a receive was posted again while another one is missing there is a
//! poll. So there is none without a poll for more than one message that was answered since, which this side's program may
//! hold still: the peer may send one for it.

/// So many buffers for receiving more than the program has asked for.
pub(super) const RESERVE: u32 = 2;

/// When a message may have found no buffer.
#[derive(Debug)]
pub(super) struct Overrun {
    /// How many receives are posted where the program holds no message, and none waits.
    all: usize,
    /// How many receives were posted at the last poll, which left the completion queue empty.
    ready: usize,
    /// As many or more have completed until the poll that brought the last message.
    is_suspected: bool,
}

impl Overrun {
    /// Of a connection for which so many receives are posted before anything can come.
    pub(super) fn new(receiving: usize) -> Self {
        Self { all: receiving, ready: receiving, is_suspected: false }
    }

    /// A poll has brought so many messages, with which the completion queue was empty. So many receives are posted.
    #[inline(always)]
    pub(super) fn has_polled(&mut self, messages: u64, receiving: usize) {
        if messages > 0 {
            self.is_suspected = usize::try_from(messages).map_or(true, |many| many >= self.ready);
        }
        self.ready = receiving;
    }

    /// Whether receives are to be polled, one of which was posted again; so many are.
    #[inline(always)]
    pub(super) fn is_behind(&self, receiving: usize) -> bool {
        receiving < self.all
    }

    /// Whether the connection, which has ended, may have done so for that.
    pub(super) fn is_suspected(&self) -> bool {
        self.is_suspected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_messages_as_there_were_receives_are_suspected() {
        for (messages, suspected) in [(0, false), (2, false), (3, true), (4, true)] {
            let mut overrun = Overrun::new(3);
            overrun.has_polled(messages, 0);
            assert_eq!(overrun.is_suspected(), suspected, "{messages} messages");
        }
    }

    #[test]
    fn receives_that_are_posted_again_count_from_the_next_poll_on() {
        let mut overrun = Overrun::new(3);
        overrun.has_polled(2, 3);
        overrun.has_polled(2, 1);
        assert!(!overrun.is_suspected());
        // Two were posted, but who knows when.
        overrun.has_polled(1, 2);
        assert!(overrun.is_suspected());
    }

    #[test]
    fn only_a_message_clears_the_suspicion() {
        let mut overrun = Overrun::new(1);
        overrun.has_polled(1, 1);
        overrun.has_polled(0, 2);
        assert!(overrun.is_suspected());
        overrun.has_polled(1, 2);
        assert!(!overrun.is_suspected());
    }
}
