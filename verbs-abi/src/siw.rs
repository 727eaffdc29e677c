//! The data path of siw, software iWARP: the driver's part of commands, and the rings.
//!
//! A ring is memory of the kernel that is mapped from the context's descriptor with a key as the offset. It is an array
//! of elements without a header. The number of elements is a power of two, and element n of the stream is at n modulo
//! that number. The flag [`siw_wqe_flags::SIW_WQE_VALID`], which is stored last, passes an element to the other side.
//! [`siw_cq_ctrl`] follows the elements of a completion queue.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::AlignedU64;

crate::abi_constants! {
    table: SIW_CONSTANTS, header: "rdma/siw-abi.h";

    /// Version of this ABI.
    SIW_ABI_VERSION: u32 = 1;
    /// Scatter/gather entries of an element.
    SIW_MAX_SGE: usize = 6;
    /// Maximum bytes of inline data, in all entries except the first.
    SIW_MAX_INLINE: usize = 80;
    /// The largest key.
    SIW_UOBJ_MAX_KEY: u64 = 0x08_ffff;
    /// The value that means no key; 0 is a valid key.
    SIW_INVAL_UOBJ_KEY: u64 = 0x09_0000;
}

crate::abi_structs! {
    table: SIW_LAYOUT, header: "rdma/siw-abi.h";

    /// The driver's response of GET_CONTEXT.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_uresp_alloc_ctx: size 8, align 4 {
        /// Number of the device.
        0 => dev_id: u32,
        /// Zero.
        4 => pad: u32,
    }

    /// The driver's response of CREATE_CQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_uresp_create_cq: size 16, align 8 {
        /// Number of the queue.
        0 => cq_id: u32,
        /// Elements.
        4 => num_cqe: u32,
        /// Key of the ring.
        8 => cq_key: AlignedU64,
    }

    /// The driver's response of CREATE_QP.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_uresp_create_qp: size 32, align 8 {
        /// Number of the queue pair.
        0 => qp_id: u32,
        /// Elements of the ring of sends.
        4 => num_sqe: u32,
        /// Elements of the ring of receives.
        8 => num_rqe: u32,
        /// Zero.
        12 => pad: u32,
        /// Key of the ring of sends.
        16 => sq_key: AlignedU64,
        /// Key of the ring of receives; 0 with a shared receive queue.
        24 => rq_key: AlignedU64,
    }

    /// The driver's response of CREATE_SRQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_uresp_create_srq: size 16, align 8 {
        /// Elements.
        0 => num_rqe: u32,
        /// Zero.
        4 => pad: u32,
        /// Key of the ring.
        8 => srq_key: AlignedU64,
    }

    /// The driver's request of REG_MR. It is required.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct siw_ureq_reg_mr: size 8, align 4 {
        /// Low 8 bits of the steering tag, chosen by the caller.
        0 => stag_key: u8,
        /// Zero.
        1 => reserved: [u8; 3],
        /// Zero.
        4 => pad: u32,
    }

    /// The driver's response of REG_MR. It is required.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_uresp_reg_mr: size 8, align 4 {
        /// Steering tag: both keys of the region.
        0 => stag: u32,
        /// Zero.
        4 => pad: u32,
    }

    /// A scatter/gather entry.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_sge: size 16, align 8 {
        /// Address in the memory region.
        0 => laddr: AlignedU64,
        /// Length in bytes.
        8 => length: u32,
        /// Local key of the memory region.
        12 => lkey: u32,
    }

    /// An element of a ring of sends.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_sqe: size 120, align 8 {
        /// The identifier that the completion returns.
        0 => id: AlignedU64,
        /// Flags of the request.
        8 => flags: siw_wqe_flags,
        /// Scatter/gather entries.
        10 => num_sge: u8,
        /// The operation.
        11 => opcode: siw_opcode,
        /// Key of the peer's memory region, or the key to invalidate.
        12 => rkey: u32,
        /// Address in the peer's memory region.
        16 => raddr: AlignedU64,
        /// The data. Inline data is stored from `sge[1]` on, and its length in `sge[0].length`.
        24 => sge: [siw_sge; SIW_MAX_SGE],
    }

    /// An element of a ring of receives.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_rqe: size 112, align 8 {
        /// The identifier that the completion returns.
        0 => id: AlignedU64,
        /// Only `SIW_WQE_VALID`.
        8 => flags: siw_wqe_flags,
        /// Scatter/gather entries.
        10 => num_sge: u8,
        /// Used by the kernel only.
        11 => opcode: siw_opcode,
        /// Zero.
        12 => unused: u32,
        /// The data.
        16 => sge: [siw_sge; SIW_MAX_SGE],
    }

    /// An element of a completion queue.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_cqe: size 32, align 8 {
        /// Identifier of the request.
        0 => id: AlignedU64,
        /// Flags of a work request: `SIW_WQE_VALID`, or 0 if the element is free.
        ///
        /// The kernel also sets `SIW_WQE_REM_INVAL`, but only in queues of kernel users.
        8 => flags: u8,
        /// The operation of the request.
        9 => opcode: siw_opcode,
        /// Status of the work request.
        10 => status: siw_wc_status,
        /// Bytes transferred.
        12 => bytes: u32,
        /// Immediate data, which siw does not have, or the invalidated key: see [`inval_stag`](Self::inval_stag).
        16 => imm_data: [u8; 8],
        /// Number of the queue pair.
        24 => qp_id: AlignedU64,
    }

    /// The word that arms a completion queue.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct siw_cq_ctrl: size 8, align 4 {
        /// The completions for which the kernel reports an event; it clears the flags with the event.
        0 => flags: siw_notify_flags,
        /// Zero.
        4 => pad: u32,
    }
}

impl siw_cqe {
    /// Returns the steering tag that the peer invalidated, if `SIW_WQE_REM_INVAL` is set.
    pub const fn inval_stag(&self) -> Option<u32> {
        // The casts widen: u8 holds every flag there is.
        if siw_wqe_flags::from_bits_retain(self.flags as u16)
            .contains(siw_wqe_flags::SIW_WQE_REM_INVAL)
        {
            let [a, b, c, d, ..] = self.imm_data;
            Some(u32::from_ne_bytes([a, b, c, d]))
        } else {
            None
        }
    }
}

crate::abi_enum! {
    table: SIW_OPCODES, header: "rdma/siw-abi.h";

    /// The operation of a work request.
    pub struct siw_opcode: u8 {
        /// RDMA write.
        SIW_OP_WRITE = 0;
        /// RDMA read.
        SIW_OP_READ = 1;
        /// RDMA read that invalidates the local key.
        SIW_OP_READ_LOCAL_INV = 2;
        /// Send.
        SIW_OP_SEND = 3;
        /// Send with immediate data; not implemented.
        SIW_OP_SEND_WITH_IMM = 4;
        /// Send that invalidates a key of the peer.
        SIW_OP_SEND_REMOTE_INV = 5;
        /// Fetch and add; not implemented.
        SIW_OP_FETCH_AND_ADD = 6;
        /// Compare and swap; not implemented.
        SIW_OP_COMP_AND_SWAP = 7;
        /// Receive.
        SIW_OP_RECEIVE = 8;
        /// The driver's own: the answer to an RDMA read.
        SIW_OP_READ_RESPONSE = 9;
        /// Local invalidation; for the kernel only.
        SIW_OP_INVAL_STAG = 10;
        /// Fast registration; for the kernel only.
        SIW_OP_REG_MR = 11;
    }
}

crate::abi_flags! {
    table: SIW_WQE_FLAGS, header: "rdma/siw-abi.h";

    /// Flags of a work request, and of the owner of its element.
    pub struct siw_wqe_flags: u16 {
        /// The element is filled.
        SIW_WQE_VALID = 1 << 0;
        /// The data is in the element.
        SIW_WQE_INLINE = 1 << 1;
        /// A success creates a completion too.
        SIW_WQE_SIGNALLED = 1 << 2;
        /// The peer's completion is solicited.
        SIW_WQE_SOLICITED = 1 << 3;
        /// The request waits for earlier RDMA reads.
        SIW_WQE_READ_FENCE = 1 << 4;
        /// A key is, or was, invalidated.
        SIW_WQE_REM_INVAL = 1 << 5;
        /// Used by the kernel only: done, but not yet complete.
        SIW_WQE_COMPLETED = 1 << 6;
    }
}

crate::abi_flags! {
    table: SIW_NOTIFY_FLAGS, header: "rdma/siw-abi.h";

    /// The completions for which an event is reported.
    pub struct siw_notify_flags: u32 {
        /// The next solicited completion.
        SIW_NOTIFY_SOLICITED = 1 << 0;
        /// The next completion.
        SIW_NOTIFY_NEXT_COMPLETION = 1 << 1;
        /// Completions that arrived before the queue was armed; not implemented.
        SIW_NOTIFY_MISSED_EVENTS = 1 << 2;
    }
}

crate::abi_enum! {
    table: SIW_WC_STATUS, header: "rdma/siw-abi.h";

    /// Status of a work request. The numbers differ from those of [`ib_wc_status`](crate::ib_wc_status).
    pub struct siw_wc_status: u16 {
        /// Success.
        SIW_WC_SUCCESS = 0;
        /// The message and the local buffer do not fit.
        SIW_WC_LOC_LEN_ERR = 1;
        /// A local buffer is not in a region that allows the access.
        SIW_WC_LOC_PROT_ERR = 2;
        /// The queue pair could not process the request.
        SIW_WC_LOC_QP_OP_ERR = 3;
        /// The queue pair was in error before the request was done.
        SIW_WC_WR_FLUSH_ERR = 4;
        /// The peer's response made no sense.
        SIW_WC_BAD_RESP_ERR = 5;
        /// A buffer for incoming data does not allow it.
        SIW_WC_LOC_ACCESS_ERR = 6;
        /// The peer's memory does not allow the access.
        SIW_WC_REM_ACCESS_ERR = 7;
        /// The peer found the request invalid.
        SIW_WC_REM_INV_REQ_ERR = 8;
        /// Another error.
        SIW_WC_GENERAL_ERR = 9;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalidated_key_is_read_by_flags() {
        let mut cqe = siw_cqe { imm_data: [1, 2, 3, 4, 9, 9, 9, 9], ..Default::default() };
        assert_eq!(cqe.inval_stag(), None);
        cqe.flags = 0x21;
        assert_eq!(cqe.inval_stag(), Some(u32::from_ne_bytes([1, 2, 3, 4])));
    }
}
