//! The messages between the two sides: 16 bytes, big-endian.

use std::fmt;

/// Memory of the sender that the receiver may read or write.
///
/// The server answers with an all-zero message: only its arrival matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Advertisement {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) size: u32,
}

impl Advertisement {
    pub(super) const LENGTH: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let message = u128::from_be_bytes(bytes);
        let low = |shift: u32| {
            u32::try_from((message >> shift) & 0xffff_ffff).expect("32 bits should be left")
        };
        let addr = u64::try_from(message >> 64).expect("64 bits should be left");
        Self { addr, rkey: low(32), size: low(0) }
    }
}

impl fmt::Display for Advertisement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { addr: 0, rkey: 0, size: 0 } => f.write_str("go-ahead"),
            Self { addr, rkey, size } => write!(f, "address {addr:#x} rkey {rkey:#x} size {size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Advertisement =
        Advertisement { addr: 0x0123_4567_89ab_cdef, rkey: 0x1122_3344, size: 65_535 };
    const BYTES: [u8; 16] = [
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x11, 0x22, 0x33, 0x44, 0x00, 0x00, 0xff,
        0xff,
    ];

    #[test]
    fn address_key_and_size_are_big_endian() {
        assert_eq!(MESSAGE.to_bytes(), BYTES);
        assert_eq!(Advertisement::from_bytes(BYTES), MESSAGE);
    }

    #[test]
    fn go_ahead_is_zero() {
        assert_eq!(Advertisement::default().to_bytes(), [0; 16]);
        assert_eq!(Advertisement::default().to_string(), "go-ahead");
        assert_eq!(MESSAGE.to_string(), "address 0x123456789abcdef rkey 0x11223344 size 65535");
    }
}
