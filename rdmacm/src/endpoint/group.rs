//! Multicast groups that a socket is in.

use std::fmt;
use std::mem;
use std::sync::Arc;

#[cfg(doc)]
use super::DatagramSocket;
use super::peer::Peer;
use super::shared::{Operation, Patience, Shared};
use super::state::State;
use super::traffic::End;
use crate::addr::Address;
use crate::cm::Membership;
use crate::error::{ErrorKind, Result};

/// A multicast group that a socket is in, until this is dropped.
///
/// Of [`DatagramSocket::join`]. What is sent to its [`peer`](Self::peer) goes to all that are in the
/// group, to this socket too; what the others send is [received](DatagramSocket::recv_from) with the
/// rest.
pub struct Group {
    shared: Arc<Shared>,
    address: Address,
    peer: Peer,
    is_left: bool,
}

const LEAVE: &str = "leave a multicast group on";

impl Group {
    pub(super) fn join(
        shared: &Arc<Shared>,
        address: Address,
        membership: Membership,
        patience: Patience,
    ) -> Result<Self> {
        let waits = !matches!(patience, Patience::None);
        let joining = Joining::begin(shared, address, membership, waits)?;
        let answer = shared.until(Operation::Join, patience, |state| joining.answer(state));
        joining.end(answer.and_then(|answer| answer))
    }

    /// All that are in the group, to send to.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Its address, as it was joined.
    pub fn address(&self) -> Address {
        self.address
    }

    /// That the socket is in the group still, as far as is known: the network may take it out, on
    /// InfiniBand where the subnet manager does. It can be left and joined again then.
    ///
    /// # Errors
    ///
    /// What the event `MulticastError` said; [`ErrorKind::WrongProcess`] after a fork.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    pub fn check(&self) -> Result<()> {
        let guarded = self.shared.lock_for(Operation::Join)?;
        let rendezvous = guarded.state.rendezvous.as_ref();
        rendezvous.map_or(Ok(()), |rendezvous| rendezvous.groups.check(self.address))
    }

    /// Leaves the group, as dropping it does. Datagrams that came before are received still.
    ///
    /// [`CmId::leave_multicast`](crate::cm::CmId::leave_multicast).
    ///
    /// # Errors
    ///
    /// Those of it.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(mut self) -> Result<()> {
        self.is_left = true;
        leave(&self.shared, self.address)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_left {
            let _ = leave(&self.shared, self.address);
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("address", &self.address)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A group that is being joined. Dropped before that is at its end, it is left.
#[derive(Debug)]
pub(super) struct Joining<'a> {
    shared: &'a Arc<Shared>,
    address: Address,
    /// Whether somebody waits for it, and no other is to be told.
    waits: bool,
}

impl<'a> Joining<'a> {
    pub(super) fn begin(
        shared: &'a Arc<Shared>,
        address: Address,
        membership: Membership,
        waits: bool,
    ) -> Result<Self> {
        shared.rendezvous(Operation::Join, |rendezvous, parts| {
            if rendezvous.groups.begin(address, membership, waits)? {
                let joined = parts.id.join_multicast(address, membership);
                return joined.inspect_err(|_| rendezvous.groups.forget(address));
            }
            Ok(())
        })?;
        Ok(Self { shared, address, waits })
    }

    /// What has come of it, where that is known or will not be.
    pub(super) fn answer(&self, state: &mut State) -> Option<Result<Result<Peer>, End>> {
        let rendezvous = state.rendezvous.as_mut();
        match rendezvous.and_then(|found| found.groups.answer(self.address, self.waits)) {
            Some(answer) => Some(Ok(answer)),
            None => state.traffic.end.map(Err),
        }
    }

    /// The group, where that was the answer. It goes on being joined where there is none yet.
    pub(super) fn end(self, answer: Result<Peer>) -> Result<Group> {
        let (shared, address) = (self.shared, self.address);
        match answer {
            Ok(peer) => {
                mem::forget(self);
                Ok(Group { shared: Arc::clone(shared), address, peer, is_left: false })
            }
            Err(error) => {
                if *error.kind() == ErrorKind::WouldBlock {
                    mem::forget(self);
                }
                Err(error)
            }
        }
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let _ = leave(self.shared, self.address);
    }
}

/// Leaves the group of `address`, unless the socket, and the membership with it, has ended.
fn leave(shared: &Shared, address: Address) -> Result<()> {
    let mut guarded = shared.lock(LEAVE)?;
    let state = &mut guarded.state;
    let (Some(parts), Some(rendezvous)) = (&state.parts, &mut state.rendezvous) else {
        return Ok(());
    };
    rendezvous.groups.forget(address);
    parts.id.leave_multicast(address)
}
