//! Events: the completion channel, and the records of the two kinds of event descriptors.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands};

crate::abi_structs! {
    table: EVENT_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to open a completion channel.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_create_comp_channel: size 8, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
    }

    /// The completion channel.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_create_comp_channel_resp: size 4, align 4 {
        /// New descriptor, whose reads give [`ib_uverbs_comp_event_desc`]; it is `comp_channel` of CREATE_CQ.
        0 => fd: u32,
    }

    /// An event as it is read from a completion channel.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_comp_event_desc: size 8, align 8 {
        /// The `user_handle` of the completion queue.
        0 => cq_handle: AlignedU64,
    }

    /// An event as it is read from the asynchronous event file of a context.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_async_event_desc: size 16, align 8 {
        /// The `user_handle` of the queue concerned, or the number of the port, from 1.
        0 => element: AlignedU64,
        /// The type of the event, which determines the kind of object that `element` names.
        8 => event_type: ib_event_type,
        /// Zero.
        12 => reserved: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL for ib_uverbs_create_comp_channel
        => ib_uverbs_create_comp_channel_resp;
}

crate::abi_enum! {
    /// An asynchronous event.
    pub struct ib_event_type: u32 {
        /// A completion queue overflowed.
        IB_EVENT_CQ_ERR = 0;
        /// A queue pair failed.
        IB_EVENT_QP_FATAL = 1;
        /// A queue pair got an invalid request.
        IB_EVENT_QP_REQ_ERR = 2;
        /// A queue pair got a request without the right to it.
        IB_EVENT_QP_ACCESS_ERR = 3;
        /// A queue pair in RTR got its first packet.
        IB_EVENT_COMM_EST = 4;
        /// A queue pair in SQD has finished its sends.
        IB_EVENT_SQ_DRAINED = 5;
        /// A queue pair migrated to its alternate path.
        IB_EVENT_PATH_MIG = 6;
        /// A queue pair failed to migrate to its alternate path.
        IB_EVENT_PATH_MIG_ERR = 7;
        /// The device failed or is being removed; concerns the whole device.
        IB_EVENT_DEVICE_FATAL = 8;
        /// A port became active.
        IB_EVENT_PORT_ACTIVE = 9;
        /// A port went down.
        IB_EVENT_PORT_ERR = 10;
        /// The LID of a port changed.
        IB_EVENT_LID_CHANGE = 11;
        /// The P_Key table of a port changed.
        IB_EVENT_PKEY_CHANGE = 12;
        /// The subnet manager of a port changed.
        IB_EVENT_SM_CHANGE = 13;
        /// A shared receive queue failed.
        IB_EVENT_SRQ_ERR = 14;
        /// A shared receive queue fell below its limit.
        IB_EVENT_SRQ_LIMIT_REACHED = 15;
        /// A queue pair in ERR took its last receive from its shared receive queue.
        IB_EVENT_QP_LAST_WQE_REACHED = 16;
        /// The subnet manager asks the clients of a port to register again.
        IB_EVENT_CLIENT_REREGISTER = 17;
        /// The GID table of a port changed.
        IB_EVENT_GID_CHANGE = 18;
        /// A work queue failed.
        IB_EVENT_WQ_FATAL = 19;
        /// The speed of a port of the device changed; concerns the whole device.
        IB_EVENT_DEVICE_SPEED_CHANGE = 20;
    }
}
