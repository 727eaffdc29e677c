//! Asking for a peer, by who waits for the answer and by who does not.

use super::rendezvous::Resolution;
use super::shared::{Operation, Shared};
use super::state::State;
use super::traffic::End;
use crate::addr::Address;
use crate::error::Result;
use crate::registry::Token;

/// A peer that is asked where to send.
#[derive(Debug)]
pub(super) struct Resolving<'a> {
    shared: &'a Shared,
    token: Token,
    /// Dropped, it is given up.
    is_claimed: bool,
}

impl<'a> Resolving<'a> {
    /// Asks at `address`, for who waits for the answer until this is dropped.
    pub(super) fn begin(shared: &'a Shared, address: Address) -> Result<Self> {
        Self::new(shared, address, true)
    }

    /// The same for who does not wait, and comes again: it goes on meanwhile.
    pub(super) fn go_on(shared: &'a Shared, address: Address) -> Result<Self> {
        Self::new(shared, address, false)
    }

    fn new(shared: &'a Shared, address: Address, is_claimed: bool) -> Result<Self> {
        let (begun, _old) = shared.rendezvous(Operation::Resolve, |rendezvous, _| {
            // Who waits is to hear what is true now.
            let old = is_claimed.then(|| rendezvous.unfetched(address));
            Ok((rendezvous.resolve(&shared.channel, address, is_claimed), old))
        })?;
        Ok(Self { shared, token: begun?, is_claimed })
    }

    /// Something has come of it, or will not.
    pub(super) fn outcome(&self, state: &mut State) -> Option<Result<Resolution, End>> {
        match state.rendezvous.as_mut().and_then(|rendezvous| rendezvous.resolved(self.token)) {
            Some(resolution) => Some(Ok(resolution)),
            None => state.traffic.end.map(Err),
        }
    }
}

impl Drop for Resolving<'_> {
    fn drop(&mut self) {
        if !self.is_claimed {
            return;
        }
        let Ok(mut guarded) = self.shared.lock_for(Operation::Resolve) else { return };
        let rendezvous = guarded.state.rendezvous.as_mut();
        let given_up = rendezvous.and_then(|rendezvous| rendezvous.give_up(self.token));
        // Its id goes when nothing is locked.
        drop(guarded);
        drop(given_up);
    }
}
