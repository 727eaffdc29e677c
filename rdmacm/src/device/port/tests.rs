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
fn port_is_read_by_netlink_alone() {
    let (mut sources, _kernel) = Sources::netlink_only(&[message(0x1401, 1, &hex(golden::PORT))]);
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
fn port_is_read_by_sysfs_alone() {
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

#[test]
fn infiniband_port_has_lid_in_sysfs() {
    let tree = Tree::new(&[
        ("class/infiniband/ib0/node_type", "1: CA"),
        ("class/infiniband/ib0/ports/1/state", "4: ACTIVE"),
        ("class/infiniband/ib0/ports/2/state", "4: ACTIVE"),
        ("class/infiniband/ib0/ports/2/link_layer", "InfiniBand"),
        ("class/infiniband/ib0/ports/2/lid", "0x1f"),
    ]);
    let mut sources = Sources::sysfs_only(&tree);
    let device = discovery::devices(&mut sources).unwrap().remove(0);
    let port = Port::read(&mut sources, &device, 2).unwrap();
    assert_eq!((port.number(), port.lid()), (2, Some(0x1f)));
    assert_eq!(port.link_layer(), Some(LinkLayer::IB_LINK_LAYER_INFINIBAND));
}
