//! Async connections, listeners and sockets for programs on Tokio (feature `tokio`).
//!
//! The types are those of [`endpoint::task`](super::task). In the context of a Tokio runtime they use it by default;
//! the runtime needs I/O and time (`enable_all`). [`TokioRuntime`] passes a runtime explicitly.
//!
//! `use rdmacm::endpoint::*` imports this module too, and it then hides the crate `tokio`: write `::tokio`.
//!
//! # Examples
//!
//! ```no_run
#![doc = include_str!("../../examples/tokio_echo.rs")]
//! ```
pub use super::task::runtime::tokio::TokioRuntime;
pub use super::task::{
    Connection, DatagramSocket, ExportedMemory, Incoming, Listener, MulticastGroup, PollGroup,
};
