//! The kinds of devices: node types, drivers and transports.

use super::{DriverId, NodeType};

/// The protocol of the verbs.
///
/// It determines how connections are established and which access rights memory needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// InfiniBand and RoCE: connections by the InfiniBand CM.
    InfiniBand,
    /// iWARP: connections over TCP.
    Iwarp,
}

impl Transport {
    /// Returns the transport of such nodes.
    ///
    /// Returns `None` for nodes that no connection manager of the kernel serves.
    pub const fn of(node: NodeType) -> Option<Self> {
        match node {
            NodeType::RDMA_NODE_IB_CA
            | NodeType::RDMA_NODE_IB_SWITCH
            | NodeType::RDMA_NODE_IB_ROUTER => Some(Self::InfiniBand),
            NodeType::RDMA_NODE_RNIC => Some(Self::Iwarp),
            _ => None,
        }
    }
}

/// Returns the driver that sets this `node_desc`, the only evidence of a driver in sysfs.
pub(super) fn driver_of(node_desc: &str) -> Option<DriverId> {
    match node_desc {
        "rxe" => Some(DriverId::RDMA_DRIVER_RXE),
        "Software iWARP stack" => Some(DriverId::RDMA_DRIVER_SIW),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_follows_node_type() {
        assert_eq!(Transport::of(NodeType::RDMA_NODE_IB_CA), Some(Transport::InfiniBand));
        assert_eq!(Transport::of(NodeType::RDMA_NODE_RNIC), Some(Transport::Iwarp));
        assert_eq!(Transport::of(NodeType::RDMA_NODE_USNIC), None);
        assert_eq!(Transport::of(NodeType(200)), None);
    }
}
