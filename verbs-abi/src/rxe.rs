//! The data path of rxe, software RoCE: the driver's part of commands, and the rings.
//!
//! A ring is memory of the kernel that is mapped from the context's descriptor at the offset that [`mminfo`] gives. It
//! starts with [`rxe_queue_buf`]; elements of `1 << log2_elem_size` bytes follow. The program stores `producer_index`
//! of a work queue and `consumer_index` of a completion queue; the kernel stores the other index. Both are below the
//! number of elements; a ring is full with one element free. Elements are [`rxe_send_wqe`], [`rxe_recv_wqe`] and
//! [`ib_uverbs_wc`](crate::ib_uverbs_wc).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    AlignedU64, ib_send_flags, ib_uverbs_access_flags, ib_uverbs_wr_opcode,
    union_member::union_members,
};

crate::abi_structs! {
    table: RXE_LAYOUT, header: "rdma/rdma_user_rxe.h";

    /// A ring to map. It can be mapped once.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mminfo: size 16, align 8 {
        /// Offset for mmap on the descriptor of the context.
        0 => offset: AlignedU64,
        /// Length in bytes.
        8 => size: u32,
        /// Zero.
        12 => pad: u32,
    }

    /// The driver's response of CREATE_CQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_create_cq_resp: size 16, align 8 {
        /// The ring.
        0 => mi: mminfo,
    }

    /// The driver's response of RESIZE_CQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_resize_cq_resp: size 16, align 8 {
        /// The ring, in place of the old one.
        0 => mi: mminfo,
    }

    /// The driver's response of CREATE_QP.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_create_qp_resp: size 32, align 8 {
        /// The ring of receives; not written with a shared receive queue.
        0 => rq_mi: mminfo,
        /// The ring of sends.
        16 => sq_mi: mminfo,
    }

    /// The driver's response of CREATE_SRQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_create_srq_resp: size 24, align 8 {
        /// The ring.
        0 => mi: mminfo,
        /// Number of the queue.
        16 => srq_num: u32,
        /// Zero.
        20 => reserved: u32,
    }

    /// The driver's request of MODIFY_SRQ. It is always required.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct rxe_modify_srq_cmd: size 8, align 8 {
        /// Address at which the kernel stores the [`mminfo`] of the new ring.
        ///
        /// It is required with `IB_SRQ_MAX_WR`; otherwise it may be 0.
        0 => mmap_info_addr: AlignedU64,
    }

    /// The driver's response of CREATE_AH.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_create_ah_resp: size 8, align 4 {
        /// Number of the address handle for [`rxe_send_wr_ud`]; 0 from a kernel that needs the address there.
        0 => ah_num: u32,
        /// Zero.
        4 => reserved: u32,
    }

    /// The start of a ring.
    ///
    /// The kernel stores to it at any time. The type gives its size and offsets; do not read it as a whole.
    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_queue_buf: size 384, align 4 {
        /// Size of an element: 2 to this power.
        0 => log2_elem_size: u32,
        /// Number of elements, a power of two, less one.
        4 => index_mask: u32,
        /// Up to the next cache line.
        8 => pad_1: [u32; 30],
        /// Element that is filled next.
        128 => producer_index: u32,
        /// Up to the next cache line.
        132 => pad_2: [u32; 31],
        /// Element that is taken next.
        256 => consumer_index: u32,
        /// Up to the next cache line.
        260 => pad_3: [u32; 31],
    }

    /// A scatter/gather entry.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_sge: size 16, align 8 {
        /// Address in the memory region.
        0 => addr: AlignedU64,
        /// Length in bytes.
        8 => length: u32,
        /// Local key of the memory region.
        12 => lkey: u32,
    }

    /// The data of an element. It is followed by `num_sge` [`rxe_sge`], or inline data.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_dma_info: size 24, align 8 {
        /// Total number of bytes.
        0 => length: u32,
        /// Remaining bytes: `length` in a new element.
        4 => resid: u32,
        /// Index of the current entry: 0 in a new element.
        8 => cur_sge: u32,
        /// Entries; 0 with inline data.
        12 => num_sge: u32,
        /// Processed bytes of the current entry: 0 in a new element.
        16 => sge_offset: u32,
        /// Zero.
        20 => reserved: u32,
    }

    /// The global route of an address.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_global_route: size 24, align 8, i386 4 {
        /// GID of the destination.
        0 => dgid: [u8; 16],
        /// Flow label, 20 bits.
        16 => flow_label: u32,
        /// Index of the source GID.
        20 => sgid_index: u8,
        /// Hop limit.
        21 => hop_limit: u8,
        /// Traffic class.
        22 => traffic_class: u8,
        /// The compiler's padding.
        #[place(Padding)]
        23 => reserved: u8,
    }

    /// The address of a datagram's destination, for a kernel that gives no `ah_num`.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_av: size 88, align 8, i386 4 {
        /// Port, from 1.
        0 => port_num: u8,
        /// [`RXE_NETWORK_TYPE_IPV4`] or [`RXE_NETWORK_TYPE_IPV6`].
        1 => network_type: u8,
        /// MAC address of the destination.
        2 => dmac: [u8; 6],
        /// Global route.
        8 => grh: rxe_global_route,
        /// Source: a `sockaddr_in` or `sockaddr_in6`.
        32 => sgid_addr: [u8; 28],
        /// Destination: a `sockaddr_in` or `sockaddr_in6`.
        60 => dgid_addr: [u8; 28],
    }

    /// A send.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_send_wr: size 144, align 8 {
        /// The identifier that the completion returns.
        0 => wr_id: AlignedU64,
        /// Zero.
        8 => reserved: u32,
        /// The operation.
        12 => opcode: ib_uverbs_wr_opcode,
        /// Flags of the request.
        16 => send_flags: ib_send_flags,
        /// Immediate data in network byte order, or the key to invalidate as an integer of this machine.
        20 => ex: [u8; 4],
        /// The part of the request that depends on the opcode and the type of the queue pair.
        ///
        /// [`rxe_send_wr_rdma`], [`rxe_send_wr_atomic`], [`rxe_send_wr_flush`], [`rxe_send_wr_ud`] and
        /// [`rxe_send_wr_mw`] convert into it.
        24 => wr: [u8; 120],
    }

    /// The part of a request for an RDMA write, RDMA read or atomic write.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[member("rxe_send_wr", "wr.rdma")]
    pub struct rxe_send_wr_rdma: size 16, align 8 {
        /// Address in the peer's memory region.
        0 => remote_addr: AlignedU64,
        /// Key of the peer's memory region.
        8 => rkey: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// The part of a request for an atomic operation.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[member("rxe_send_wr", "wr.atomic")]
    pub struct rxe_send_wr_atomic: size 32, align 8 {
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

    /// The part of a request for a flush.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[since("6.2")]
    #[member("rxe_send_wr", "wr.flush")]
    pub struct rxe_send_wr_flush: size 24, align 8 {
        /// Address in the peer's memory region.
        0 => remote_addr: AlignedU64,
        /// Length in bytes.
        8 => length: u32,
        /// Key of the peer's memory region.
        12 => rkey: u32,
        /// Placement: bit 0 global visibility, bit 1 persistence.
        16 => r#type: u8,
        /// The extent of the flush: 0 for the range, 1 for the whole region.
        17 => level: u8,
        /// The compiler's padding.
        #[place(Padding)]
        18 => reserved: [u8; 6],
    }

    /// The part of a request for a datagram.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[member("rxe_send_wr", "wr.ud")]
    pub struct rxe_send_wr_ud: size 120, align 8, i386 4 {
        /// Number of the peer's queue pair.
        0 => remote_qpn: u32,
        /// Q_Key of the peer's queue pair.
        4 => remote_qkey: u32,
        /// Index of the P_Key, on GSI queue pairs.
        8 => pkey_index: u16,
        /// Zero.
        10 => reserved: u16,
        /// Address handle, from CREATE_AH; 0: the address is in `av`.
        12 => ah_num: u32,
        /// Zero.
        16 => pad: [u32; 4],
        /// The address, if `ah_num` is 0.
        32 => av: rxe_av,
    }

    /// The part of a request to bind a memory window.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[member("rxe_send_wr", "wr.mw")]
    pub struct rxe_send_wr_mw: size 32, align 8 {
        /// First address of the window.
        0 => addr: AlignedU64,
        /// Length in bytes.
        8 => length: AlignedU64,
        /// Local key of the memory region.
        16 => mr_lkey: u32,
        /// Key that the window has.
        20 => mw_rkey: u32,
        /// Key that the window gets.
        24 => rkey: u32,
        /// The access rights of the window.
        28 => access: ib_uverbs_access_flags,
    }

    /// An element of a ring of sends.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_send_wqe: size 208, align 8 {
        /// The request.
        0 => wr: rxe_send_wr,
        /// Used by the kernel only.
        144 => status: u32,
        /// Used by the kernel only: 0 (posted) in a new element.
        148 => state: u32,
        /// A copy of the address in the peer's memory region.
        152 => iova: AlignedU64,
        /// Used by the kernel only.
        160 => mask: u32,
        /// Used by the kernel only.
        164 => first_psn: u32,
        /// Used by the kernel only.
        168 => last_psn: u32,
        /// Used by the kernel only.
        172 => ack_length: u32,
        /// Used by the kernel only.
        176 => ssn: u32,
        /// Used by the kernel only.
        180 => has_rd_atomic: u32,
        /// The data.
        184 => dma: rxe_dma_info,
    }

    /// An element of a ring of receives.
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rxe_recv_wqe: size 40, align 8 {
        /// The identifier that the completion returns.
        0 => wr_id: AlignedU64,
        /// Zero.
        8 => reserved: u32,
        /// Zero.
        12 => padding: u32,
        /// The data.
        16 => dma: rxe_dma_info,
    }
}

crate::abi_constants! {
    table: RXE_CONSTANTS, header: "rdma/rdma_user_rxe.h";

    /// `sgid_addr` and `dgid_addr` are `sockaddr_in`.
    RXE_NETWORK_TYPE_IPV4: u8 = 1;
    /// `sgid_addr` and `dgid_addr` are `sockaddr_in6`.
    RXE_NETWORK_TYPE_IPV6: u8 = 2;
}

union_members! {
    [u8; 120]: rxe_send_wr_rdma, rxe_send_wr_atomic, rxe_send_wr_flush, rxe_send_wr_ud, rxe_send_wr_mw;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_handle_is_at_byte_36_of_datagram() {
        let ud = rxe_send_wr_ud { ah_num: 7, ..Default::default() };
        let wr = rxe_send_wr {
            wr_id: 0.into(),
            reserved: 0,
            opcode: ib_uverbs_wr_opcode::IB_UVERBS_WR_SEND,
            send_flags: ib_send_flags::IB_SEND_SIGNALED,
            ex: [0; 4],
            wr: ud.into(),
        };
        assert_eq!(wr.as_bytes()[36..40], 7_u32.to_ne_bytes());
        assert_eq!(rxe_send_wr_ud::read_from_bytes(&wr.wr).unwrap(), ud);
    }
}
