//! [`Address`]: a socket address of any family that the connection manager knows.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

use super::ib::IbAddress;
use super::parse_error::ParseAddressError;

/// The family of an [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4. `AF_INET`.
    Inet,
    /// IPv6. `AF_INET6`.
    Inet6,
    /// InfiniBand. `AF_IB`.
    #[doc(alias = "AF_IB")]
    Ib,
}

impl AddressFamily {
    pub(super) const ALL: [Self; 3] = [Self::Inet, Self::Inet6, Self::Ib];

    /// Returns the kernel's number of the family.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Inet => 2,
            Self::Inet6 => 10,
            Self::Ib => 27,
        }
    }
}

impl fmt::Display for AddressFamily {
    /// Writes the name of the family, for example `IPv6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Inet => "IPv4",
            Self::Inet6 => "IPv6",
            Self::Ib => "InfiniBand",
        })
    }
}

/// A socket address that the connection manager knows: IPv4, IPv6 or InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Address {
    /// IPv4 or IPv6: `sockaddr_in`, `sockaddr_in6`.
    Ip(SocketAddr),
    /// InfiniBand: `sockaddr_ib`.
    Ib(IbAddress),
}

impl Address {
    /// Returns the address family.
    pub fn family(&self) -> AddressFamily {
        match self {
            Self::Ip(SocketAddr::V4(_)) => AddressFamily::Inet,
            Self::Ip(SocketAddr::V6(_)) => AddressFamily::Inet6,
            Self::Ib(_) => AddressFamily::Ib,
        }
    }

    /// Returns the IP address and port, or `None` for an InfiniBand address.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Ib(_) => None,
        }
    }

    /// Returns the port; of an InfiniBand address the low 16 bits of the service id.
    pub fn port(&self) -> u16 {
        match self {
            Self::Ip(address) => address.port(),
            Self::Ib(address) => address.port(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<SocketAddrV4> for Address {
    fn from(address: SocketAddrV4) -> Self {
        Self::Ip(address.into())
    }
}

impl From<SocketAddrV6> for Address {
    fn from(address: SocketAddrV6) -> Self {
        Self::Ip(address.into())
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for Address {
    fn from(address: (I, u16)) -> Self {
        Self::Ip(address.into())
    }
}

impl From<IbAddress> for Address {
    fn from(address: IbAddress) -> Self {
        Self::Ib(address)
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    /// Parses an IP address and a port, or an address of InfiniBand: see [`IbAddress`].
    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        match text.parse() {
            Ok(address) => Ok(Self::Ip(address)),
            Err(_) => text.parse().map(Self::Ib),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ib(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_family_prints_name() {
        let texts = [AddressFamily::Inet, AddressFamily::Inet6, AddressFamily::Ib]
            .map(|value| value.to_string());
        assert_eq!(texts, ["IPv4", "IPv6", "InfiniBand"]);
    }
}
