//! The ioctl that carries a write command: method INVOKE_WRITE of the device object.
//!
//! `ioctl(fd, RDMA_VERBS_IOCTL, header)`, the header being [`ib_uverbs_ioctl_hdr`] and its [`ib_uverbs_attr`]s behind
//! it. Lengths are in bytes. The core request goes without the headers of a write, and its `response` is ignored. The
//! kernel does not compare credentials, as it does on a write.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{AlignedU64, rdma_driver_id};

crate::abi_structs! {
    table: IOCTL_LAYOUT, header: "rdma/rdma_user_ioctl_cmds.h";

    /// An attribute of the call.
    #[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_uverbs_attr: size 16, align 8 {
        /// Which.
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
        /// 0, else EPROTONOSUPPORT.
        8 => reserved1: AlignedU64,
        /// Driver of the device, else EINVAL.
        16 => driver_id: rdma_driver_id,
        /// 0, else EPROTONOSUPPORT.
        20 => reserved2: u32,
    }
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
    /// Its method that runs a write command.
    UVERBS_METHOD_INVOKE_WRITE: u16 = 0;
    /// The core request.
    UVERBS_ATTR_CORE_IN: u16 = 0;
    /// The core response; left out for a command without one.
    UVERBS_ATTR_CORE_OUT: u16 = 1;
    /// The command number, 8 bytes, with `IB_USER_VERBS_CMD_FLAG_EXTENDED` for an extended one.
    UVERBS_ATTR_WRITE_CMD: u16 = 2;
    /// The driver's request.
    UVERBS_ATTR_UHW_IN: u16 = 0x1000;
    /// The driver's response.
    UVERBS_ATTR_UHW_OUT: u16 = 0x1001;
}
