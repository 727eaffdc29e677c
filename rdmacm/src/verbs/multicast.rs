//! Multicast groups of queue pairs: what the device delivers to them.

use verbs_abi::ib_uverbs_attach_mcast;

use super::membership::{Group, detach};
use super::queue_pair::QueuePair;
use crate::device::Gid;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::lock::unpoisoned;

impl QueuePair {
    /// Has the datagrams of a multicast group delivered to the queue pair, which must be one for
    /// datagrams. `IB_USER_VERBS_CMD_ATTACH_MCAST`.
    ///
    /// The port must have joined the group:
    /// [`CmId::join_multicast`](crate::cm::CmId::join_multicast) does that, and attaches the id's
    /// own queue pair by itself. `lid` is that of the group, 0 on RoCE. Once more for the same
    /// group does nothing. The queue pair is detached where it is dropped.
    ///
    /// # Errors
    ///
    /// EINVAL for a GID that is none of a group, and for a queue pair of another type; ENOMEM;
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, gid: Gid, lid: u16) -> Result<()> {
        const OPERATION: &str = "attach to a multicast group";
        self.context().check_process(OPERATION, || self.subject())?;
        let group = Group { gid, lid };
        // Held throughout, so that the list is what the kernel has.
        let mut groups = unpoisoned(self.inner.groups.lock());
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

    /// Ends what [`attach_multicast`](Self::attach_multicast) began.
    /// `IB_USER_VERBS_CMD_DETACH_MCAST`.
    ///
    /// Datagrams that came before may still complete.
    ///
    /// # Errors
    ///
    /// EINVAL where the queue pair is not attached to the group; [`ErrorKind::DeviceGone`],
    /// [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_multicast(&self, gid: Gid, lid: u16) -> Result<()> {
        const OPERATION: &str = "detach from a multicast group";
        self.context().check_process(OPERATION, || self.subject())?;
        let group = Group { gid, lid };
        let mut groups = unpoisoned(self.inner.groups.lock());
        let request = detach(self.inner.object.handle(), group);
        // Of a device that is gone, too: what is attached is not destroyed.
        let detached = self.context().file().command(request);
        detached.map_err(|refused| self.context().refused(OPERATION, &self.subject(), refused))?;
        groups.retain(|attached| *attached != group);
        Ok(())
    }
}
