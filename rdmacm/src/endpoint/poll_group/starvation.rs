//! Detects that messages may have found no buffer, if that ends a connection without a reason.
//!
//! On iWARP such a message ends its connection, and the driver reports no reason. Only the time at which the shared
//! receive queue may have been empty can be known: each poll that leaves the completion queue empty finds a number of
//! receives posted; if at least as many messages complete until the next such poll, the queue may have been empty. A
//! member of which a message comes later than that has lost nothing.

/// The state of the detection.
#[derive(Debug, Default)]
pub(super) struct Starvation {
    /// The number of receives that are posted when the program holds no message.
    full: usize,
    /// The number of receives that were posted at the last poll, which left the completion queue empty.
    ready: usize,
    /// The number of polls that returned messages.
    polls: u64,
    /// The last of those after which the queue may have been empty; 0 if there was none.
    suspected: u64,
}

impl Starvation {
    /// A group that has posted `ready` receives.
    pub(super) fn new(ready: usize) -> Self {
        Self { full: ready, ready, ..Self::default() }
    }

    /// Returns the number of receives that are posted when the program holds no message.
    pub(super) fn full(&self) -> usize {
        self.full
    }

    /// Returns the number of the poll that is going on, for a member that is new or of which a message came.
    pub(super) fn current_poll(&self) -> u64 {
        self.polls + 1
    }

    /// Records that a poll has returned `messages` messages and left the completion queue empty, and that `ready`
    /// receives are posted.
    pub(super) fn has_polled(&mut self, messages: usize, ready: usize) {
        if messages > 0 {
            self.polls += 1;
            if messages >= self.ready {
                self.suspected = self.polls;
            }
        }
        self.ready = ready;
    }

    /// Returns `true` if a message may have found no buffer of a member whose last message came in poll `last`.
    pub(super) fn is_suspected(&self, last: u64) -> bool {
        last <= self.suspected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_all_receives_are_suspected() {
        for (messages, is_suspected) in [(0, false), (2, false), (3, true), (4, true)] {
            let mut starvation = Starvation::new(3);
            let last = starvation.current_poll();
            starvation.has_polled(messages, 0);
            assert_eq!(starvation.is_suspected(last), is_suspected, "{messages} messages");
        }
    }

    #[test]
    fn later_message_clears_suspicion() {
        let mut starvation = Starvation::new(1);
        let silent = starvation.current_poll();
        starvation.has_polled(1, 2);
        let heard = starvation.current_poll();
        starvation.has_polled(1, 2);
        assert!(starvation.is_suspected(silent) && !starvation.is_suspected(heard));
        starvation.has_polled(2, 2);
        assert!(starvation.is_suspected(heard));
    }

    #[test]
    fn new_member_is_not_suspected() {
        let mut starvation = Starvation::new(1);
        starvation.has_polled(1, 1);
        let new = starvation.current_poll();
        assert!(!starvation.is_suspected(new));
        starvation.has_polled(0, 1);
        assert!(!starvation.is_suspected(new));
    }
}
