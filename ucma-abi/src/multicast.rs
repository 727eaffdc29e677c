//! Multicast groups: JOIN_IP_MCAST, JOIN_MCAST, LEAVE_MCAST.

use verbs_abi::{AlignedU64, abi_constants, abi_structs};
use zerocopy::{Immutable, IntoBytes};

use crate::command::commands;
use crate::{rdma_ucm_create_id_resp, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp};

// These constants are values and not bits: the kernel compares the whole field.
abi_constants! {
    table: MULTICAST_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Sends and receives.
    RDMA_MC_JOIN_FLAG_FULLMEMBER: u16 = 0;
    /// Sends only.
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u16 = 1;
    /// The first value that has no meaning; the kernel answers `EINVAL`.
    RDMA_MC_JOIN_FLAG_RESERVED: u16 = 2;
}

abi_structs! {
    table: MULTICAST_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The request of JOIN_IP_MCAST, which joins the group of an IPv4 or IPv6 address.
    ///
    /// MULTICAST_JOIN or MULTICAST_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_join_ip_mcast: size 48, align 8 {
        /// Address of a [`rdma_ucm_create_id_resp`].
        0 => response: AlignedU64,
        /// The caller's value, handed back in the events of the membership.
        8 => uid: AlignedU64,
        /// `sockaddr_in` or `sockaddr_in6`, the rest zero.
        16 => addr: [u8; 28],
        /// The handle of the id.
        44 => id: u32,
    }

    /// The request of JOIN_MCAST, which joins the group of an address.
    ///
    /// MULTICAST_JOIN or MULTICAST_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_join_mcast: size 152, align 8 {
        /// Address of a [`rdma_ucm_create_id_resp`].
        0 => response: AlignedU64,
        /// The caller's value, handed back in the events of the membership.
        8 => uid: AlignedU64,
        /// The handle of the id.
        16 => id: u32,
        /// Bytes of the address: exactly 16 (IPv4), 28 (IPv6) or 48 (`AF_IB`).
        20 => addr_size: u16,
        /// [`RDMA_MC_JOIN_FLAG_FULLMEMBER`] or [`RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`].
        22 => join_flags: u16,
        /// The address, the rest of the slot zero.
        24 => addr: [u8; 128],
    }
}

/// The request of LEAVE_MCAST, which leaves a multicast group.
///
/// The kernel has no separate structure for it.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct rdma_ucm_leave_mcast(pub rdma_ucm_destroy_id);

impl rdma_ucm_leave_mcast {
    /// Creates the request for a membership by its handle.
    pub const fn new(id: u32) -> Self {
        Self(rdma_ucm_destroy_id { response: AlignedU64::new(0), id, reserved: 0 })
    }
}

commands! {
    RDMA_USER_CM_CMD_JOIN_IP_MCAST for rdma_ucm_join_ip_mcast => rdma_ucm_create_id_resp;
    RDMA_USER_CM_CMD_JOIN_MCAST for rdma_ucm_join_mcast => rdma_ucm_create_id_resp;
    RDMA_USER_CM_CMD_LEAVE_MCAST for rdma_ucm_leave_mcast(0) => rdma_ucm_destroy_id_resp;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn leave_is_laid_out_as_destroy() {
        let mut request = rdma_ucm_leave_mcast::new(7);
        *request.response_mut().unwrap() = AlignedU64::new(9);
        let mut golden = [0; 16];
        golden[..8].copy_from_slice(&9_u64.to_ne_bytes());
        golden[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(request.as_bytes(), golden);
        assert_eq!(rdma_ucm_leave_mcast::NUMBER, 17);
    }
}
