//! The bytes of a fuzz target, as values for the hooks that each module keeps beside its code.

use zerocopy::{FromBytes, IntoBytes};

/// The rest of the bytes that a fuzz target was called with.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Takes the next byte, or returns 0 if none is left.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Takes the next `length` bytes, or all that are left if these are fewer.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes the next value. Bytes that are missing at the end are zero.
    pub fn value<T: FromBytes + IntoBytes>(&mut self) -> T {
        let mut value = T::new_zeroed();
        let bytes = self.bytes(size_of::<T>());
        value.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        value
    }

    /// Returns `true` if no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
