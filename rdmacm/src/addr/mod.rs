//! Addresses: IP and InfiniBand, and what a lookup by name takes and returns.
//!
//! [`getaddrinfo`](crate::cm::getaddrinfo) turns names into [`AddrInfo`]; an [`Address`] is what
//! [`CmId::bind`](crate::cm::CmId::bind) and [`CmId::resolve_addr`](crate::cm::CmId::resolve_addr)
//! take.

mod address;
mod encoding;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod ib;
mod info;
pub(crate) mod port_space;

pub use address::{Address, AddressFamily};
pub(crate) use encoding::{Encoded, decode, encode};
pub use ib::IbAddress;
pub use info::{AddrInfo, AddrInfoFlags, AddrInfoHints};
