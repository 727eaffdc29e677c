//! The only module that calls the kernel, together with the verbs files in [`verbs_core::sys`].
//!
//! # Safety
//!
//! - A command is a `write` whose bytes hold addresses that the kernel reads from or stores to. The modules build these
//!   addresses themselves, from memory that they own for the length of the call.
//! - A mapping is memory that the kernel shares. The modules own every mapping.
//! - A response may carry a file descriptor. The modules wrap every descriptor as soon as it arrives.
//!
//! In this way each of these becomes a call that is safe for the rest of the crate.

pub(crate) mod netlink;
pub(crate) mod poll;
#[cfg(feature = "tokio")]
pub(crate) mod reactor;
pub(crate) mod resolver;
pub(crate) mod sysfs;
pub(crate) mod ucma;

pub(crate) use verbs_core::sys::{command, mapping, node, ownership, per_process, process, uverbs};
