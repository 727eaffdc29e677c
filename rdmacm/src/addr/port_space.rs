//! [`PortSpace`]: the service that an id offers.

use ucma_abi::{RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};
use verbs_abi::ib_uverbs_qp_type as QpType;

#[cfg(doc)]
use crate::cm::CmId;

/// Which service an id offers. `enum rdma_port_space` of the C library.
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
    /// Unreliable datagrams and multicast in the groups and with the Q_Key of IP over InfiniBand.
    /// `RDMA_PS_IPOIB`. Its IP addresses are those of network devices of IP over InfiniBand: binding
    /// to one of another, on RoCE or iWARP, is EINVAL.
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

    /// The type of the queue pairs that go with the port space: the first one is the usual.
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
