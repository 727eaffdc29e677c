//! The entry points of the fuzz targets: one for each source of untrusted bytes.
//!
//! The sources are the kernel, devices and peers. The module exists only in builds with `--cfg fuzzing`, as `cargo
//! fuzz` and `cargo xtask fuzz` create them. It is not part of the library.

pub use crate::addr::fuzzing::address;
pub use crate::cm::fuzzing::{answers, events};
pub use crate::device::fuzzing::{netlink, sysfs};
pub use crate::drivers::mlx5_fuzzing::{completions as mlx5_completions, context as mlx5_context};
pub use crate::drivers::rxe::fuzzing::ring as rxe_ring;
pub use crate::drivers::siw::fuzzing::ring as siw_ring;
pub use crate::endpoint::fuzzing::endpoint;
pub use crate::endpoint::poll_group::fuzzing::poll_group;
pub use crate::verbs::fuzzing::completions;
