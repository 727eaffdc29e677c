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
/// A snapshot, except for the tables, which are read when they are asked for.
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

    /// Returns a port of which nothing is known, without asking the kernel.
    pub(super) fn unasked(device: &Device, number: u32) -> Self {
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
            return Err(Error::invalid(operation, self.subject(), "there is no such port"));
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
mod tests {
    use super::super::{discovery, golden};
    use super::*;
    use crate::sys::netlink::fake::{error, hex, message};
    use crate::sys::sysfs::fake::Tree;

    /// Returns rxe0 of the golden responses.
    fn device() -> Device {
        let tree = Tree::new(golden::SYSFS);
        let devices = discovery::devices(&mut Sources::sysfs_only(&tree)).unwrap();
        Device { index: Some(0), protocol: Some("roce".to_owned()), ..devices[0].clone() }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn by_netlink_alone() {
        let (mut sources, _kernel) =
            Sources::netlink_only(&[message(0x1401, 1, &hex(golden::PORT))]);
        let port = Port::read(&mut sources, &device(), 1).unwrap();
        assert_eq!((port.device_name(), port.number()), ("rxe0", 1));
        assert_eq!(port.state(), Some(PortState::IB_PORT_ACTIVE));
        assert_eq!(port.physical_state(), Some(PhysicalState::IB_PORT_PHYS_STATE_LINK_UP));
        assert_eq!(port.link_layer(), Some(LinkLayer::IB_LINK_LAYER_ETHERNET));
        assert_eq!((port.netdev(), port.lid()), (Some("v0"), None));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn port_with_lid_is_infiniband() {
        let answer = hex("0500 0c00 04000000 | PORT_STATE
                          0800 0900 03000000 | LID");
        let (mut sources, _kernel) = Sources::netlink_only(&[message(0x1401, 1, &answer)]);
        let port = Port::read(&mut sources, &device(), 1).unwrap();
        assert_eq!(
            (port.lid(), port.link_layer()),
            (Some(3), Some(LinkLayer::IB_LINK_LAYER_INFINIBAND))
        );
    }

    #[test]
    fn by_sysfs_alone() {
        let tree = Tree::new(golden::SYSFS);
        let port = Port::read(&mut Sources::sysfs_only(&tree), &device(), 1).unwrap();
        assert_eq!(port.state(), Some(PortState::IB_PORT_ACTIVE));
        assert_eq!(port.physical_state(), Some(PhysicalState::IB_PORT_PHYS_STATE_LINK_UP));
        assert_eq!(port.link_layer(), Some(LinkLayer::IB_LINK_LAYER_ETHERNET));
        assert_eq!((port.netdev(), port.lid()), (Some("v0"), None));
    }

    #[test]
    fn absent_port_is_refused() {
        let (mut sources, kernel) = Sources::netlink_only(&[]);
        for number in [0, 2, u32::MAX] {
            let error = Port::read(&mut sources, &device(), number).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL, "{error}");
        }
        assert!(kernel.requests().is_empty());
    }

    #[test]
    fn excessive_port_count_is_capped() {
        let (mut sources, kernel) = Sources::netlink_only(&[]);
        drop(kernel);
        let device = Device { port_count: Some(u32::MAX), ..device() };
        assert_eq!(Port::all(&mut sources, &device).len(), 0xffff);
    }

    #[test]
    fn silent_port_is_error_but_listed() {
        let answers = [error(1, -libc::EINVAL), error(2, -libc::EINVAL)];
        let (mut sources, _kernel) = Sources::netlink_only(&answers);
        let error = Port::read(&mut sources, &device(), 1).unwrap_err();
        assert_eq!((error.errno(), error.subject()), (libc::EINVAL, "port 1 of rxe0"));
        let ports = Port::all(&mut sources, &device());
        assert_eq!((ports.len(), ports[0].state()), (1, None));
    }
}
