//! Addresses of InfiniBand: a GID and a service id.

use std::fmt;
use std::net::Ipv6Addr;

use super::field;
use crate::cm::PortSpace;
use crate::device::Gid;

/// An InfiniBand socket address: `struct sockaddr_ib`, family `AF_IB`, of the kernel's
/// `include/rdma/ib.h`. Numbers are in host order.
///
/// A wildcard can be bound anywhere, a port's GID where the link layer is InfiniBand. On RoCE the
/// kernel resolves such an address to the port, but finds no route from it (ENODEV): it has no
/// network interface to go by.
#[doc(alias = "sockaddr_ib")]
#[doc(alias = "AF_IB")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IbAddress {
    /// The partition; 0xffff is the default one.
    pub pkey: u16,
    /// The flow label, 20 bits.
    pub flowinfo: u32,
    /// The port's address; zero for all of them.
    pub gid: Gid,
    /// The service: for the services of a port space `(port space << 16) + port`.
    pub service_id: u64,
    /// Which bits of the service id count.
    pub service_id_mask: u64,
    /// Which interface is meant, where the GID does not say it.
    pub scope_id: u64,
}

impl IbAddress {
    /// The bits of a service id that the port space fills, `RDMA_IB_IP_PS_MASK`.
    const PORT_SPACE_MASK: u64 = 0xffff_ffff_ffff_0000;
    /// The bits that the port fills, `RDMA_IB_IP_PORT_MASK`.
    const PORT_MASK: u64 = 0xffff;

    /// `port` of `port_space` at `gid`, in the default partition; any port with port 0.
    pub fn new(gid: Gid, port_space: PortSpace, port: u16) -> Self {
        let port_mask = if port == 0 { 0 } else { Self::PORT_MASK };
        Self {
            pkey: 0xffff,
            flowinfo: 0,
            gid,
            service_id: (u64::from(port_space.number()) << 16) + u64::from(port),
            service_id_mask: Self::PORT_SPACE_MASK | port_mask,
            scope_id: 0,
        }
    }

    /// The port: the low 16 bits of the service id.
    pub fn port(&self) -> u16 {
        u16::try_from(self.service_id & Self::PORT_MASK).expect("16 bits")
    }

    /// Stores the address but for its family.
    pub(super) fn encode(&self, slot: &mut [u8]) {
        slot[2..4].copy_from_slice(&self.pkey.to_be_bytes());
        slot[4..8].copy_from_slice(&self.flowinfo.to_be_bytes());
        slot[8..24].copy_from_slice(&self.gid.0);
        slot[24..32].copy_from_slice(&self.service_id.to_be_bytes());
        slot[32..40].copy_from_slice(&self.service_id_mask.to_be_bytes());
        slot[40..48].copy_from_slice(&self.scope_id.to_ne_bytes());
    }

    /// The address in bytes of its family.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            pkey: u16::from_be_bytes(field(bytes, 2)?),
            flowinfo: u32::from_be_bytes(field(bytes, 4)?),
            gid: Gid(field(bytes, 8)?),
            service_id: u64::from_be_bytes(field(bytes, 24)?),
            service_id_mask: u64::from_be_bytes(field(bytes, 32)?),
            scope_id: u64::from_ne_bytes(field(bytes, 40)?),
        })
    }
}

impl fmt::Display for IbAddress {
    /// `[fe80::1]:0x1061c06`, the number being the service id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]:{:#x}", Ipv6Addr::from(self.gid), self.service_id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Address, Family, decode, encode};
    use super::*;

    #[test]
    fn as_sockaddr_ib() {
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
        assert_eq!((address.family(), address.port(), address.ip()), (Family::Ib, 7174, None));
        assert_eq!(address.to_string(), "[fe80::5]:0x1061c06");
    }

    #[test]
    fn port_zero_is_any_port() {
        let ib = IbAddress::new(Gid::default(), PortSpace::Tcp, 0);
        assert_eq!(ib.service_id, 0x0106_0000);
        assert_eq!(ib.service_id_mask, 0xffff_ffff_ffff_0000);
    }
}
