//! Socket addresses as the kernel's commands and a name service carry them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::address::{Address, AddressFamily};
use super::ib::IbAddress;
use crate::device::Gid;

/// Room for any socket address in a command: `__kernel_sockaddr_storage`.
const STORAGE: usize = 128;

/// An address as a command carries it: the bytes of its slot, and the number of bytes in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded {
    pub(crate) slot: [u8; STORAGE],
    pub(crate) length: u16,
}

impl Encoded {
    /// The encoding of a missing address.
    pub(crate) const NONE: Self = Self { slot: [0; STORAGE], length: 0 };
}

/// Encodes `address` as the kernel does.
///
/// The result is a `sockaddr_in` (16 bytes), `sockaddr_in6` (28) or `sockaddr_ib` (48).
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
            encode_ib(ib, &mut slot);
            48
        }
    };
    Encoded { slot, length }
}

/// Decodes the address in `bytes`. Returns `None` if they are too few, or if the family is unknown.
pub(crate) fn decode(bytes: &[u8]) -> Option<Address> {
    let number = u16::from_ne_bytes(field(bytes, 0)?);
    match AddressFamily::ALL.into_iter().find(|family| family.number() == number)? {
        AddressFamily::Inet => {
            let port = u16::from_be_bytes(field(bytes, 2)?);
            Some(SocketAddrV4::new(Ipv4Addr::from(field::<4>(bytes, 4)?), port).into())
        }
        AddressFamily::Inet6 => {
            let port = u16::from_be_bytes(field(bytes, 2)?);
            let flowinfo = u32::from_ne_bytes(field(bytes, 4)?);
            let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
            let scope = u32::from_ne_bytes(field(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flowinfo, scope).into())
        }
        AddressFamily::Ib => decode_ib(bytes).map(Address::Ib),
    }
}

/// Stores `ib` without its family.
fn encode_ib(ib: &IbAddress, slot: &mut [u8; STORAGE]) {
    slot[2..4].copy_from_slice(&ib.pkey.to_be_bytes());
    slot[4..8].copy_from_slice(&ib.flowinfo.to_be_bytes());
    slot[8..24].copy_from_slice(&ib.gid.0);
    slot[24..32].copy_from_slice(&ib.service_id.to_be_bytes());
    slot[32..40].copy_from_slice(&ib.service_id_mask.to_be_bytes());
    slot[40..48].copy_from_slice(&ib.scope_id.to_ne_bytes());
}

/// Decodes the InfiniBand address in `bytes`, whose family is not checked.
fn decode_ib(bytes: &[u8]) -> Option<IbAddress> {
    Some(IbAddress {
        pkey: u16::from_be_bytes(field(bytes, 2)?),
        flowinfo: u32::from_be_bytes(field(bytes, 4)?),
        gid: Gid(field(bytes, 8)?),
        service_id: u64::from_be_bytes(field(bytes, 24)?),
        service_id_mask: u64::from_be_bytes(field(bytes, 32)?),
        scope_id: u64::from_ne_bytes(field(bytes, 40)?),
    })
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

#[cfg(test)]
mod tests;
