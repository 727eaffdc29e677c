//! The driver's part of commands to mlx5 devices (ConnectX-4 and later, BlueField).
//!
//! The module has requests, responses and the offsets of mappings.
//!
//! Rings and doorbell records are memory of the program, whose addresses the requests carry. Doorbell registers are
//! mapped from the context's descriptor: the offset in pages is a [`mlx5_ib_mmap_cmd`], shifted by
//! [`MLX5_IB_MMAP_CMD_SHIFT`], and the index of the page.
//!
//! All numbers are in host order, unlike the numbers of the rings.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::AlignedU64;

/// Position of the [`mlx5_ib_mmap_cmd`] in the offset of a mapping, counted in pages.
///
/// No public header has this number.
pub const MLX5_IB_MMAP_CMD_SHIFT: u32 = 8;

crate::abi_constants! {
    table: MLX5_CONSTANTS, header: "rdma/mlx5-abi.h";

    /// Version of this ABI.
    MLX5_IB_UVERBS_ABI_VERSION: u32 = 1;
    /// A shared receive queue whose entries are signed.
    MLX5_SRQ_FLAG_SIGNATURE: u32 = 1;
}

crate::abi_constants! {
    table: MLX5_IOCTL_IDS, header: "rdma/mlx5_user_ioctl_cmds.h";

    /// A page of doorbell registers, as an object of the ioctl.
    MLX5_IB_OBJECT_UAR: u16 = 0x1008;
    /// The method that allocates a page.
    MLX5_IB_METHOD_UAR_OBJ_ALLOC: u16 = 0x1000;
    /// The method that frees a page.
    MLX5_IB_METHOD_UAR_OBJ_DESTROY: u16 = 0x1001;
    /// Handle of the page; an output.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE: u16 = 0x1000;
    /// A [`mlx5_ib_uapi_uar_alloc_type`], 8 bytes.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE: u16 = 0x1001;
    /// Offset at which the page is mapped, 8 bytes; an output.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: u16 = 0x1002;
    /// Bytes to be mapped, 4 bytes; an output.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: u16 = 0x1003;
    /// Number of the page for create commands, 4 bytes; an output.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID: u16 = 0x1004;
    /// Handle of the page that is freed.
    MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE: u16 = 0x1000;
}

crate::abi_enum! {
    table: MLX5_UAR_ALLOC_TYPES, header: "rdma/mlx5_user_ioctl_verbs.h";

    /// The kind of a page of doorbell registers.
    pub struct mlx5_ib_uapi_uar_alloc_type: u8 {
        /// With write combining, to which short entries can be copied (BlueFlame).
        MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF = 0;
        /// Without caching, for doorbells only.
        MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC = 1;
    }
}

crate::abi_structs! {
    table: MLX5_LAYOUT, header: "rdma/mlx5-abi.h";

    /// The driver's request of GET_CONTEXT. Old kernels accept the first 8, 16 or 24 bytes only.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_alloc_ucontext_req_v2: size 32, align 8 {
        /// Number of doorbell registers: even, at most 512.
        0 => total_num_bfregs: u32,
        /// Number of registers that only one queue pair uses, out of `total_num_bfregs`.
        4 => num_low_latency_bfregs: u32,
        /// Options of the context.
        8 => flags: mlx5_ib_alloc_uctx_v2_flags,
        /// Zero.
        12 => comp_mask: u32,
        /// The highest version of completions that the program understands: 0 or 1.
        16 => max_cqe_version: u8,
        /// Zero.
        17 => reserved0: u8,
        /// Zero.
        18 => reserved1: u16,
        /// Zero.
        20 => reserved2: u32,
        /// Capabilities of the program: bits of [`mlx5_lib_caps`].
        24 => lib_caps: AlignedU64,
    }

    /// The driver's response of GET_CONTEXT.
    ///
    /// `response_length` is the number of bytes that the kernel knows. Since Linux 7.2 it fills the rest of the room
    /// with zeros; earlier kernels leave it unchanged.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_alloc_ucontext_resp: size 72, align 8 {
        /// Limit of the number of queue pairs.
        0 => qp_tab_size: u32,
        /// Bytes of a doorbell register, or 0 if the device has no write combining.
        4 => bf_reg_size: u32,
        /// Number of static registers, or 0 if registers are allocated by ioctl.
        8 => tot_bfregs: u32,
        /// Bytes of a cache line.
        12 => cache_line_size: u32,
        /// The largest entry of a send queue in bytes.
        16 => max_sq_desc_sz: u16,
        /// The largest entry of a receive queue in bytes.
        18 => max_rq_desc_sz: u16,
        /// The largest number of 64-byte blocks of a send queue.
        20 => max_send_wqebb: u32,
        /// The largest number of entries of a receive queue.
        24 => max_recv_wr: u32,
        /// The largest number of entries of a shared receive queue.
        28 => max_srq_recv_wr: u32,
        /// Number of ports.
        32 => num_ports: u16,
        /// Flags of flow actions.
        34 => flow_action_flags: u16,
        /// Mask of the later members that the kernel has filled.
        36 => comp_mask: mlx5_ib_alloc_ucontext_resp_mask,
        /// Bytes of this structure that the kernel knows.
        40 => response_length: u32,
        /// Version of the completions: 0 or 1.
        44 => cqe_version: u8,
        /// The commands with a driver's part.
        45 => cmds_supp_uhw: mlx5_user_cmds_supp_uhw,
        /// Number of headers that an Ethernet send must carry inline, plus one.
        46 => eth_min_inline: u8,
        /// Bit mask of the versions of the clock page.
        47 => clock_info_versions: u8,
        /// Offset of the device's clock in its page.
        48 => hca_core_clock_offset: AlignedU64,
        /// Logarithm of the bytes of a register page, or 0 on old kernels.
        56 => log_uar_size: u32,
        /// Number of register pages of the device in a page of the kernel, or 0 on old kernels, which means 1.
        60 => num_uars_per_page: u32,
        /// Number of registers that can be allocated dynamically.
        64 => num_dyn_bfregs: u32,
        /// Key of memory whose contents are discarded.
        68 => dump_fill_mkey: u32,
    }

    /// The driver's response of ALLOC_PD.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_alloc_pd_resp: size 4, align 4 {
        /// The device's number of the protection domain.
        0 => pdn: u32,
    }

    /// The driver's request of CREATE_CQ.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_create_cq: size 32, align 8 {
        /// Address of the ring.
        0 => buf_addr: AlignedU64,
        /// Address of the doorbell record.
        8 => db_addr: AlignedU64,
        /// Bytes of an entry: 64 or 128.
        16 => cqe_size: u32,
        /// 1 if the device may compress completions.
        20 => cqe_comp_en: u8,
        /// Format of compressed completions.
        21 => cqe_comp_res_format: u8,
        /// Options.
        22 => flags: mlx5_ib_create_cq_flags,
        /// Number of the register page for arming, with `MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX`.
        24 => uar_page_index: u16,
        /// Zero.
        26 => reserved0: u16,
        /// Zero.
        28 => reserved1: u32,
    }

    /// The driver's response of CREATE_CQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_create_cq_resp: size 8, align 4 {
        /// The device's number of the queue.
        0 => cqn: u32,
        /// Zero.
        4 => reserved: u32,
    }

    /// The driver's request of RESIZE_CQ.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_resize_cq: size 16, align 8 {
        /// Address of the new ring.
        0 => buf_addr: AlignedU64,
        /// Bytes of an entry: 64 or 128.
        8 => cqe_size: u16,
        /// Zero.
        10 => reserved0: u16,
        /// Zero.
        12 => reserved1: u32,
    }

    /// The driver's request of CREATE_SRQ.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_create_srq: size 32, align 8 {
        /// Address of the ring.
        0 => buf_addr: AlignedU64,
        /// Address of the doorbell record.
        8 => db_addr: AlignedU64,
        /// [`MLX5_SRQ_FLAG_SIGNATURE`], or 0.
        16 => flags: u32,
        /// Zero.
        20 => reserved0: u32,
        /// The program's index of the queue, which completions of version 1 carry.
        24 => uidx: u32,
        /// Zero.
        28 => reserved1: u32,
    }

    /// The driver's response of CREATE_SRQ.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_create_srq_resp: size 8, align 4 {
        /// The device's number of the queue.
        0 => srqn: u32,
        /// Zero.
        4 => reserved: u32,
    }

    /// Streams of a dynamically connected initiator.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_create_qp_dci_streams: size 2, align 1 {
        /// Logarithm of the number of concurrent streams.
        0 => log_num_concurent: u8,
        /// Logarithm of the number of streams in error.
        1 => log_num_errored: u8,
    }

    /// The driver's request of CREATE_QP.
    ///
    /// Kernels before Linux 5.8 accept the first 48 bytes, and zeros after them.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_create_qp: size 56, align 8 {
        /// Address of the rings: the receive queue, then the send queue.
        0 => buf_addr: AlignedU64,
        /// Address of the doorbell record.
        8 => db_addr: AlignedU64,
        /// Number of 64-byte blocks of the send queue: a power of two.
        16 => sq_wqe_count: u32,
        /// Number of entries of the receive queue: a power of two.
        20 => rq_wqe_count: u32,
        /// Logarithm of the bytes of an entry of the receive queue.
        24 => rq_wqe_shift: u32,
        /// Options.
        28 => flags: mlx5_ib_qp_flags,
        /// The program's index of the queue pair, which completions of version 1 carry.
        ///
        /// It is 0xffffff with version 0.
        32 => uidx: u32,
        /// Number of the register page, with `MLX5_QP_FLAG_UAR_PAGE_INDEX`.
        36 => bfreg_index: u32,
        /// Address of the send queue of a raw packet queue pair.
        40 => sq_buf_addr: AlignedU64,
        /// Options of enhanced connection establishment.
        48 => ece_options: u32,
        /// Streams of a dynamically connected initiator.
        52 => dci_streams: mlx5_ib_create_qp_dci_streams,
        /// Zero.
        54 => reserved: u16,
    }

    /// The driver's response of CREATE_QP.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_create_qp_resp: size 40, align 8, i386 4 {
        /// Number of the doorbell register, if registers are static.
        0 => bfreg_index: u32,
        /// Options of enhanced connection establishment that the device supports.
        4 => ece_options: u32,
        /// Mask of the following members that the kernel has filled.
        8 => comp_mask: mlx5_ib_create_qp_resp_mask,
        /// Number of the transport receive object.
        12 => tirn: u32,
        /// Number of the transport send object.
        16 => tisn: u32,
        /// Number of the receive queue.
        20 => rqn: u32,
        /// Number of the send queue.
        24 => sqn: u32,
        /// Zero.
        28 => reserved1: u32,
        /// Address of the transport receive object in the device.
        32 => tir_icm_addr: u64,
    }

    /// The driver's request of ALLOC_MW.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_alloc_mw: size 8, align 4 {
        /// Zero.
        0 => comp_mask: u32,
        /// Number of entries of an indirect key, or 0.
        4 => num_klms: u8,
        /// Zero.
        5 => reserved1: u8,
        /// Zero.
        6 => reserved2: u16,
    }

    /// The driver's response of CREATE_AH.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_create_ah_resp: size 16, align 4 {
        /// Bytes of this structure that the kernel has filled.
        0 => response_length: u32,
        /// Ethernet address of the destination.
        4 => dmac: [u8; 6],
        /// Zero.
        10 => reserved: [u8; 6],
    }

    /// Rate and burst size of a queue pair.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_burst_info: size 8, align 4 {
        /// Largest burst in bytes.
        0 => max_burst_sz: u32,
        /// Typical size of a packet in bytes.
        4 => typical_pkt_sz: u16,
        /// Zero.
        6 => reserved: u16,
    }

    /// The driver's request of MODIFY_QP in its extended form.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct mlx5_ib_modify_qp: size 16, align 4 {
        /// Zero.
        0 => comp_mask: u32,
        /// Limits of bursts.
        4 => burst_info: mlx5_ib_burst_info,
        /// Options of enhanced connection establishment.
        12 => ece_options: u32,
    }

    /// The driver's response of MODIFY_QP in its extended form.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct mlx5_ib_modify_qp_resp: size 16, align 4 {
        /// Bytes of this structure that the kernel has filled.
        0 => response_length: u32,
        /// Number of a dynamically connected target.
        4 => dctn: u32,
        /// Options of enhanced connection establishment that the device uses.
        8 => ece_options: u32,
        /// Zero.
        12 => reserved: u32,
    }
}

crate::abi_flags! {
    table: MLX5_LIB_CAPS, header: "rdma/mlx5-abi.h";

    /// Capabilities of a program.
    pub struct mlx5_lib_caps: u64 {
        /// Register pages of 4 KiB, for any page size of the kernel.
        MLX5_LIB_CAP_4K_UAR = 1 << 0;
        /// Registers that are allocated by ioctl. The kernel refuses to map static ones then.
        MLX5_LIB_CAP_DYN_UAR = 1 << 1;
    }
}

crate::abi_flags! {
    table: MLX5_UCTX_FLAGS, header: "rdma/mlx5-abi.h";

    /// Options of a context.
    pub struct mlx5_ib_alloc_uctx_v2_flags: u32 {
        /// Commands of the device may be issued directly.
        MLX5_IB_ALLOC_UCTX_DEVX = 1 << 0;
    }
}

crate::abi_flags! {
    table: MLX5_UCTX_RESP_MASK, header: "rdma/mlx5-abi.h";

    /// Members and capabilities of a [`mlx5_ib_alloc_ucontext_resp`].
    pub struct mlx5_ib_alloc_ucontext_resp_mask: u32 {
        /// `hca_core_clock_offset` is filled.
        MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET = 1 << 0;
        /// `dump_fill_mkey` is filled.
        MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY = 1 << 1;
        /// Enhanced connection establishment is supported.
        MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE = 1 << 2;
        /// A queue pair can change attributes on its way from SQD to RTS.
        MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_SQD2RTS = 1 << 3;
        /// Time stamps can be in real time.
        MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS = 1 << 4;
        /// Memory keys can be updated with a tag.
        MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG = 1 << 5;
    }
}

crate::abi_flags! {
    table: MLX5_CMDS_SUPP_UHW, header: "rdma/mlx5-abi.h";

    /// Commands that have a driver's part.
    pub struct mlx5_user_cmds_supp_uhw: u8 {
        /// The extended QUERY_DEVICE.
        MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE = 1 << 0;
        /// CREATE_AH: see [`mlx5_ib_create_ah_resp`].
        MLX5_USER_CMDS_SUPP_UHW_CREATE_AH = 1 << 1;
    }
}

crate::abi_flags! {
    table: MLX5_CREATE_CQ_FLAGS, header: "rdma/mlx5-abi.h";

    /// Options of a completion queue.
    pub struct mlx5_ib_create_cq_flags: u16 {
        /// The device pads completions to 128 bytes.
        MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD = 1 << 0;
        /// `uar_page_index` is valid.
        MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX = 1 << 1;
        /// Time stamps are in real time.
        MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS = 1 << 2;
    }
}

crate::abi_flags! {
    table: MLX5_QP_FLAGS, header: "rdma/mlx5-abi.h";

    /// Options of a queue pair.
    pub struct mlx5_ib_qp_flags: u32 {
        /// Entries are signed.
        MLX5_QP_FLAG_SIGNATURE = 1 << 0;
        /// The device may store short messages in completions.
        MLX5_QP_FLAG_SCATTER_CQE = 1 << 1;
        /// Offloads for tunnels.
        MLX5_QP_FLAG_TUNNEL_OFFLOADS = 1 << 2;
        /// `bfreg_index` is the number of a static register.
        MLX5_QP_FLAG_BFREG_INDEX = 1 << 3;
        /// A dynamically connected target.
        MLX5_QP_FLAG_TYPE_DCT = 1 << 4;
        /// A dynamically connected initiator.
        MLX5_QP_FLAG_TYPE_DCI = 1 << 5;
        /// Unicast packets of the same device are received.
        MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC = 1 << 6;
        /// Multicast packets of the same device are received.
        MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC = 1 << 7;
        /// The device may store short messages in completions of sends too.
        MLX5_QP_FLAG_ALLOW_SCATTER_CQE = 1 << 8;
        /// End-to-end credits count packets.
        MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE = 1 << 9;
        /// `bfreg_index` is the number of a register page.
        MLX5_QP_FLAG_UAR_PAGE_INDEX = 1 << 10;
        /// `dci_streams` is valid.
        MLX5_QP_FLAG_DCI_STREAM = 1 << 11;
    }
}

crate::abi_flags! {
    table: MLX5_CREATE_QP_RESP_MASK, header: "rdma/mlx5-abi.h";

    /// Members of a [`mlx5_ib_create_qp_resp`] that the kernel has filled.
    pub struct mlx5_ib_create_qp_resp_mask: u32 {
        /// `tirn`.
        MLX5_IB_CREATE_QP_RESP_MASK_TIRN = 1 << 0;
        /// `tisn`.
        MLX5_IB_CREATE_QP_RESP_MASK_TISN = 1 << 1;
        /// `rqn`.
        MLX5_IB_CREATE_QP_RESP_MASK_RQN = 1 << 2;
        /// `sqn`.
        MLX5_IB_CREATE_QP_RESP_MASK_SQN = 1 << 3;
        /// `tir_icm_addr`.
        MLX5_IB_CREATE_QP_RESP_MASK_TIR_ICM_ADDR = 1 << 4;
    }
}

crate::abi_enum! {
    table: MLX5_MMAP_CMDS, header: "rdma/mlx5-abi.h";

    /// The kind of memory that is mapped.
    pub struct mlx5_ib_mmap_cmd: u8 {
        /// A static register page, with write combining if the machine has it.
        MLX5_IB_MMAP_REGULAR_PAGE = 0;
        /// No longer implemented.
        MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES = 1;
        /// A static register page with write combining.
        MLX5_IB_MMAP_WC_PAGE = 2;
        /// A static register page without caching.
        MLX5_IB_MMAP_NC_PAGE = 3;
        /// The page with the device's clock, read-only.
        MLX5_IB_MMAP_CORE_CLOCK = 5;
        /// An additional register page.
        MLX5_IB_MMAP_ALLOC_WC = 6;
        /// The page with the parameters of the clock, read-only.
        MLX5_IB_MMAP_CLOCK_INFO = 7;
        /// Memory of the device.
        MLX5_IB_MMAP_DEVICE_MEM = 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_request_may_be_shortened() {
        let request = mlx5_ib_alloc_ucontext_req_v2 {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            max_cqe_version: 1,
            lib_caps: mlx5_lib_caps::MLX5_LIB_CAP_4K_UAR.bits().into(),
            ..Default::default()
        };
        let bytes = request.as_bytes();
        assert_eq!(bytes[..8], [16u32.to_ne_bytes(), 4u32.to_ne_bytes()].concat());
        assert_eq!(bytes[8..16], [0; 8], "what follows the first version is zero");
        assert_eq!((bytes[16], &bytes[17..24]), (1, &[0; 7][..]));
        assert_eq!(bytes[24..], 1u64.to_ne_bytes());
    }
}
