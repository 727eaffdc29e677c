//! Addresses: IP and InfiniBand, and finding them by name.
//!
//! [`getaddrinfo`] turns names into [`AddrInfo`]; an [`Address`] is what
//! [`CmId::bind`](crate::cm::CmId::bind) and [`CmId::resolve_addr`](crate::cm::CmId::resolve_addr)
//! take.

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod ib;
mod info;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

pub use ib::IbAddress;
pub use info::{AddrInfo, AddrInfoFlags, Hints, getaddrinfo};

/// Room for any socket address in a command: `__kernel_sockaddr_storage`.
pub(crate) const STORAGE: usize = 128;

/// The family of an [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4. `AF_INET`.
    Inet,
    /// IPv6. `AF_INET6`.
    Inet6,
    /// InfiniBand. `AF_IB`.
    #[doc(alias = "AF_IB")]
    Ib,
}

impl Family {
    const ALL: [Self; 3] = [Self::Inet, Self::Inet6, Self::Ib];

    /// The kernel's number.
    const fn number(self) -> u16 {
        match self {
            Self::Inet => 2,
            Self::Inet6 => 10,
            Self::Ib => 27,
        }
    }
}

/// A socket address that the connection manager knows: IPv4, IPv6 or InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4 or IPv6: `sockaddr_in`, `sockaddr_in6`.
    Ip(SocketAddr),
    /// InfiniBand: `sockaddr_ib`.
    Ib(IbAddress),
}

impl Address {
    /// The family.
    pub fn family(&self) -> Family {
        match self {
            Self::Ip(SocketAddr::V4(_)) => Family::Inet,
            Self::Ip(SocketAddr::V6(_)) => Family::Inet6,
            Self::Ib(_) => Family::Ib,
        }
    }

    /// The IP address and port, unless the address is of InfiniBand.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Ib(_) => None,
        }
    }

    /// The port; of an InfiniBand address the low 16 bits of the service id.
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

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ib(address) => address.fmt(f),
        }
    }
}

/// An address in a command: the bytes of its slot, and how many of them count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded {
    pub(crate) slot: [u8; STORAGE],
    pub(crate) length: u16,
}

impl Encoded {
    /// No address.
    pub(crate) const NONE: Self = Self { slot: [0; STORAGE], length: 0 };
}

/// The bytes of `address`, as the kernel has them: `sockaddr_in` (16 bytes), `sockaddr_in6` (28) or
/// `sockaddr_ib` (48).
pub(crate) fn encode(address: &Address) -> Encoded {
    let mut slot = [0; STORAGE];
    slot[..2].copy_from_slice(&address.family().number().to_ne_bytes());
    let length = match address {
        Address::Ip(SocketAddr::V4(v4)) => {
            slot[2..4].copy_from_slice(&v4.port().to_be_bytes());
            slot[4..8].copy_from_slice(&v4.ip().octets());
            16
        }
        Address::Ip(SocketAddr::V6(v6)) => {
            slot[2..4].copy_from_slice(&v6.port().to_be_bytes());
            slot[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            slot[8..24].copy_from_slice(&v6.ip().octets());
            slot[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            28
        }
        Address::Ib(ib) => {
            ib.encode(&mut slot);
            48
        }
    };
    Encoded { slot, length }
}

/// The address in `bytes`, or `None` where the family is another one, or none at all.
pub(crate) fn decode(bytes: &[u8]) -> Option<Address> {
    let number = u16::from_ne_bytes(field(bytes, 0)?);
    match Family::ALL.into_iter().find(|family| family.number() == number)? {
        Family::Inet => {
            let port = u16::from_be_bytes(field(bytes, 2)?);
            Some(SocketAddrV4::new(Ipv4Addr::from(field::<4>(bytes, 4)?), port).into())
        }
        Family::Inet6 => {
            let port = u16::from_be_bytes(field(bytes, 2)?);
            let flowinfo = u32::from_ne_bytes(field(bytes, 4)?);
            let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
            let scope = u32::from_ne_bytes(field(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flowinfo, scope).into())
        }
        Family::Ib => IbAddress::decode(bytes).map(Address::Ib),
    }
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_as_sockaddr_in() {
        let address = Address::from(([10, 0, 0, 1], 7174));
        let encoded = encode(&address);
        assert_eq!(encoded.length, 16);
        // family AF_INET in host order, port 7174 in network order, address
        assert_eq!(encoded.slot[..8], [2, 0, 0x1c, 0x06, 10, 0, 0, 1]);
        assert!(encoded.slot[8..].iter().all(|byte| *byte == 0));
        assert_eq!(decode(&encoded.slot), Some(address));
        assert_eq!(address.to_string(), "10.0.0.1:7174");
    }

    #[test]
    fn ipv6_keeps_its_scope() {
        let ip = "fe80::1".parse().expect("an address");
        let address = SocketAddrV6::new(ip, 20079, 3, 7).into();
        let encoded = encode(&address);
        assert_eq!(encoded.length, 28);
        assert_eq!(encoded.slot[24..28], 7_u32.to_ne_bytes());
        assert_eq!(decode(&encoded.slot), Some(address));
        assert_eq!((address.family(), address.port()), (Family::Inet6, 20079));
    }

    #[test]
    fn no_bytes_make_decode_fail_worse_than_none() {
        for length in 0..60 {
            for family in [0, 2, 10, 27, 28, 0xffff_u16] {
                let mut bytes = vec![0xa5; length];
                bytes.iter_mut().zip(family.to_ne_bytes()).for_each(|(at, byte)| *at = byte);
                let expected = (family == 2 && length >= 8)
                    || (family == 10 && length >= 28)
                    || (family == 27 && length >= 48);
                assert_eq!(decode(&bytes).is_some(), expected, "{family} {length}");
            }
        }
    }
}
