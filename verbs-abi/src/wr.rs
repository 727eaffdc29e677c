//! Work requests that are posted by way of the kernel.
//!
//! Drivers with a user-space data path do not take them: there POST_SEND with `wr_count` 0 is the doorbell of the
//! software devices. Opcodes and flags are the same in both cases.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands, union_member::union_members};

crate::abi_structs! {
    table: WR_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A scatter/gather entry.
    #[derive(Default, PartialEq, Eq, IntoBytes, Immutable)]
    pub struct ib_uverbs_sge: size 16, align 8 {
        /// Address in the memory region.
        0 => addr: AlignedU64,
        /// Length in bytes.
        8 => length: u32,
        /// Local key of the memory region.
        12 => lkey: u32,
    }

    /// A send.
    #[derive(Default, PartialEq, Eq, IntoBytes, Immutable)]
    pub struct ib_uverbs_send_wr: size 56, align 8 {
        /// The identifier that the completion returns.
        0 => wr_id: AlignedU64,
        /// Scatter/gather entries.
        8 => num_sge: u32,
        /// The operation.
        12 => opcode: ib_uverbs_wr_opcode,
        /// Flags of the request.
        16 => send_flags: ib_send_flags,
        /// Immediate data in network byte order, or the key to invalidate as an integer of this machine.
        20 => ex: [u8; 4],
        /// The part of the request that depends on the opcode and the type of the queue pair.
        ///
        /// [`ib_uverbs_send_wr_rdma`], [`ib_uverbs_send_wr_atomic`] and [`ib_uverbs_send_wr_ud`] convert into it.
        24 => wr: [u8; 32],
    }

    /// The part of a request for an RDMA write or read.
    #[derive(Default, PartialEq, Eq, IntoBytes, Immutable)]
    #[member("ib_uverbs_send_wr", "wr.rdma")]
    pub struct ib_uverbs_send_wr_rdma: size 16, align 8 {
        /// Address in the peer's memory region.
        0 => remote_addr: AlignedU64,
        /// Key of the peer's memory region.
        8 => rkey: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// The part of a request for an atomic operation.
    #[derive(Default, PartialEq, Eq, IntoBytes, Immutable)]
    #[member("ib_uverbs_send_wr", "wr.atomic")]
    pub struct ib_uverbs_send_wr_atomic: size 32, align 8 {
        /// Address in the peer's memory region.
        0 => remote_addr: AlignedU64,
        /// The value to compare with, or to add.
        8 => compare_add: AlignedU64,
        /// The value to store if the comparison holds.
        16 => swap: AlignedU64,
        /// Key of the peer's memory region.
        24 => rkey: u32,
        /// Zero.
        28 => reserved: u32,
    }

    /// The part of a request for a datagram.
    #[derive(Default, PartialEq, Eq, IntoBytes, Immutable)]
    #[member("ib_uverbs_send_wr", "wr.ud")]
    pub struct ib_uverbs_send_wr_ud: size 16, align 4 {
        /// Address handle.
        0 => ah: u32,
        /// Number of the peer's queue pair.
        4 => remote_qpn: u32,
        /// Q_Key of the peer's queue pair.
        8 => remote_qkey: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// A request to post sends.
    ///
    /// `wr_count` requests of `wqe_size` bytes follow, then `sge_count` [`ib_uverbs_sge`].
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_post_send: size 24, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Queue pair.
        8 => qp_handle: u32,
        /// Requests; 0 for a doorbell.
        12 => wr_count: u32,
        /// Scatter/gather entries of all requests together.
        16 => sge_count: u32,
        /// Bytes of a request, at least those of [`ib_uverbs_send_wr`], even for a doorbell.
        20 => wqe_size: u32,
    }

    /// The response of POST_SEND.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_post_send_resp: size 4, align 4 {
        /// Number, from 1, of the request that failed; 0 without failure.
        0 => bad_wr: u32,
    }

    /// A receive.
    #[derive(Default, PartialEq, Eq, IntoBytes, Immutable)]
    pub struct ib_uverbs_recv_wr: size 16, align 8 {
        /// The identifier that the completion returns.
        0 => wr_id: AlignedU64,
        /// Scatter/gather entries.
        8 => num_sge: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// A request to post receives.
    ///
    /// `wr_count` requests of `wqe_size` bytes follow, then `sge_count` [`ib_uverbs_sge`].
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_post_recv: size 24, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Queue pair.
        8 => qp_handle: u32,
        /// Requests.
        12 => wr_count: u32,
        /// Scatter/gather entries of all requests together.
        16 => sge_count: u32,
        /// Bytes of a request, at least those of [`ib_uverbs_recv_wr`].
        20 => wqe_size: u32,
    }

    /// The response of POST_RECV.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_post_recv_resp: size 4, align 4 {
        /// Number, from 1, of the request that failed; 0 without failure.
        0 => bad_wr: u32,
    }

    /// A request to post receives to a shared receive queue, in the form of [`ib_uverbs_post_recv`].
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_post_srq_recv: size 24, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Shared receive queue.
        8 => srq_handle: u32,
        /// Requests.
        12 => wr_count: u32,
        /// Scatter/gather entries of all requests together.
        16 => sge_count: u32,
        /// Bytes of a request, at least those of [`ib_uverbs_recv_wr`].
        20 => wqe_size: u32,
    }

    /// The response of POST_SRQ_RECV.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_post_srq_recv_resp: size 4, align 4 {
        /// Number, from 1, of the request that failed; 0 without failure.
        0 => bad_wr: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_POST_SEND for ib_uverbs_post_send => ib_uverbs_post_send_resp;
    plain IB_USER_VERBS_CMD_POST_RECV for ib_uverbs_post_recv => ib_uverbs_post_recv_resp;
    plain IB_USER_VERBS_CMD_POST_SRQ_RECV for ib_uverbs_post_srq_recv
        => ib_uverbs_post_srq_recv_resp;
}

union_members! {
    [u8; 32]: ib_uverbs_send_wr_rdma, ib_uverbs_send_wr_atomic, ib_uverbs_send_wr_ud;
}

crate::abi_enum! {
    table: WR_OPCODES, header: "rdma/ib_user_verbs.h";

    /// The operation of a send request.
    pub struct ib_uverbs_wr_opcode: u32 {
        /// RDMA write.
        IB_UVERBS_WR_RDMA_WRITE = 0;
        /// RDMA write that consumes a receive of the peer.
        IB_UVERBS_WR_RDMA_WRITE_WITH_IMM = 1;
        /// Send.
        IB_UVERBS_WR_SEND = 2;
        /// Send with immediate data.
        IB_UVERBS_WR_SEND_WITH_IMM = 3;
        /// RDMA read.
        IB_UVERBS_WR_RDMA_READ = 4;
        /// Compare and swap.
        IB_UVERBS_WR_ATOMIC_CMP_AND_SWP = 5;
        /// Fetch and add.
        IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD = 6;
        /// Invalidates a local key.
        IB_UVERBS_WR_LOCAL_INV = 7;
        /// Binds a memory window.
        IB_UVERBS_WR_BIND_MW = 8;
        /// Send that invalidates a key of the peer.
        IB_UVERBS_WR_SEND_WITH_INV = 9;
        /// TCP segmentation offload.
        IB_UVERBS_WR_TSO = 10;
        /// RDMA read that invalidates the local key.
        IB_UVERBS_WR_RDMA_READ_WITH_INV = 11;
        /// Compare and swap under a mask.
        IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP = 12;
        /// Fetch and add under a mask.
        IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD = 13;
        /// Flush.
        #[since("6.2")]
        IB_UVERBS_WR_FLUSH = 14;
        /// Atomic write of 8 bytes.
        #[since("6.2")]
        IB_UVERBS_WR_ATOMIC_WRITE = 15;
    }
}

crate::abi_flags! {
    /// Flags of a send.
    pub struct ib_send_flags: u32 {
        /// The request waits for earlier RDMA reads and atomics.
        IB_SEND_FENCE = 1 << 0;
        /// A success creates a completion too.
        IB_SEND_SIGNALED = 1 << 1;
        /// The peer's completion is solicited.
        IB_SEND_SOLICITED = 1 << 2;
        /// The data is in the request itself.
        IB_SEND_INLINE = 1 << 3;
        /// The device inserts checksums.
        IB_SEND_IP_CSUM = 1 << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn union_members_start_at_its_first_byte() {
        let rdma = ib_uverbs_send_wr_rdma { remote_addr: 0x11.into(), rkey: 0x22, reserved: 0 };
        let wr: [u8; 32] = rdma.into();
        assert_eq!(wr[..8], 0x11_u64.to_ne_bytes());
        assert_eq!(wr[8..12], 0x22_u32.to_ne_bytes());
        assert_eq!(wr[12..], [0; 20]);
    }
}
