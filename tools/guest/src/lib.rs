//! What the test bed's two sides agree on: the [`plan`] that xtask packs into the guest's initramfs, the
//! [`report`] that the guest sends back while it carries the plan out, and how both word an [`error`].

pub mod error;
pub mod plan;
pub mod report;
