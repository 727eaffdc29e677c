//! IP and InfiniBand addresses, and the parameters and results of a lookup by name.
//!
//! [`getaddrinfo`](crate::cm::getaddrinfo) turns names into [`AddrInfo`]. [`CmId::bind`](crate::cm::CmId::bind) and
//! [`CmId::resolve_addr`](crate::cm::CmId::resolve_addr) take an [`Address`].

mod address;
mod encoding;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod ib;
mod info;
mod parse_error;
pub(crate) mod port_space;

pub use address::{Address, AddressFamily};
pub(crate) use encoding::{Encoded, decode, encode};
pub use ib::IbAddress;
pub use info::{AddrInfo, AddrInfoFlags, AddrInfoHints};
pub use parse_error::ParseAddressError;
