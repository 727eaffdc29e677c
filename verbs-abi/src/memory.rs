//! Memory regions and memory windows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands};

crate::abi_structs! {
    table: MEMORY_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to register memory.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_reg_mr: size 40, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Address of the first byte.
        8 => start: AlignedU64,
        /// Length in bytes.
        16 => length: AlignedU64,
        /// Address of the first byte for work requests and peers; equal to `start` within a page.
        24 => hca_va: AlignedU64,
        /// Protection domain.
        32 => pd_handle: u32,
        /// The access rights of the region.
        36 => access_flags: ib_uverbs_access_flags,
    }

    /// The memory region.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_reg_mr_resp: size 12, align 4 {
        /// Handle.
        0 => mr_handle: u32,
        /// Key for local work requests.
        4 => lkey: u32,
        /// Key for peers.
        8 => rkey: u32,
    }

    /// A request to change a memory region.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_rereg_mr: size 48, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => mr_handle: u32,
        /// The attributes to change.
        12 => flags: ib_mr_rereg_flags,
        /// Address of the first byte.
        16 => start: AlignedU64,
        /// Length in bytes.
        24 => length: AlignedU64,
        /// Address of the first byte for work requests and peers.
        32 => hca_va: AlignedU64,
        /// Protection domain.
        40 => pd_handle: u32,
        /// The access rights of the region.
        44 => access_flags: ib_uverbs_access_flags,
    }

    /// The keys of the changed region.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_rereg_mr_resp: size 8, align 8 {
        /// Key for local work requests.
        0 => lkey: u32,
        /// Key for peers.
        4 => rkey: u32,
    }

    /// A request to deregister a memory region; EBUSY while windows are bound to it.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_dereg_mr: size 4, align 4 {
        /// Handle.
        0 => mr_handle: u32,
    }

    /// A request to allocate a memory window.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_alloc_mw: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Protection domain.
        8 => pd_handle: u32,
        /// Type.
        12 => mw_type: ib_mw_type,
        /// Zero.
        13 => reserved: [u8; 3],
    }

    /// The memory window.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_alloc_mw_resp: size 8, align 8 {
        /// Handle.
        0 => mw_handle: u32,
        /// Key, until the first bind gives another.
        4 => rkey: u32,
    }

    /// A request to free a memory window.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_dealloc_mw: size 4, align 4 {
        /// Handle.
        0 => mw_handle: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_REG_MR for ib_uverbs_reg_mr => ib_uverbs_reg_mr_resp;
    plain IB_USER_VERBS_CMD_REREG_MR for ib_uverbs_rereg_mr => ib_uverbs_rereg_mr_resp;
    silent IB_USER_VERBS_CMD_DEREG_MR for ib_uverbs_dereg_mr;
    plain IB_USER_VERBS_CMD_ALLOC_MW for ib_uverbs_alloc_mw => ib_uverbs_alloc_mw_resp;
    silent IB_USER_VERBS_CMD_DEALLOC_MW for ib_uverbs_dealloc_mw;
}

crate::abi_flags! {
    table: ACCESS_FLAGS, header: "rdma/ib_user_ioctl_verbs.h";

    /// The access rights of a memory region or a queue pair. Local reading is always allowed.
    pub struct ib_uverbs_access_flags: u32 {
        /// The device writes on behalf of its owner: receives, results of reads and atomics.
        IB_UVERBS_ACCESS_LOCAL_WRITE = 1 << 0;
        /// Peers write; needs local write.
        IB_UVERBS_ACCESS_REMOTE_WRITE = 1 << 1;
        /// Peers read.
        IB_UVERBS_ACCESS_REMOTE_READ = 1 << 2;
        /// Peers do atomics; needs local write.
        IB_UVERBS_ACCESS_REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to the region.
        IB_UVERBS_ACCESS_MW_BIND = 1 << 4;
        /// Addresses count from the start of the region.
        IB_UVERBS_ACCESS_ZERO_BASED = 1 << 5;
        /// Pages are not pinned but fetched on demand.
        IB_UVERBS_ACCESS_ON_DEMAND = 1 << 6;
        /// The memory is of huge pages.
        IB_UVERBS_ACCESS_HUGETLB = 1 << 7;
        /// Peers flush to global visibility.
        #[since("6.2")]
        IB_UVERBS_ACCESS_FLUSH_GLOBAL = 1 << 8;
        /// Peers flush to persistence.
        #[since("6.2")]
        IB_UVERBS_ACCESS_FLUSH_PERSISTENT = 1 << 9;
        /// The device may reorder its accesses. A device that cannot reorder accesses ignores the flag.
        IB_UVERBS_ACCESS_RELAXED_ORDERING = 1 << 20;
    }
}

crate::abi_flags! {
    /// The attributes that REREG_MR changes.
    pub struct ib_mr_rereg_flags: u32 {
        /// The memory.
        IB_MR_REREG_TRANS = 1 << 0;
        /// The protection domain.
        IB_MR_REREG_PD = 1 << 1;
        /// The access flags.
        IB_MR_REREG_ACCESS = 1 << 2;
    }
}

crate::abi_enum! {
    /// Type of a memory window.
    pub struct ib_mw_type: u8 {
        /// Bound by a verb, at any time.
        IB_MW_TYPE_1 = 1;
        /// Bound by a work request and invalidated like a region.
        IB_MW_TYPE_2 = 2;
    }
}
