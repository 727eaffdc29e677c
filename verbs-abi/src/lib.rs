//! The Linux uverbs ABI.
#![no_std]
#![forbid(unsafe_code)]


mod aligned;
pub mod command;
pub mod layout;

pub use aligned::AlignedU64;
pub use command::Command;
