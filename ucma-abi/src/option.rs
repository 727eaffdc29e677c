//! Options of an id: SET_OPTION. GET_OPTION was never implemented.

use verbs_abi::{AlignedU64, abi_constants, abi_structs};
use zerocopy::{Immutable, IntoBytes};

use crate::command::commands;

abi_constants! {
    table: OPTION_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Level of the options of an id.
    RDMA_OPTION_ID: u32 = 0;
    /// Level of the options of InfiniBand.
    RDMA_OPTION_IB: u32 = 1;

    /// Type of service: a `u8`.
    RDMA_OPTION_ID_TOS: u32 = 0;
    /// Allow binding to an address that is in use: an `int`, 0 or 1.
    RDMA_OPTION_ID_REUSEADDR: u32 = 1;
    /// Restrict a wildcard IPv6 address to IPv6: an `int`, 0 or 1.
    RDMA_OPTION_ID_AFONLY: u32 = 2;
    /// Local ACK timeout of the queue pair: a `u8`, 4.096 us times two to this power. Since Linux 5.1.
    RDMA_OPTION_ID_ACK_TIMEOUT: u32 = 3;

    /// Paths to use instead of resolving a route: an array of [`ib_path_rec_data`](verbs_abi::ib_path_rec_data).
    /// ROUTE_RESOLVED follows.
    RDMA_OPTION_IB_PATH: u32 = 1;
}

abi_structs! {
    table: OPTION_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The request of SET_OPTION, which sets an option of an id.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_set_option: size 24, align 8 {
        /// Address of the value.
        0 => optval: AlignedU64,
        /// The handle.
        8 => id: u32,
        /// [`RDMA_OPTION_ID`] or [`RDMA_OPTION_IB`].
        12 => level: u32,
        /// The option, of that level.
        16 => optname: u32,
        /// Bytes of the value.
        20 => optlen: u32,
    }
}

commands! {
    RDMA_USER_CM_CMD_SET_OPTION for rdma_ucm_set_option;
}
