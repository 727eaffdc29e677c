//! The Linux uverbs ABI.
#![no_std]
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "the kernel's spelling")]

mod aligned;
mod big_endian;
pub mod command;
pub mod header;
pub mod layout;
pub mod qp_attr;
pub mod sa;

pub use aligned::AlignedU64;
pub use big_endian::{Be16, Be32, Be64};
pub use command::Command;
#[doc(no_inline)]
pub use header::*;
#[doc(no_inline)]
pub use qp_attr::*;
#[doc(no_inline)]
pub use sa::*;
