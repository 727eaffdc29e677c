//! Completion queues.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands};

crate::abi_structs! {
    table: CQ_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to create a completion queue.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_create_cq: size 32, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// The number that events of the queue carry.
        8 => user_handle: AlignedU64,
        /// Requested number of entries.
        16 => cqe: u32,
        /// Completion vector, below `num_comp_vectors`.
        20 => comp_vector: u32,
        /// Descriptor of the completion channel, or -1.
        24 => comp_channel: i32,
        /// Zero.
        28 => reserved: u32,
    }

    /// A request to create a completion queue with flags.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_ex_create_cq: size 32, align 8 {
        /// The number that events of the queue carry.
        0 => user_handle: AlignedU64,
        /// Requested number of entries.
        8 => cqe: u32,
        /// Completion vector, below `num_comp_vectors`.
        12 => comp_vector: u32,
        /// Descriptor of the completion channel, or -1.
        16 => comp_channel: i32,
        /// 0; otherwise the kernel returns EINVAL.
        20 => comp_mask: u32,
        /// Flags.
        24 => flags: ib_uverbs_ex_create_cq_flags,
        /// Zero.
        28 => reserved: u32,
    }

    /// The completion queue.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_create_cq_resp: size 8, align 8 {
        /// Handle.
        0 => cq_handle: u32,
        /// Number of entries, at least the requested one.
        4 => cqe: u32,
    }

    /// The completion queue.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_ex_create_cq_resp: size 16, align 8 {
        /// The response of CREATE_CQ.
        0 => base: ib_uverbs_create_cq_resp,
        /// 0.
        8 => comp_mask: u32,
        /// Bytes that the kernel filled.
        12 => response_length: u32,
    }

    /// A request to resize a completion queue.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_resize_cq: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => cq_handle: u32,
        /// Requested number of entries.
        12 => cqe: u32,
    }

    /// The resized completion queue.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_resize_cq_resp: size 8, align 8 {
        /// Number of entries, at least the requested one.
        0 => cqe: u32,
        /// Zero.
        4 => reserved: u32,
    }

    /// A request to poll a completion queue by a kernel command.
    ///
    /// No driver with a user-space data path supports it.
    ///
    /// It is not a [`Command`](crate::Command): after the response the kernel stores up to `ne` completions, regardless
    /// of the length in the header. So `ne` and the buffer must be created together.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_poll_cq: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => cq_handle: u32,
        /// Maximum number of completions.
        12 => ne: u32,
    }

    /// Number of [`ib_uverbs_wc`](crate::ib_uverbs_wc) that follow.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_poll_cq_resp: size 8, align 8 {
        /// Completions.
        0 => count: u32,
        /// Zero.
        4 => reserved: u32,
    }

    /// A request to arm a completion queue: its next completion raises one event on its channel.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_req_notify_cq: size 8, align 4 {
        /// Handle.
        0 => cq_handle: u32,
        /// Not 0: only for solicited completions and errors.
        4 => solicited_only: u32,
    }

    /// A request to destroy a completion queue; EBUSY while queue pairs use it.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_destroy_cq: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => cq_handle: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// Number of events of the completion queue that have been read.
    ///
    /// The owner waits until that many events are acknowledged.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_destroy_cq_resp: size 8, align 4 {
        /// Completion events.
        0 => comp_events_reported: u32,
        /// Asynchronous events.
        4 => async_events_reported: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_CREATE_CQ for ib_uverbs_create_cq => ib_uverbs_create_cq_resp;
    extended IB_USER_VERBS_EX_CMD_CREATE_CQ for ib_uverbs_ex_create_cq
        => ib_uverbs_ex_create_cq_resp;
    plain IB_USER_VERBS_CMD_RESIZE_CQ for ib_uverbs_resize_cq => ib_uverbs_resize_cq_resp;
    silent IB_USER_VERBS_CMD_REQ_NOTIFY_CQ for ib_uverbs_req_notify_cq;
    plain IB_USER_VERBS_CMD_DESTROY_CQ for ib_uverbs_destroy_cq => ib_uverbs_destroy_cq_resp;
}

crate::abi_flags! {
    table: CREATE_CQ_FLAGS, header: "rdma/ib_user_verbs.h";

    /// Flags of the extended CREATE_CQ.
    pub struct ib_uverbs_ex_create_cq_flags: u32 {
        /// Completions carry time stamps.
        IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION = 1 << 0;
        /// Overruns are ignored.
        IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN = 1 << 1;
    }
}
