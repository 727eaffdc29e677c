//! The header and the numbers of the commands, and the trait that links a request to both.
//!
//! The trait also links a request to its response.

use verbs_abi::{AlignedU64, abi_constants, abi_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

abi_constants! {
    table: COMMAND_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Version of the ABI, which the kernel reports in sysfs and by netlink.
    ///
    /// Linux 6.1 and 6.12 have this version too.
    RDMA_USER_CM_ABI_VERSION: u32 = 4;

    /// Makes an id.
    RDMA_USER_CM_CMD_CREATE_ID: u32 = 0;
    /// Destroys an id.
    RDMA_USER_CM_CMD_DESTROY_ID: u32 = 1;
    /// Binds an id to an IP address; the older form of `BIND`.
    RDMA_USER_CM_CMD_BIND_IP: u32 = 2;
    /// Resolves an IP address; the older form of `RESOLVE_ADDR`.
    RDMA_USER_CM_CMD_RESOLVE_IP: u32 = 3;
    /// Finds the path to the resolved address.
    RDMA_USER_CM_CMD_RESOLVE_ROUTE: u32 = 4;
    /// Reads addresses and paths of an id; the older form of `QUERY`.
    RDMA_USER_CM_CMD_QUERY_ROUTE: u32 = 5;
    /// Asks the peer for a connection.
    RDMA_USER_CM_CMD_CONNECT: u32 = 6;
    /// Listens for connection requests.
    RDMA_USER_CM_CMD_LISTEN: u32 = 7;
    /// Accepts a connection request, or completes a connection.
    RDMA_USER_CM_CMD_ACCEPT: u32 = 8;
    /// Rejects a connection request.
    RDMA_USER_CM_CMD_REJECT: u32 = 9;
    /// Disconnects.
    RDMA_USER_CM_CMD_DISCONNECT: u32 = 10;
    /// Reads the attributes that a queue pair needs for its next state.
    RDMA_USER_CM_CMD_INIT_QP_ATTR: u32 = 11;
    /// Takes the next event of the channel.
    RDMA_USER_CM_CMD_GET_EVENT: u32 = 12;
    /// Never implemented: the kernel answers `ENOSYS`, and no structure exists for it.
    RDMA_USER_CM_CMD_GET_OPTION: u32 = 13;
    /// Sets an option of an id.
    RDMA_USER_CM_CMD_SET_OPTION: u32 = 14;
    /// Reports an event of the queue pair to the connection manager.
    RDMA_USER_CM_CMD_NOTIFY: u32 = 15;
    /// Joins a multicast group by IP address; the older form of `JOIN_MCAST`.
    RDMA_USER_CM_CMD_JOIN_IP_MCAST: u32 = 16;
    /// Leaves a multicast group.
    RDMA_USER_CM_CMD_LEAVE_MCAST: u32 = 17;
    /// Moves an id to another channel.
    RDMA_USER_CM_CMD_MIGRATE_ID: u32 = 18;
    /// Reads addresses, paths, GIDs or service records of an id.
    RDMA_USER_CM_CMD_QUERY: u32 = 19;
    /// Binds an id to an address.
    RDMA_USER_CM_CMD_BIND: u32 = 20;
    /// Resolves an address.
    RDMA_USER_CM_CMD_RESOLVE_ADDR: u32 = 21;
    /// Joins a multicast group.
    RDMA_USER_CM_CMD_JOIN_MCAST: u32 = 22;
    /// Resolves an InfiniBand service.
    #[since("6.18")]
    RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE: u32 = 23;
    /// Puts an event of the caller's own into the channel.
    #[since("6.18")]
    RDMA_USER_CM_CMD_WRITE_CM_EVENT: u32 = 24;
}

abi_structs! {
    table: COMMAND_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The header of every request.
    #[derive(PartialEq, Eq, IntoBytes, Immutable)]
    pub struct rdma_ucm_cmd_hdr: size 8, align 4 {
        /// The command, one of `RDMA_USER_CM_CMD_*`.
        0 => cmd: u32,
        /// Bytes of the request after this header.
        4 => r#in: u16,
        /// Bytes that the response may take.
        6 => out: u16,
    }
}

/// A ucma command: a request for `/dev/infiniband/rdma_cm`, and the response of the kernel.
///
/// Sealed: a response that did not fit its request would let the kernel write outside of it.
pub trait Command: IntoBytes + Immutable + sealed::Sealed {
    /// The kernel's name of the command, for messages: `RDMA_USER_CM_CMD_CREATE_ID`.
    const NAME: &'static str;

    /// The command's number.
    const NUMBER: u32;

    /// The response; `()` if there is none.
    type Response: FromBytes + IntoBytes + Immutable + KnownLayout;

    /// Returns the field for the address of the response, if the request has one.
    fn response_mut(&mut self) -> Option<&mut AlignedU64> {
        None
    }
}

pub(crate) mod sealed {
    /// Keeps [`Command`](super::Command) to the requests of this crate.
    pub trait Sealed {}
}

/// Implements [`Command`] for requests of this crate.
///
/// - `NAME for request => response;` is for a request with a `response` field.
/// - `NAME for request;` is for a request without response.
/// - `NAME for request(0) => response;` is for a newtype around a request, if commands share the kernel's structure.
macro_rules! commands {
    ($($name:ident for $request:ident $(($inner:tt))? $(=> $response:ty)?;)*) => {$(
        impl $crate::command::sealed::Sealed for $request {}

        impl $crate::command::Command for $request {
            const NAME: &'static str = stringify!($name);
            const NUMBER: u32 = crate::$name;
            $crate::command::commands!(@response [$($inner)?] $($response)?);
        }
    )*};
    (@response []) => { type Response = (); };
    (@response [$($inner:tt)?] $response:ty) => {
        type Response = $response;

        fn response_mut(&mut self) -> Option<&mut verbs_abi::AlignedU64> {
            Some(&mut self$(.$inner)?.response)
        }
    };
}
pub(crate) use commands;
