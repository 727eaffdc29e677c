//! The state of a queue pair and MODIFY_QP, which changes it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{command::commands, ib_mtu, ib_uverbs_access_flags, ib_uverbs_qp_dest};

crate::abi_structs! {
    table: QP_STATE_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to change the attributes of a queue pair that `attr_mask` names.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_modify_qp: size 112, align 8 {
        /// The peer.
        0 => dest: ib_uverbs_qp_dest,
        /// The peer on the alternate path.
        32 => alt_dest: ib_uverbs_qp_dest,
        /// Handle.
        64 => qp_handle: u32,
        /// The attributes to change.
        68 => attr_mask: ib_qp_attr_mask,
        /// Q_Key.
        72 => qkey: u32,
        /// First packet sequence number to expect, 24 bits.
        76 => rq_psn: u32,
        /// First packet sequence number to send, 24 bits.
        80 => sq_psn: u32,
        /// Number of the peer's queue pair.
        84 => dest_qp_num: u32,
        /// The access rights of the peer.
        88 => qp_access_flags: ib_uverbs_access_flags,
        /// Index of the P_Key.
        92 => pkey_index: u16,
        /// Index of the P_Key on the alternate path.
        94 => alt_pkey_index: u16,
        /// New state.
        96 => qp_state: ib_qp_state,
        /// Expected current state.
        97 => cur_qp_state: ib_qp_state,
        /// MTU of the path.
        98 => path_mtu: ib_mtu,
        /// State of path migration.
        99 => path_mig_state: ib_mig_state,
        /// 1: report `IB_EVENT_SQ_DRAINED` on the way to SQD.
        100 => en_sqd_async_notify: u8,
        /// RDMA reads and atomics that the queue pair starts at a time.
        101 => max_rd_atomic: u8,
        /// RDMA reads and atomics that the queue pair serves at a time.
        102 => max_dest_rd_atomic: u8,
        /// Wait of a peer after an RNR NAK, in the encoding of the specification.
        103 => min_rnr_timer: u8,
        /// Port, from 1.
        104 => port_num: u8,
        /// Time to wait for an ACK: 4.096 us times two to this power; 0 means unlimited.
        105 => timeout: u8,
        /// Retries when the peer is silent, 0 to 7.
        106 => retry_cnt: u8,
        /// Retries when the peer has no receive posted, 0 to 7; 7 means unlimited.
        107 => rnr_retry: u8,
        /// Port of the alternate path.
        108 => alt_port_num: u8,
        /// Time to wait for an ACK on the alternate path.
        109 => alt_timeout: u8,
        /// Zero.
        110 => reserved: [u8; 2],
    }

    /// The extended MODIFY_QP, with a rate limit.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_ex_modify_qp: size 120, align 8 {
        /// The request of MODIFY_QP, without its header.
        0 => base: ib_uverbs_modify_qp,
        /// Packet pacing in kbit/s.
        112 => rate_limit: u32,
        /// Zero.
        116 => reserved: u32,
    }

    /// The response of the extended MODIFY_QP.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_ex_modify_qp_resp: size 8, align 4 {
        /// 0.
        0 => comp_mask: u32,
        /// Bytes that the kernel filled.
        4 => response_length: u32,
    }
}

commands! {
    silent IB_USER_VERBS_CMD_MODIFY_QP for ib_uverbs_modify_qp;
    extended IB_USER_VERBS_EX_CMD_MODIFY_QP for ib_uverbs_ex_modify_qp
        => ib_uverbs_ex_modify_qp_resp;
}

crate::abi_enum! {
    /// State of a queue pair.
    pub struct ib_qp_state: u8 {
        /// The state after creation.
        IB_QPS_RESET = 0;
        /// Takes receives.
        IB_QPS_INIT = 1;
        /// Ready to receive.
        IB_QPS_RTR = 2;
        /// Ready to send.
        IB_QPS_RTS = 3;
        /// The send queue drains.
        IB_QPS_SQD = 4;
        /// The send queue had an error.
        IB_QPS_SQE = 5;
        /// Error: all work requests are flushed.
        IB_QPS_ERR = 6;
    }
}

crate::abi_enum! {
    /// State of path migration.
    pub struct ib_mig_state: u8 {
        /// Migrated; setting this state starts the migration.
        IB_MIG_MIGRATED = 0;
        /// The alternate path of this side is set and waits for that of the peer.
        IB_MIG_REARM = 1;
        /// Both sides have an alternate path.
        IB_MIG_ARMED = 2;
    }
}

crate::abi_flags! {
    /// Attributes of a queue pair.
    pub struct ib_qp_attr_mask: u32 {
        /// `qp_state`.
        IB_QP_STATE = 1 << 0;
        /// `cur_qp_state`.
        IB_QP_CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`.
        IB_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`.
        IB_QP_ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`.
        IB_QP_PKEY_INDEX = 1 << 4;
        /// `port_num`.
        IB_QP_PORT = 1 << 5;
        /// `qkey`.
        IB_QP_QKEY = 1 << 6;
        /// `dest`, the address of the peer.
        IB_QP_AV = 1 << 7;
        /// `path_mtu`.
        IB_QP_PATH_MTU = 1 << 8;
        /// `timeout`.
        IB_QP_TIMEOUT = 1 << 9;
        /// `retry_cnt`.
        IB_QP_RETRY_CNT = 1 << 10;
        /// `rnr_retry`.
        IB_QP_RNR_RETRY = 1 << 11;
        /// `rq_psn`.
        IB_QP_RQ_PSN = 1 << 12;
        /// `max_rd_atomic`.
        IB_QP_MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_dest`, `alt_pkey_index`, `alt_port_num`, `alt_timeout`.
        IB_QP_ALT_PATH = 1 << 14;
        /// `min_rnr_timer`.
        IB_QP_MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`.
        IB_QP_SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`.
        IB_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`.
        IB_QP_PATH_MIG_STATE = 1 << 18;
        /// The capacities of the queues; not by MODIFY_QP.
        IB_QP_CAP = 1 << 19;
        /// `dest_qp_num`.
        IB_QP_DEST_QPN = 1 << 20;
        /// `rate_limit` of the extended form.
        IB_QP_RATE_LIMIT = 1 << 25;
    }
}
