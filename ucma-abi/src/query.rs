//! Queries of an id: QUERY_ROUTE and the forms of QUERY.
//!
//! One request structure serves five questions with five answers, so each question is a newtype around it that fixes
//! the option and the response.

use verbs_abi::{
    AlignedU64, abi_constants, abi_structs, ib_path_rec_data, ib_user_path_rec, ib_user_service_rec,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::command::commands;

abi_constants! {
    table: QUERY_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Asks for the addresses.
    RDMA_USER_CM_QUERY_ADDR: u32 = 0;
    /// Asks for the paths.
    RDMA_USER_CM_QUERY_PATH: u32 = 1;
    /// Asks for the GIDs, as addresses of family `AF_IB`.
    RDMA_USER_CM_QUERY_GID: u32 = 2;
    /// Asks for the service records.
    #[since("6.18")]
    RDMA_USER_CM_QUERY_IB_SERVICE: u32 = 3;
}

abi_structs! {
    table: QUERY_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// QUERY_ROUTE and QUERY.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_query: size 16, align 8 {
        /// Address of the response.
        0 => response: AlignedU64,
        /// The handle.
        8 => id: u32,
        /// The question, one of `RDMA_USER_CM_QUERY_*`; QUERY_ROUTE ignores it.
        12 => option: u32,
    }

    /// Addresses and paths of an id: the response of QUERY_ROUTE.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_query_route_resp: size 208, align 8 {
        /// GUID of the device, in network byte order; 0 while the id has no device.
        0 => node_guid: AlignedU64,
        /// The paths; the first `num_paths` are valid.
        8 => ib_route: [ib_user_path_rec; 2],
        /// Local address: `sockaddr_in` or `sockaddr_in6`.
        136 => src_addr: [u8; 28],
        /// The peer's address.
        164 => dst_addr: [u8; 28],
        /// Number of paths, 0 to 2.
        192 => num_paths: u32,
        /// Port, from 1.
        196 => port_num: u8,
        /// Zero.
        197 => reserved: [u8; 3],
        /// Index of the device, as netlink counts them. Since Linux 5.8; earlier kernels end before it.
        200 => ibdev_index: u32,
        /// Zero.
        204 => reserved1: u32,
    }

    /// Addresses of an id: the response of QUERY for addresses and for GIDs.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_query_addr_resp: size 280, align 8 {
        /// GUID of the device, in network byte order; 0 while the id has no device.
        0 => node_guid: AlignedU64,
        /// Port, from 1.
        8 => port_num: u8,
        /// Zero.
        9 => reserved: u8,
        /// P_Key, in network byte order.
        10 => pkey: u16,
        /// Bytes of the local address.
        12 => src_size: u16,
        /// Bytes of the peer's address.
        14 => dst_size: u16,
        /// Local address: by IP for addresses, `AF_IB` for GIDs.
        16 => src_addr: [u8; 128],
        /// The peer's address.
        144 => dst_addr: [u8; 128],
        /// Index of the device, as netlink counts them. Since Linux 5.8; earlier kernels end before it.
        272 => ibdev_index: u32,
        /// Zero.
        276 => reserved1: u32,
    }

    /// The header of the paths in the response of QUERY for paths.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_query_path_resp: size 8, align 4 {
        /// Number of paths that the kernel has. It stores as many as fit.
        0 => num_paths: u32,
        /// Zero.
        4 => reserved: u32,
    }

    /// The header of the records in the response of QUERY for service records.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[since("6.18")]
    pub struct rdma_ucm_query_ib_service_resp: size 8, align 8, i386 4 {
        /// Number of records that the kernel has. It stores as many as fit.
        0 => num_service_recs: u32,
        /// Zero.
        4 => reserved: u32,
    }
}

impl rdma_ucm_query_route_resp {
    /// Bytes that every kernel stores: those before `ibdev_index`.
    pub const MIN_SIZE: usize = core::mem::offset_of!(Self, ibdev_index);
}

impl rdma_ucm_query_addr_resp {
    /// Bytes that every kernel stores: those before `ibdev_index`.
    pub const MIN_SIZE: usize = core::mem::offset_of!(Self, ibdev_index);
}

/// A response of QUERY for paths, with room for [six](Self::CAPACITY).
///
/// Linux 6.12 has two at most: the primary path and the alternate one.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct rdma_ucm_query_path_records {
    /// Header with the number of records.
    pub head: rdma_ucm_query_path_resp,
    /// The paths.
    pub path_data: [ib_path_rec_data; Self::CAPACITY],
}

impl rdma_ucm_query_path_records {
    /// Maximum number of paths in the response.
    pub const CAPACITY: usize = 6;

    /// Returns the paths that the kernel stored.
    pub fn paths(&self) -> &[ib_path_rec_data] {
        stored(&self.path_data, self.head.num_paths)
    }
}

/// A response of QUERY for service records, with room for [64](Self::CAPACITY). Linux 6.18.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct rdma_ucm_query_ib_service_records {
    /// Header with the number of records, which may be more than fit.
    pub head: rdma_ucm_query_ib_service_resp,
    /// The records.
    pub recs: [ib_user_service_rec; Self::CAPACITY],
}

impl rdma_ucm_query_ib_service_records {
    /// Maximum number of records in the response.
    pub const CAPACITY: usize = 64;

    /// Returns the records that the kernel stored.
    pub fn services(&self) -> &[ib_user_service_rec] {
        stored(&self.recs, self.head.num_service_recs)
    }
}

fn stored<T>(records: &[T], count: u32) -> &[T] {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    &records[..count.min(records.len())]
}

macro_rules! questions {
    ($($(#[doc = $doc:literal])* $name:ident, $option:expr;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
        #[repr(transparent)]
        pub struct $name(rdma_ucm_query);

        impl $name {
            /// Creates the query of an id.
            pub const fn new(id: u32) -> Self {
                Self(rdma_ucm_query { response: AlignedU64::new(0), id, option: $option })
            }
        }
    )*};
}

questions! {
    /// QUERY_ROUTE: asks for addresses and paths.
    rdma_ucm_query_route, 0;
    /// QUERY for the addresses.
    rdma_ucm_query_addr, RDMA_USER_CM_QUERY_ADDR;
    /// QUERY for the paths.
    rdma_ucm_query_path, RDMA_USER_CM_QUERY_PATH;
    /// QUERY for the GIDs.
    rdma_ucm_query_gid, RDMA_USER_CM_QUERY_GID;
    /// QUERY for the service records. Linux 6.18.
    rdma_ucm_query_ib_service, RDMA_USER_CM_QUERY_IB_SERVICE;
}

commands! {
    RDMA_USER_CM_CMD_QUERY_ROUTE for rdma_ucm_query_route(0) => rdma_ucm_query_route_resp;
    RDMA_USER_CM_CMD_QUERY for rdma_ucm_query_addr(0) => rdma_ucm_query_addr_resp;
    RDMA_USER_CM_CMD_QUERY for rdma_ucm_query_path(0) => rdma_ucm_query_path_records;
    RDMA_USER_CM_CMD_QUERY for rdma_ucm_query_gid(0) => rdma_ucm_query_addr_resp;
    RDMA_USER_CM_CMD_QUERY for rdma_ucm_query_ib_service(0) => rdma_ucm_query_ib_service_records;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn responses_have_minimum_sizes() {
        assert_eq!(rdma_ucm_query_route_resp::MIN_SIZE, 200);
        assert_eq!(rdma_ucm_query_addr_resp::MIN_SIZE, 272);
    }

    #[test]
    fn query_type_fixes_option() {
        let mut request = rdma_ucm_query_gid::new(5);
        *request.response_mut().unwrap() = AlignedU64::new(3);
        let mut golden = [0; 16];
        golden[..8].copy_from_slice(&3_u64.to_ne_bytes());
        golden[8..12].copy_from_slice(&5_u32.to_ne_bytes());
        golden[12..].copy_from_slice(&2_u32.to_ne_bytes());
        assert_eq!(request.as_bytes(), golden);
        assert_eq!(rdma_ucm_query_gid::NUMBER, 19);
        assert_eq!(rdma_ucm_query_route::NUMBER, 5);
    }

    #[test]
    fn only_stored_paths_are_returned() {
        let mut bytes = [0; 8 + 6 * 72];
        bytes[..4].copy_from_slice(&1_u32.to_ne_bytes());
        bytes[8] = 0x2b;
        bytes[16] = 0xaa;
        let response = rdma_ucm_query_path_records::read_from_bytes(&bytes).unwrap();
        assert_eq!(response.paths().len(), 1);
        assert_eq!(response.paths()[0].path_rec_bytes()[0], 0xaa);

        bytes[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        let response = rdma_ucm_query_path_records::read_from_bytes(&bytes).unwrap();
        assert_eq!(response.paths().len(), 6);

        let mut bytes = [0; 8 + 64 * 176];
        bytes[..4].copy_from_slice(&2_u32.to_ne_bytes());
        bytes[8 + 176 + 7] = 9;
        let response = rdma_ucm_query_ib_service_records::read_from_bytes(&bytes).unwrap();
        assert_eq!(response.services().len(), 2);
        assert_eq!(response.services()[1].id.get(), 9);
    }
}
