//! Responses of a real kernel for tests.
//!
//! They are the attributes that Linux 6.1 on x86-64 sent for an rxe device over `v0`, captured with `strace -xx -e
//! trace=recvfrom`. They are in host byte order, so tests that parse numbers run on little-endian machines only.
#![cfg_attr(fuzzing, expect(dead_code, reason = "fuzzing has its own answers"))]

/// A member of the answer to RDMA_NLDEV_CMD_GET.
pub(super) const DEVICE: &str = "
    0800 0100 00000000              | DEV_INDEX 0
    0900 0200 72786530 00 000000    | DEV_NAME rxe0, NUL, padding
    0800 0300 01000000              | PORT_INDEX: one port
    0c00 0400 763c220100000000      | CAP_FLAGS
    0c00 0600 f94de5feff329188      | NODE_GUID, host order
    0c00 0700 f94de5feff329188      | SYS_IMAGE_GUID
    0500 0e00 01 000000             | DEV_NODE_TYPE CA
    0500 5400 00 000000             | DEV_DIM
    0900 4300 726f6365 00 000000    | DEV_PROTOCOL roce
";

/// The answer to RDMA_NLDEV_CMD_GET_CHARDEV for uverbs.
pub(super) const UVERBS: &str = "
    0800 4900 0e000000              | UVERBS_DRIVER_ID RXE
    0c00 4800 c0e7000000000000      | CHARDEV 231:192
    0c00 4700 0200000000000000      | CHARDEV_ABI 2
    0c00 4600 7576657262733000      | CHARDEV_NAME uverbs0, NUL
";

/// The answer to RDMA_NLDEV_CMD_GET_CHARDEV for rdma_cm.
pub(super) const RDMA_CM: &str = "
    0c00 4800 7c0a000000000000      | CHARDEV 10:124
    0c00 4700 0400000000000000      | CHARDEV_ABI 4
    0c00 4600 72646d615f636d00      | CHARDEV_NAME rdma_cm, NUL
";

/// The answer to RDMA_NLDEV_CMD_PORT_GET, whose type is that of RDMA_NLDEV_CMD_GET.
pub(super) const PORT: &str = "
    0800 0100 00000000              | DEV_INDEX 0
    0900 0200 72786530 00 000000    | DEV_NAME rxe0
    0800 0300 01000000              | PORT_INDEX 1
    0500 0c00 04 000000             | PORT_STATE ACTIVE
    0500 0d00 05 000000             | PORT_PHYS_STATE LinkUp
    0800 3200 03000000              | NDEV_INDEX
    0700 3300 7630 00 00            | NDEV_NAME v0
";

/// The answer to RDMA_NLDEV_CMD_RES_GET. The nests lack NLA_F_NESTED.
pub(super) const RESOURCES: &str = "
    0800 0100 00000000              | DEV_INDEX 0
    0900 0200 72786530 00 000000    | DEV_NAME rxe0
    b000 0f00                       | RES_SUMMARY
    1800 1000 0700 1100 7064 00 00     0c00 1200 0100000000000000    | ENTRY: NAME pd, CURR 1
    1800 1000 0700 1100 6371 00 00     0c00 1200 0100000000000000    | cq 1
    1800 1000 0700 1100 7170 00 00     0c00 1200 0100000000000000    | qp 1
    1c00 1000 0a00 1100 636d5f6964 00 0000 0c00 1200 0000000000000000 | cm_id 0
    1800 1000 0700 1100 6d72 00 00     0c00 1200 0000000000000000    | mr 0
    1800 1000 0800 1100 637478 00      0c00 1200 0000000000000000    | ctx 0
    1800 1000 0800 1100 737271 00      0c00 1200 0000000000000000    | srq 0
";

/// A sysfs tree with rxe0 and siw0, as Linux 6.1 shows them; the GID table of rxe0 has four slots
/// here.
pub(super) const SYSFS: &[(&str, &str)] = &[
    ("class/infiniband/rxe0/node_type", "1: CA"),
    ("class/infiniband/rxe0/node_guid", "8891:32ff:fee5:4df9"),
    ("class/infiniband/rxe0/sys_image_guid", "8891:32ff:fee5:4df9"),
    ("class/infiniband/rxe0/node_desc", "rxe"),
    ("class/infiniband/rxe0/fw_ver", ""),
    ("class/infiniband/rxe0/parent", "v0"),
    ("class/infiniband/rxe0/ports/1/state", "4: ACTIVE"),
    ("class/infiniband/rxe0/ports/1/phys_state", "5: LinkUp"),
    ("class/infiniband/rxe0/ports/1/link_layer", "Ethernet"),
    ("class/infiniband/rxe0/ports/1/lid", "0x0"),
    ("class/infiniband/rxe0/ports/1/pkeys/0", "0xffff"),
    ("class/infiniband/rxe0/ports/1/gids/0", "fe80:0000:0000:0000:8891:32ff:fee5:4df9"),
    ("class/infiniband/rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
    ("class/infiniband/rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
    ("class/infiniband/rxe0/ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000"),
    ("class/infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2"),
    ("class/infiniband/rxe0/ports/1/gid_attrs/types/2", "RoCE v2"),
    ("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "v0"),
    ("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/2", "v0"),
    ("class/infiniband/siw0/node_type", "4: RNIC"),
    ("class/infiniband/siw0/node_guid", "2c0b:5aff:fe2a:a0b8"),
    ("class/infiniband/siw0/node_desc", "Software iWARP stack"),
    ("class/infiniband/siw0/ports/1/state", "4: ACTIVE"),
    ("class/infiniband/siw0/ports/1/phys_state", "5: LinkUp"),
    ("class/infiniband/siw0/ports/1/link_layer", "Ethernet"),
    ("class/infiniband/siw0/ports/1/gids/0", "2e0b:5a2a:a0b8:0000:0000:0000:0000:0000"),
    ("class/infiniband_verbs/abi_version", "6"),
    ("class/infiniband_verbs/uverbs0/ibdev", "rxe0"),
    ("class/infiniband_verbs/uverbs0/abi_version", "2"),
    ("class/infiniband_verbs/uverbs0/dev", "231:192"),
    ("class/infiniband_verbs/uverbs1/ibdev", "siw0"),
    ("class/infiniband_verbs/uverbs1/abi_version", "1"),
    ("class/infiniband_verbs/uverbs1/dev", "231:193"),
    ("class/misc/rdma_cm/abi_version", "4"),
    ("class/misc/rdma_cm/dev", "10:124"),
];
