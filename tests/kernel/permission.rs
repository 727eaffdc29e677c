//! Absent or inaccessible device nodes, and the effect of privileges.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, SFlag, mknod};
use rdmacm::cm::EventChannel;
use rdmacm::verbs::{AccessFlags, CompletionChannel, Context, MemoryRegion};
use rdmacm::{Error, ErrorKind, NotOwner};

use crate::child::{become_ordinary_user, hide, in_child};
use crate::fixtures::{Connection, channel, device, id, roce, roce_name};
use crate::io::Shape;

const MANAGER: &str = "/dev/infiniband/rdma_cm";

/// Checks that the error is `errno`, and that it names the node and a hint.
#[track_caller]
pub(crate) fn assert_hint(error: &Error, errno: i32, parts: [&str; 2]) {
    assert!(error.hint().is_some(), "{error}");
    assert_eq!(error.errno(), errno, "{error}");
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} are not in {text:?}");
}

/// Creates a device node for this process.
pub(crate) fn make(path: &str, number: u64, mode: u32) {
    mknod(Path::new(path), SFlag::S_IFCHR, Mode::empty(), number).expect("make a node");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set its mode");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn missing_node_is_named_with_hint() {
    let device = device(roce_name());
    let node = device.uverbs().expect("a verbs node").path();
    in_child(|| {
        hide("/dev/infiniband");
        let error = EventChannel::new().expect_err("the node should be missing");
        assert_hint(&error, libc::ENOENT, [MANAGER, "modprobe rdma_ucm"]);
        let error = Context::open(&device).expect_err("the node should be missing");
        assert_hint(&error, libc::ENOENT, [&node, "modprobe rdma_ucm"]);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forbidden_node_is_named_with_hint() {
    let device = device(roce_name());
    let verbs = device.uverbs().expect("a verbs node").clone();
    let manager = rdmacm::device::cm_char_device();
    in_child(|| {
        hide("/dev/infiniband");
        make(MANAGER, manager.device_number().expect("the value should be known"), 0o600);
        make(&verbs.path(), verbs.device_number().expect("the value should be known"), 0o600);
        // Root may open the node.
        drop(channel());
        become_ordinary_user();
        let error = EventChannel::new().expect_err("the node should not be accessible");
        assert_hint(&error, libc::EACCES, [MANAGER, "read and write permission"]);
        let error = Context::open(&device).expect_err("the node should not be accessible");
        assert_hint(&error, libc::EACCES, [&verbs.path(), "read and write permission"]);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn other_device_at_node_path_is_not_used() {
    let device = device(roce_name());
    let verbs = device.uverbs().expect("a verbs node").clone();
    in_child(|| {
        hide("/dev/infiniband");
        // These are the numbers of /dev/null and /dev/zero.
        make(MANAGER, libc::makedev(1, 3), 0o666);
        make(&verbs.path(), libc::makedev(1, 5), 0o666);
        for error in [
            EventChannel::new().map(drop).expect_err("the node should be another device"),
            Context::open(&device).map(drop).expect_err("the node should be another device"),
        ] {
            assert_eq!(error.errno(), libc::ENXIO, "{error}");
            assert!(error.to_string().contains("create the node again"), "{error}");
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ordinary_user_connects() {
    in_child(|| {
        become_ordinary_user();
        Connection::new(Shape::default()).close();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn privileged_port_is_not_credential_error() {
    in_child(|| {
        become_ordinary_user();
        let channel = channel();
        let error = id(&channel)
            .bind(roce(80))
            .expect_err("an ordinary user should not bind a privileged port");
        assert!(matches!(error.kind(), ErrorKind::Os(libc::EACCES)), "{error:?}");
        id(&channel).bind(roce(8080)).expect("an unprivileged port should be allowed");
    });
    id(&channel()).bind(roce(80)).expect("root should bind a privileged port");
    // This EACCES is caused by the credentials.
    let channel = channel();
    in_child(|| {
        let error = id_error(&channel);
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::NotOwner(NotOwner::Forked)), "{error:?}");
        assert_eq!(error.errno(), libc::EACCES);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn process_limits_are_named_by_errno() {
    in_child(|| {
        become_ordinary_user();
        let connection = Connection::new(Shape::default());
        let context = connection.client.io.cq().context();
        setrlimit(Resource::RLIMIT_NOFILE, 0, 0).expect("set a limit");
        let error = EventChannel::new().expect_err("no descriptor should be left");
        assert_hint(&error, libc::EMFILE, [MANAGER, "ulimit -n"]);
        let error = CompletionChannel::new(context).expect_err("no descriptor should be left");
        assert_hint(&error, libc::EMFILE, ["a completion channel", "ulimit -n"]);
        let pd = connection.client.io.qp().pd();
        for (limit, errno) in [(4096, libc::ENOMEM), (0, libc::EPERM)] {
            setrlimit(Resource::RLIMIT_MEMLOCK, limit, limit).expect("set a limit");
            let region = MemoryRegion::alloc(pd, 1 << 16, AccessFlags::empty());
            assert_hint(
                &region.expect_err("the region should exceed the limit"),
                errno,
                ["register 65536", "ulimit -l"],
            );
        }
        connection.close();
    });
}

fn id_error(channel: &EventChannel) -> Error {
    rdmacm::cm::CmId::new(channel, rdmacm::cm::PortSpace::Tcp)
        .expect_err("the channel should belong to the parent")
}
