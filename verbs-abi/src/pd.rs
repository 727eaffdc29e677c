//! Protection domains.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands};

crate::abi_structs! {
    table: PD_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to allocate a protection domain.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_alloc_pd: size 8, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
    }

    /// The protection domain.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_alloc_pd_resp: size 4, align 4 {
        /// Handle.
        0 => pd_handle: u32,
    }

    /// A request to free a protection domain; EBUSY while anything belongs to it.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_dealloc_pd: size 4, align 4 {
        /// Handle.
        0 => pd_handle: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_ALLOC_PD for ib_uverbs_alloc_pd => ib_uverbs_alloc_pd_resp;
    silent IB_USER_VERBS_CMD_DEALLOC_PD for ib_uverbs_dealloc_pd;
}
