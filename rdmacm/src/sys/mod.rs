//! The only place that talks to the kernel, with the modules for verbs files in [`verbs_core::sys`].
//!
//! # Safety
//!
//! A command is a `write` whose bytes hold addresses that the kernel reads from or stores to, a
//! mapping is memory that the kernel shares, and a response may carry a file descriptor. The
//! modules below turn each of these into calls that are safe for the rest of the crate: they build
//! the addresses themselves, from memory that they own for the length of the call, own
//! every mapping, and wrap every descriptor the moment it arrives.

pub(crate) mod netlink;
pub(crate) mod poll;
#[cfg(feature = "tokio")]
pub(crate) mod reactor;
pub(crate) mod resolver;
pub(crate) mod sysfs;
pub(crate) mod ucma;

pub(crate) use verbs_core::sys::{command, mapping, node, ownership, per_process, process, uverbs};
