//! The verbs files of the kernel.
//!
//! # Safety
//!
//! A command is a `write` whose bytes hold addresses that the kernel reads from or stores to, a
//! mapping is memory that the kernel shares, and a response may carry a file descriptor. The
//! modules below turn each of these into calls that are safe for the callers: they build
//! the addresses themselves, from memory that they own for the length of the call, own
//! every mapping, and wrap every descriptor the moment it arrives.

pub mod command;
pub mod mapping;
pub mod node;
pub mod ownership;
pub mod per_process;
pub mod process;
pub mod uverbs;
