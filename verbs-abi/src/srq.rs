//! Shared receive queues and XRC domains.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands};

crate::abi_structs! {
    table: SRQ_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to create a shared receive queue.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_create_srq: size 32, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// The number that events of the queue carry.
        8 => user_handle: AlignedU64,
        /// Protection domain.
        16 => pd_handle: u32,
        /// Work requests.
        20 => max_wr: u32,
        /// Scatter/gather entries of a receive.
        24 => max_sge: u32,
        /// Number of receives below which an event is reported; 0 disables the event.
        28 => srq_limit: u32,
    }

    /// A request to create a shared receive queue of an XRC domain, or with tag matching.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_create_xsrq: size 48, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// The number that events of the queue carry.
        8 => user_handle: AlignedU64,
        /// Type.
        16 => srq_type: ib_uverbs_srq_type,
        /// Protection domain.
        20 => pd_handle: u32,
        /// Work requests.
        24 => max_wr: u32,
        /// Scatter/gather entries of a receive.
        28 => max_sge: u32,
        /// Number of receives below which an event is reported; 0 disables the event.
        32 => srq_limit: u32,
        /// Tags, for tag matching.
        36 => max_num_tags: u32,
        /// XRC domain, for XRC.
        40 => xrcd_handle: u32,
        /// Completion queue of the receives, for XRC and tag matching.
        44 => cq_handle: u32,
    }

    /// The shared receive queue.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_create_srq_resp: size 16, align 4 {
        /// Handle.
        0 => srq_handle: u32,
        /// Work requests.
        4 => max_wr: u32,
        /// Scatter/gather entries of a receive.
        8 => max_sge: u32,
        /// Number of an XRC queue, by which XRC sends address it.
        12 => srqn: u32,
    }

    /// A request to change a shared receive queue.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_modify_srq: size 16, align 8 {
        /// Handle.
        0 => srq_handle: u32,
        /// The attributes to change.
        4 => attr_mask: ib_srq_attr_mask,
        /// Work requests.
        8 => max_wr: u32,
        /// Number of receives below which an event is reported once.
        12 => srq_limit: u32,
    }

    /// A request for the attributes of a shared receive queue.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_query_srq: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => srq_handle: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// Attributes of a shared receive queue.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_query_srq_resp: size 16, align 4 {
        /// Work requests.
        0 => max_wr: u32,
        /// Scatter/gather entries of a receive.
        4 => max_sge: u32,
        /// Number of receives below which an event is reported; 0 after the event was reported.
        8 => srq_limit: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// A request to destroy a shared receive queue; EBUSY while queue pairs use it.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_destroy_srq: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => srq_handle: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// Number of events of the queue that have been read.
    ///
    /// The owner waits until that many events are acknowledged.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_destroy_srq_resp: size 4, align 4 {
        /// Asynchronous events.
        0 => events_reported: u32,
    }

    /// A request to open an XRC domain.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_open_xrcd: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Descriptor of the file whose inode names the domain; all ones for a private domain.
        8 => fd: u32,
        /// O_CREAT and O_EXCL, as in open.
        12 => oflags: u32,
    }

    /// The XRC domain.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_open_xrcd_resp: size 4, align 4 {
        /// Handle.
        0 => xrcd_handle: u32,
    }

    /// A request to close an XRC domain; EBUSY while anything belongs to it.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_close_xrcd: size 4, align 4 {
        /// Handle.
        0 => xrcd_handle: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_CREATE_SRQ for ib_uverbs_create_srq => ib_uverbs_create_srq_resp;
    plain IB_USER_VERBS_CMD_CREATE_XSRQ for ib_uverbs_create_xsrq => ib_uverbs_create_srq_resp;
    silent IB_USER_VERBS_CMD_MODIFY_SRQ for ib_uverbs_modify_srq;
    plain IB_USER_VERBS_CMD_QUERY_SRQ for ib_uverbs_query_srq => ib_uverbs_query_srq_resp;
    plain IB_USER_VERBS_CMD_DESTROY_SRQ for ib_uverbs_destroy_srq => ib_uverbs_destroy_srq_resp;
    plain IB_USER_VERBS_CMD_OPEN_XRCD for ib_uverbs_open_xrcd => ib_uverbs_open_xrcd_resp;
    silent IB_USER_VERBS_CMD_CLOSE_XRCD for ib_uverbs_close_xrcd;
}

crate::abi_enum! {
    table: SRQ_TYPES, header: "rdma/ib_user_ioctl_verbs.h";

    /// Type of a shared receive queue.
    pub struct ib_uverbs_srq_type: u32 {
        /// A queue for queue pairs of one protection domain.
        IB_UVERBS_SRQT_BASIC = 0;
        /// A queue for an XRC domain.
        IB_UVERBS_SRQT_XRC = 1;
        /// A queue with tag matching.
        IB_UVERBS_SRQT_TM = 2;
    }
}

crate::abi_flags! {
    /// The attributes that MODIFY_SRQ changes.
    pub struct ib_srq_attr_mask: u32 {
        /// `max_wr`.
        IB_SRQ_MAX_WR = 1 << 0;
        /// `srq_limit`.
        IB_SRQ_LIMIT = 1 << 1;
    }
}
