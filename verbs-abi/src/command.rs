//! The trait of commands: a request, its number and its response.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::AlignedU64;

/// A uverbs command: a request for `/dev/infiniband/uverbsN`, and the response of the kernel.
///
/// Sealed: a response that did not fit its request would let the kernel write outside of it.
pub trait Command: IntoBytes + Immutable + sealed::Sealed {
    /// The kernel's name of the command, for messages: `IB_USER_VERBS_CMD_ALLOC_PD`.
    const NAME: &'static str;

    /// The command's number, without `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
    const NUMBER: u32;

    /// `true` if the command has the extended header, which carries the address of the response.
    const EXTENDED: bool;

    /// The core response, without the driver's part; `()` if there is none.
    type Response: FromBytes + IntoBytes + Immutable + KnownLayout;

    /// Returns the field for the address of the response, which every plain command with a response has.
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
/// - `plain NAME for request => response;` is for a request with a `response` field.
/// - `silent NAME for request;` is for a request without response.
/// - `extended NAME for request => response;` is for the extended form.
macro_rules! commands {
    ($($kind:ident $name:ident for $request:ty $(=> $response:ty)?;)*) => {$(
        impl $crate::command::sealed::Sealed for $request {}

        impl $crate::command::Command for $request {
            const NAME: &'static str = stringify!($name);
            const NUMBER: u32 = $crate::command::commands!(@number $kind $name);
            const EXTENDED: bool = $crate::command::commands!(@extended $kind);
            type Response = $crate::command::commands!(@response $($response)?);
            $crate::command::commands!(@address $kind);
        }
    )*};
    (@number extended $name:ident) => { crate::$name & !crate::IB_USER_VERBS_CMD_FLAG_EXTENDED };
    (@number $kind:ident $name:ident) => { crate::$name };
    (@extended extended) => { true };
    (@extended $kind:ident) => { false };
    (@response) => { () };
    (@response $response:ty) => { $response };
    (@address plain) => {
        fn response_mut(&mut self) -> Option<&mut $crate::AlignedU64> {
            Some(&mut self.response)
        }
    };
    (@address $kind:ident) => {};
}
pub(crate) use commands;
