//! The kinds of devices: node types, drivers and transports.

use std::fmt;

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
    /// Returns the transport of nodes of the type `node`.
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

impl fmt::Display for Transport {
    /// Writes the name of the transport; that of RoCE is `InfiniBand`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Iwarp => "iWARP",
        })
    }
}

/// Returns the driver of a software device with this `node_desc`, the only evidence of it in sysfs.
pub(super) fn driver_by_description(node_desc: &str) -> Option<DriverId> {
    match node_desc {
        "rxe" => Some(DriverId::RDMA_DRIVER_RXE),
        "Software iWARP stack" => Some(DriverId::RDMA_DRIVER_SIW),
        _ => None,
    }
}

/// Returns the driver of a PCI device with this `modalias`, such as `pci:v000015B3d00001017sv...`.
pub(super) fn driver_by_modalias(modalias: &str) -> Option<DriverId> {
    let (vendor, rest) = modalias.strip_prefix("pci:v")?.split_once('d')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    match (number(vendor)?, number(rest.get(..8)?)?) {
        (MELLANOX, device) if MLX5.contains(&device) => Some(DriverId::RDMA_DRIVER_MLX5),
        _ => None,
    }
}

const MELLANOX: u32 = 0x15b3;

/// PCI numbers of Connect-IB, ConnectX-4 to ConnectX-10 and BlueField.
///
/// Source: `providers/mlx5/mlx5.c` of rdma-core.
const MLX5: [u32; 25] = [
    0x1011, 0x1012, 0x1013, 0x1014, 0x1015, 0x1016, 0x1017, 0x1018, 0x1019, 0x101a, 0x101b, 0x101c,
    0x101d, 0x101e, 0x101f, 0x1021, 0x1023, 0x1025, 0x1027, 0x2101, 0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc,
    0xa2df,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_prints_name() {
        let texts = [Transport::InfiniBand, Transport::Iwarp].map(|value| value.to_string());
        assert_eq!(texts, ["InfiniBand", "iWARP"]);
    }

    #[test]
    fn transport_follows_node_type() {
        assert_eq!(Transport::of(NodeType::RDMA_NODE_IB_CA), Some(Transport::InfiniBand));
        assert_eq!(Transport::of(NodeType::RDMA_NODE_RNIC), Some(Transport::Iwarp));
        assert_eq!(Transport::of(NodeType::RDMA_NODE_USNIC), None);
        assert_eq!(Transport::of(NodeType(200)), None);
    }

    #[test]
    fn driver_follows_pci_numbers() {
        let rest = "sv000015B3sd00000007bc02sc00i00";
        let driver = |numbers: &str| driver_by_modalias(&format!("{numbers}{rest}"));
        assert_eq!(driver("pci:v000015B3d00001017"), Some(DriverId::RDMA_DRIVER_MLX5));
        assert_eq!(driver("pci:v000015B3d0000A2DC"), Some(DriverId::RDMA_DRIVER_MLX5));
        // ConnectX-3, and a device of another vendor.
        for other in ["pci:v000015B3d00001003", "pci:v000014E4d00001017", "of:N", "pci:v000015B3d"]
        {
            assert_eq!(driver(other), None, "{other}");
        }
        assert_eq!(driver_by_modalias("pci:v000015B3d0000é1"), None);
    }
}
