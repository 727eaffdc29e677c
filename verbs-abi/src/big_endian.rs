//! The kernel's `__be16`, `__be32` and `__be64`: integers in network byte order.
//!
//! They have the alignment of an integer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! big_endian {
    ($($(#[doc = $doc:literal])* $name:ident($int:ty), align $align:literal;)*) => {$(
        $(#[doc = $doc])*
        #[derive(
            Debug,
            Clone,
            Copy,
            Default,
            PartialEq,
            Eq,
            Hash,
            FromBytes,
            IntoBytes,
            Immutable,
            KnownLayout,
        )]
        #[repr(C, align($align))]
        pub struct $name([u8; $align]);

        impl $name {
            /// Creates the value in network byte order.
            pub const fn new(value: $int) -> Self {
                Self(value.to_be_bytes())
            }

            /// Returns the value in the byte order of the host.
            pub const fn get(self) -> $int {
                <$int>::from_be_bytes(self.0)
            }
        }
    )*};
}

big_endian! {
    /// A `__be16`.
    Be16(u16), align 2;
    /// A `__be32`.
    Be32(u32), align 4;
    /// A `__be64`. On 32-bit x86 the kernel's is only 4-aligned.
    Be64(u64), align 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_stored_in_network_byte_order() {
        assert_eq!(Be16::new(0x1234).as_bytes(), [0x12, 0x34]);
        assert_eq!(Be32::new(0x1234_5678).as_bytes(), [0x12, 0x34, 0x56, 0x78]);
        assert_eq!(Be64::new(1).as_bytes(), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(Be32::new(7).get(), 7);
    }
}
