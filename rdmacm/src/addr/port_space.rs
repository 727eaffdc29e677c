//! [`PortSpace`]: the service that an id offers.

use std::fmt;

use ucma_abi::{RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};
use verbs_abi::ib_uverbs_qp_type as QpType;

#[cfg(doc)]
use crate::cm::CmId;

/// The service that an id offers: `enum rdma_port_space` of the C library.
#[doc(alias = "rdma_port_space")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortSpace {
    /// Reliable connections. `RDMA_PS_TCP`.
    #[doc(alias = "RDMA_PS_TCP")]
    Tcp,
    /// Unreliable datagrams and multicast. `RDMA_PS_UDP`.
    #[doc(alias = "RDMA_PS_UDP")]
    Udp,
    /// `RDMA_PS_IPOIB`: unreliable datagrams and multicast over IP over InfiniBand.
    ///
    /// The multicast groups and the Q_Key are those of IP over InfiniBand. The IP addresses must belong to its network
    /// devices: binding to an address of RoCE or iWARP fails with EINVAL.
    #[doc(alias = "RDMA_PS_IPOIB")]
    IpoIb,
    /// Any type of queue pair, see [`CmId::with_qp_type`]. `RDMA_PS_IB`.
    #[doc(alias = "RDMA_PS_IB")]
    Ib,
}

impl PortSpace {
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Tcp => RDMA_PS_TCP,
            Self::Udp => RDMA_PS_UDP,
            Self::IpoIb => RDMA_PS_IPOIB,
            Self::Ib => RDMA_PS_IB,
        }
    }

    /// Returns the queue pair types of the port space, the usual one first.
    pub(crate) fn qp_types(self) -> &'static [QpType] {
        match self {
            Self::Tcp => &[QpType::IB_UVERBS_QPT_RC],
            Self::Udp | Self::IpoIb => &[QpType::IB_UVERBS_QPT_UD],
            Self::Ib => &[
                QpType::IB_UVERBS_QPT_RC,
                QpType::IB_UVERBS_QPT_UC,
                QpType::IB_UVERBS_QPT_UD,
                QpType::IB_UVERBS_QPT_XRC_INI,
                QpType::IB_UVERBS_QPT_XRC_TGT,
            ],
        }
    }
}

impl fmt::Display for PortSpace {
    /// Writes the name of the port space, for example `TCP`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::IpoIb => "IPoIB",
            Self::Ib => "IB",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_space_prints_name() {
        let texts = [PortSpace::Tcp, PortSpace::Udp, PortSpace::IpoIb, PortSpace::Ib]
            .map(|value| value.to_string());
        assert_eq!(texts, ["TCP", "UDP", "IPoIB", "IB"]);
    }
}
