//! A connection: its handle, its messages, and access to memory of the peer.

// Not in alphabetical order: rustdoc lists the methods of a type in the order of these modules.
mod messages;

pub(super) mod handle;
mod remote;
