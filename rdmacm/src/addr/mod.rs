//! Socket addresses as the connection manager's commands carry them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for any socket address in a command: `__kernel_sockaddr_storage`.
pub(crate) const STORAGE: usize = 128;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// An address in a command: the bytes of its slot, and how many of them count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded {
    pub(crate) slot: [u8; STORAGE],
    pub(crate) length: u16,
}

/// The bytes of `address`, as the kernel has them: `sockaddr_in` (16 bytes) or `sockaddr_in6` (28).
pub(crate) fn encode(address: &SocketAddr) -> Encoded {
    let mut slot = [0; STORAGE];
    slot[2..4].copy_from_slice(&address.port().to_be_bytes());
    let length = match address {
        SocketAddr::V4(v4) => {
            slot[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            slot[4..8].copy_from_slice(&v4.ip().octets());
            16
        }
        SocketAddr::V6(v6) => {
            slot[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            slot[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            slot[8..24].copy_from_slice(&v6.ip().octets());
            slot[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            28
        }
    };
    Encoded { slot, length }
}

/// The address in `bytes`, or `None` where the family is another one, or none at all.
pub(crate) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(field(bytes, 0)?);
    let port = u16::from_be_bytes(field(bytes, 2)?);
    match family {
        AF_INET => {
            let ip = Ipv4Addr::from(field::<4>(bytes, 4)?);
            Some(SocketAddrV4::new(ip, port).into())
        }
        AF_INET6 => {
            let flowinfo = u32::from_ne_bytes(field(bytes, 4)?);
            let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
            let scope = u32::from_ne_bytes(field(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flowinfo, scope).into())
        }
        _ => None,
    }
}

/// No address.
pub(crate) const NONE: Encoded = Encoded { slot: [0; STORAGE], length: 0 };

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_as_sockaddr_in() {
        let address = "10.0.0.1:7174".parse().expect("an address");
        let encoded = encode(&address);
        assert_eq!(encoded.length, 16);
        // family AF_INET in host order, port 7174 in network order, address
        assert_eq!(encoded.slot[..8], [2, 0, 0x1c, 0x06, 10, 0, 0, 1]);
        assert!(encoded.slot[8..].iter().all(|byte| *byte == 0));
        assert_eq!(decode(&encoded.slot), Some(address));
    }

    #[test]
    fn ipv6_keeps_its_scope() {
        let ip = "fe80::1".parse().expect("an address");
        let address = SocketAddrV6::new(ip, 20079, 3, 7).into();
        let encoded = encode(&address);
        assert_eq!(encoded.length, 28);
        assert_eq!(encoded.slot[24..28], 7_u32.to_ne_bytes());
        assert_eq!(decode(&encoded.slot), Some(address));
    }

    #[test]
    fn no_bytes_make_decode_fail_worse_than_none() {
        for length in 0..40 {
            for family in [0, 2, 10, 27, 0xffff_u16] {
                let mut bytes = vec![0xa5; length];
                bytes.iter_mut().zip(family.to_ne_bytes()).for_each(|(at, byte)| *at = byte);
                let expected = (family == 2 && length >= 8) || (family == 10 && length >= 28);
                assert_eq!(decode(&bytes).is_some(), expected, "{family} {length}");
            }
        }
    }
}
