//! The test bed: Debian's kernels, the files that a guest needs, and the emulator.

pub(crate) mod architecture;
pub(crate) mod archive;
pub(crate) mod cache;
mod console;
mod cpio;
mod emulator;
pub(crate) mod guest_pair;
pub(crate) mod initramfs;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod module_source;
mod modules;
pub(crate) mod rust;
pub(crate) mod static_programs;
mod unstable_binaries;
pub(crate) mod vm;
