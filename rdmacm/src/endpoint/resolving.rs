//! [`Resolving`], a question to a peer for its queue pair.

use std::sync::Arc;

use super::core::EndReason;
use super::peer::Peer;
use super::rendezvous::Resolution;
use super::shared::{Operation, Shared};
use super::state::State;
use super::wait::Patience;
use crate::addr::Address;
use crate::error::Result;
use crate::registry::Token;

/// The resolution of a peer, until its outcome is taken. Dropping it cancels the resolution.
#[derive(Debug)]
pub(super) struct Resolving {
    shared: Arc<Shared>,
    token: Token,
}

impl Resolving {
    /// Starts to resolve `address`.
    pub(super) fn start(shared: &Arc<Shared>, address: Address) -> Result<Self> {
        let started = shared.rendezvous(Operation::Resolve, |rendezvous, _| {
            rendezvous.resolve(&shared.channel, address)
        });
        Ok(Self { shared: Arc::clone(shared), token: started? })
    }

    pub(super) fn wait(&mut self, patience: Patience) -> Result<Peer> {
        let is_try = matches!(patience, Patience::None);
        let outcome = |state: &mut State| self.outcome(state, is_try);
        self.shared.until(Operation::Resolve, patience, outcome)?.into_outcome()
    }

    /// Returns the outcome if it is known or will not be. If not, `is_try` says whether the descriptor is to become
    /// readable when it is.
    pub(super) fn outcome(
        &self,
        state: &mut State,
        is_try: bool,
    ) -> Option<Result<Resolution, EndReason>> {
        let rendezvous = state.rendezvous.as_mut();
        match rendezvous.and_then(|rendezvous| rendezvous.resolved(self.token, is_try)) {
            Some(resolution) => Some(Ok(resolution)),
            None => state.core.end().map(Err),
        }
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        let Ok(mut guarded) = self.shared.lock_for(Operation::Resolve) else { return };
        let rendezvous = guarded.state.rendezvous.as_mut();
        let given_up = rendezvous.and_then(|rendezvous| rendezvous.give_up(self.token));
        // Destroying its id is a command, which is not issued under the lock.
        drop(guarded);
        drop(given_up);
    }
}
