//! What ties a request to its number and its response.

use verbs_abi::AlignedU64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A ucma command: a request that is written to `/dev/infiniband/rdma_cm`, and the response that the kernel stores.
///
/// Sealed: a response that did not fit its request would let the kernel write outside of it.
pub trait Command: IntoBytes + Immutable + sealed::Sealed {
    /// The kernel's name of the command, for messages: `RDMA_USER_CM_CMD_CREATE_ID`.
    const NAME: &'static str;

    /// The command's number.
    const NUMBER: u32;

    /// The response; `()` where there is none.
    type Response: FromBytes + IntoBytes + Immutable + KnownLayout;

    /// Where the request carries the address of its response.
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
/// `NAME for request => response;` for a request with a `response` field, `NAME for request;` for one without response.
macro_rules! commands {
    ($($name:ident for $request:ty $(=> $response:ty)?;)*) => {$(
        impl $crate::command::sealed::Sealed for $request {}

        impl $crate::command::Command for $request {
            const NAME: &'static str = stringify!($name);
            const NUMBER: u32 = crate::$name;
            $crate::command::commands!(@response $($response)?);
        }
    )*};
    (@response) => { type Response = (); };
    (@response $response:ty) => {
        type Response = $response;

        fn response_mut(&mut self) -> Option<&mut verbs_abi::AlignedU64> {
            Some(&mut self.response)
        }
    };
}
pub(crate) use commands;
