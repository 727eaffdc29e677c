//! Socket addresses as the kernel's commands and a name service carry them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::address::{Address, AddressFamily};
use super::ib::IbAddress;
use crate::device::Gid;

/// Room for any socket address in a command: `__kernel_sockaddr_storage`.
const STORAGE: usize = 128;

/// An address as a command carries it: the bytes of its slot, and how many of them count.
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
mod tests {
    use super::super::port_space::PortSpace;
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
        assert_eq!((address.family(), address.port()), (AddressFamily::Inet6, 20079));
    }

    #[test]
    fn ib_as_sockaddr_ib() {
        let gid = Gid::from("fe80::5".parse::<Ipv6Addr>().expect("a GID"));
        let mut ib = IbAddress::new(gid, PortSpace::Tcp, 7174);
        ib.flowinfo = 0x000a_bcde;
        ib.scope_id = 9;
        let address = Address::from(ib);
        let encoded = encode(&address);
        assert_eq!(encoded.length, 48);
        let mut golden = Vec::new();
        golden.extend(27_u16.to_ne_bytes());
        golden.extend([0xff, 0xff, 0, 0x0a, 0xbc, 0xde]); // P_Key, flow label
        golden.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
        golden.extend([0, 0, 0, 0, 0x01, 0x06, 0x1c, 0x06]); // service id: port space and port
        golden.extend([0xff; 8]); // all of it counts
        golden.extend(9_u64.to_ne_bytes());
        assert_eq!(encoded.slot[..48], golden);
        assert!(encoded.slot[48..].iter().all(|byte| *byte == 0));
        assert_eq!(decode(&encoded.slot), Some(address));
        assert_eq!(
            (address.family(), address.port(), address.ip()),
            (AddressFamily::Ib, 7174, None)
        );
        assert_eq!(address.to_string(), "[fe80::5]:0x1061c06");
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
