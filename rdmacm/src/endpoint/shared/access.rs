//! Short calls on the state: returned buffers, statistics, keys of exports, the protection domain.

use super::Shared;
use super::state::State;
use crate::endpoint::core::WatchedKeys;
use crate::endpoint::core::operation::{Awaited, Interest};
use crate::endpoint::core::stats::EndpointStats;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{ProtectionDomain, RegisteredBuffer};

/// The operation of a destructor that returns a buffer; its error is discarded.
const RETURN_BUFFER: &str = "return a buffer to";

/// Operation name used when an export checks its key; the error is discarded.
const EXPORTS: &str = "read the exports of";

impl Shared {
    /// Returns a buffer for sending that was not posted.
    pub(in crate::endpoint) fn return_buffer(&self, memory: RegisteredBuffer) {
        let Ok(mut guarded) = self.lock(RETURN_BUFFER) else { return };
        // After the end the memory is freed when this returns and nothing is locked.
        if guarded.state.objects.is_some() {
            guarded.state.core.return_buffer(memory);
        }
    }

    /// Posts a buffer for receiving again.
    pub(in crate::endpoint) fn receive(&self, memory: RegisteredBuffer) {
        let Ok(mut guarded) = self.lock(RETURN_BUFFER) else { return };
        let State { objects, core, .. } = &mut guarded.state;
        if let (Some(io), None) = (objects, core.end()) {
            if core.repost(io, memory) {
                // A caller that waits or tries again gets the error.
                let _ = guarded.state.poll(Interest::Messages);
                return;
            }
            guarded.unlock_unchanged();
        }
    }

    /// Records that no caller waits any more for the request `awaited` in slot `index`.
    pub(in crate::endpoint) fn detach_request(&self, awaited: Awaited, index: usize) {
        let Ok(mut guarded) = self.lock(RETURN_BUFFER) else { return };
        guarded.forget_loop(awaited);
        let done = guarded.state.core.detach_send(index);
        drop(guarded);
        if let Some(memory) = done {
            self.return_buffer(memory);
        }
    }

    /// Returns the statistics of the endpoint.
    pub(in crate::endpoint) fn stats(&self) -> Result<EndpointStats> {
        let guarded = self.lock("read the statistics of")?;
        Ok(*guarded.state.core.stats())
    }

    /// Calls `each` with the keys of the exports of a connection. Returns `None` after a fork.
    pub(in crate::endpoint) fn watched_keys<T>(
        &self,
        each: impl FnOnce(&mut WatchedKeys) -> T,
    ) -> Option<T> {
        let mut guarded = self.lock(EXPORTS).ok()?;
        let found = guarded.state.core.watched_keys().map(each);
        guarded.unlock_unchanged();
        found
    }

    /// Returns the protection domain, until this side ends the connection.
    pub(in crate::endpoint) fn pd(&self) -> Result<ProtectionDomain> {
        const OPERATION: &str = "use the protection domain of";
        let guarded = self.lock(OPERATION)?;
        match &guarded.state.objects {
            Some(objects) => Ok(objects.queues.qp().pd().clone()),
            None => Err(Error::new(OPERATION, self.name.clone(), ErrorKind::Disconnected)),
        }
    }
}
