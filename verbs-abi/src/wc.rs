//! Work completions.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, Be32};

crate::abi_structs! {
    table: WC_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A work completion. On failure only `wr_id`, `status`, `vendor_err` and `qp_num` are valid.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_wc: size 48, align 8 {
        /// Identifier of the work request.
        0 => wr_id: AlignedU64,
        /// Status of the work request.
        8 => status: ib_wc_status,
        /// The operation of the request.
        12 => opcode: ib_uverbs_wc_opcode,
        /// The vendor's error code of a failure.
        16 => vendor_err: u32,
        /// Bytes received, read, or fetched.
        20 => byte_len: u32,
        /// Immediate data or invalidated key: see [`imm_data`](Self::imm_data) and
        /// [`invalidate_rkey`](Self::invalidate_rkey).
        24 => ex: [u8; 4],
        /// Local queue pair.
        28 => qp_num: u32,
        /// Queue pair of the sender, for datagrams.
        32 => src_qp: u32,
        /// Flags of the completion.
        36 => wc_flags: ib_wc_flags,
        /// Index of the P_Key, on GSI queue pairs.
        40 => pkey_index: u16,
        /// LID of the sender, for datagrams.
        42 => slid: u16,
        /// Service level, for datagrams.
        44 => sl: u8,
        /// Low bits of the local LID, for datagrams.
        45 => dlid_path_bits: u8,
        /// Port, on switches.
        46 => port_num: u8,
        /// Zero.
        47 => reserved: u8,
    }
}

impl ib_uverbs_wc {
    /// Returns the immediate data, if `IB_WC_WITH_IMM` is set.
    pub const fn imm_data(&self) -> Option<Be32> {
        if self.wc_flags.contains(ib_wc_flags::IB_WC_WITH_IMM) {
            Some(Be32::new(u32::from_be_bytes(self.ex)))
        } else {
            None
        }
    }

    /// Returns the key that the peer invalidated, if `IB_WC_WITH_INVALIDATE` is set.
    pub const fn invalidate_rkey(&self) -> Option<u32> {
        if self.wc_flags.contains(ib_wc_flags::IB_WC_WITH_INVALIDATE) {
            Some(u32::from_ne_bytes(self.ex))
        } else {
            None
        }
    }
}

crate::abi_enum! {
    /// Status of a work request.
    pub struct ib_wc_status: u32 {
        /// Success.
        IB_WC_SUCCESS = 0;
        /// The message and the local buffer do not fit.
        IB_WC_LOC_LEN_ERR = 1;
        /// The queue pair could not process the request.
        IB_WC_LOC_QP_OP_ERR = 2;
        /// The end-to-end context could not process the request.
        IB_WC_LOC_EEC_OP_ERR = 3;
        /// A local buffer is not in a region that allows the access.
        IB_WC_LOC_PROT_ERR = 4;
        /// The queue pair was in ERR before the request was done.
        IB_WC_WR_FLUSH_ERR = 5;
        /// A memory window could not be bound.
        IB_WC_MW_BIND_ERR = 6;
        /// The peer's response made no sense.
        IB_WC_BAD_RESP_ERR = 7;
        /// A buffer for incoming data does not allow it.
        IB_WC_LOC_ACCESS_ERR = 8;
        /// The peer found the request invalid.
        IB_WC_REM_INV_REQ_ERR = 9;
        /// The peer's memory does not allow the access.
        IB_WC_REM_ACCESS_ERR = 10;
        /// The peer could not complete the request.
        IB_WC_REM_OP_ERR = 11;
        /// The peer did not answer after `retry_cnt` retries.
        IB_WC_RETRY_EXC_ERR = 12;
        /// The peer had no receive posted after `rnr_retry` retries.
        IB_WC_RNR_RETRY_EXC_ERR = 13;
        /// Violation of a reliable datagram domain.
        IB_WC_LOC_RDD_VIOL_ERR = 14;
        /// The peer found a reliable datagram invalid.
        IB_WC_REM_INV_RD_REQ_ERR = 15;
        /// The peer aborted the operation.
        IB_WC_REM_ABORT_ERR = 16;
        /// Invalid number of an end-to-end context.
        IB_WC_INV_EECN_ERR = 17;
        /// Invalid state of an end-to-end context.
        IB_WC_INV_EEC_STATE_ERR = 18;
        /// A fatal error.
        IB_WC_FATAL_ERR = 19;
        /// The response did not arrive in time.
        IB_WC_RESP_TIMEOUT_ERR = 20;
        /// Another error.
        IB_WC_GENERAL_ERR = 21;
    }
}

crate::abi_enum! {
    table: WC_OPCODES, header: "rdma/ib_user_verbs.h";

    /// The operation of a completed work request.
    pub struct ib_uverbs_wc_opcode: u32 {
        /// Send.
        IB_UVERBS_WC_SEND = 0;
        /// RDMA write.
        IB_UVERBS_WC_RDMA_WRITE = 1;
        /// RDMA read.
        IB_UVERBS_WC_RDMA_READ = 2;
        /// Compare and swap.
        IB_UVERBS_WC_COMP_SWAP = 3;
        /// Fetch and add.
        IB_UVERBS_WC_FETCH_ADD = 4;
        /// Bind of a memory window.
        IB_UVERBS_WC_BIND_MW = 5;
        /// Local invalidation.
        IB_UVERBS_WC_LOCAL_INV = 6;
        /// TCP segmentation offload.
        IB_UVERBS_WC_TSO = 7;
        /// Flush.
        #[since("6.2")]
        IB_UVERBS_WC_FLUSH = 8;
        /// Atomic write.
        #[since("6.2")]
        IB_UVERBS_WC_ATOMIC_WRITE = 9;
    } kernel {
        /// Receive of a send. All receives have this bit set.
        IB_WC_RECV = 128;
        /// Receive that an RDMA write with immediate data consumed.
        IB_WC_RECV_RDMA_WITH_IMM = 129;
    }
}

crate::abi_flags! {
    /// Flags of a completion.
    pub struct ib_wc_flags: u32 {
        /// The first 40 bytes of the buffer are the GRH, or room for it.
        IB_WC_GRH = 1 << 0;
        /// Immediate data.
        IB_WC_WITH_IMM = 1 << 1;
        /// The peer invalidated a key.
        IB_WC_WITH_INVALIDATE = 1 << 2;
        /// The checksums are right.
        IB_WC_IP_CSUM_OK = 1 << 3;
        /// The sender's MAC address is known.
        IB_WC_WITH_SMAC = 1 << 4;
        /// The VLAN is known.
        IB_WC_WITH_VLAN = 1 << 5;
        /// The kind of network header is known.
        IB_WC_WITH_NETWORK_HDR_TYPE = 1 << 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ex_is_read_by_flags() {
        let mut wc = ib_uverbs_wc { ex: [1, 2, 3, 4], ..Default::default() };
        assert_eq!((wc.imm_data(), wc.invalidate_rkey()), (None, None));
        wc.wc_flags = ib_wc_flags::IB_WC_WITH_IMM;
        assert_eq!(wc.imm_data(), Some(Be32::new(0x0102_0304)));
        assert_eq!(wc.invalidate_rkey(), None);
        wc.wc_flags = ib_wc_flags::IB_WC_WITH_INVALIDATE;
        assert_eq!(wc.imm_data(), None);
        assert_eq!(wc.invalidate_rkey(), Some(u32::from_ne_bytes([1, 2, 3, 4])));
    }
}
