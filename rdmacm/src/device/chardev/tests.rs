use super::super::golden;
use super::*;
use crate::sys::netlink::fake::{error, hex, message};
use crate::sys::sysfs::fake::Tree;

#[test]
fn device_number_is_decoded() {
    assert_eq!(decode_device_number(0xe7c0), Some(libc::makedev(231, 192)));
    assert_eq!(decode_device_number(0x0010_0a7c), Some(libc::makedev(10, 0x17c)));
    assert_eq!(decode_device_number(0xffff_ffff), Some(libc::makedev(0xfff, 0xf_ffff)));
    assert_eq!(decode_device_number(1 << 32), None);
}

#[test]
#[cfg(target_endian = "little")]
fn rdma_cm_is_found_by_netlink() {
    let (mut sources, _kernel) =
        Sources::netlink_only(&[message(0x140f, 1, &hex(golden::RDMA_CM))]);
    let chardev = rdma_cm_from(&mut sources);
    assert_eq!((chardev.name(), chardev.abi_version()), ("rdma_cm", Some(4)));
    assert_eq!(chardev.device_number(), Some(libc::makedev(10, 124)));
    assert_eq!(chardev.path(), "/dev/infiniband/rdma_cm");
}

#[test]
fn rdma_cm_is_found_by_sysfs() {
    let tree = Tree::new(golden::SYSFS);
    let chardev = rdma_cm_from(&mut Sources::sysfs_only(&tree));
    assert_eq!((chardev.name(), chardev.abi_version()), ("rdma_cm", Some(4)));
    assert_eq!(chardev.device_number(), Some(libc::makedev(10, 124)));
}

#[test]
fn missing_sources_yield_default_path() {
    let (mut sources, _kernel) = Sources::netlink_only(&[error(1, -libc::EOPNOTSUPP)]);
    let chardev = rdma_cm_from(&mut sources);
    assert_eq!(chardev.path(), "/dev/infiniband/rdma_cm");
    assert_eq!((chardev.device_number(), chardev.abi_version()), (None, None));
}

#[test]
fn other_abi_version_is_refused() {
    assert!(check_abi("/dev/infiniband/rdma_cm", 4, 4).is_ok());
    let error = check_abi("/dev/infiniband/rdma_cm", 3, 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot use /dev/infiniband/rdma_cm: not supported: the kernel's ABI version is 3, and this library supports only 4"
    );
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
}
