//! The Linux uverbs ABI.
#![no_std]
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "the kernel's spelling")]

pub mod ah;
mod aligned;
mod big_endian;
pub mod command;
pub mod cq;
pub mod device;
pub mod event;
pub mod header;
pub mod layout;
pub mod memory;
pub mod pd;
pub mod port;
pub mod qp;
pub mod qp_attr;
pub mod qp_state;
pub mod sa;
pub mod srq;
mod union_member;
pub mod wc;
pub mod wr;

pub use aligned::AlignedU64;
pub use big_endian::{Be16, Be32, Be64};
pub use command::Command;
#[doc(no_inline)]
pub use {
    ah::*, cq::*, device::*, event::*, header::*, memory::*, pd::*, port::*, qp::*, qp_attr::*,
    qp_state::*, sa::*, srq::*, wc::*, wr::*,
};
