//! The Linux uverbs ABI, written by hand.
//!
//! It has the commands of `/dev/infiniband/uverbsN`, the rings of the software devices, and the numbers of RDMA
//! netlink.
//!
//! The crate has no I/O, no unsafe code and no C.
//!
//! Structures, enumerations and constants have the kernel's names and live in one module for each subject. The items of
//! the write commands are re-exported here, as in the header, and so are the items that the connection manager shares.
//!
//! | Module | Subject |
//! |---|---|
//! | [`header`] | command numbers, headers in front of a request |
//! | [`command`] | [`Command`], which links a request to its number and its response |
//! | [`device`] | user context, device attributes, drivers, node types |
//! | [`port`] | port attributes and states, MTU |
//! | [`event`] | completion channel, completion and asynchronous events |
//! | [`pd`] | protection domains |
//! | [`memory`] | memory regions and windows, access flags |
//! | [`cq`] | completion queues |
//! | [`wc`] | work completions |
//! | [`qp`] | queue pairs |
//! | [`qp_state`] | states of queue pairs, MODIFY_QP |
//! | [`qp_attr`] | queue pair attributes and addresses, shared with the connection manager |
//! | [`wr`] | work requests by way of the kernel, opcodes and send flags |
//! | [`srq`] | shared receive queues, XRC domains |
//! | [`ah`] | address handles, multicast groups |
//! | [`sa`] | path and service records, shared with the connection manager |
//! | [`ioctl`] | the ioctl that carries a write command, and that lists GIDs |
//! | [`netlink`] | RDMA netlink |
//! | [`mlx5`] | the driver's part of commands to mlx5 devices |
//! | [`rxe`] | data path of software RoCE |
//! | [`siw`] | data path of software iWARP |
//! | [`layout`] | the layout table, and the macros that declare and fill it |
//!
//! # Conventions
//!
//! - The derive shows the direction: `IntoBytes` for data to the kernel, `FromBytes` for data from the kernel. A
//!   response is both, because its buffer is passed as bytes.
//! - Every byte is a field: padding is `reserved` and must be zero. `Default` is all zero.
//! - `driver_data` at the end of a structure is not declared: the driver's part is a separate structure after it.
//! - A union is bytes, with accessors or with structures that convert into it.
//! - Enumerations hold any value; flags keep unknown bits.
//! - `since` in the layout table is the Linux version that first had an item. If it is missing, 6.1 has the item.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout)]
#![expect(non_camel_case_types, reason = "the kernel's spelling")]

pub mod ah;
mod aligned;
mod big_endian;
pub mod command;
pub mod cq;
pub mod device;
pub mod event;
pub mod header;
pub mod ioctl;
pub mod layout;
pub mod memory;
pub mod mlx5;
pub mod netlink;
pub mod pd;
pub mod port;
pub mod qp;
pub mod qp_attr;
pub mod qp_state;
pub mod rxe;
pub mod sa;
pub mod siw;
pub mod srq;
mod union_member;
pub mod wc;
pub mod wr;

pub use aligned::AlignedU64;
pub use big_endian::{Be16, Be32, Be64};
pub use command::Command;
#[doc(no_inline)]
pub use {
    ah::*, cq::*, device::*, event::*, header::*, memory::*, pd::*, port::*, qp::*, qp_attr::*,
    qp_state::*, sa::*, srq::*, wc::*, wr::*,
};

/// Every structure of this crate.
pub const LAYOUT: &[&[layout::Struct]] = &[
    HEADER_LAYOUT,
    DEVICE_LAYOUT,
    PORT_LAYOUT,
    EVENT_LAYOUT,
    PD_LAYOUT,
    MEMORY_LAYOUT,
    CQ_LAYOUT,
    WC_LAYOUT,
    QP_LAYOUT,
    QP_STATE_LAYOUT,
    QP_ATTR_LAYOUT,
    WR_LAYOUT,
    SRQ_LAYOUT,
    AH_LAYOUT,
    SA_LAYOUT,
    ioctl::IOCTL_LAYOUT,
    ioctl::GID_LAYOUT,
    mlx5::MLX5_LAYOUT,
    rxe::RXE_LAYOUT,
    siw::SIW_LAYOUT,
];

/// Every constant of this crate that a public header of the kernel has.
pub const CONSTANTS: &[&[layout::Constant]] = &[
    COMMAND_CONSTANTS,
    DEVICE_CAP_FLAGS,
    DRIVER_IDS,
    NODE_TYPES,
    PORT_FLAGS,
    PORT_CAP_FLAGS,
    ACCESS_FLAGS,
    CREATE_CQ_FLAGS,
    WC_OPCODES,
    QP_TYPES,
    QP_CREATE_FLAGS,
    WR_OPCODES,
    SRQ_TYPES,
    IB_PATH_FLAGS,
    ioctl::GID_TYPES,
    ioctl::IOCTL_CONSTANTS,
    ioctl::IOCTL_IDS,
    netlink::NETLINK_FAMILY,
    netlink::NETLINK_CONSTANTS,
    mlx5::MLX5_CONSTANTS,
    mlx5::MLX5_IOCTL_IDS,
    mlx5::MLX5_UAR_ALLOC_TYPES,
    mlx5::MLX5_LIB_CAPS,
    mlx5::MLX5_UCTX_FLAGS,
    mlx5::MLX5_UCTX_RESP_MASK,
    mlx5::MLX5_CMDS_SUPP_UHW,
    mlx5::MLX5_CREATE_CQ_FLAGS,
    mlx5::MLX5_QP_FLAGS,
    mlx5::MLX5_CREATE_QP_RESP_MASK,
    mlx5::MLX5_MMAP_CMDS,
    rxe::RXE_CONSTANTS,
    siw::SIW_CONSTANTS,
    siw::SIW_OPCODES,
    siw::SIW_WQE_FLAGS,
    siw::SIW_NOTIFY_FLAGS,
    siw::SIW_WC_STATUS,
];
