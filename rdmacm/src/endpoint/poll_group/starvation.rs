//! Detects that messages may have found no buffer.
//!
//! On iWARP such a message ends its connection, and the driver reports no reason. The library can only detect periods
//! in which the shared receive queue may have been empty. Each poll that leaves the completion queue empty finds a
//! number of posted receives. If at least as many messages complete until the next such poll, the queue may have been
//! empty. A member with a later message has lost no message.

/// The state of the detection.
#[derive(Debug, Default)]
pub(super) struct Starvation {
    /// The number of receives that are posted when the program holds no message.
    max_posted: usize,
    /// The number of receives that were posted at the last poll, which left the completion queue empty.
    ready: usize,
    /// The number of polls that returned messages.
    polls: u64,
    /// Number of the last poll after which the queue may have been empty; 0 if there was none.
    suspected: u64,
}

impl Starvation {
    /// Creates the detector of a group that has posted `ready` receives.
    pub(super) fn new(ready: usize) -> Self {
        Self { max_posted: ready, ready, ..Self::default() }
    }

    /// Returns the number of receives that are posted when the program holds no message.
    pub(super) fn max_posted(&self) -> usize {
        self.max_posted
    }

    /// Returns the number of the current poll, for a new member or one with a new message.
    pub(super) fn current_poll(&self) -> u64 {
        self.polls + 1
    }

    /// Records a poll that has returned `messages` messages and left the completion queue empty.
    ///
    /// `ready` is the number of posted receives.
    pub(super) fn on_polled(&mut self, messages: usize, ready: usize) {
        if messages > 0 {
            self.polls += 1;
            if messages >= self.ready {
                self.suspected = self.polls;
            }
        }
        self.ready = ready;
    }

    /// Returns `true` if a message of a member may have found no buffer.
    ///
    /// `last` is the poll with the last message of the member.
    pub(super) fn is_suspected(&self, last: u64) -> bool {
        last <= self.suspected
    }
}

#[cfg(test)]
mod tests;
