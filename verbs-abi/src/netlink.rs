//! Netlink of the RDMA subsystem: device lists, soft devices, resources.
//!
//! A message is a `nlmsghdr` whose type is [`rdma_nl_get_type`]`(RDMA_NL_NLDEV, command)` followed by attributes; there
//! is no family header.

crate::abi_constants! {
    table: NETLINK_FAMILY, header: "linux/netlink.h";

    /// Protocol of the socket.
    NETLINK_RDMA: u16 = 20;
}

crate::abi_constants! {
    table: NETLINK_CONSTANTS, header: "rdma/rdma_netlink.h";

    /// The client that manages devices.
    RDMA_NL_NLDEV: u16 = 5;

    /// A device, or all.
    RDMA_NLDEV_CMD_GET: u16 = 1;
    /// Adds a soft device; CAP_NET_ADMIN.
    RDMA_NLDEV_CMD_NEWLINK: u16 = 3;
    /// Removes a soft device; CAP_NET_ADMIN.
    RDMA_NLDEV_CMD_DELLINK: u16 = 4;
    /// A port, or all of a device.
    RDMA_NLDEV_CMD_PORT_GET: u16 = 5;
    /// Settings of the subsystem.
    RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
    /// Gets the number of resources in use.
    RDMA_NLDEV_CMD_RES_GET: u16 = 9;
    /// Queue pairs of a device.
    RDMA_NLDEV_CMD_RES_QP_GET: u16 = 10;
    /// Connection manager ids of a device.
    RDMA_NLDEV_CMD_RES_CM_ID_GET: u16 = 11;
    /// Completion queues of a device.
    RDMA_NLDEV_CMD_RES_CQ_GET: u16 = 12;
    /// Memory regions of a device.
    RDMA_NLDEV_CMD_RES_MR_GET: u16 = 13;
    /// Protection domains of a device.
    RDMA_NLDEV_CMD_RES_PD_GET: u16 = 14;
    /// The character device of a device, or of a client.
    RDMA_NLDEV_CMD_GET_CHARDEV: u16 = 15;
    /// User contexts of a device.
    RDMA_NLDEV_CMD_RES_CTX_GET: u16 = 22;
    /// Shared receive queues of a device.
    RDMA_NLDEV_CMD_RES_SRQ_GET: u16 = 23;

    /// Index of the device, u32.
    RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
    /// Name of the device, string.
    RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
    /// Port, u32; in the answer to `RDMA_NLDEV_CMD_GET` the number of ports.
    RDMA_NLDEV_ATTR_PORT_INDEX: u16 = 3;
    /// Capability flags of a device or a port, u64.
    RDMA_NLDEV_ATTR_CAP_FLAGS: u16 = 4;
    /// Version of the firmware, string.
    RDMA_NLDEV_ATTR_FW_VERSION: u16 = 5;
    /// GUID of the node, u64 in host order.
    RDMA_NLDEV_ATTR_NODE_GUID: u16 = 6;
    /// GUID of the system image, u64 in host order.
    RDMA_NLDEV_ATTR_SYS_IMAGE_GUID: u16 = 7;
    /// LID of the port, u32; only if the link is InfiniBand.
    RDMA_NLDEV_ATTR_LID: u16 = 9;
    /// State of the port, u8, an [`ib_port_state`](crate::ib_port_state).
    RDMA_NLDEV_ATTR_PORT_STATE: u16 = 12;
    /// State of the physical link, u8, an [`ib_port_phys_state`](crate::ib_port_phys_state).
    RDMA_NLDEV_ATTR_PORT_PHYS_STATE: u16 = 13;
    /// Kind of node, u8, an [`rdma_node_type`](crate::rdma_node_type).
    RDMA_NLDEV_ATTR_DEV_NODE_TYPE: u16 = 14;
    /// Table of [`RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY`].
    RDMA_NLDEV_ATTR_RES_SUMMARY: u16 = 15;
    /// Kind of resource and count.
    RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY: u16 = 16;
    /// Kind of resource, string.
    RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME: u16 = 17;
    /// Number of resources, u64.
    RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR: u16 = 18;
    /// Table of [`RDMA_NLDEV_ATTR_RES_QP_ENTRY`].
    RDMA_NLDEV_ATTR_RES_QP: u16 = 19;
    /// A queue pair.
    RDMA_NLDEV_ATTR_RES_QP_ENTRY: u16 = 20;
    /// Number of the queue pair, u32.
    RDMA_NLDEV_ATTR_RES_LQPN: u16 = 21;
    /// Number of the peer's queue pair, u32.
    RDMA_NLDEV_ATTR_RES_RQPN: u16 = 22;
    /// Type of the queue pair, u8.
    RDMA_NLDEV_ATTR_RES_TYPE: u16 = 26;
    /// State of the queue pair or of the id, u8.
    RDMA_NLDEV_ATTR_RES_STATE: u16 = 27;
    /// Process that owns the resource, u32.
    RDMA_NLDEV_ATTR_RES_PID: u16 = 28;
    /// Part of the kernel that owns the resource, string.
    RDMA_NLDEV_ATTR_RES_KERN_NAME: u16 = 29;
    /// Table of [`RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY`].
    RDMA_NLDEV_ATTR_RES_CM_ID: u16 = 30;
    /// A connection manager id.
    RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY: u16 = 31;
    /// Port space of the id, u32.
    RDMA_NLDEV_ATTR_RES_PS: u16 = 32;
    /// Source address of the id, 128 bytes of `sockaddr_storage`.
    RDMA_NLDEV_ATTR_RES_SRC_ADDR: u16 = 33;
    /// Destination address of the id, 128 bytes of `sockaddr_storage`.
    RDMA_NLDEV_ATTR_RES_DST_ADDR: u16 = 34;
    /// Index of the network device, u32.
    RDMA_NLDEV_ATTR_NDEV_INDEX: u16 = 50;
    /// Name of the network device, string.
    RDMA_NLDEV_ATTR_NDEV_NAME: u16 = 51;
    /// Number of the id, u32.
    RDMA_NLDEV_ATTR_RES_CM_IDN: u16 = 63;
    /// Kind of soft device, string: "rxe" or "siw".
    RDMA_NLDEV_ATTR_LINK_TYPE: u16 = 65;
    /// 1 if network namespaces share devices, u8.
    RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;
    /// Protocol of the device, string: "ib", "roce" or "iw".
    RDMA_NLDEV_ATTR_DEV_PROTOCOL: u16 = 67;
    /// Kind of character device, string: "uverbs" or "rdma_cm".
    RDMA_NLDEV_ATTR_CHARDEV_TYPE: u16 = 69;
    /// Name of the character device, string.
    RDMA_NLDEV_ATTR_CHARDEV_NAME: u16 = 70;
    /// ABI version of the character device, u64.
    RDMA_NLDEV_ATTR_CHARDEV_ABI: u16 = 71;
    /// Number of the character device, u64.
    RDMA_NLDEV_ATTR_CHARDEV: u16 = 72;
    /// Driver of the device, u32, an [`rdma_driver_id`](crate::rdma_driver_id).
    RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID: u16 = 73;
    /// 1 if completion events are moderated adaptively, u8.
    RDMA_NLDEV_ATTR_DEV_DIM: u16 = 84;
    /// 1 if registered memory survives a fork, u8.
    RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK: u16 = 93;
    /// Source of the device's name, u8.
    #[since("6.12")]
    RDMA_NLDEV_ATTR_NAME_ASSIGN_TYPE: u16 = 101;
}

/// Bits of a message type below the client.
const OP_BITS: u32 = 10;

/// Returns the type of a message from its client and command.
pub const fn rdma_nl_get_type(client: u16, op: u16) -> u16 {
    (client << OP_BITS) + op
}

/// Returns the client of a message's type.
pub const fn rdma_nl_get_client(message: u16) -> u16 {
    message >> OP_BITS
}

/// Returns the command of a message's type.
pub const fn rdma_nl_get_op(message: u16) -> u16 {
    message & ((1 << OP_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_type_has_client_and_command() {
        let message = rdma_nl_get_type(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET_CHARDEV);
        assert_eq!(message, 0x140f);
        assert_eq!(rdma_nl_get_client(message), RDMA_NL_NLDEV);
        assert_eq!(rdma_nl_get_op(message), RDMA_NLDEV_CMD_GET_CHARDEV);
    }
}
