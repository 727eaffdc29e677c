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
fn version_of_firmware_is_read() {
    let tree = Tree::new(&[
        ("class/infiniband/mlx5_0/node_type", "1: CA"),
        ("class/infiniband/mlx5_0/fw_ver", "16.35.4506"),
    ]);
    let devices = list(&mut Sources::sysfs_only(&tree)).unwrap();
    assert_eq!(devices[0].firmware(), Some("16.35.4506"));
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

/// Without netlink, the PCI numbers of a device in sysfs determine its driver.
#[test]
fn sysfs_alone_recognizes_pci_device() {
    let modalias = "pci:v000015B3d00001017sv000015B3sd00000007bc02sc00i00";
    let tree = Tree::new(&[
        ("class/infiniband/mlx5_0/node_type", "1: CA"),
        ("class/infiniband/mlx5_0/node_desc", "host ConnectX-5"),
        ("class/infiniband/mlx5_0/device/modalias", modalias),
        ("class/infiniband/other0/node_type", "1: CA"),
        ("class/infiniband/other0/device/modalias", "pci:v000014E4d00001017sv"),
    ]);
    let devices = list(&mut Sources::sysfs_only(&tree)).unwrap();
    let drivers: Vec<_> = devices.iter().map(|device| (device.name(), device.driver())).collect();
    assert_eq!(drivers, [("mlx5_0", Some(DriverId::RDMA_DRIVER_MLX5)), ("other0", None)]);
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
    let (mut sources, _kernel) =
        Sources::netlink_only(&[message(DEVICE, 1, &hex(golden::DEVICE)), error(2, -libc::EINVAL)]);
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
