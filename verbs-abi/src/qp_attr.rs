//! Queue pair attributes and addresses.
//!
//! MODIFY_QP and QUERY_QP exchange them, and the connection manager reports them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

crate::abi_structs! {
    table: QP_ATTR_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// The peer of a queue pair, as QUERY_QP reports it and MODIFY_QP takes it.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_qp_dest: size 32, align 4 {
        /// GID of the destination.
        0 => dgid: [u8; 16],
        /// Flow label, 20 bits.
        16 => flow_label: u32,
        /// LID of the destination; 0 on RoCE.
        20 => dlid: u16,
        /// Zero.
        22 => reserved: u16,
        /// Index of the source GID in the port's table.
        24 => sgid_index: u8,
        /// Hop limit.
        25 => hop_limit: u8,
        /// Traffic class.
        26 => traffic_class: u8,
        /// Service level.
        27 => sl: u8,
        /// Low bits of the source LID.
        28 => src_path_bits: u8,
        /// Static rate, an `ib_rate`.
        29 => static_rate: u8,
        /// 1 if the global route (`dgid` ... `traffic_class`) is valid.
        30 => is_global: u8,
        /// Port, from 1.
        31 => port_num: u8,
    }

    /// The global route of an address: the GRH.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_global_route: size 24, align 4 {
        /// GID of the destination.
        0 => dgid: [u8; 16],
        /// Flow label, 20 bits.
        16 => flow_label: u32,
        /// Index of the source GID in the port's table.
        20 => sgid_index: u8,
        /// Hop limit.
        21 => hop_limit: u8,
        /// Traffic class.
        22 => traffic_class: u8,
        /// Zero.
        23 => reserved: u8,
    }

    /// An address vector.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_ah_attr: size 32, align 4 {
        /// The global route, if `is_global` is 1.
        0 => grh: ib_uverbs_global_route,
        /// LID of the destination; 0 on RoCE.
        24 => dlid: u16,
        /// Service level.
        26 => sl: u8,
        /// Low bits of the source LID.
        27 => src_path_bits: u8,
        /// Static rate, an `ib_rate`.
        28 => static_rate: u8,
        /// 1 if `grh` is valid.
        29 => is_global: u8,
        /// Port, from 1.
        30 => port_num: u8,
        /// Zero.
        31 => reserved: u8,
    }

    /// Attributes of a queue pair with the mask of the valid ones.
    ///
    /// It is the response of the connection manager's INIT_QP_ATTR.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_qp_attr: size 144, align 4 {
        /// The valid attributes: `IB_QP_STATE` and similar flags.
        0 => qp_attr_mask: u32,
        /// New state.
        4 => qp_state: u32,
        /// Expected current state.
        8 => cur_qp_state: u32,
        /// Path MTU, an `ib_mtu`: 1 is 256 bytes, 5 is 4096.
        12 => path_mtu: u32,
        /// Path migration state.
        16 => path_mig_state: u32,
        /// Q_Key of a datagram queue pair.
        20 => qkey: u32,
        /// First packet sequence number to expect, 24 bits.
        24 => rq_psn: u32,
        /// First packet sequence number to send, 24 bits.
        28 => sq_psn: u32,
        /// Queue pair number of the peer, 24 bits.
        32 => dest_qp_num: u32,
        /// The access rights of the peer: `IB_ACCESS_REMOTE_WRITE` and similar flags.
        36 => qp_access_flags: u32,
        /// Address of the peer.
        40 => ah_attr: ib_uverbs_ah_attr,
        /// Address of the peer on the alternate path.
        72 => alt_ah_attr: ib_uverbs_ah_attr,
        /// Work requests that the send queue holds.
        104 => max_send_wr: u32,
        /// Work requests that the receive queue holds.
        108 => max_recv_wr: u32,
        /// Scatter/gather entries of a send.
        112 => max_send_sge: u32,
        /// Scatter/gather entries of a receive.
        116 => max_recv_sge: u32,
        /// Bytes that a send may carry inline.
        120 => max_inline_data: u32,
        /// Index of the P_Key in the port's table.
        124 => pkey_index: u16,
        /// Index of the alternate path's P_Key.
        126 => alt_pkey_index: u16,
        /// 1 to request an event when the send queue has drained.
        128 => en_sqd_async_notify: u8,
        /// 1 while the send queue drains.
        129 => sq_draining: u8,
        /// RDMA reads and atomics that may be outstanding toward the peer.
        130 => max_rd_atomic: u8,
        /// RDMA reads and atomics that the peer may have outstanding here.
        131 => max_dest_rd_atomic: u8,
        /// Minimum RNR NAK timer, an exponent of the InfiniBand table.
        132 => min_rnr_timer: u8,
        /// Port, from 1.
        133 => port_num: u8,
        /// Local ACK timeout: 4.096 us times two to this power; 0 means unlimited.
        134 => timeout: u8,
        /// Retries after a timeout, 0 to 7.
        135 => retry_cnt: u8,
        /// Retries after an RNR NAK, 0 to 7; 7 means unlimited.
        136 => rnr_retry: u8,
        /// Port of the alternate path.
        137 => alt_port_num: u8,
        /// Local ACK timeout of the alternate path.
        138 => alt_timeout: u8,
        /// Zero.
        139 => reserved: [u8; 5],
    }
}
