//! The protocol between xtask and the test bed's guest.
//!
//! xtask stores a [`plan`] in the guest's initramfs, and the guest sends a [`report`] while it executes the plan.

pub mod plan;
pub mod report;
