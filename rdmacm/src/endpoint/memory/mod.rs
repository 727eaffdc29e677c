//! Registered memory: buffers and messages, memory that is exported to the peer, and memory of the peer.

pub(super) mod buffer;
pub(super) mod exported_memory;
pub(super) mod remote_memory;
pub(super) mod sending;
