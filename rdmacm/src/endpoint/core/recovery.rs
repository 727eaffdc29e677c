//! Setting up a failed queue pair of a datagram socket again.
//!
//! Each step is a command that one caller issues while the endpoint is unlocked. Meanwhile no caller posts: the queue
//! pair counts as failed until the last step is done.

use super::Core;
use super::protocol::{Datagrams, Protocol, Recovery};
use super::queue_io::{QueueIo, Slot};

/// A step of setting up a failed queue pair again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum RecoveryAction {
    /// Move the queue pair to ERR.
    ///
    /// The device flushes all requests, also those that were posted after the failure.
    SetToError,
    /// Move the queue pair, which has no posted requests, from ERR back to RTS.
    ResetToRts,
}

impl<B: Slot, S> Core<B, S> {
    /// Returns the next step for the caller.
    ///
    /// The step is not returned a second time before its result is known.
    pub(in crate::endpoint) fn next_recovery(
        &mut self,
        io: &impl QueueIo<Buffer = B>,
    ) -> Option<RecoveryAction> {
        let action = self.pending_recovery(io)?;
        self.set_recovery(match action {
            RecoveryAction::SetToError => Recovery::MovingToError,
            RecoveryAction::ResetToRts => Recovery::Resetting,
        });
        Some(action)
    }

    /// Returns the step that a caller could take now.
    #[inline]
    pub(in crate::endpoint) fn pending_recovery(
        &self,
        io: &impl QueueIo<Buffer = B>,
    ) -> Option<RecoveryAction> {
        let Protocol::Datagrams(Datagrams { recovery }) = &self.protocol else { return None };
        match recovery {
            _ if self.end().is_some() => None,
            Recovery::Failed => Some(RecoveryAction::SetToError),
            Recovery::Flushing if io.outstanding() == 0 => Some(RecoveryAction::ResetToRts),
            _ => None,
        }
    }

    /// Records the result of the step `action`. A step that failed is handed out again.
    pub(in crate::endpoint) fn on_recovered(&mut self, action: RecoveryAction, is_done: bool) {
        self.set_recovery(match (action, is_done) {
            (RecoveryAction::SetToError, false) => Recovery::Failed,
            (RecoveryAction::SetToError, true) | (RecoveryAction::ResetToRts, false) => {
                Recovery::Flushing
            }
            (RecoveryAction::ResetToRts, true) => Recovery::Done,
        });
    }

    fn set_recovery(&mut self, to: Recovery) {
        if let Protocol::Datagrams(datagrams) = &mut self.protocol {
            datagrams.recovery = to;
        }
    }
}
