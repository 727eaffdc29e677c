//! Network devices under RDMA devices.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use rdmacm::device::{GidType, PortState};
use rdmacm_tests::wait_until;

/// Runs a program, which must succeed.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect(program);
    assert!(status.success(), "{program} {arguments:?}");
}

/// A setting of the kernel that is changed until this value is dropped.
pub(crate) struct Sysctl {
    path: String,
    was: String,
}

impl Sysctl {
    /// Sets the variable at `path` below `/proc/sys`.
    #[track_caller]
    pub(crate) fn new(path: &str, value: &str) -> Self {
        let path = format!("/proc/sys/{path}");
        let was = fs::read_to_string(&path).expect("read");
        fs::write(&path, value).expect("set");
        Self { path, was }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        fs::write(&self.path, &self.was).expect("restore the variable");
    }
}

#[track_caller]
pub(crate) fn ip(arguments: &[&str]) {
    run("ip", arguments);
}

/// Waits until a connection to or from `address` can use the RoCE device.
pub(crate) fn wait_until_usable(device: &str, address: IpAddr) {
    let wanted = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    wait_until("the device can be used", || has_gid(device, wanted));
}

/// Waits until a device, whose GIDs are irrelevant, can be used.
pub(crate) fn wait_until_active(device: &str) {
    let port = || crate::fixtures::device(device).port(1).expect("port 1 should exist");
    wait_until("the port is active", || port().state() == Some(PortState::IB_PORT_ACTIVE));
}

fn has_gid(device: &str, wanted: Ipv6Addr) -> bool {
    let port = crate::fixtures::device(device).port(1).expect("port 1 should exist");
    let mut gids = port.gids().expect("GIDs");
    port.state() == Some(PortState::IB_PORT_ACTIVE)
        && gids.any(|entry| entry.gid == wanted.into() && entry.gid_type == Some(GidType::RoceV2))
}
