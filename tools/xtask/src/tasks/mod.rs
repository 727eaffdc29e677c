//! The commands of `cargo xtask`, one module each.

pub(crate) mod api;
pub(crate) mod bench;
pub(crate) mod ci;
pub(crate) mod demo;
pub(crate) mod faults;
pub(crate) mod fuzz;
pub(crate) mod loom;
pub(crate) mod sanitize;
pub(crate) mod soak;
pub(crate) mod static_build;
pub(crate) mod subjects;
pub(crate) mod test;
pub(crate) mod test_aarch64;
pub(crate) mod vm;
