//! The list of devices, from netlink first, and from sysfs for properties that netlink does not report.

use nix::errno::Errno;
use verbs_abi::IB_USER_VERBS_ABI_VERSION;
use verbs_abi::netlink as nl;

use super::chardev::check_abi;
use super::kind::{driver_by_description, driver_by_modalias};
use super::sources::Sources;
use super::{CharDevice, Device, DriverId, Guid, NodeType};
use crate::error::{Error, ErrorKind, Result, hint};
use crate::sys::netlink::{Attributes, Failure, Request};
use crate::sys::sysfs::Directory;

/// Returns all devices, with their drivers and uverbs devices.
pub(super) fn list(sources: &mut Sources) -> Result<Vec<Device>> {
    let mut devices = devices(sources)?;
    complete(sources, &mut devices)?;
    Ok(devices)
}

/// Returns the [device](Device::is) with `guid` and `index`, with its driver and uverbs device.
pub(super) fn find(
    sources: &mut Sources,
    guid: Guid,
    index: Option<u32>,
) -> Result<Option<Device>> {
    let asked = index.and_then(|index| {
        let request = Request::new(nl::RDMA_NLDEV_CMD_GET);
        let request = request.u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, index);
        let device = (request, Device::from_netlink);
        let uverbs = (uverbs_request(index), uverbs_from_netlink);
        Some(sources.netlink().ok()?.get_both(device, uverbs))
    });
    // This path needs one exchange with the kernel for any number of devices.
    if let Some((Ok(mut device), uverbs)) = asked {
        if !device.is(guid, index) {
            return Ok(None);
        }
        if uverbs.map(|uverbs| device.set_uverbs(uverbs)).is_err() {
            uverbs_by_sysfs(&sources.sysfs, vec![&mut device])?;
        }
        return Ok(Some(device));
    }
    let mut found = devices(sources)?.into_iter().find(|device| device.is(guid, index));
    complete(sources, found.as_mut_slice())?;
    Ok(found)
}

/// Returns `true` if netlink works and does not list the device.
pub(super) fn is_unlisted(sources: &mut Sources, guid: Guid, index: Option<u32>) -> bool {
    by_netlink(sources).is_ok_and(|listed| !listed.iter().any(|device| device.is(guid, index)))
}

fn by_netlink(sources: &mut Sources) -> std::result::Result<Vec<Device>, Failure> {
    let request = Request::new(nl::RDMA_NLDEV_CMD_GET);
    sources.netlink()?.dump(request, Device::from_netlink)
}

fn complete(sources: &mut Sources, devices: &mut [Device]) -> Result<()> {
    let mut silent = Vec::new();
    for device in devices {
        match uverbs_by_netlink(sources, device) {
            Ok(uverbs) => device.set_uverbs(uverbs),
            Err(_) => silent.push(device),
        }
    }
    if silent.is_empty() { Ok(()) } else { uverbs_by_sysfs(&sources.sysfs, silent) }
}

/// Returns all devices without drivers and uverbs devices, which saves one request per device.
pub(super) fn devices(sources: &mut Sources) -> Result<Vec<Device>> {
    by_netlink(sources).or_else(|failure| {
        by_sysfs(&sources.sysfs).ok_or_else(|| no_list_error(failure, &sources.sysfs))
    })
}

impl Device {
    /// Parses a member of the response to `RDMA_NLDEV_CMD_GET`.
    fn from_netlink(answer: Attributes<'_>) -> Option<Self> {
        Some(Self {
            name: answer.string(nl::RDMA_NLDEV_ATTR_DEV_NAME)?,
            index: Some(answer.u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX)?),
            node_guid: answer.u64(nl::RDMA_NLDEV_ATTR_NODE_GUID).map(Guid::new),
            system_image_guid: answer.u64(nl::RDMA_NLDEV_ATTR_SYS_IMAGE_GUID).map(Guid::new),
            firmware: answer.string(nl::RDMA_NLDEV_ATTR_FW_VERSION),
            node_type: answer.u8(nl::RDMA_NLDEV_ATTR_DEV_NODE_TYPE).map(NodeType),
            protocol: answer.string(nl::RDMA_NLDEV_ATTR_DEV_PROTOCOL),
            // In this response, the attribute holds the number of ports.
            port_count: answer.u32(nl::RDMA_NLDEV_ATTR_PORT_INDEX),
            driver: None,
            uverbs: None,
        })
    }

    /// Takes the result of [`uverbs_from_netlink`] for the device.
    fn set_uverbs(&mut self, (uverbs, driver): Uverbs) {
        (self.uverbs, self.driver) = (Some(uverbs), driver);
    }

    /// Reads `class/infiniband/NAME`.
    fn from_sysfs(name: String, directory: &Directory) -> Self {
        let ports = directory.child("ports").names();
        Self {
            name,
            index: None,
            node_guid: directory.value("node_guid"),
            system_image_guid: directory.value("sys_image_guid"),
            firmware: directory.text("fw_ver").filter(|version| !version.is_empty()),
            node_type: directory.named_number("node_type").map(NodeType),
            protocol: None,
            port_count: ports.and_then(|ports| ports.len().try_into().ok()),
            driver: None,
            uverbs: None,
        }
    }
}

/// Returns the devices in sysfs, or `None` if sysfs has no RDMA classes.
fn by_sysfs(sysfs: &Directory) -> Option<Vec<Device>> {
    let class = sysfs.child("class/infiniband");
    let device = |name: String| {
        let directory = class.child(&name);
        Device::from_sysfs(name, &directory)
    };
    Some(class.names()?.into_iter().map(device).collect())
}

/// A uverbs device and its driver.
type Uverbs = (CharDevice, Option<DriverId>);

fn uverbs_by_netlink(sources: &mut Sources, device: &Device) -> Result<Uverbs, Failure> {
    let index = device.index.ok_or(Failure::Os(Errno::ENODEV as i32))?;
    sources.netlink()?.get(uverbs_request(index), uverbs_from_netlink)
}

fn uverbs_request(index: u32) -> Request {
    Request::new(nl::RDMA_NLDEV_CMD_GET_CHARDEV)
        .u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, index)
        .string(nl::RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs")
}

fn uverbs_from_netlink(answer: Attributes<'_>) -> Option<Uverbs> {
    let driver = answer.u32(nl::RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID).map(DriverId);
    Some((CharDevice::from_netlink(answer)?, driver))
}

/// Completes the devices whose uverbs device netlink has not reported.
fn uverbs_by_sysfs(sysfs: &Directory, devices: Vec<&mut Device>) -> Result<()> {
    let class = sysfs.child("class/infiniband_verbs");
    if let Some(found) = class.value("abi_version") {
        check_abi("/dev/infiniband/uverbs*", found, IB_USER_VERBS_ABI_VERSION)?;
    }
    let uverbs: Vec<(String, CharDevice)> = class
        .names()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| {
            let directory = class.child(&name);
            let number = directory.device_number("dev");
            let abi = directory.value("abi_version");
            Some((directory.text("ibdev")?, CharDevice { name, number, abi }))
        })
        .collect();
    for device in devices {
        let directory = sysfs.child("class/infiniband").child(&device.name);
        let description = directory.text("node_desc");
        let by_modalias = || driver_by_modalias(&directory.child("device").text("modalias")?);
        device.driver = description.as_deref().and_then(driver_by_description).or_else(by_modalias);
        let own = uverbs.iter().find(|(name, _)| *name == device.name);
        device.uverbs = own.map(|(_, chardev)| chardev.clone());
    }
    Ok(())
}

/// Returns the error if neither netlink nor sysfs has a result.
fn no_list_error(failure: Failure, sysfs: &Directory) -> Error {
    const OPERATION: &str = "list the RDMA devices";
    let errno = match failure {
        // The process or the machine lacks a resource, regardless of the loaded modules.
        Failure::Os(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
        | Failure::Malformed(_) => return failure.error(OPERATION, ""),
        Failure::Os(errno) => errno,
    };
    let hint = match sysfs.child("class").exists() {
        true => hint::MODULES,
        false => hint::MODULES_AND_SYSFS,
    };
    Error::new(OPERATION, "", ErrorKind::Os(errno)).with_hint(Errno::from_raw(errno), hint)
}

#[cfg(test)]
mod tests;
