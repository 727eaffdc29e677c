//! [`IbAddress`]: an InfiniBand address, which consists of a GID and a service id.

use std::fmt;
use std::net::Ipv6Addr;

use super::port_space::PortSpace;
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
}

impl fmt::Display for IbAddress {
    /// `[fe80::1]:0x1061c06`, the number being the service id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]:{:#x}", Ipv6Addr::from(self.gid), self.service_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_zero_is_any_port() {
        let ib = IbAddress::new(Gid::default(), PortSpace::Tcp, 0);
        assert_eq!(ib.service_id, 0x0106_0000);
        assert_eq!(ib.service_id_mask, 0xffff_ffff_ffff_0000);
    }
}
