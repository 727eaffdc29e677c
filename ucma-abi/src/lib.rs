//! The Linux ucma ABI.
#![no_std]
#![forbid(unsafe_code)]

pub mod command;

pub use command::Command;
