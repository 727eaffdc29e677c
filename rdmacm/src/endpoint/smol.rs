//! Async connections, listeners and sockets for programs on smol (feature `smol`).
//!
//! The types are those of [`endpoint::task`](crate::endpoint::task). Outside of a Tokio runtime they use smol's reactor by default,
//! under any executor. [`SmolRuntime`] passes it explicitly.
//!
//! # Examples
//!
//! ```no_run
#![doc = include_str!("../../examples/smol_echo.rs")]
//! ```
pub use crate::endpoint::task::runtime::smol::SmolRuntime;
pub use crate::endpoint::task::{
    Connection, DatagramSocket, ExportedMemory, Incoming, Listener, MulticastGroup, PollGroup,
};
