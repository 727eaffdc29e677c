//! [`MulticastGroup`], a multicast group that a socket has joined, for tasks.

use std::ops::Deref;
use std::sync::Arc;

use super::blocking_pool::run_blocking;
#[cfg(doc)]
use super::datagrams::DatagramSocket;
use super::failure::cancelled;
use super::runtime::Runtime;
use crate::endpoint;
use crate::error::Result;

/// A multicast group that a socket has joined, for tasks.
///
/// Created by [`DatagramSocket::join_multicast`]. It dereferences to an [`endpoint::MulticastGroup`], which is documented in more
/// detail.
///
/// The thread that drops it leaves the group, with a command to the kernel. [`leave`](Self::leave) does that on another
/// thread and waits for it.
#[derive(Debug)]
pub struct MulticastGroup {
    group: endpoint::MulticastGroup,
    runtime: Arc<dyn Runtime>,
}

impl MulticastGroup {
    pub(super) fn new(group: endpoint::MulticastGroup, runtime: Arc<dyn Runtime>) -> Self {
        Self { group, runtime }
    }

    /// Leaves the group: see [`endpoint::MulticastGroup::leave`].
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint::MulticastGroup::leave`].
    /// - ECANCELED if the runtime ends, with which the group is left too.
    ///
    /// # Cancel safety
    ///
    /// The group is left in any case, as if this was dropped.
    #[doc(alias = "rdma_leave_multicast")]
    pub async fn leave(self) -> Result<()> {
        let Self { group, runtime } = self;
        let address = group.address();
        let left = run_blocking(&runtime, move || group.leave()).await;
        left.ok_or_else(|| cancelled("leave", format!("the multicast group {address}")))?
    }
}

impl Deref for MulticastGroup {
    type Target = endpoint::MulticastGroup;

    fn deref(&self) -> &endpoint::MulticastGroup {
        &self.group
    }
}
