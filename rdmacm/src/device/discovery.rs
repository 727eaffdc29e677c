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
    // For any number of devices.
    if let Some((Ok(mut device), uverbs)) = asked {
        if !device.is(guid, index) {
            return Ok(None);
        }
        if uverbs.map(|uverbs| device.have(uverbs)).is_err() {
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
            Ok(uverbs) => device.have(uverbs),
            Err(_) => silent.push(device),
        }
    }
    if silent.is_empty() { Ok(()) } else { uverbs_by_sysfs(&sources.sysfs, silent) }
}

/// Returns all devices without drivers and uverbs devices, which saves one request per device.
pub(super) fn devices(sources: &mut Sources) -> Result<Vec<Device>> {
    by_netlink(sources)
        .or_else(|failure| by_sysfs(&sources.sysfs).ok_or_else(|| no_list(failure, &sources.sysfs)))
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
            // The number of ports, in this answer.
            port_count: answer.u32(nl::RDMA_NLDEV_ATTR_PORT_INDEX),
            driver: None,
            uverbs: None,
        })
    }

    /// Takes the result of [`uverbs_from_netlink`] for the device.
    fn have(&mut self, (uverbs, driver): Uverbs) {
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

/// Completes devices of which netlink gave no uverbs device.
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
fn no_list(failure: Failure, sysfs: &Directory) -> Error {
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
mod tests {
    use super::super::{Transport, golden};
    use super::*;
    use crate::sys::netlink::fake::{done, error, hex, message};
    use crate::sys::sysfs::fake::Tree;

    /// The GUID of rxe0.
    const GUID: Guid = Guid::new(0x8891_32ff_fee5_4df9);
    const DEVICE: u16 = 0x1401;
    const CHARDEV: u16 = 0x140f;

    #[test]
    #[cfg(target_endian = "little")]
    fn netlink_alone_is_enough() {
        let (mut sources, kernel) = Sources::netlink_only(&[
            message(DEVICE, 1, &hex(golden::DEVICE)),
            done(1, 0),
            message(CHARDEV, 2, &hex(golden::UVERBS)),
        ]);
        let devices = list(&mut sources).unwrap();
        let [device] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!((device.name(), device.index()), ("rxe0", Some(0)));
        assert_eq!(device.node_guid().unwrap().to_string(), "8891:32ff:fee5:4df9");
        assert_eq!(device.system_image_guid(), device.node_guid());
        assert_eq!(device.node_type(), Some(NodeType::RDMA_NODE_IB_CA));
        assert_eq!(device.transport(), Some(Transport::InfiniBand));
        assert_eq!(device.protocol(), Some("roce"));
        assert_eq!((device.port_count(), device.firmware()), (Some(1), None));
        assert_eq!(device.driver(), Some(DriverId::RDMA_DRIVER_RXE));
        let uverbs = device.uverbs().unwrap();
        assert_eq!(uverbs.path(), "/dev/infiniband/uverbs0");
        assert_eq!(uverbs.device_number(), Some(libc::makedev(231, 192)));
        assert_eq!(uverbs.abi_version(), Some(2));
        assert_eq!(kernel.requests().len(), 2, "one for the list, one for the device");
    }

    #[test]
    fn sysfs_alone_lists_all_devices() {
        let tree = Tree::new(golden::SYSFS);
        let devices = list(&mut Sources::sysfs_only(&tree)).unwrap();
        let [rxe, siw] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!((rxe.name(), rxe.index(), rxe.port_count()), ("rxe0", None, Some(1)));
        assert_eq!(rxe.node_guid().unwrap().get(), 0x8891_32ff_fee5_4df9);
        assert_eq!((rxe.driver(), rxe.firmware()), (Some(DriverId::RDMA_DRIVER_RXE), None));
        assert_eq!(rxe.uverbs().unwrap().device_number(), Some(libc::makedev(231, 192)));
        assert_eq!(siw.transport(), Some(Transport::Iwarp));
        assert_eq!(siw.driver(), Some(DriverId::RDMA_DRIVER_SIW));
        assert_eq!(siw.system_image_guid(), None);
        assert_eq!(siw.uverbs().unwrap().name(), "uverbs1");
        assert_eq!(siw.uverbs().unwrap().abi_version(), Some(1));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sysfs_completes_netlink() {
        let (mut sources, _kernel) = Sources::netlink_only(&[
            message(DEVICE, 1, &hex(golden::DEVICE)),
            done(1, 0),
            error(2, -libc::EINVAL),
        ]);
        let tree = Tree::new(golden::SYSFS);
        sources.sysfs = tree.directory();
        let devices = list(&mut sources).unwrap();
        assert_eq!(
            (devices[0].index(), devices[0].driver()),
            (Some(0), Some(DriverId::RDMA_DRIVER_RXE))
        );
        assert_eq!(devices[0].uverbs().unwrap().name(), "uverbs0");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn device_with_few_attributes_is_listed() {
        let mute = hex("0800 0100 05000000 | DEV_INDEX 5
                        0800 0200 6e657700 | DEV_NAME new
                        0600 0600 0102 0000 | NODE_GUID of two bytes");
        let (mut sources, _kernel) = Sources::netlink_only(&[
            [message(DEVICE, 1, &mute), message(DEVICE, 1, &hex(golden::DEVICE))].concat(),
            done(1, 0),
            error(2, -libc::EOPNOTSUPP),
            message(CHARDEV, 3, &hex(golden::UVERBS)),
        ]);
        let devices = list(&mut sources).unwrap();
        let [mute, rxe] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!((mute.name(), mute.index()), ("new", Some(5)));
        assert_eq!((mute.node_guid(), mute.transport(), mute.driver()), (None, None, None));
        assert!(mute.uverbs().is_none());
        assert!(rxe.uverbs().is_some());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_wanted_device_is_queried_further() {
        let other = hex("0800 0100 05000000 | DEV_INDEX 5
                         0800 0200 6e657700 | DEV_NAME new");
        let (mut sources, kernel) = Sources::netlink_only(&[
            [message(DEVICE, 1, &other), message(DEVICE, 1, &hex(golden::DEVICE))].concat(),
            done(1, 0),
            message(CHARDEV, 2, &hex(golden::UVERBS)),
        ]);
        let found = find(&mut sources, GUID, None).unwrap().unwrap();
        assert_eq!((found.name(), found.driver()), ("rxe0", Some(DriverId::RDMA_DRIVER_RXE)));
        assert_eq!(found.uverbs().unwrap().name(), "uverbs0");
        assert_eq!(kernel.requests().len(), 2);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn index_finds_device_without_listing() {
        let answers = [
            message(DEVICE, 1, &hex(golden::DEVICE)),
            message(CHARDEV, 2, &hex(golden::UVERBS)),
            message(DEVICE, 3, &hex(golden::DEVICE)),
            message(CHARDEV, 4, &hex(golden::UVERBS)),
        ];
        let (mut sources, kernel) = Sources::netlink_only(&answers);
        let found = find(&mut sources, GUID, Some(0)).unwrap().unwrap();
        assert_eq!((found.name(), found.uverbs().unwrap().name()), ("rxe0", "uverbs0"));
        let requests = kernel.requests();
        assert_eq!(requests.len(), 1, "both at once, and none for the list");
        assert_eq!(requests[0][16..24], hex("0800 0100 00000000"), "DEV_INDEX 0");
        // If another device has the index now, no device is found.
        let other = Guid::new(GUID.get() + 1);
        assert_eq!(find(&mut sources, other, Some(0)).unwrap(), None);
        assert_eq!(kernel.requests().len(), 1);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn readded_device_is_not_found_by_old_index() {
        let (mut sources, _kernel) = Sources::netlink_only(&[
            error(1, -libc::EINVAL),
            error(2, -libc::EINVAL),
            message(DEVICE, 3, &hex(golden::DEVICE)),
            done(3, 0),
        ]);
        assert_eq!(find(&mut sources, GUID, Some(3)).unwrap(), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sysfs_completes_wanted_device() {
        let (mut sources, _kernel) = Sources::netlink_only(&[
            message(DEVICE, 1, &hex(golden::DEVICE)),
            error(2, -libc::EINVAL),
        ]);
        let tree = Tree::new(golden::SYSFS);
        sources.sysfs = tree.directory();
        let found = find(&mut sources, GUID, Some(0)).unwrap().unwrap();
        assert_eq!(found.uverbs().unwrap().name(), "uverbs0");
        assert_eq!(found.driver(), Some(DriverId::RDMA_DRIVER_RXE));
    }

    #[test]
    fn guid_identifies_device_without_netlink() {
        let tree = Tree::new(golden::SYSFS);
        let sources = &mut Sources::sysfs_only(&tree);
        for index in [None, Some(7)] {
            assert_eq!(find(sources, GUID, index).unwrap().unwrap().name(), "rxe0");
            assert_eq!(find(sources, Guid::new(7), index).unwrap(), None);
        }
    }

    #[test]
    fn broken_sysfs_device_is_listed() {
        let tree = Tree::new(&[
            ("class/infiniband/broken/node_type", "many"),
            ("class/infiniband/broken/node_guid", ""),
            ("class/infiniband/good/node_type", "1: CA"),
            ("class/infiniband_verbs/uverbs3/dev", "231:195"),
        ]);
        let devices = list(&mut Sources::sysfs_only(&tree)).unwrap();
        let [broken, good] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!((broken.name(), broken.node_type(), broken.node_guid()), ("broken", None, None));
        assert_eq!(broken.port_count(), None);
        assert_eq!((good.node_type(), good.uverbs()), (Some(NodeType::RDMA_NODE_IB_CA), None));
    }

    #[test]
    fn no_device_yields_empty_list() {
        let (mut sources, _kernel) = Sources::netlink_only(&[done(1, 0)]);
        assert_eq!(list(&mut sources).unwrap(), []);
    }

    #[test]
    fn missing_sources_are_error_with_hint() {
        let without = Tree::new(&[("class/net/lo/mtu", "65536")]);
        let error = list(&mut Sources::sysfs_only(&without)).unwrap_err();
        assert_eq!(error.errno(), libc::EPROTONOSUPPORT);
        assert!(error.to_string().contains("modprobe rdma_ucm"), "{error}");
        assert!(!error.to_string().contains("mount"), "{error}");
        let unmounted = Tree::new(&[]);
        let error = list(&mut Sources::sysfs_only(&unmounted)).unwrap_err();
        assert!(error.to_string().contains("mount sysfs"), "{error}");
    }

    #[test]
    fn broken_answer_without_sysfs_is_error() {
        let (mut sources, _kernel) = Sources::netlink_only(&[message(DEVICE, 1, &[9, 0, 1, 0])]);
        assert_eq!(list(&mut sources).unwrap_err().errno(), libc::EPROTO);
    }

    #[test]
    fn another_abi_version_is_refused() {
        let tree = Tree::new(&[
            ("class/infiniband/rxe0/node_type", "1: CA"),
            ("class/infiniband_verbs/abi_version", "7"),
        ]);
        let error = list(&mut Sources::sysfs_only(&tree)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)));
        let text = error.to_string();
        assert!(text.contains("uverbs") && text.contains('7') && text.contains('6'), "{text}");
    }
}
