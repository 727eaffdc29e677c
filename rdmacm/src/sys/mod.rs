//! The only place that talks to the kernel.
//!
//! # Safety
//!
//! A command is a `write` whose bytes hold addresses that the kernel reads from or stores to, a
//! mapping is memory that the kernel shares, and a response may carry a file descriptor. The
//! modules below turn each of these into calls that are safe for the rest of the crate: they build
//! the addresses themselves, from memory that they own for the length of the call, own
//! every mapping, and wrap every descriptor the moment it arrives.

pub(crate) mod command;
pub(crate) mod mapping;
pub(crate) mod netlink;
pub(crate) mod node;
pub(crate) mod ownership;
pub(crate) mod per_process;
pub(crate) mod poll;
pub(crate) mod process;
#[cfg(feature = "tokio")]
pub(crate) mod reactor;
pub(crate) mod resolver;
pub(crate) mod sysfs;
pub(crate) mod ucma;
pub(crate) mod uverbs;
