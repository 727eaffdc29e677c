//! Async connections, listeners and sockets for programs on smol (feature `smol`).
//!
//! The types are those of [`endpoint::task`](super::task). Outside of a Tokio runtime they use smol's reactor by
//! default, under any executor. [`SmolRuntime`] passes it explicitly.
//!
//! # Examples
//!
//! ```no_run
#![doc = include_str!("../../examples/smol_echo.rs")]
//! ```
pub use super::task::runtime::smol::SmolRuntime;
pub use super::task::{
    Connection, DatagramSocket, ExportedMemory, Incoming, Listener, MulticastGroup, PollGroup,
};
