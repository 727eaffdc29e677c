//! [`Device`]: the attributes of a device as the kernel reported them.

use verbs_abi::{rdma_driver_id as DriverId, rdma_node_type as NodeType};

use super::chardev::CharDevice;
use super::guid::Guid;
use super::kind::Transport;
use crate::error::{Error, ErrorKind, Result};

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub(super) name: String,
    pub(super) index: Option<u32>,
    pub(super) node_guid: Option<Guid>,
    pub(super) system_image_guid: Option<Guid>,
    pub(super) firmware: Option<String>,
    pub(super) node_type: Option<NodeType>,
    pub(super) protocol: Option<String>,
    pub(super) port_count: Option<u32>,
    pub(super) driver: Option<DriverId>,
    pub(super) uverbs: Option<CharDevice>,
}

#[cfg(any(test, fuzzing, feature = "null"))]
impl Device {
    /// Creates a device with nothing but a name.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            index: None,
            node_guid: None,
            system_image_guid: None,
            firmware: None,
            node_type: None,
            protocol: None,
            port_count: None,
            driver: None,
            uverbs: None,
        }
    }
}

impl Device {
    /// Returns the kernel's name: `rxe0`, `mlx5_0`.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of the device in netlink and ucma.
    ///
    /// The kernel never reuses it while the system runs. Only netlink reports it.
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        self.index
    }

    /// Returns the GUID of the node.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn node_guid(&self) -> Option<Guid> {
        self.node_guid
    }

    /// Returns the GUID that all devices of one hardware unit share.
    pub fn system_image_guid(&self) -> Option<Guid> {
        self.system_image_guid
    }

    /// Returns the version of the firmware; software devices have none.
    pub fn firmware(&self) -> Option<&str> {
        self.firmware.as_deref()
    }

    /// Returns the kind of node that the device is.
    pub fn node_type(&self) -> Option<NodeType> {
        self.node_type
    }

    /// Returns the transport, by [`Transport::of`].
    pub fn transport(&self) -> Option<Transport> {
        Transport::of(self.node_type?)
    }

    /// Returns the protocol of the verbs.
    ///
    /// A node that the kernel's connection manager does not serve counts as InfiniBand.
    pub(crate) fn transport_of_verbs(&self) -> Transport {
        self.transport().unwrap_or(Transport::InfiniBand)
    }

    /// Returns the kernel's name for the protocol of the first port.
    ///
    /// It is `ib`, `roce`, `iw`, `opa` or `usnic`. Only netlink reports it.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns the number of ports; they are numbered from 1.
    pub fn port_count(&self) -> Option<u32> {
        self.port_count
    }

    /// Returns the kernel's driver.
    ///
    /// Netlink reports it except for a few old drivers. From sysfs only rxe, siw and, by its PCI numbers, mlx5 are
    /// recognized.
    pub fn driver(&self) -> Option<DriverId> {
        self.driver
    }

    /// Returns the character device for verbs, or `None` if ib_uverbs is not loaded.
    pub fn uverbs(&self) -> Option<&CharDevice> {
        self.uverbs.as_ref()
    }

    /// Returns `true` if the connection manager's `guid` and `index` refer to this device.
    ///
    /// Linux before 5.8 does not report the index, and sysfs never does.
    pub(crate) fn is(&self, guid: Guid, index: Option<u32>) -> bool {
        let same_index = self.index.zip(index).is_none_or(|(known, meant)| known == meant);
        same_index && self.node_guid == Some(guid)
    }

    /// Returns the index, for operations that only netlink offers.
    pub(super) fn netlink_index(&self, operation: &'static str) -> Result<u32> {
        self.index.ok_or_else(|| {
            let reason = "the device was not found by netlink";
            Error::new(operation, self.name.clone(), ErrorKind::Unsupported(reason.into()))
        })
    }
}
