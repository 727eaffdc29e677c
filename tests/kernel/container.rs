//! Resources that containers withhold from a process: system calls, files, devices and objects.
//!
//! The library works without them, or its error names the missing resource.

use std::fs;
use std::process;

use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use rdmacm::cm::EventChannel;
use rdmacm::device;
use rdmacm::verbs::{AccessFlags, Context, MemoryRegion, ProtectionDomain};
use rdmacm_tests::wait_until;

use crate::child::{become_ordinary_user, forbid_ioctl, in_child, read_only};
use crate::fixtures::{Connection, device, id, roce, roce_name};
use crate::io::Shape;
use crate::permission::assert_hint;

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn user_connects_without_ioctl() {
    in_child(|| {
        forbid_ioctl();
        become_ordinary_user();
        Connection::new(Shape::default()).close();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn user_connects_with_read_only_sysfs() {
    in_child(|| {
        read_only("/sys");
        become_ordinary_user();
        fs::write(format!("/sys/class/infiniband/{}/node_desc", roce_name()), "x")
            .expect_err("/sys should be read-only");
        Connection::new(Shape::default()).close();
    });
}

/// Checks that a network namespace cannot use the device of another namespace.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn device_of_other_network_namespace_is_unusable() {
    let known = device(roce_name());
    let set =
        |mode: &str| process::Command::new("rdma").args(["system", "set", "netns", mode]).status();
    let is_set = |mode| set(mode).expect("run rdma").success();
    // While another namespace exists, the kernel refuses this mode. The namespace of an earlier test may still exist.
    wait_until("devices belong to a namespace each", || is_set("exclusive"));
    in_child(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        assert_eq!(device::list().expect("list"), []);
        let error = Context::open(&known).expect_err("the device should be in another namespace");
        let node = known.uverbs().expect("a verbs node").path();
        assert_hint(&error, libc::EPERM, [&node, "another network namespace"]);
        let channel = EventChannel::new().expect("the connection manager should be available");
        let error =
            id(&channel).bind(roce(0)).expect_err("the address should be in another namespace");
        assert_eq!((error.operation(), error.errno()), ("bind", libc::EADDRNOTAVAIL), "{error}");
    });
    Connection::new(Shape::default()).close();
    wait_until("devices are shared", || is_set("shared"));
}

/// Checks that errors name the contexts and objects whose limit in the process's cgroup is reached.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rdma_cgroup_limits_are_named_in_errors() {
    const ROOT: &str = "/tmp/rdmacm-cgroup";
    let group = format!("{ROOT}/few");
    fs::create_dir_all(ROOT).expect("a directory");
    let nothing = None::<&str>;
    mount(Some("none"), ROOT, Some("cgroup2"), MsFlags::empty(), nothing).expect("mount");
    fs::write(format!("{ROOT}/cgroup.subtree_control"), "+rdma")
        .expect("enable the rdma controller");
    fs::create_dir(&group).expect("make a group");
    let (name, limits) = (roce_name(), "hca_handle=1 hca_object=3");
    fs::write(format!("{group}/rdma.max"), format!("{name} {limits}")).expect("set limits");
    in_child(|| {
        fs::write(format!("{group}/cgroup.procs"), process::id().to_string()).expect("join");
        let (device, subject) = (device(name), &format!("protection domain on {name}"));
        let context = Context::open(&device).expect("one context should be within the limit");
        let error = Context::open(&device).expect_err("a second context should exceed the limit");
        assert_hint(&error, libc::EAGAIN, [&format!("open the device {name}"), "hca_handle"]);
        let mut domains = Vec::new();
        let error = loop {
            match ProtectionDomain::new(&context) {
                Ok(domain) => domains.push(domain),
                Err(error) => break error,
            }
            assert!(domains.len() <= 3, "the limit should be reached");
        };
        assert_hint(&error, libc::EAGAIN, [subject, "hca_object"]);
        let region = MemoryRegion::alloc(&domains[0], 64, AccessFlags::empty());
        assert_hint(
            &region.expect_err("a region should exceed the limit"),
            libc::EAGAIN,
            ["64 bytes", "hca_object"],
        );
        // A destroyed object makes room.
        drop(domains.pop());
        domains.push(ProtectionDomain::new(&context).expect("the cgroup should have room"));
    });
    wait_until("the group is empty", || fs::remove_dir(&group).is_ok());
    umount(ROOT).expect("unmount");
}
