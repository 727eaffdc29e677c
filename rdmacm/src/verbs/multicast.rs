//! Multicast groups to which queue pairs are attached.

use verbs_abi::ib_uverbs_attach_mcast;

use super::membership::{Group, detach};
use super::queue_pair::QueuePair;
use crate::device::Gid;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::lock::ignore_poison;

impl QueuePair {
    /// Attaches the queue pair to a multicast group, whose datagrams are then delivered to it.
    ///
    /// The queue pair must be a datagram queue pair. The port must have joined the group:
    /// [`CmId::join_multicast`](crate::cm::CmId::join_multicast) does that, and attaches the id's
    /// own queue pair itself. `lid` is that of the group, 0 on RoCE. Attaching to the same group
    /// again has no effect. Dropping the queue pair detaches it.
    ///
    /// # Errors
    ///
    /// - EINVAL if `gid` is not that of a multicast group, or if the queue pair has another type.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_ATTACH_MCAST`.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, gid: Gid, lid: u16) -> Result<()> {
        const OPERATION: &str = "attach to a multicast group";
        self.context().check_process(OPERATION, || self.subject())?;
        let group = Group { gid, lid };
        // Held throughout, so that the list matches the kernel's state.
        let mut groups = ignore_poison(self.inner.groups.lock());
        let request = ib_uverbs_attach_mcast {
            gid: gid.0,
            qp_handle: self.inner.object.handle(),
            mlid: lid,
            reserved: 0,
        };
        self.context().command(OPERATION, &self.subject(), request)?;
        if !groups.contains(&group) {
            groups.push(group);
        }
        Ok(())
    }

    /// Detaches the queue pair from a multicast group to which it is
    /// [attached](Self::attach_multicast).
    ///
    /// Datagrams that arrived earlier may still complete.
    ///
    /// # Errors
    ///
    /// - EINVAL if the queue pair is not attached to the group.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DETACH_MCAST`.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_multicast(&self, gid: Gid, lid: u16) -> Result<()> {
        const OPERATION: &str = "detach from a multicast group";
        self.context().check_process(OPERATION, || self.subject())?;
        let group = Group { gid, lid };
        let mut groups = ignore_poison(self.inner.groups.lock());
        let request = detach(self.inner.object.handle(), group);
        // Issued for a removed device too: a queue pair that is attached cannot be destroyed.
        let detached = self.context().file().command(request);
        detached.map_err(|refused| self.context().refused(OPERATION, &self.subject(), refused))?;
        groups.retain(|attached| *attached != group);
        Ok(())
    }
}
