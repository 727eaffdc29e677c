//! [`Group`]: the record of a multicast group, and the table in which events find it.

use std::fmt;
use std::sync::Arc;

use ucma_abi::{RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER};

use crate::acks::{Acks, Counted};
use crate::addr::Address;
use crate::device::Gid;
use crate::registry::{Registry, Token};
use crate::sys::per_process::PerProcess;

/// The groups of the process's ids, by the kernel's number of each membership.
pub(super) static GROUPS: PerProcess<Registry<Group>> = PerProcess::new();

/// The kind of membership of an id in a multicast group.
#[doc(alias = "rdma_cm_mc_join_flags")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Membership {
    /// The id or socket sends and receives.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    Full,
    /// The id or socket only sends: no message is delivered to its queue pair.
    ///
    /// On RoCE the network is not informed of the member. On InfiniBand the subnet manager must
    /// support such members.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnly,
}

impl Membership {
    /// Returns the flags of the kernel's command.
    pub(super) fn flags(self) -> u16 {
        match self {
            Self::Full => RDMA_MC_JOIN_FLAG_FULLMEMBER,
            Self::SendOnly => RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        }
    }
}

impl fmt::Display for Membership {
    /// Writes `full member` or `send-only member`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Full => "full member",
            Self::SendOnly => "send-only member",
        })
    }
}

/// A group that an id has joined or is joining. Events find it by its token.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) token: Token,
    /// The token of the id, by which [`IDS`](super::record::IDS) finds it.
    pub(super) id: Token,
    pub(super) address: Address,
    pub(super) membership: Membership,
    pub(super) acks: Acks,
}

impl Counted for Group {
    fn acks(&self) -> &Acks {
        &self.acks
    }
}

/// A membership of an id, while it lasts.
#[derive(Debug)]
pub(super) struct GroupEntry {
    /// The kernel's handle of the membership.
    pub(super) handle: u32,
    pub(super) group: Arc<Group>,
    /// The address to which the id's queue pair is attached for the group: GID and LID.
    pub(super) attached: Option<(Gid, u16)>,
}

/// Removes groups from [`GROUPS`].
///
/// Their events count for the id too, so the caller does this after the last event of the id was
/// counted.
pub(super) fn forget(groups: &[GroupEntry]) {
    groups.iter().for_each(|joined| GROUPS.remove(joined.group.token));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_has_name_and_flags() {
        let texts = [Membership::Full, Membership::SendOnly].map(|value| value.to_string());
        assert_eq!(texts, ["full member", "send-only member"]);
        let flags = [Membership::Full, Membership::SendOnly].map(Membership::flags);
        // RDMA_MC_JOIN_FLAG_FULLMEMBER is 0, and RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER is 1.
        assert_eq!(flags, [0, 1]);
    }
}
