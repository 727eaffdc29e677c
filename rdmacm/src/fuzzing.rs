//! The entry points of the fuzz targets: one function for each kind of bytes that a kernel, a device or a peer provides.
//!
//! The module exists only in builds with `--cfg fuzzing`, as `cargo fuzz` and `cargo xtask fuzz` make them. It is not part of
//! the library.

pub use crate::addr::fuzzing::address;
pub use crate::cm::fuzzing::{answers, events};
pub use crate::device::fuzzing::{netlink, sysfs};
pub use crate::drivers::rxe::fuzzing::ring as rxe_ring;
pub use crate::drivers::siw::fuzzing::ring as siw_ring;
pub use crate::endpoint::fuzzing::endpoint;
pub use crate::verbs::fuzzing::completions;
