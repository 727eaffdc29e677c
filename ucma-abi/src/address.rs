//! Addresses and routes: BIND_IP, RESOLVE_IP, RESOLVE_ROUTE, BIND, RESOLVE_ADDR.
//!
//! A socket address travels in a slot of fixed size, and the rest of the slot is zero. The slot has 128 bytes
//! (`__kernel_sockaddr_storage`) in the current commands. In the older ones it has 28 bytes (`sockaddr_in6`), also for
//! an IPv4 address.

use verbs_abi::{AlignedU64, abi_structs};
use zerocopy::{Immutable, IntoBytes};

use crate::command::commands;

abi_structs! {
    table: ADDRESS_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The request of BIND_IP, which binds an id to an IPv4 or IPv6 address.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_bind_ip: size 40, align 8 {
        /// Not used: there is no response.
        0 => response: AlignedU64,
        /// `sockaddr_in` or `sockaddr_in6`.
        8 => addr: [u8; 28],
        /// The handle.
        36 => id: u32,
    }

    /// The request of BIND, which binds an id to an address.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_bind: size 136, align 8, i386 4 {
        /// The handle.
        0 => id: u32,
        /// Bytes of the address: exactly 16 (IPv4), 28 (IPv6) or 48 (`AF_IB`).
        4 => addr_size: u16,
        /// Zero, or the kernel answers `EINVAL`.
        6 => reserved: u16,
        /// The address.
        8 => addr: [u8; 128],
    }

    /// The request of RESOLVE_IP, which resolves an IPv4 or IPv6 address to a device.
    ///
    /// ADDR_RESOLVED or ADDR_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_resolve_ip: size 64, align 4 {
        /// Source address; family 0 for none.
        0 => src_addr: [u8; 28],
        /// Destination address.
        28 => dst_addr: [u8; 28],
        /// The handle.
        56 => id: u32,
        /// Time to wait, in milliseconds.
        60 => timeout_ms: u32,
    }

    /// The request of RESOLVE_ADDR, which resolves an address to a device.
    ///
    /// ADDR_RESOLVED or ADDR_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_resolve_addr: size 272, align 8, i386 4 {
        /// The handle.
        0 => id: u32,
        /// Time to wait, in milliseconds.
        4 => timeout_ms: u32,
        /// Bytes of the source address: 0 for none, else exactly that of its family.
        8 => src_size: u16,
        /// Bytes of the destination address: exactly that of its family.
        10 => dst_size: u16,
        /// Zero, or the kernel answers `EINVAL`.
        12 => reserved: u32,
        /// Source address.
        16 => src_addr: [u8; 128],
        /// Destination address.
        144 => dst_addr: [u8; 128],
    }

    /// The request of RESOLVE_ROUTE, which finds the path to the resolved address.
    ///
    /// ROUTE_RESOLVED or ROUTE_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_resolve_route: size 8, align 4 {
        /// The handle.
        0 => id: u32,
        /// Time to wait, in milliseconds; 0 is `EINVAL`.
        4 => timeout_ms: u32,
    }
}

commands! {
    RDMA_USER_CM_CMD_BIND_IP for rdma_ucm_bind_ip;
    RDMA_USER_CM_CMD_BIND for rdma_ucm_bind;
    RDMA_USER_CM_CMD_RESOLVE_IP for rdma_ucm_resolve_ip;
    RDMA_USER_CM_CMD_RESOLVE_ADDR for rdma_ucm_resolve_addr;
    RDMA_USER_CM_CMD_RESOLVE_ROUTE for rdma_ucm_resolve_route;
}
