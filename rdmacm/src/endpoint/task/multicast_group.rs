//! [`MulticastGroup`], a multicast group that a socket has joined, for tasks.

use std::ops::Deref;

use super::blocking_pool::run_blocking;
#[cfg(doc)]
use super::datagrams::DatagramSocket;
use super::failure::canceled;
use super::runtime::ProcessRuntime;
use crate::endpoint;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A membership of a socket in a multicast group, which ends when this is dropped, for tasks.
///
/// Created by [`DatagramSocket::join_multicast`]. It dereferences to an
/// [`endpoint::MulticastGroup`]. A datagram to its [`peer`](endpoint::MulticastGroup::peer) reaches all members;
/// [`check_membership`](endpoint::MulticastGroup::check_membership) reports that the network has removed the socket.
///
/// Dropping it leaves the group by a command that the dropping thread sends. [`leave`](Self::leave) does that on
/// another thread and waits for it.
///
/// # Examples
///
/// ```no_run
/// use std::net::SocketAddrV4;
///
/// use rdmacm::endpoint::{Membership, task::DatagramSocket};
///
/// async fn announce(socket: &DatagramSocket, address: SocketAddrV4) -> rdmacm::Result<()> {
///     let group = socket.join_multicast(address, Membership::Full).await?;
///     let posted = socket.post_bytes_to(b"hello, all", group.peer()).await;
///     group.leave().await?;
///     posted
/// }
/// ```
#[derive(Debug)]
pub struct MulticastGroup {
    group: endpoint::MulticastGroup,
    runtime: ProcessRuntime,
}

impl MulticastGroup {
    pub(super) fn new(group: endpoint::MulticastGroup, runtime: ProcessRuntime) -> Self {
        Self { group, runtime }
    }

    /// Leaves the group, and waits until the socket is no longer a member.
    ///
    /// Datagrams that arrived before are still received.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    /// - ECANCELED if the runtime ends. The socket leaves the group in this case too.
    /// - The other errors of [`endpoint::MulticastGroup::leave`].
    ///
    /// # Cancel safety
    ///
    /// The group is left in any case, as if this was dropped.
    #[doc(alias = "rdma_leave_multicast")]
    pub async fn leave(self) -> Result<()> {
        let Self { group, runtime } = self;
        let address = group.address();
        let left = run_blocking(&runtime, move || group.leave()).await;
        left.ok_or_else(|| canceled("leave", format!("the multicast group {address}")))?
    }
}

impl Deref for MulticastGroup {
    type Target = endpoint::MulticastGroup;

    fn deref(&self) -> &endpoint::MulticastGroup {
        &self.group
    }
}
