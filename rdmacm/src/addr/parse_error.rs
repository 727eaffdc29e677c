//! [`ParseAddressError`], the error of text that is not an address.

/// The error of text that is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an address and a port, as in 10.0.0.1:7471, [fd00::1]:7471 or [fe80::1]:0x1061c06 (InfiniBand)"
)]
pub struct ParseAddressError;
