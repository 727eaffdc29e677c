//! [`SmolRuntime`], and the types of [`endpoint::task`](super::task) under a second path (feature `smol`).
//!
//! Outside of a Tokio runtime these types use it by default, under any executor.
//!
//! # Examples
//!
//! ```no_run
#![doc = include_str!("../../examples/smol_echo.rs")]
//! ```
pub use super::task::runtime::smol::SmolRuntime;
pub use super::task::{
    Connection, DatagramSocket, ExportedMemory, Incoming, Listener, MulticastGroup,
};
