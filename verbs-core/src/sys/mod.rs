//! Commands, mapped memory and open files of the kernel's verbs interface.
//!
//! # Safety
//!
//! The modules below provide calls that are safe for the callers:
//!
//! - A command is a `write` whose bytes hold addresses that the kernel reads from or stores to. The modules build these
//!   addresses themselves, from memory that they own for the length of the call.
//! - A mapping is memory that the kernel shares. The modules own every mapping.
//! - A response may carry a file descriptor. The modules wrap every descriptor as soon as it arrives.

pub mod command;
pub mod mapping;
pub mod node;
pub mod ownership;
mod page;
pub mod per_process;
pub mod process;
pub mod uverbs;
