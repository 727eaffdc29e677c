//! Ports.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, command::commands};

crate::abi_structs! {
    table: PORT_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// A request for the attributes of a port.
    #[derive(Default, IntoBytes, Immutable)]
    pub struct ib_uverbs_query_port: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// Port, from 1.
        8 => port_num: u8,
        /// Zero.
        9 => reserved: [u8; 7],
    }

    /// Attributes of a port.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_query_port_resp: size 40, align 4 {
        /// The capabilities of the port.
        0 => port_cap_flags: ib_uverbs_query_port_cap_flags,
        /// Largest message in bytes.
        4 => max_msg_sz: u32,
        /// Packets with a bad P_Key.
        8 => bad_pkey_cntr: u32,
        /// Packets with a bad Q_Key.
        12 => qkey_viol_cntr: u32,
        /// Entries of the GID table.
        16 => gid_tbl_len: u32,
        /// Entries of the P_Key table.
        20 => pkey_tbl_len: u16,
        /// Base LID; 0 if the link is not InfiniBand.
        22 => lid: u16,
        /// LID of the subnet manager.
        24 => sm_lid: u16,
        /// State of the link.
        26 => state: ib_port_state,
        /// Largest MTU.
        27 => max_mtu: ib_mtu,
        /// Current MTU.
        28 => active_mtu: ib_mtu,
        /// Low bits of the LID that may vary.
        29 => lmc: u8,
        /// Virtual lanes, encoded as in PortInfo.
        30 => max_vl_num: u8,
        /// Service level of the subnet manager.
        31 => sm_sl: u8,
        /// Delay of the subnet: 4.096 us times two to this power.
        32 => subnet_timeout: u8,
        /// InitTypeReply of PortInfo.
        33 => init_type_reply: u8,
        /// Width: 1 is 1x, 2 is 4x, 4 is 8x, 8 is 12x, 16 is 2x.
        34 => active_width: u8,
        /// Speed of a lane, one bit: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR.
        35 => active_speed: u8,
        /// State of the physical link.
        36 => phys_state: ib_port_phys_state,
        /// Link layer.
        37 => link_layer: rdma_link_layer,
        /// Flags.
        38 => flags: ib_uverbs_query_port_flags,
        /// Zero.
        39 => reserved: u8,
    }
}

commands! {
    plain IB_USER_VERBS_CMD_QUERY_PORT for ib_uverbs_query_port => ib_uverbs_query_port_resp;
}

crate::abi_enum! {
    /// State of a link.
    pub struct ib_port_state: u8 {
        /// The port has no state.
        IB_PORT_NOP = 0;
        /// Down.
        IB_PORT_DOWN = 1;
        /// The subnet manager has not configured it yet.
        IB_PORT_INIT = 2;
        /// Configured, not yet in use.
        IB_PORT_ARMED = 3;
        /// In use.
        IB_PORT_ACTIVE = 4;
        /// In use, with a transient failure of the link.
        IB_PORT_ACTIVE_DEFER = 5;
    }
}

crate::abi_enum! {
    /// State of a physical link.
    pub struct ib_port_phys_state: u8 {
        /// Sleeping.
        IB_PORT_PHYS_STATE_SLEEP = 1;
        /// Looking for a peer.
        IB_PORT_PHYS_STATE_POLLING = 2;
        /// Disabled.
        IB_PORT_PHYS_STATE_DISABLED = 3;
        /// Training.
        IB_PORT_PHYS_STATE_PORT_CONFIGURATION_TRAINING = 4;
        /// Up.
        IB_PORT_PHYS_STATE_LINK_UP = 5;
        /// Recovering from an error.
        IB_PORT_PHYS_STATE_LINK_ERROR_RECOVERY = 6;
        /// Under test.
        IB_PORT_PHYS_STATE_PHY_TEST = 7;
    }
}

crate::abi_enum! {
    /// Link layer of a port.
    pub struct rdma_link_layer: u8 {
        /// The link layer of the transport.
        IB_LINK_LAYER_UNSPECIFIED = 0;
        /// InfiniBand.
        IB_LINK_LAYER_INFINIBAND = 1;
        /// Ethernet: RoCE and iWARP.
        IB_LINK_LAYER_ETHERNET = 2;
    }
}

crate::abi_enum! {
    /// Largest payload of a packet.
    pub struct ib_mtu: u8 {
        /// 256 bytes.
        IB_MTU_256 = 1;
        /// 512 bytes.
        IB_MTU_512 = 2;
        /// 1024 bytes.
        IB_MTU_1024 = 3;
        /// 2048 bytes.
        IB_MTU_2048 = 4;
        /// 4096 bytes.
        IB_MTU_4096 = 5;
    }
}

impl ib_mtu {
    /// Returns the MTU in bytes, if the value is known.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }
}

crate::abi_flags! {
    table: PORT_FLAGS, header: "rdma/ib_user_ioctl_verbs.h";

    /// Flags of a port that are not capabilities.
    pub struct ib_uverbs_query_port_flags: u8 {
        /// Every address needs a global route: always so on RoCE.
        IB_UVERBS_QPF_GRH_REQUIRED = 1 << 0;
    }
}

crate::abi_flags! {
    table: PORT_CAP_FLAGS, header: "rdma/ib_user_ioctl_verbs.h";

    /// The capabilities of a port: CapabilityMask of PortInfo.
    pub struct ib_uverbs_query_port_cap_flags: u32 {
        /// IsSM.
        IB_UVERBS_PCF_SM = 1 << 1;
        /// IsNoticeSupported.
        IB_UVERBS_PCF_NOTICE_SUP = 1 << 2;
        /// IsTrapSupported.
        IB_UVERBS_PCF_TRAP_SUP = 1 << 3;
        /// IsOptionalIPDSupported.
        IB_UVERBS_PCF_OPT_IPD_SUP = 1 << 4;
        /// IsAutomaticMigrationSupported.
        IB_UVERBS_PCF_AUTO_MIGR_SUP = 1 << 5;
        /// IsSLMappingSupported.
        IB_UVERBS_PCF_SL_MAP_SUP = 1 << 6;
        /// IsMKeyNVRAM.
        IB_UVERBS_PCF_MKEY_NVRAM = 1 << 7;
        /// IsPKeyNVRAM.
        IB_UVERBS_PCF_PKEY_NVRAM = 1 << 8;
        /// IsLEDInfoSupported.
        IB_UVERBS_PCF_LED_INFO_SUP = 1 << 9;
        /// IsSMdisabled.
        IB_UVERBS_PCF_SM_DISABLED = 1 << 10;
        /// IsSystemImageGUIDSupported.
        IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP = 1 << 11;
        /// IsPKeySwitchExternalPortTrapSupported.
        IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12;
        /// IsExtendedSpeedsSupported.
        IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP = 1 << 14;
        /// IsCommunicationManagementSupported.
        IB_UVERBS_PCF_CM_SUP = 1 << 16;
        /// IsSNMPTunnelingSupported.
        IB_UVERBS_PCF_SNMP_TUNNEL_SUP = 1 << 17;
        /// IsReinitSupported.
        IB_UVERBS_PCF_REINIT_SUP = 1 << 18;
        /// IsDeviceManagementSupported.
        IB_UVERBS_PCF_DEVICE_MGMT_SUP = 1 << 19;
        /// IsVendorClassSupported.
        IB_UVERBS_PCF_VENDOR_CLASS_SUP = 1 << 20;
        /// IsDRNoticeSupported.
        IB_UVERBS_PCF_DR_NOTICE_SUP = 1 << 21;
        /// IsCapabilityMaskNoticeSupported.
        IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP = 1 << 22;
        /// IsBootManagementSupported.
        IB_UVERBS_PCF_BOOT_MGMT_SUP = 1 << 23;
        /// IsLinkRoundTripLatencySupported.
        IB_UVERBS_PCF_LINK_LATENCY_SUP = 1 << 24;
        /// IsClientReregistrationSupported.
        IB_UVERBS_PCF_CLIENT_REG_SUP = 1 << 25;
        /// The GIDs are derived from IP addresses. The kernel defines this flag; it is no capability of the port.
        IB_UVERBS_PCF_IP_BASED_GIDS = 1 << 26;
        /// IsLinkSpeedWidthPairsTableSupported.
        IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP = 1 << 27;
        /// IsVendorSpecificMadsTableSupported.
        IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP = 1 << 28;
        /// IsMcastPkeyTrapSuppressionSupported.
        IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP = 1 << 29;
        /// IsMulticastFDBTopSupported.
        IB_UVERBS_PCF_MCAST_FDB_TOP_SUP = 1 << 30;
        /// IsHierarchyInfoSupported.
        IB_UVERBS_PCF_HIERARCHY_INFO_SUP = 1 << 31;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_is_converted_to_bytes() {
        assert_eq!(ib_mtu::IB_MTU_256.bytes(), Some(256));
        assert_eq!(ib_mtu::IB_MTU_4096.bytes(), Some(4096));
        assert_eq!(ib_mtu(0).bytes(), None);
        assert_eq!(ib_mtu(6).bytes(), None);
    }
}
