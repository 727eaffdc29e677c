//! The multicast groups to which a queue pair is attached.

use verbs_abi::ib_uverbs_detach_mcast;

use crate::device::Gid;

/// A multicast group as a port identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
}

/// Returns the command that detaches the queue pair with handle `qp_handle` from `group`.
pub(super) fn detach(qp_handle: u32, group: Group) -> ib_uverbs_detach_mcast {
    ib_uverbs_detach_mcast { gid: group.gid.0, qp_handle, mlid: group.lid, reserved: 0 }
}
