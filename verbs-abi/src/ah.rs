//! Address handles and multicast groups, for datagrams.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands, ib_uverbs_ah_attr};

crate::abi_structs! {
    table: AH_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to create an address handle.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_create_ah: size 56, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Unused: address handles have no events.
        8 => user_handle: AlignedU64,
        /// Protection domain.
        16 => pd_handle: u32,
        /// Zero.
        20 => reserved: u32,
        /// The address.
        24 => attr: ib_uverbs_ah_attr,
    }

    /// The address handle.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_create_ah_resp: size 4, align 4 {
        /// Handle.
        0 => ah_handle: u32,
    }

    /// A request to destroy an address handle.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_destroy_ah: size 4, align 4 {
        /// Handle.
        0 => ah_handle: u32,
    }

    /// A request to attach a queue pair to a multicast group.
    ///
    /// Repeating it for the same group has no effect.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_attach_mcast: size 24, align 8 {
        /// GID of the group.
        0 => gid: [u8; 16],
        /// Queue pair.
        16 => qp_handle: u32,
        /// LID of the group; 0 on RoCE.
        20 => mlid: u16,
        /// Zero.
        22 => reserved: u16,
    }

    /// A request to detach a queue pair from a multicast group.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_detach_mcast: size 24, align 8 {
        /// GID of the group.
        0 => gid: [u8; 16],
        /// Queue pair.
        16 => qp_handle: u32,
        /// LID of the group; 0 on RoCE.
        20 => mlid: u16,
        /// Zero.
        22 => reserved: u16,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_CREATE_AH for ib_uverbs_create_ah => ib_uverbs_create_ah_resp;
    silent IB_USER_VERBS_CMD_DESTROY_AH for ib_uverbs_destroy_ah;
    silent IB_USER_VERBS_CMD_ATTACH_MCAST for ib_uverbs_attach_mcast;
    silent IB_USER_VERBS_CMD_DETACH_MCAST for ib_uverbs_detach_mcast;
}
