//! The operations that event loops have tried in vain, of which the descriptor tells.

use bitflags::bitflags;

use super::operation::{Interest, Operation};
use super::rendezvous::Rendezvous;
use super::state::State;

bitflags! {
    /// Operations whose last `try_` call returned `WouldBlock`; the caller may be waiting on the descriptor.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct BlockedOps: u8 {
        const BUFFER = 1;
        const MESSAGE = 1 << 1;
        const FLUSH = 1 << 2;
        const CLOSE = 1 << 3;
        const ANSWER = 1 << 4;
        const OUTCOME = 1 << 5;
    }
}

impl BlockedOps {
    /// Records the result of a `try_` call of `operation`.
    pub(super) fn record(&mut self, operation: Operation, in_vain: bool, has_ended: bool) {
        match operation {
            Operation::Take => self.set(Self::BUFFER, in_vain),
            Operation::Receive => self.set(Self::MESSAGE, in_vain),
            Operation::Flush => self.set(Self::FLUSH, in_vain),
            Operation::Close => self.set(Self::CLOSE, in_vain),
            // There may be several: each records whether it was tried.
            Operation::Resolve | Operation::Join if in_vain => *self |= Self::ANSWER,
            Operation::Resolve | Operation::Join if has_ended => *self -= Self::ANSWER,
            // The slot of each buffer records whether it was tried.
            Operation::Send
            | Operation::Write
            | Operation::Read
            | Operation::Change
            | Operation::Export
                if in_vain =>
            {
                *self |= Self::OUTCOME;
            }
            Operation::Resolve | Operation::Join => {}
            Operation::Send
            | Operation::Write
            | Operation::Read
            | Operation::Change
            | Operation::Export => {}
        }
    }

    /// Returns `true` if one of the operations would succeed or fail now.
    pub(super) fn is_ready(self, state: &State) -> bool {
        let State { core, rendezvous, .. } = state;
        let rendezvous = rendezvous.as_deref();
        let has_loss = || rendezvous.is_some_and(|rendezvous| rendezvous.groups.has_loss());
        let has_answer = || rendezvous.is_some_and(Rendezvous::has_answer);
        let has_ended = core.end().is_some();
        let has = |what| self.intersects(what);
        has(Self::BUFFER) && (has_ended || core.has_free_buffer())
            || has(Self::MESSAGE) && (has_ended || core.has_message() || has_loss())
            || has(Self::FLUSH) && (has_ended || core.has_sent_all())
            || has(Self::CLOSE) && core.has_progress_of_close()
            || has(Self::ANSWER) && (has_ended || has_answer())
            || has(Self::OUTCOME) && core.has_outcome()
    }

    /// Returns the interest whose readiness the descriptor may not report, because another call has polled the completions
    /// that raised the event.
    pub(super) fn unreported_interest(self, state: &State) -> Option<Interest> {
        let sends = self.intersects(Self::BUFFER | Self::FLUSH | Self::CLOSE)
            || self.intersects(Self::OUTCOME) && state.core.awaits_outcome();
        if self.intersects(Self::MESSAGE) && state.is_deaf(Interest::Messages) {
            return Some(if sends { Interest::All } else { Interest::Messages });
        }
        (sends && state.is_deaf(Interest::Sends)).then_some(Interest::Sends)
    }
}
