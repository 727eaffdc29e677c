//! [`TokioRuntime`], and the types of [`endpoint::task`](super::task) under a second path (feature `tokio`).
//!
//! In the context of a Tokio runtime these types use it by default.
//!
//! # Examples
//!
//! ```no_run
#![doc = include_str!("../../examples/tokio_echo.rs")]
//! ```
pub use super::task::runtime::tokio::TokioRuntime;
pub use super::task::{
    Connection, DatagramSocket, ExportedMemory, Incoming, Listener, MulticastGroup,
};
