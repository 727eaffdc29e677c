//! A port of a device: its state and the location of its tables.

use nix::errno::Errno;
use verbs_abi::netlink as nl;

use super::sources::{self, Sources};
use super::{Device, LinkLayer, PhysicalState, PortState};
use crate::error::{Error, Result};
use crate::sys::netlink::{Attributes, Failure, Request};
use crate::sys::sysfs::Directory;

const OPERATION: &str = "read the state of";

/// Maximum number of ports that the library queries; no device has more.
const MOST_PORTS: u32 = 0xffff;

/// A port of a device, which iproute2 calls a link.
///
/// It is a snapshot, except for the tables, which are read on each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    device: String,
    number: u32,
    state: Option<PortState>,
    physical_state: Option<PhysicalState>,
    link_layer: Option<LinkLayer>,
    lid: Option<u32>,
    netdev: Option<String>,
    /// `class/infiniband/DEVICE/ports/PORT`, the directory of the tables.
    pub(super) directory: Directory,
}

impl Device {
    /// Reads the state of a port.
    ///
    /// The call sends `RDMA_NLDEV_CMD_PORT_GET`. It reads `class/infiniband/DEVICE/ports/PORT` in sysfs for the link
    /// layer, and for the properties that netlink does not report.
    ///
    /// # Errors
    ///
    /// - EINVAL for a port that the device does not have.
    /// - The errno of netlink if neither netlink nor sysfs has the port.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, number: u32) -> Result<Port> {
        Port::read(&mut Sources::open(), self, number)
    }
}

impl Port {
    /// Returns the name of the device.
    pub fn device_name(&self) -> &str {
        &self.device
    }

    /// Returns the number of the port, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the logical state.
    pub fn state(&self) -> Option<PortState> {
        self.state
    }

    /// Returns the physical state.
    pub fn physical_state(&self) -> Option<PhysicalState> {
        self.physical_state
    }

    /// Returns the link layer.
    pub fn link_layer(&self) -> Option<LinkLayer> {
        self.link_layer
    }

    /// Returns the local identifier, which only an InfiniBand link has.
    pub fn lid(&self) -> Option<u32> {
        self.lid
    }

    /// Returns the network device of the port if it is in this network namespace.
    pub fn netdev(&self) -> Option<&str> {
        self.netdev.as_deref()
    }

    /// Creates a port without known properties.
    fn unknown(sysfs: &Directory, device: &Device, number: u32) -> Self {
        let path = format!("class/infiniband/{}/ports/{number}", device.name);
        Self {
            device: device.name.clone(),
            number,
            state: None,
            physical_state: None,
            link_layer: None,
            lid: None,
            netdev: None,
            directory: sysfs.child(&path),
        }
    }

    /// Returns a port without known properties, without a query to the kernel.
    pub(super) fn without_properties(device: &Device, number: u32) -> Self {
        Self::unknown(&Directory::new(sources::SYSFS), device, number)
    }

    pub(super) fn read(sources: &mut Sources, device: &Device, number: u32) -> Result<Self> {
        let unknown = Self::unknown(&sources.sysfs, device, number);
        unknown.check_number(OPERATION, device)?;
        let refused = match Self::by_netlink(sources, device, &unknown) {
            Ok(port) => return Ok(port),
            Err(failure) => failure,
        };
        unknown.by_sysfs().ok_or_else(|| refused.error(OPERATION, unknown.subject()))
    }

    pub(super) fn check_number(&self, operation: &'static str, device: &Device) -> Result<()> {
        if self.number == 0 || device.port_count.is_some_and(|count| self.number > count) {
            let reason = match device.port_count {
                Some(count) => format!("the ports of the device are 1 to {count}"),
                None => "ports are numbered from 1".to_owned(),
            };
            return Err(Error::invalid(operation, self.subject(), reason));
        }
        Ok(())
    }

    /// Returns all ports of a device, including ports without known properties.
    pub(super) fn all(sources: &mut Sources, device: &Device) -> Vec<Self> {
        (1..=device.port_count.unwrap_or(0).min(MOST_PORTS))
            .map(|number| {
                Self::read(sources, device, number)
                    .unwrap_or_else(|_| Self::unknown(&sources.sysfs, device, number))
            })
            .collect()
    }

    fn by_netlink(sources: &mut Sources, device: &Device, unknown: &Self) -> Result<Self, Failure> {
        let index = device.index.ok_or(Failure::Os(Errno::ENODEV as i32))?;
        let request = Request::new(nl::RDMA_NLDEV_CMD_PORT_GET)
            .u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, index)
            .u32(nl::RDMA_NLDEV_ATTR_PORT_INDEX, unknown.number);
        let mut port = sources.netlink()?.get(request, |answer| unknown.with(answer))?;
        port.link_layer = match (port.lid, device.protocol.as_deref()) {
            (Some(_), _) => Some(LinkLayer::IB_LINK_LAYER_INFINIBAND),
            // The protocol is the first port's, but a port of InfiniBand always has a LID.
            (None, Some("roce" | "iw")) => Some(LinkLayer::IB_LINK_LAYER_ETHERNET),
            _ => link_layer(&port.directory),
        };
        Ok(port)
    }

    /// Returns the port with the properties of a response to `RDMA_NLDEV_CMD_PORT_GET`.
    fn with(&self, answer: Attributes<'_>) -> Option<Self> {
        Some(Self {
            state: Some(PortState(answer.u8(nl::RDMA_NLDEV_ATTR_PORT_STATE)?)),
            physical_state: answer.u8(nl::RDMA_NLDEV_ATTR_PORT_PHYS_STATE).map(PhysicalState),
            lid: answer.u32(nl::RDMA_NLDEV_ATTR_LID),
            netdev: answer.string(nl::RDMA_NLDEV_ATTR_NDEV_NAME),
            ..self.clone()
        })
    }

    fn by_sysfs(&self) -> Option<Self> {
        let directory = &self.directory;
        let state = directory.named_number("state")?;
        let link_layer = link_layer(directory);
        let lid = directory.hexadecimal("lid");
        Some(Self {
            state: Some(PortState(state)),
            physical_state: directory.named_number("phys_state").map(PhysicalState),
            link_layer,
            lid: lid.filter(|_| link_layer == Some(LinkLayer::IB_LINK_LAYER_INFINIBAND)),
            // The first entry of the table is that of the port's own network device.
            netdev: directory.text("gid_attrs/ndevs/0"),
            ..self.clone()
        })
    }

    pub(super) fn subject(&self) -> String {
        format!("port {} of {}", self.number, self.device)
    }
}

fn link_layer(port: &Directory) -> Option<LinkLayer> {
    match port.text("link_layer")?.as_str() {
        "InfiniBand" => Some(LinkLayer::IB_LINK_LAYER_INFINIBAND),
        "Ethernet" => Some(LinkLayer::IB_LINK_LAYER_ETHERNET),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
