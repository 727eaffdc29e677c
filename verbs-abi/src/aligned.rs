//! The kernel's `__aligned_u64`.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A `__aligned_u64`: 64 bits at an 8-byte boundary on every architecture.
///
/// On 32-bit x86 a bare `u64` is only 4-aligned, and a structure with such a field would differ from the kernel's. The
/// type is also used for the address of a response.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C, align(8))]
pub struct AlignedU64(u64);

impl AlignedU64 {
    /// Creates an aligned value.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Returns the plain value.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for AlignedU64 {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<AlignedU64> for u64 {
    fn from(value: AlignedU64) -> Self {
        value.0
    }
}

impl fmt::Debug for AlignedU64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
