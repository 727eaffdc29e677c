//! The end of an endpoint by this side.

use std::sync::Arc;

use super::Shared;
#[cfg(doc)]
use super::state::State;
use crate::endpoint::core::EndReason;
use crate::endpoint::core::operation::Operation;
use crate::error::{Error, ErrorKind, Result, hint};
use crate::lock::ignore_poison;

impl Shared {
    /// Notifies the peer that this side [closes](State::close) the connection, and then the event loops.
    ///
    /// Event loops are notified even if none of their operations has returned `WouldBlock`.
    pub(in crate::endpoint) fn announce_close(&self) -> Result<()> {
        self.disconnect_peer()?;
        let mut guarded = self.lock_for(Operation::Close)?;
        guarded.reports_end = true;
        guarded.update_wakeup(self)
    }

    /// Returns the error of a close whose timeout has elapsed. The caller aborts the connection afterwards.
    #[cold]
    pub(in crate::endpoint) fn close_timeout_error(&self) -> Error {
        let guarded = self.lock_here();
        // A close records the end when all posted requests have completed.
        let hint = match (&guarded.state.objects, guarded.state.core.end()) {
            (Some(_), None) => Some(hint::NOT_SENT),
            (Some(_), Some(EndReason::Local)) => Some(hint::NOT_CONFIRMED),
            // Another thread or the peer has ended the connection meanwhile.
            _ => None,
        };
        drop(guarded);
        self.error(Operation::Close, ErrorKind::TimedOut).with_optional_hint(hint)
    }

    /// Issues the command that disconnects the peer, unless this side has aborted the connection.
    pub(in crate::endpoint) fn disconnect_peer(&self) -> Result<()> {
        let guarded = self.lock_for(Operation::Close)?;
        let id = guarded.state.objects.as_ref().map(|objects| Arc::clone(&objects.id));
        let Some(id) = id else { return Ok(()) };
        let running = guarded.begin_command();
        let disconnected = id.disconnect();
        drop(id);
        let mut guarded = running.finish();
        disconnected.or_else(|error| guarded.state.ignore_if_removed(error))
    }

    /// Ends the endpoint at once, for all callers.
    ///
    /// Only callers that end it wait until the kernel objects are destroyed.
    pub(in crate::endpoint) fn abort(&self) {
        if self.process.check().is_err() {
            return;
        }
        let teardown = ignore_poison(self.teardown.lock());
        let mut guarded = self.lock_here();
        let released = guarded.state.abort();
        // The endpoint ends anyway. If the wakeup is refused, a thread that sleeps wakes with the next change, or at
        // its deadline.
        guarded.reports_end = true;
        let _ = guarded.update_wakeup(self);
        let after = guarded.unlock();
        self.wait_for_commands();
        drop(released);
        drop(teardown);
        // Dropped last: a waker may call the endpoint.
        drop(after);
    }
}
