//! [`Resolving`], the resolution of a peer that was started.

use std::sync::Arc;

use crate::addr::Address;
use crate::cm::{CmId, PortSpace};
use crate::endpoint::core::EndReason;
use crate::endpoint::core::operation::{Awaited, Operation};
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::datagram_cm::{RESOLVE_TIMEOUT, Resolution};
use crate::endpoint::shared::datagram_peer::DatagramPeer;
use crate::endpoint::shared::state::State;
use crate::endpoint::wait::WaitMode;
use crate::error::Result;
use crate::registry::Token;

/// The resolution of a peer, until its outcome is taken. Dropping it cancels the resolution.
#[derive(Debug)]
pub(in crate::endpoint) struct Resolving {
    shared: Arc<Shared>,
    token: Token,
}

impl Resolving {
    /// Starts to resolve `address`.
    pub(in crate::endpoint) fn start(shared: &Arc<Shared>, address: Address) -> Result<Self> {
        let (source, command) =
            shared.begin_cm_command(Operation::Resolve, |cm, _| Ok(cm.source()))?;
        let id = Arc::new(CmId::new(&shared.channel, PortSpace::Udp)?);
        let resolving = Self { shared: Arc::clone(shared), token: id.token() };
        shared.with_cm(|cm| cm.add(&id, address));
        let started = id.resolve_addr(Some(source), address, RESOLVE_TIMEOUT);
        drop(id);
        drop(command.finish());
        started.map(|()| resolving)
    }

    pub(in crate::endpoint) fn wait(&mut self, mode: WaitMode) -> Result<DatagramPeer> {
        let outcome = |state: &mut State| self.outcome(state);
        self.shared.wait_for(self.awaited(), mode, outcome)?.into_outcome()
    }

    /// Returns the outcome if it is known, or the end of the socket if no outcome follows.
    pub(in crate::endpoint) fn outcome(
        &self,
        state: &mut State,
    ) -> Option<Result<Resolution, EndReason>> {
        let cm = state.cm.as_mut();
        match cm.and_then(|cm| cm.resolved(self.token)) {
            Some(resolution) => Some(Ok(resolution)),
            None => state.core.end().map(Err),
        }
    }

    fn awaited(&self) -> Awaited {
        Awaited::one(Operation::Resolve, self.token.get())
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        let Ok(mut guarded) = self.shared.lock_for(Operation::Resolve) else { return };
        guarded.forget_loop(self.awaited());
        let cm = guarded.state.cm.as_mut();
        let canceled = cm.and_then(|cm| cm.cancel(self.token));
        // Destroying its id is a command, which is not issued under the lock.
        drop(guarded);
        drop(canceled);
    }
}
