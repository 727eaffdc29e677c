//! [`IbAddress`]: an InfiniBand address, which consists of a GID and a service id.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::parse_error::ParseAddressError;
use super::port_space::PortSpace;
use crate::device::Gid;

/// An InfiniBand socket address: `struct sockaddr_ib`, family `AF_IB`.
///
/// It is declared in the kernel's `include/rdma/ib.h`. Numbers are in host order.
///
/// A wildcard can be bound on any device. The GID of a port can be bound if the link layer is InfiniBand. On RoCE the
/// kernel resolves such an address to the port, but finds no route from it (ENODEV), because the address does not
/// specify a network interface.
#[doc(alias = "sockaddr_ib")]
#[doc(alias = "AF_IB")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IbAddress {
    /// The partition; 0xffff is the default one.
    pub pkey: u16,
    /// The flow label, 20 bits.
    pub flowinfo: u32,
    /// The GID of the port; zero for all ports.
    pub gid: Gid,
    /// The service: for the services of a port space `(port space << 16) + port`.
    pub service_id: u64,
    /// The bits of the service id that are significant.
    pub service_id_mask: u64,
    /// The interface, if the GID does not determine it.
    pub scope_id: u64,
}

impl IbAddress {
    /// The bits of a service id that the port space fills, `RDMA_IB_IP_PS_MASK`.
    const PORT_SPACE_MASK: u64 = 0xffff_ffff_ffff_0000;
    /// The bits that the port fills, `RDMA_IB_IP_PORT_MASK`.
    const PORT_MASK: u64 = 0xffff;

    /// Creates the address of `port` of `port_space` at `gid`, in the default partition.
    ///
    /// Port 0 is any port.
    pub fn new(gid: Gid, port_space: PortSpace, port: u16) -> Self {
        let service_id = (u64::from(port_space.number()) << 16) + u64::from(port);
        Self::with_service_id(gid, service_id)
    }

    /// Creates the address of a service at `gid`, in the default partition. Port 0 is any port.
    fn with_service_id(gid: Gid, service_id: u64) -> Self {
        let port_mask = if service_id & Self::PORT_MASK == 0 { 0 } else { Self::PORT_MASK };
        Self {
            pkey: 0xffff,
            flowinfo: 0,
            gid,
            service_id,
            service_id_mask: Self::PORT_SPACE_MASK | port_mask,
            scope_id: 0,
        }
    }

    /// Returns the port: the low 16 bits of the service id.
    pub fn port(&self) -> u16 {
        u16::try_from(self.service_id & Self::PORT_MASK).expect("16 bits")
    }
}

impl fmt::Display for IbAddress {
    /// Writes the form `[fe80::1]:0x1061c06`, in which the number is the service id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]:{:#x}", Ipv6Addr::from(self.gid), self.service_id)
    }
}

impl FromStr for IbAddress {
    type Err = ParseAddressError;

    /// Parses the form that [`Display`](fmt::Display) prints: `[fe80::1]:0x1061c06`.
    ///
    /// The address is in the default partition.
    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let rest = text.strip_prefix('[').ok_or(ParseAddressError)?;
        let (gid, service_id) = rest.split_once("]:0x").ok_or(ParseAddressError)?;
        let gid = gid.parse().map_err(|_| ParseAddressError)?;
        let digits = Some(service_id).filter(|digits| !digits.starts_with('+'));
        let service_id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Ok(Self::with_service_id(gid, service_id.ok_or(ParseAddressError)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for port in [0, 7471] {
            let ib = IbAddress::new("fe80::1".parse().unwrap(), PortSpace::Tcp, port);
            assert_eq!(ib.to_string().parse(), Ok(ib));
        }
        for text in ["", "[fe80::1]", "[fe80::1]:7471", "fe80::1:0x1", "[fe80::1]:0x", "[::1]:0x+1"]
        {
            assert_eq!(text.parse::<IbAddress>(), Err(ParseAddressError), "{text}");
        }
    }

    #[test]
    fn port_zero_is_any_port() {
        let ib = IbAddress::new(Gid::default(), PortSpace::Tcp, 0);
        assert_eq!(ib.service_id, 0x0106_0000);
        assert_eq!(ib.service_id_mask, 0xffff_ffff_ffff_0000);
    }
}
