//! The protocol between xtask and the test bed's guest: the [`plan`] that xtask packs into the guest's initramfs, and the
//! [`report`] that the guest sends while it carries the plan out.

pub mod plan;
pub mod report;
