//! The ioctl of the kernel's methods.
//!
//! The library uses three methods of the device object: INVOKE_WRITE, which carries a write command, QUERY_GID_TABLE and
//! QUERY_GID_ENTRY. The numbers of a driver's own objects and methods are in the module of the driver.
//!
//! The call is `ioctl(fd, RDMA_VERBS_IOCTL, header)`. The header is an [`ib_uverbs_ioctl_hdr`], followed by its
//! [`ib_uverbs_attr`]s. Lengths are in bytes. The core request of INVOKE_WRITE has no headers of a write, and its
//! `response` is ignored. The kernel does not compare credentials, unlike for a write.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, rdma_driver_id};

crate::abi_structs! {
    table: IOCTL_LAYOUT, header: "rdma/rdma_user_ioctl_cmds.h";

    /// An attribute of the call.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_attr: size 16, align 8 {
        /// Number of the attribute.
        0 => attr_id: u16,
        /// Length in bytes.
        2 => len: u16,
        /// [`UVERBS_ATTR_F_MANDATORY`]; the kernel sets [`UVERBS_ATTR_F_VALID_OUTPUT`].
        4 => flags: u16,
        /// Zero.
        6 => attr_data: u16,
        /// Input of up to 8 bytes itself; the address of longer input and of all output.
        8 => data: AlignedU64,
    }

    /// The call. `num_attrs` attributes follow.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_ioctl_hdr: size 24, align 8 {
        /// Length in bytes, with the attributes.
        0 => length: u16,
        /// Kind of object.
        2 => object_id: u16,
        /// Method of the object.
        4 => method_id: u16,
        /// Attributes.
        6 => num_attrs: u16,
        /// 0; otherwise the kernel returns EPROTONOSUPPORT.
        8 => reserved1: AlignedU64,
        /// Driver of the device, else EINVAL.
        16 => driver_id: rdma_driver_id,
        /// 0; otherwise the kernel returns EPROTONOSUPPORT.
        20 => reserved2: u32,
    }
}

crate::abi_structs! {
    table: GID_LAYOUT, header: "rdma/ib_user_ioctl_verbs.h";

    /// An entry of a GID table that is in use.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_gid_entry: size 32, align 8 {
        /// The GID, 16 bytes in the network's order.
        0 => gid: [AlignedU64; 2],
        /// Its index in the port's table.
        16 => gid_index: u32,
        /// The port, from 1.
        20 => port_num: u32,
        /// [`IB_UVERBS_GID_TYPE_IB`] or another `IB_UVERBS_GID_TYPE_*`.
        24 => gid_type: u32,
        /// Number of the network device that has the address; 0 if there is none.
        ///
        /// The number belongs to the network namespace of that device.
        28 => netdev_ifindex: u32,
    }
}

crate::abi_constants! {
    table: GID_TYPES, header: "rdma/ib_user_ioctl_verbs.h";

    /// InfiniBand, and all other types that are not RoCE.
    IB_UVERBS_GID_TYPE_IB: u32 = 0;
    /// RoCE directly over Ethernet.
    IB_UVERBS_GID_TYPE_ROCE_V1: u32 = 1;
    /// RoCE over UDP.
    IB_UVERBS_GID_TYPE_ROCE_V2: u32 = 2;
}

crate::abi_constants! {
    table: IOCTL_CONSTANTS, header: "rdma/rdma_user_ioctl_cmds.h";

    /// Number of the ioctl: read and write, 24 bytes, group 0x1b, number 1.
    RDMA_VERBS_IOCTL: u32 = 0xc018_1b01;
    /// The kernel must know the attribute.
    UVERBS_ATTR_F_MANDATORY: u16 = 1;
    /// The kernel filled the attribute.
    UVERBS_ATTR_F_VALID_OUTPUT: u16 = 2;
}

crate::abi_constants! {
    table: IOCTL_IDS, header: "rdma/ib_user_ioctl_cmds.h";

    /// The device object.
    UVERBS_OBJECT_DEVICE: u16 = 0;
    /// The method that runs a write command.
    UVERBS_METHOD_INVOKE_WRITE: u16 = 0;
    /// The method that lists the entries in use of the GID tables of all ports: Linux 5.10.
    UVERBS_METHOD_QUERY_GID_TABLE: u16 = 5;
    /// The method that reads an entry of the GID table of a port: Linux 5.10.
    UVERBS_METHOD_QUERY_GID_ENTRY: u16 = 6;
    /// The core request.
    UVERBS_ATTR_CORE_IN: u16 = 0;
    /// The core response; left out for a command without one.
    UVERBS_ATTR_CORE_OUT: u16 = 1;
    /// The command number, 8 bytes, with `IB_USER_VERBS_CMD_FLAG_EXTENDED` for an extended one.
    UVERBS_ATTR_WRITE_CMD: u16 = 2;
    /// Size of an entry, 8 bytes.
    UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE: u16 = 0;
    /// Address of the entries: EINVAL if they do not fit.
    UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES: u16 = 2;
    /// Address of their number, 8 bytes.
    UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES: u16 = 3;
    /// The port, 4 bytes.
    UVERBS_ATTR_QUERY_GID_ENTRY_PORT: u16 = 0;
    /// Index of the entry, 4 bytes: ENODATA if it is empty.
    UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX: u16 = 1;
    /// 0, 4 bytes.
    UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS: u16 = 2;
    /// Address of the entry.
    UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY: u16 = 3;
    /// The driver's request.
    UVERBS_ATTR_UHW_IN: u16 = 0x1000;
    /// The driver's response.
    UVERBS_ATTR_UHW_OUT: u16 = 0x1001;
}
