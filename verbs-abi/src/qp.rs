//! Queue pairs: create, query, destroy. States and their changes are in [`qp_state`](crate::qp_state).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    AlignedU64, command::commands, ib_mig_state, ib_mtu, ib_qp_attr_mask, ib_qp_state,
    ib_uverbs_access_flags, ib_uverbs_qp_dest,
};

crate::abi_structs! {
    table: QP_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to create a queue pair.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_create_qp: size 56, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// The number that events of the queue pair carry.
        8 => user_handle: AlignedU64,
        /// Protection domain; for XRC_TGT the XRC domain.
        16 => pd_handle: u32,
        /// Completion queue of sends.
        20 => send_cq_handle: u32,
        /// Completion queue of receives.
        24 => recv_cq_handle: u32,
        /// Shared receive queue, if `is_srq`.
        28 => srq_handle: u32,
        /// Work requests in the send queue.
        32 => max_send_wr: u32,
        /// Work requests in the receive queue.
        36 => max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        40 => max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        44 => max_recv_sge: u32,
        /// Bytes of inline data.
        48 => max_inline_data: u32,
        /// 1: every send completes; 0: those with `IB_SEND_SIGNALED`.
        52 => sq_sig_all: u8,
        /// Type.
        53 => qp_type: ib_uverbs_qp_type,
        /// 1: receives come from a shared receive queue.
        54 => is_srq: u8,
        /// Zero.
        55 => reserved: u8,
    }

    /// A request to create a queue pair with flags.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_ex_create_qp: size 64, align 8 {
        /// The number that events of the queue pair carry.
        0 => user_handle: AlignedU64,
        /// Protection domain; for XRC_TGT the XRC domain.
        8 => pd_handle: u32,
        /// Completion queue of sends.
        12 => send_cq_handle: u32,
        /// Completion queue of receives.
        16 => recv_cq_handle: u32,
        /// Shared receive queue, if `is_srq`.
        20 => srq_handle: u32,
        /// Work requests in the send queue.
        24 => max_send_wr: u32,
        /// Work requests in the receive queue.
        28 => max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        32 => max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        36 => max_recv_sge: u32,
        /// Bytes of inline data.
        40 => max_inline_data: u32,
        /// 1: every send completes; 0: those with `IB_SEND_SIGNALED`.
        44 => sq_sig_all: u8,
        /// Type.
        45 => qp_type: ib_uverbs_qp_type,
        /// 1: receives come from a shared receive queue.
        46 => is_srq: u8,
        /// Zero.
        47 => reserved: u8,
        /// Bit 0: `rwq_ind_tbl_handle` is valid.
        48 => comp_mask: u32,
        /// Flags.
        52 => create_flags: ib_uverbs_qp_create_flags,
        /// Indirection table of receive work queues.
        56 => rwq_ind_tbl_handle: u32,
        /// Number that sent packets carry instead of the queue pair's own.
        60 => source_qpn: u32,
    }

    /// A request to open the XRC_TGT queue pair that another process of the XRC domain created.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_open_qp: size 32, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// The number that events of the queue pair carry.
        8 => user_handle: AlignedU64,
        /// XRC domain.
        16 => pd_handle: u32,
        /// Number of the queue pair.
        20 => qpn: u32,
        /// `IB_UVERBS_QPT_XRC_TGT`.
        24 => qp_type: ib_uverbs_qp_type,
        /// Zero.
        25 => reserved: [u8; 7],
    }

    /// The queue pair, created or opened. The capacities are the actual ones.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_create_qp_resp: size 32, align 4 {
        /// Handle.
        0 => qp_handle: u32,
        /// Number, 24 bits.
        4 => qpn: u32,
        /// Work requests in the send queue.
        8 => max_send_wr: u32,
        /// Work requests in the receive queue.
        12 => max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        16 => max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        20 => max_recv_sge: u32,
        /// Bytes of inline data.
        24 => max_inline_data: u32,
        /// Zero.
        28 => reserved: u32,
    }

    /// The queue pair.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_ex_create_qp_resp: size 40, align 4 {
        /// The response of CREATE_QP.
        0 => base: ib_uverbs_create_qp_resp,
        /// 0.
        32 => comp_mask: u32,
        /// Bytes that the kernel filled.
        36 => response_length: u32,
    }

    /// A request for the attributes of a queue pair.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_query_qp: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => qp_handle: u32,
        /// The attributes that the response must have at least.
        12 => attr_mask: ib_qp_attr_mask,
    }

    /// Attributes of a queue pair.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_query_qp_resp: size 128, align 8 {
        /// The peer.
        0 => dest: ib_uverbs_qp_dest,
        /// The peer on the alternate path.
        32 => alt_dest: ib_uverbs_qp_dest,
        /// Work requests in the send queue.
        64 => max_send_wr: u32,
        /// Work requests in the receive queue.
        68 => max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        72 => max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        76 => max_recv_sge: u32,
        /// Bytes of inline data.
        80 => max_inline_data: u32,
        /// Q_Key.
        84 => qkey: u32,
        /// Packet sequence number that is expected, 24 bits.
        88 => rq_psn: u32,
        /// Packet sequence number that is sent next, 24 bits.
        92 => sq_psn: u32,
        /// Number of the peer's queue pair.
        96 => dest_qp_num: u32,
        /// The access rights of the peer.
        100 => qp_access_flags: ib_uverbs_access_flags,
        /// Index of the P_Key.
        104 => pkey_index: u16,
        /// Index of the P_Key on the alternate path.
        106 => alt_pkey_index: u16,
        /// State.
        108 => qp_state: ib_qp_state,
        /// State.
        109 => cur_qp_state: ib_qp_state,
        /// MTU of the path.
        110 => path_mtu: ib_mtu,
        /// State of path migration.
        111 => path_mig_state: ib_mig_state,
        /// 1 while an SQD queue pair finishes its sends.
        112 => sq_draining: u8,
        /// RDMA reads and atomics that the queue pair starts at a time.
        113 => max_rd_atomic: u8,
        /// RDMA reads and atomics that the queue pair serves at a time.
        114 => max_dest_rd_atomic: u8,
        /// Wait of a peer after an RNR NAK, in the encoding of the specification.
        115 => min_rnr_timer: u8,
        /// Port, from 1.
        116 => port_num: u8,
        /// Time to wait for an ACK: 4.096 us times two to this power; 0 means unlimited.
        117 => timeout: u8,
        /// Retries when the peer is silent, 0 to 7.
        118 => retry_cnt: u8,
        /// Retries when the peer has no receive posted, 0 to 7; 7 means unlimited.
        119 => rnr_retry: u8,
        /// Port of the alternate path.
        120 => alt_port_num: u8,
        /// Time to wait for an ACK on the alternate path.
        121 => alt_timeout: u8,
        /// 1: every send completes.
        122 => sq_sig_all: u8,
        /// Zero.
        123 => reserved: [u8; 5],
    }

    /// A request to destroy a queue pair; EBUSY while it is attached to a multicast group.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_destroy_qp: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Handle.
        8 => qp_handle: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// Number of events of the queue pair that have been read.
    ///
    /// The owner waits until that many events are acknowledged.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_destroy_qp_resp: size 4, align 4 {
        /// Asynchronous events.
        0 => events_reported: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_CREATE_QP for ib_uverbs_create_qp => ib_uverbs_create_qp_resp;
    extended IB_USER_VERBS_EX_CMD_CREATE_QP for ib_uverbs_ex_create_qp
        => ib_uverbs_ex_create_qp_resp;
    plain IB_USER_VERBS_CMD_OPEN_QP for ib_uverbs_open_qp => ib_uverbs_create_qp_resp;
    plain IB_USER_VERBS_CMD_QUERY_QP for ib_uverbs_query_qp => ib_uverbs_query_qp_resp;
    plain IB_USER_VERBS_CMD_DESTROY_QP for ib_uverbs_destroy_qp => ib_uverbs_destroy_qp_resp;
}

crate::abi_enum! {
    table: QP_TYPES, header: "rdma/ib_user_ioctl_verbs.h";

    /// Type of a queue pair.
    pub struct ib_uverbs_qp_type: u8 {
        /// Reliable connection.
        IB_UVERBS_QPT_RC = 2;
        /// Unreliable connection.
        IB_UVERBS_QPT_UC = 3;
        /// Unreliable datagrams.
        IB_UVERBS_QPT_UD = 4;
        /// Raw packets.
        IB_UVERBS_QPT_RAW_PACKET = 8;
        /// Extended reliable connection, the side that sends.
        IB_UVERBS_QPT_XRC_INI = 9;
        /// Extended reliable connection, the side that receives.
        IB_UVERBS_QPT_XRC_TGT = 10;
        /// A type of the driver's own.
        IB_UVERBS_QPT_DRIVER = 255;
    }
}

crate::abi_flags! {
    table: QP_CREATE_FLAGS, header: "rdma/ib_user_ioctl_verbs.h";

    /// Flags of the extended CREATE_QP.
    pub struct ib_uverbs_qp_create_flags: u32 {
        /// The queue pair does not receive its own multicasts.
        IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK = 1 << 1;
        /// Received packets include the frame check sequence.
        IB_UVERBS_QP_CREATE_SCATTER_FCS = 1 << 8;
        /// Received packets have their VLAN tag removed.
        IB_UVERBS_QP_CREATE_CVLAN_STRIPPING = 1 << 9;
        /// Incoming writes are padded to cache lines.
        IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11;
        /// Every send completes.
        IB_UVERBS_QP_CREATE_SQ_SIG_ALL = 1 << 12;
    }
}
