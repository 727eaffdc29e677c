//! Multicast groups that a socket is in.

use std::fmt;
use std::sync::Arc;

use crate::addr::Address;
use crate::cm::Membership;
#[cfg(doc)]
use crate::endpoint::DatagramSocket;
use crate::endpoint::core::EndReason;
use crate::endpoint::core::operation::{Awaited, Operation};
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::datagram_peer::DatagramPeer;
use crate::endpoint::shared::state::State;
use crate::endpoint::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A membership of a socket in a multicast group, which ends when this is dropped.
///
/// Created by [`DatagramSocket::start_join_multicast`]. A datagram to its [`peer`](Self::peer) reaches all full
/// members, including this socket if it is one. Datagrams of other members are [received](DatagramSocket::recv_from)
/// with all others.
///
/// # Examples
///
/// ```no_run
/// use std::net::{Ipv4Addr, SocketAddrV4};
///
/// use rdmacm::endpoint::{DatagramConfig, DatagramSocket, Membership};
///
/// let socket = DatagramSocket::bind("10.0.0.1:0", &DatagramConfig::default())?;
/// let address = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 0);
/// let group = socket.start_join_multicast(address, Membership::Full)?.wait()?;
/// socket.post_bytes_to(b"hello, all", group.peer())?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
pub struct MulticastGroup {
    shared: Arc<Shared>,
    address: Address,
    peer: DatagramPeer,
    is_left: bool,
}

const LEAVE: &str = "leave a multicast group on";

impl MulticastGroup {
    /// Returns the peer that reaches all members of the group.
    pub fn peer(&self) -> &DatagramPeer {
        &self.peer
    }

    /// Returns the address of the group, as it was joined.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Returns an error if the network has removed the socket from the group, as far as is known.
    ///
    /// On InfiniBand the subnet manager may do that. The program can leave the group and join it again.
    ///
    /// # Errors
    ///
    /// - The error of the event `MulticastError`.
    /// - [`ErrorKind::NotOwner`] after a fork.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    pub fn check_membership(&self) -> Result<()> {
        let guarded = self.shared.lock_for(Operation::Join)?;
        let cm = guarded.state.cm.as_ref();
        cm.map_or(Ok(()), |cm| cm.groups.check(self.address))
    }

    /// Leaves the group, as dropping it does. Datagrams that arrived before are still received.
    ///
    /// Calls [`CmId::leave_multicast`](crate::cm::CmId::leave_multicast).
    ///
    /// # Errors
    ///
    /// The errors of [`CmId::leave_multicast`](crate::cm::CmId::leave_multicast).
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(mut self) -> Result<()> {
        self.is_left = true;
        leave(&self.shared, self.address)
    }
}

impl Drop for MulticastGroup {
    fn drop(&mut self) {
        if !self.is_left {
            let _ = leave(&self.shared, self.address);
        }
    }
}

impl fmt::Debug for MulticastGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MulticastGroup")
            .field("address", &self.address)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// The joining of a group, until its outcome is taken. Dropping it leaves the group.
#[derive(Debug)]
pub(in crate::endpoint) struct Joining {
    shared: Arc<Shared>,
    address: Address,
    number: u64,
    /// `true` if the group was returned. Dropping that value leaves the group.
    is_joined: bool,
}

impl Joining {
    /// Starts to join the group of `address`.
    pub(in crate::endpoint) fn start(
        shared: &Arc<Shared>,
        address: Address,
        membership: Membership,
    ) -> Result<Self> {
        // The answer may arrive before the command returns.
        let ((number, id), command) = shared.begin_cm_command(Operation::Join, |cm, objects| {
            Ok((cm.groups.begin(address)?, Arc::clone(&objects.id)))
        })?;
        let joined = id.join_multicast(address, membership);
        drop(id);
        let guarded = command.finish();
        drop(guarded);
        if joined.is_err() {
            shared.with_cm(|cm| cm.groups.forget(address));
        }
        joined.map(|()| Self { shared: Arc::clone(shared), address, number, is_joined: false })
    }

    pub(in crate::endpoint) fn wait(&mut self, mode: WaitMode) -> Result<MulticastGroup> {
        let answer = |state: &mut State| self.answer(state);
        let answer = self.shared.wait_for(self.awaited(), mode, answer)?;
        Ok(self.joined(answer?))
    }

    /// Returns the answer if it is known, or the end of the socket if no answer follows.
    pub(in crate::endpoint) fn answer(
        &self,
        state: &mut State,
    ) -> Option<Result<Result<DatagramPeer>, EndReason>> {
        let cm = state.cm.as_mut();
        match cm.and_then(|cm| cm.groups.answer(self.address)) {
            Some(answer) => Some(Ok(answer)),
            None => state.core.end().map(Err),
        }
    }

    /// Returns the group, whose members `peer` reaches.
    pub(in crate::endpoint) fn joined(&mut self, peer: DatagramPeer) -> MulticastGroup {
        self.is_joined = true;
        MulticastGroup {
            shared: Arc::clone(&self.shared),
            address: self.address,
            peer,
            is_left: false,
        }
    }

    fn awaited(&self) -> Awaited {
        Awaited::one(Operation::Join, self.number)
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        if !self.is_joined {
            if let Ok(mut guarded) = self.shared.lock(LEAVE) {
                guarded.forget_loop(self.awaited());
            }
            let _ = leave(&self.shared, self.address);
        }
    }
}

/// Leaves the group of `address`, unless the socket, and the membership with it, has ended.
fn leave(shared: &Shared, address: Address) -> Result<()> {
    let mut guarded = shared.lock(LEAVE)?;
    let state = &mut guarded.state;
    let (Some(objects), Some(cm)) = (&state.objects, &mut state.cm) else {
        return Ok(());
    };
    cm.groups.leave(address);
    let id = Arc::clone(&objects.id);
    let command = guarded.begin_command();
    let left = id.leave_multicast(address);
    drop(id);
    drop(command.finish());
    shared.with_cm(|cm| cm.groups.forget(address));
    left
}
