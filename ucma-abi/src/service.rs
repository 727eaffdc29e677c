//! InfiniBand services: RESOLVE_IB_SERVICE. Linux 6.18.

use verbs_abi::{AlignedU64, abi_constants, abi_flags, abi_structs};
use zerocopy::{Immutable, IntoBytes};

use crate::command::commands;

abi_constants! {
    table: SERVICE_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Bytes of the service name field.
    #[since("6.18")]
    RDMA_USER_CM_IB_SERVICE_NAME_SIZE: usize = 64;
}

abi_flags! {
    table: SERVICE_FLAGS, header: "rdma/rdma_user_cm.h";

    /// The key by which a service is looked up.
    pub struct rdma_ucm_ib_service_flags: u32 {
        /// The service id is valid.
        #[since("6.18")]
        RDMA_USER_CM_IB_SERVICE_FLAG_ID = 1 << 0;
        /// The service name is valid.
        #[since("6.18")]
        RDMA_USER_CM_IB_SERVICE_FLAG_NAME = 1 << 1;
    }
}

abi_structs! {
    table: SERVICE_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The service to look up.
    #[derive(IntoBytes, Immutable)]
    #[since("6.18")]
    pub struct rdma_ucm_ib_service: size 80, align 8 {
        /// Service id, in the byte order of the host.
        0 => service_id: AlignedU64,
        /// Service name, ends at the first zero byte.
        8 => service_name: [u8; RDMA_USER_CM_IB_SERVICE_NAME_SIZE],
        /// The valid one of the two fields.
        72 => flags: rdma_ucm_ib_service_flags,
        /// Zero.
        76 => reserved: u32,
    }

    /// The request of RESOLVE_IB_SERVICE, which looks a service up.
    ///
    /// ADDRINFO_RESOLVED or ADDRINFO_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    #[since("6.18")]
    pub struct rdma_ucm_resolve_ib_service: size 88, align 8 {
        /// The handle.
        0 => id: u32,
        /// Zero.
        4 => reserved: u32,
        /// The service.
        8 => ibs: rdma_ucm_ib_service,
    }
}

commands! {
    RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE for rdma_ucm_resolve_ib_service;
}
