//! What fuzzing drives: a function of any bytes for each kind of bytes that others have made.
//!
//! Here only with `--cfg fuzzing`, as `cargo fuzz` and `cargo xtask fuzz` build it: no part of the library.

pub use crate::addr::fuzzing::address;
pub use crate::cm::fuzzing::{answers, events};
pub use crate::device::fuzzing::{netlink, sysfs};
pub use crate::provider::fuzzing::{rxe_ring, siw_ring};
pub use crate::verbs::fuzzing::completions;

use zerocopy::{FromBytes, IntoBytes};

/// Bytes, from the first one on.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte, 0 where there is none.
    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// As many of the next bytes as there are, up to `length`.
    pub(crate) fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The next value, zero from where the bytes end on.
    pub(crate) fn value<T: FromBytes + IntoBytes>(&mut self) -> T {
        let mut value = T::new_zeroed();
        let bytes = self.bytes(size_of::<T>());
        value.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        value
    }

    /// Whether there is nothing more.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
