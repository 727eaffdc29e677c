//! The user context and the attributes of the device.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, Be64, command::commands};

crate::abi_structs! {
    table: DEVICE_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request to open the user context, once for each descriptor and before any other command.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_get_context: size 8, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
    }

    /// The user context.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_get_context_resp: size 8, align 8 {
        /// New descriptor, whose reads give [`ib_uverbs_async_event_desc`](crate::ib_uverbs_async_event_desc).
        0 => async_fd: u32,
        /// Completion vectors: the bound of `comp_vector` of CREATE_CQ.
        4 => num_comp_vectors: u32,
    }

    /// A request for the attributes of the device.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_query_device: size 8, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
    }

    /// Attributes of the device. A `max_` of 0 means that the device has none of the kind.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_query_device_resp: size 176, align 8 {
        /// Version of the firmware, in the driver's own form.
        0 => fw_ver: AlignedU64,
        /// GUID of the node.
        8 => node_guid: Be64,
        /// GUID of the system image: the same for nodes of one machine.
        16 => sys_image_guid: Be64,
        /// Largest memory region in bytes.
        24 => max_mr_size: AlignedU64,
        /// Page sizes for memory regions, one bit each.
        32 => page_size_cap: AlignedU64,
        /// Vendor, an IEEE company id.
        40 => vendor_id: u32,
        /// The vendor's number of the part.
        44 => vendor_part_id: u32,
        /// The vendor's version of the hardware.
        48 => hw_ver: u32,
        /// Queue pairs.
        52 => max_qp: u32,
        /// Work requests in one queue.
        56 => max_qp_wr: u32,
        /// Low half of [`ib_uverbs_device_cap_flags`].
        60 => device_cap_flags: u32,
        /// Scatter/gather entries of a work request.
        64 => max_sge: u32,
        /// Scatter/gather entries of an RDMA read.
        68 => max_sge_rd: u32,
        /// Completion queues.
        72 => max_cq: u32,
        /// Entries of a completion queue.
        76 => max_cqe: u32,
        /// Memory regions.
        80 => max_mr: u32,
        /// Protection domains.
        84 => max_pd: u32,
        /// RDMA reads and atomics that a queue pair serves at a time: the bound of `max_dest_rd_atomic`.
        88 => max_qp_rd_atom: u32,
        /// RDMA reads and atomics that an end-to-end context serves at a time.
        92 => max_ee_rd_atom: u32,
        /// RDMA reads and atomics that the whole device serves at a time.
        96 => max_res_rd_atom: u32,
        /// RDMA reads and atomics that a queue pair starts at a time: the bound of `max_rd_atomic`.
        100 => max_qp_init_rd_atom: u32,
        /// RDMA reads and atomics that an end-to-end context starts at a time.
        104 => max_ee_init_rd_atom: u32,
        /// Scope of atomics.
        108 => atomic_cap: ib_atomic_cap,
        /// End-to-end contexts.
        112 => max_ee: u32,
        /// Reliable datagram domains.
        116 => max_rdd: u32,
        /// Memory windows.
        120 => max_mw: u32,
        /// Raw IPv6 queue pairs.
        124 => max_raw_ipv6_qp: u32,
        /// Raw Ethertype queue pairs.
        128 => max_raw_ethy_qp: u32,
        /// Multicast groups.
        132 => max_mcast_grp: u32,
        /// Queue pairs in one multicast group.
        136 => max_mcast_qp_attach: u32,
        /// Queue pairs in all multicast groups together.
        140 => max_total_mcast_qp_attach: u32,
        /// Address handles.
        144 => max_ah: u32,
        /// Fast memory regions; always 0 now.
        148 => max_fmr: u32,
        /// Mappings of a fast memory region; always 0 now.
        152 => max_map_per_fmr: u32,
        /// Shared receive queues.
        156 => max_srq: u32,
        /// Work requests in a shared receive queue.
        160 => max_srq_wr: u32,
        /// Scatter/gather entries of a receive in a shared receive queue.
        164 => max_srq_sge: u32,
        /// Entries of a port's P_Key table.
        168 => max_pkeys: u16,
        /// Time that the device takes for an ACK: 4.096 us times two to this power.
        170 => local_ca_ack_delay: u8,
        /// Physical ports.
        171 => phys_port_cnt: u8,
        /// Zero.
        172 => reserved: [u8; 4],
    }

    /// A request for all attributes of the device.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_ex_query_device: size 8, align 4 {
        /// 0; otherwise the kernel returns EINVAL.
        0 => comp_mask: u32,
        /// 0; otherwise the kernel returns EINVAL.
        4 => reserved: u32,
    }

    /// On-demand paging: the operations that work on memory that is not pinned.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_odp_caps: size 24, align 8 {
        /// Bit 0: on-demand paging; bit 1: regions that cover the whole address space.
        0 => general_caps: AlignedU64,
        /// Operations of reliable connections, one bit each: send, receive, write, read, atomic, SRQ receive.
        #[place("per_transport_caps.rc_odp_caps")]
        8 => rc_odp_caps: u32,
        /// Operations of unreliable connections, one bit each.
        #[place("per_transport_caps.uc_odp_caps")]
        12 => uc_odp_caps: u32,
        /// Operations of datagrams, one bit each.
        #[place("per_transport_caps.ud_odp_caps")]
        16 => ud_odp_caps: u32,
        /// Zero.
        20 => reserved: u32,
    }

    /// Receive side scaling.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_rss_caps: size 16, align 4 {
        /// Bit n: queue pair type n.
        0 => supported_qpts: u32,
        /// Indirection tables.
        4 => max_rwq_indirection_tables: u32,
        /// Entries of an indirection table.
        8 => max_rwq_indirection_table_size: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// Tag matching.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_tm_caps: size 24, align 4 {
        /// Bytes of a rendezvous request.
        0 => max_rndv_hdr_size: u32,
        /// Entries of a list of tags.
        4 => max_num_tags: u32,
        /// Bit 0: rendezvous on reliable connections.
        8 => flags: u32,
        /// List operations that may be outstanding.
        12 => max_ops: u32,
        /// Scatter/gather entries of a tagged buffer.
        16 => max_sge: u32,
        /// Zero.
        20 => reserved: u32,
    }

    /// Moderation of completion events.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_cq_moderation_caps: size 8, align 4 {
        /// Completions for one event.
        0 => max_cq_moderation_count: u16,
        /// Microseconds that an event may be held back.
        2 => max_cq_moderation_period: u16,
        /// Zero.
        4 => reserved: u32,
    }

    /// All attributes of the device. An older kernel fills only a part, of `response_length` bytes.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_ex_query_device_resp: size 304, align 8 {
        /// The attributes that QUERY_DEVICE reports.
        0 => base: ib_uverbs_query_device_resp,
        /// 0.
        176 => comp_mask: u32,
        /// Bytes that the kernel filled.
        180 => response_length: u32,
        /// On-demand paging.
        184 => odp_caps: ib_uverbs_odp_caps,
        /// Valid bits of a completion's time stamp; 0 without time stamps.
        208 => timestamp_mask: AlignedU64,
        /// Frequency of the device's clock in kHz.
        216 => hca_core_clock: AlignedU64,
        /// [`ib_uverbs_device_cap_flags`], all of them.
        224 => device_cap_flags_ex: AlignedU64,
        /// Receive side scaling.
        232 => rss_caps: ib_uverbs_rss_caps,
        /// Work queues of type receive.
        248 => max_wq_type_rq: u32,
        /// The offloads of raw packet queue pairs.
        252 => raw_packet_caps: u32,
        /// Tag matching.
        256 => tm_caps: ib_uverbs_tm_caps,
        /// Moderation of completion events.
        280 => cq_moderation_caps: ib_uverbs_cq_moderation_caps,
        /// Bytes of device memory.
        288 => max_dm_size: AlignedU64,
        /// On-demand paging on XRC; bits as in [`ib_uverbs_odp_caps`].
        296 => xrc_odp_caps: u32,
        /// Zero.
        300 => reserved: u32,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_GET_CONTEXT for ib_uverbs_get_context => ib_uverbs_get_context_resp;
    plain IB_USER_VERBS_CMD_QUERY_DEVICE for ib_uverbs_query_device => ib_uverbs_query_device_resp;
    extended IB_USER_VERBS_EX_CMD_QUERY_DEVICE for ib_uverbs_ex_query_device
        => ib_uverbs_ex_query_device_resp;
}

crate::abi_flags! {
    table: DEVICE_CAP_FLAGS, header: "rdma/ib_user_verbs.h";

    /// The capabilities of the device.
    ///
    /// Bits 9, 15, 16, 19, 22, 27, 30 to 33, 35 and 37 of old kernels mean nothing.
    pub struct ib_uverbs_device_cap_flags: u64 {
        /// Resizes the queues of a queue pair.
        IB_UVERBS_DEVICE_RESIZE_MAX_WR = 1 << 0;
        /// Counts bad P_Keys.
        IB_UVERBS_DEVICE_BAD_PKEY_CNTR = 1 << 1;
        /// Counts bad Q_Keys.
        IB_UVERBS_DEVICE_BAD_QKEY_CNTR = 1 << 2;
        /// Multicast on raw packets.
        IB_UVERBS_DEVICE_RAW_MULTI = 1 << 3;
        /// Automatic path migration.
        IB_UVERBS_DEVICE_AUTO_PATH_MIG = 1 << 4;
        /// A queue pair changes its port in SQD.
        IB_UVERBS_DEVICE_CHANGE_PHY_PORT = 1 << 5;
        /// Checks the port of an address handle.
        IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6;
        /// Takes the current state as a modifier of MODIFY_QP.
        IB_UVERBS_DEVICE_CURR_QP_STATE_MOD = 1 << 7;
        /// Shuts ports down.
        IB_UVERBS_DEVICE_SHUTDOWN_PORT = 1 << 8;
        /// Reports ports that become active.
        IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT = 1 << 10;
        /// Has a system image GUID.
        IB_UVERBS_DEVICE_SYS_IMAGE_GUID = 1 << 11;
        /// Reliable connections send RNR NAKs.
        IB_UVERBS_DEVICE_RC_RNR_NAK_GEN = 1 << 12;
        /// Resizes shared receive queues.
        IB_UVERBS_DEVICE_SRQ_RESIZE = 1 << 13;
        /// Arms completion queues for the n-th completion.
        IB_UVERBS_DEVICE_N_NOTIFY_CQ = 1 << 14;
        /// Memory windows.
        IB_UVERBS_DEVICE_MEM_WINDOW = 1 << 17;
        /// Checksums of datagrams.
        IB_UVERBS_DEVICE_UD_IP_CSUM = 1 << 18;
        /// Extended reliable connections.
        IB_UVERBS_DEVICE_XRC = 1 << 20;
        /// Base memory management extensions: invalidation, local and remote.
        IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21;
        /// Memory windows of type 2A.
        IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23;
        /// Memory windows of type 2B.
        IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24;
        /// Checksums of reliable connections.
        IB_UVERBS_DEVICE_RC_IP_CSUM = 1 << 25;
        /// Checksums of raw packets.
        IB_UVERBS_DEVICE_RAW_IP_CSUM = 1 << 26;
        /// Flow steering.
        IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING = 1 << 29;
        /// Scatters the frame check sequence of raw packets.
        IB_UVERBS_DEVICE_RAW_SCATTER_FCS = 1 << 34;
        /// Pads PCI writes to cache lines.
        IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING = 1 << 36;
        /// Flushes to global visibility.
        #[since("6.2")]
        IB_UVERBS_DEVICE_FLUSH_GLOBAL = 1 << 38;
        /// Flushes to persistence.
        #[since("6.2")]
        IB_UVERBS_DEVICE_FLUSH_PERSISTENT = 1 << 39;
        /// Atomic writes.
        #[since("6.2")]
        IB_UVERBS_DEVICE_ATOMIC_WRITE = 1 << 40;
    }
}

crate::abi_enum! {
    /// Scope of the atomicity of atomics.
    pub struct ib_atomic_cap: u32 {
        /// Atomics are not supported.
        IB_ATOMIC_NONE = 0;
        /// Among the queue pairs of the device.
        IB_ATOMIC_HCA = 1;
        /// Toward processors and other devices as well.
        IB_ATOMIC_GLOB = 2;
    }
}

crate::abi_enum! {
    table: DRIVER_IDS, header: "rdma/ib_user_ioctl_verbs.h";

    /// The kernel driver of a device, and with it the data path.
    pub struct rdma_driver_id: u32 {
        /// A driver without a number.
        RDMA_DRIVER_UNKNOWN = 0;
        /// mlx5.
        RDMA_DRIVER_MLX5 = 1;
        /// mlx4.
        RDMA_DRIVER_MLX4 = 2;
        /// cxgb3.
        RDMA_DRIVER_CXGB3 = 3;
        /// cxgb4.
        RDMA_DRIVER_CXGB4 = 4;
        /// mthca.
        RDMA_DRIVER_MTHCA = 5;
        /// bnxt_re.
        RDMA_DRIVER_BNXT_RE = 6;
        /// ocrdma.
        RDMA_DRIVER_OCRDMA = 7;
        /// nes.
        RDMA_DRIVER_NES = 8;
        /// irdma, and i40iw before it.
        RDMA_DRIVER_IRDMA = 9;
        /// vmw_pvrdma.
        RDMA_DRIVER_VMW_PVRDMA = 10;
        /// qedr.
        RDMA_DRIVER_QEDR = 11;
        /// hns.
        RDMA_DRIVER_HNS = 12;
        /// usnic.
        RDMA_DRIVER_USNIC = 13;
        /// Software RoCE; see [`rxe`](crate::rxe).
        RDMA_DRIVER_RXE = 14;
        /// hfi1.
        RDMA_DRIVER_HFI1 = 15;
        /// qib.
        RDMA_DRIVER_QIB = 16;
        /// efa.
        RDMA_DRIVER_EFA = 17;
        /// Software iWARP; see [`siw`](crate::siw).
        RDMA_DRIVER_SIW = 18;
        /// erdma.
        RDMA_DRIVER_ERDMA = 19;
        /// mana.
        #[since("6.2")]
        RDMA_DRIVER_MANA = 20;
    }
}

crate::abi_enum! {
    table: NODE_TYPES, header: "rdma/rdma_netlink.h";

    /// The kind of node that a device is, which determines the transport.
    pub struct rdma_node_type: u8 {
        /// Channel adapter: InfiniBand and RoCE.
        RDMA_NODE_IB_CA = 1;
        /// InfiniBand switch.
        RDMA_NODE_IB_SWITCH = 2;
        /// InfiniBand router.
        RDMA_NODE_IB_ROUTER = 3;
        /// iWARP.
        RDMA_NODE_RNIC = 4;
        /// usNIC.
        RDMA_NODE_USNIC = 5;
        /// usNIC over UDP.
        RDMA_NODE_USNIC_UDP = 6;
        /// A node with a transport of its own.
        RDMA_NODE_UNSPECIFIED = 7;
    }
}
