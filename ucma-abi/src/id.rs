//! The life of an id: CREATE_ID, DESTROY_ID, MIGRATE_ID.

use verbs_abi::{AlignedU64, abi_constants, abi_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::command::commands;

abi_constants! {
    table: ID_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Datagrams over IPoIB.
    RDMA_PS_IPOIB: u16 = 0x0002;
    /// Any queue pair type, addressed by `AF_IB` or IP.
    RDMA_PS_IB: u16 = 0x013f;
    /// Reliable connections.
    RDMA_PS_TCP: u16 = 0x0106;
    /// Datagrams.
    RDMA_PS_UDP: u16 = 0x0111;
}

abi_structs! {
    table: ID_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The request of CREATE_ID, which makes an id on the channel that it is written to.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_create_id: size 24, align 8 {
        /// The caller's value, handed back in every event.
        ///
        /// The kernel drops the events of an id whose value is 0.
        0 => uid: AlignedU64,
        /// Address of a [`rdma_ucm_create_id_resp`].
        8 => response: AlignedU64,
        /// Port space, one of `RDMA_PS_*`.
        16 => ps: u16,
        /// Queue pair type, an `IB_QPT_*`. The kernel reads it only for [`RDMA_PS_IB`].
        18 => qp_type: u8,
        /// Zero.
        19 => reserved: [u8; 5],
    }

    /// The kernel's handle of a new id or of a new multicast membership.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_create_id_resp: size 4, align 4 {
        /// The handle.
        0 => id: u32,
    }

    /// The request of DESTROY_ID, which destroys an id with its unread events.
    ///
    /// Also the request of [LEAVE_MCAST](crate::rdma_ucm_leave_mcast).
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_destroy_id: size 16, align 8 {
        /// Address of a [`rdma_ucm_destroy_id_resp`].
        0 => response: AlignedU64,
        /// The handle.
        8 => id: u32,
        /// Zero.
        12 => reserved: u32,
    }

    /// Number of events that the kernel has reported for the destroyed object.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_destroy_id_resp: size 4, align 4 {
        /// Events that GET_EVENT has delivered since the id was made.
        0 => events_reported: u32,
    }

    /// The request of MIGRATE_ID, which moves an id to the channel that gets the request.
    ///
    /// Pending events move with the id.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_migrate_id: size 16, align 8 {
        /// Address of a [`rdma_ucm_migrate_resp`].
        0 => response: AlignedU64,
        /// The handle.
        8 => id: u32,
        /// Descriptor of the channel that has the id now.
        12 => fd: u32,
    }

    /// Number of events that the old channel has reported for the id.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_migrate_resp: size 4, align 4 {
        /// Events that GET_EVENT has delivered since the id was made.
        0 => events_reported: u32,
    }
}

commands! {
    RDMA_USER_CM_CMD_CREATE_ID for rdma_ucm_create_id => rdma_ucm_create_id_resp;
    RDMA_USER_CM_CMD_DESTROY_ID for rdma_ucm_destroy_id => rdma_ucm_destroy_id_resp;
    RDMA_USER_CM_CMD_MIGRATE_ID for rdma_ucm_migrate_id => rdma_ucm_migrate_resp;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn response_is_written_into_request() {
        let mut request = rdma_ucm_create_id {
            uid: AlignedU64::new(0x0102),
            response: AlignedU64::new(0),
            ps: RDMA_PS_TCP,
            qp_type: 2,
            reserved: [0; 5],
        };
        *request.response_mut().unwrap() = AlignedU64::new(0x0304);
        let mut golden = [0; 24];
        golden[..8].copy_from_slice(&0x0102_u64.to_ne_bytes());
        golden[8..16].copy_from_slice(&0x0304_u64.to_ne_bytes());
        golden[16..18].copy_from_slice(&0x0106_u16.to_ne_bytes());
        golden[18] = 2;
        assert_eq!(request.as_bytes(), golden);
        assert_eq!(rdma_ucm_create_id::NUMBER, 0);
        assert_eq!(rdma_ucm_create_id::NAME, "RDMA_USER_CM_CMD_CREATE_ID");
    }
}
