//! The kernel, devices and addresses that the test bed promises, as each interface reports them.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::device::{self, Device, DriverId, GidType, LinkLayer, NodeType, PortState, Transport};
use rdmacm::verbs::{
    AccessFlags, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpState,
    SharedReceiveQueue, SharedReceiveQueueAttributes,
};
use rdmacm::{Error, ErrorKind};
use rdmacm_tests::wait_until;
use verbs_core::driver::DeviceInfo;
use verbs_core::engine::DeviceContext;
use verbs_core::sys::uverbs::UverbsFile;
use zerocopy::IntoBytes;

use crate::child::{forbid_ioctl, forbid_netlink, forbid_writing_to_the_next_file, hide, in_child};
use crate::fixtures::{
    Connection, LONG, channel, device, is_card, kernel_version, listen, promised, request, resolve,
    roce, roce_end, roce_ip, roce_name, roce_v6,
};
use crate::io::Shape;

fn names(devices: &[Device]) -> String {
    devices.iter().map(Device::name).collect::<Vec<_>>().join(",")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn kernel_is_promised_version() {
    let (major, minor) = kernel_version();
    assert_eq!(format!("{major}.{minor}"), promised("RDMACM_TEST_KERNEL"));
}

/// Checks the facts that both sources report.
fn check_devices(devices: &[Device]) {
    assert_eq!(names(devices), promised("RDMACM_TEST_DEVICES"));
    for device in devices {
        let (driver, node_type, transport, abi) = match device.name() {
            "rxe0" => {
                let (driver, node_type) = (DriverId::RDMA_DRIVER_RXE, NodeType::RDMA_NODE_IB_CA);
                (driver, node_type, Transport::InfiniBand, 2)
            }
            "mlx5_0" => {
                let (driver, node_type) = (DriverId::RDMA_DRIVER_MLX5, NodeType::RDMA_NODE_IB_CA);
                (driver, node_type, Transport::InfiniBand, 1)
            }
            "siw0" => {
                let (driver, node_type) = (DriverId::RDMA_DRIVER_SIW, NodeType::RDMA_NODE_RNIC);
                (driver, node_type, Transport::Iwarp, 1)
            }
            _ => panic!("{device:?}"),
        };
        assert_eq!(device.driver(), Some(driver));
        assert_eq!(device.node_type(), Some(node_type));
        assert_eq!(device.transport(), Some(transport));
        assert_eq!(device.port_count(), Some(1), "{device:?}");
        assert_ne!(device.node_guid(), None, "{device:?}");
        let node = device.uverbs().expect("each device should have a verbs node");
        assert_eq!(node.abi_version(), Some(abi), "{device:?}");
        let file = fs::metadata(node.path()).expect("the node should exist");
        assert_eq!(node.device_number(), Some(file.rdev()), "{device:?}");
    }
    let guids: HashSet<_> = devices.iter().map(Device::node_guid).collect();
    assert_eq!(guids.len(), devices.len(), "{devices:?}");
    let manager = device::cm_char_device();
    assert_eq!(manager.abi_version(), Some(4));
    let file = fs::metadata(manager.path()).expect("the node should exist");
    assert_eq!(manager.device_number(), Some(file.rdev()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn devices_are_as_promised() {
    let devices = device::list().expect("list");
    check_devices(&devices);
    for device in &devices {
        let protocol = if device.name() == "siw0" { "iw" } else { "roce" };
        assert_eq!(device.protocol(), Some(protocol));
        assert!(device.index().is_some(), "{device:?}");
    }
    let indices: HashSet<_> = devices.iter().map(Device::index).collect();
    assert_eq!(indices.len(), devices.len(), "{devices:?}");
    assert!(device::supports_copy_on_fork().expect("ask"));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn netlink_alone_lists_all_devices() {
    let devices = device::list().expect("list");
    in_child(|| {
        hide("/sys");
        let alone = device::list().expect("list");
        check_devices(&alone);
        assert_eq!(alone, devices);
        Connection::new(Shape::default()).close();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sysfs_alone_lists_all_devices() {
    in_child(|| {
        forbid_netlink();
        let alone = device::list().expect("list");
        check_devices(&alone);
        assert!(alone.iter().all(|device| device.index().is_none()), "{alone:?}");
        let error = alone[0].resources().expect_err("sysfs should not count objects");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        Connection::new(Shape::default()).close();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rdma_cm_of_other_abi_version_is_refused() {
    in_child(|| {
        forbid_netlink();
        hide("/sys/class/misc");
        fs::create_dir("/sys/class/misc/rdma_cm").expect("a directory");
        fs::write("/sys/class/misc/rdma_cm/abi_version", "5\n").expect("write another version");
        let error = EventChannel::new().expect_err("version 5 should not be supported");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("/dev/infiniband/rdma_cm"), "{text}");
        assert!(text.contains("ABI version is 5") && text.contains("supports only 4"), "{text}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn verbs_of_other_abi_version_are_refused() {
    in_child(|| {
        forbid_netlink();
        hide("/sys/class/infiniband_verbs");
        fs::write("/sys/class/infiniband_verbs/abi_version", "7\n").expect("write another version");
        let error = device::list().expect_err("version 7 should not be supported");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    });
}

/// Checks that the library does not use the driver's rings if their version is unknown.
///
/// All other calls work, and so does a connection between queue pairs of the program.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rings_of_unknown_version_are_not_used() {
    in_child(|| {
        show_another_version();
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, roce(0));
        let client = resolve(&ours, address);
        let context = client.context().expect("the id should have a device");
        assert!(context.query_device().expect("query the device").max_qp > 0);
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let memory = MemoryRegion::alloc(&pd, 4096, AccessFlags::empty()).expect("memory region");
        let rings = [
            CompletionQueue::new(&context, 1, None).map(drop),
            SharedReceiveQueue::new(&pd, SharedReceiveQueueAttributes::default()).map(drop),
        ];
        for error in rings.map(|made| made.expect_err("the version of the rings should be unknown"))
        {
            expect_unknown(&error);
        }
        connect_named(&ours, &theirs, client, &ConnParam::default());
        memory.destroy().expect("destroy");
    });
}

/// Checks that a device whose driver needs more than the plain command cannot be opened.
///
/// The connection manager still serves queue pairs that the program has created by other means.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unopenable_device_serves_external_queue_pairs() {
    for errno in [libc::EINVAL, libc::EFAULT] {
        in_child(|| {
            show_another_version();
            let (ours, theirs) = (channel(), channel());
            let (_listener, address) = listen(&theirs, roce(0));
            let client = resolve(&ours, address);
            forbid_writing_to_the_next_file(errno);
            expect_unknown(
                &client.context().expect_err("the driver should need more than the plain command"),
            );
            let most = ConnParam { qp_num: 0x11, ..ConnParam::default() };
            let error = client.connect(&most).expect_err("device limits should be unknown");
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
            assert!(error.to_string().contains(roce_name()), "{error}");
            let rejected = resolve(&ours, address);
            let depths = ConnParam { responder_resources: 1, initiator_depth: 1, ..most.clone() };
            rejected.connect(&depths).expect("connect");
            request(&theirs).reject(b"no").expect("reject");
            let event =
                ours.expect_event(EventType::Rejected).expect_err("a rejection should be an error");
            assert!(matches!(event.kind(), ErrorKind::Rejected(_)), "{event}");
            connect_named(&ours, &theirs, client, &depths);
            asks_where_to_send(&ours, &theirs, &most);
        });
    }
}

/// Sends a service resolution request with `param`. Such a request has no depths.
fn asks_where_to_send(ours: &EventChannel, theirs: &EventChannel, param: &ConnParam) {
    let [asks, listener] =
        [ours, theirs].map(|channel| CmId::new(channel, PortSpace::Udp).expect("create an id"));
    listener.bind(roce(0)).expect("bind");
    listener.listen(0).expect("listen");
    let address = listener.local_addr().expect("query").expect("a bound id should have an address");
    asks.resolve_addr(None, address, LONG).expect("resolve the address");
    ours.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    asks.resolve_route(LONG).expect("resolve the route");
    ours.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    asks.connect(param).expect("ask");
    request(theirs).reject(b"no").expect("reject");
    ours.expect_event(EventType::Unreachable).expect_err("a rejection should be an error");
}

/// Makes the driver report a version of its rings that rdmacm does not know.
fn show_another_version() {
    let class = "/sys/class/infiniband_verbs";
    let uverbs =
        device(roce_name()).uverbs().expect("the device should have verbs").name().to_owned();
    let directory = format!("{class}/{uverbs}");
    let number = fs::read_to_string(format!("{directory}/dev")).expect("read");
    forbid_netlink();
    hide(class);
    fs::create_dir(&directory).expect("a directory");
    fs::write(format!("{class}/abi_version"), "6\n").expect("the version");
    let name = format!("{}\n", roce_name());
    for (file, text) in [("ibdev", name.as_str()), ("abi_version", "9\n"), ("dev", &number)] {
        fs::write(format!("{directory}/{file}"), text).expect("write");
    }
}

/// Checks that an error names the device and its driver.
fn expect_unknown(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    let driver = if is_card() { "RDMA_DRIVER_MLX5" } else { "RDMA_DRIVER_RXE" };
    for part in [roce_name(), driver, "ABI version 9"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// Establishes and ends a connection between queue pairs that are known only by their numbers.
fn connect_named(ours: &EventChannel, theirs: &EventChannel, client: CmId, depths: &ConnParam) {
    let named = |qp_num| ConnParam { qp_num, ..depths.clone() };
    client.connect(&named(0x11)).expect("connect");
    let server = request(theirs);
    server.accept(&named(0x22)).expect("accept");
    let event = ours.expect_event(EventType::ConnectResponse).expect("an answer");
    assert_eq!(
        event.connection().expect("the event should have connection parameters").qp_num,
        0x22
    );
    drop(event);
    let step = client.init_qp_attr(QpState::IB_QPS_RTR).expect("attributes");
    assert_eq!(step.dest_qp_num, 0x22);
    client.establish().expect("establish");
    theirs.expect_event(EventType::Established).expect("the server should be connected");
    client.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("server should get the event");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn missing_netlink_and_sysfs_is_error_with_hint() {
    in_child(|| {
        hide("/sys");
        forbid_netlink();
        let error = device::list().expect_err("no source should answer");
        assert_eq!(error.errno(), libc::EPERM);
        assert!(error.to_string().contains("mount sysfs"), "{error}");
        // The event channel needs neither source.
        channel();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn port_attributes_and_tables_are_read() {
    let port = device(roce_name()).port(1).expect("rxe0 should have a port");
    assert_eq!(port.state(), Some(PortState::IB_PORT_ACTIVE));
    assert_eq!(port.link_layer(), Some(LinkLayer::IB_LINK_LAYER_ETHERNET));
    assert_eq!(port.netdev(), Some(roce_end()));
    assert_eq!(port.pkeys().expect("P_Keys").first(), Some(&0xffff));
    for address in [format!("::ffff:{}", roce_ip()), roce_v6(0).ip().to_string()] {
        let wanted: std::net::Ipv6Addr = address.parse().expect("an address");
        let mut table = port.gids().expect("GIDs");
        let entry = table.find(|entry| entry.gid == wanted.into()).expect(&address);
        assert_eq!(entry.gid_type, Some(GidType::RoceV2), "{entry:?}");
        assert_eq!(entry.netdev.as_deref(), Some(roce_end()), "{entry:?}");
    }
    assert_eq!(
        device(roce_name()).port(2).expect_err("the device should have one port").errno(),
        libc::EINVAL
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_port_attributes_and_tables_are_read() {
    let port = device("siw0").port(1).expect("siw0 should have a port");
    assert_eq!(port.state(), Some(PortState::IB_PORT_ACTIVE));
    assert_eq!(port.netdev(), Some("v1"));
    assert!(port.pkeys().expect("P_Keys").is_empty());
}

/// Drivers ask for a single entry, and continue without it if the kernel refuses the query.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn single_gid_entries_agree_with_table() {
    let device = device(roce_name());
    let node = device.uverbs().expect("the device should have a verbs node");
    let driver = device.driver().expect("the driver should be known");
    let file = UverbsFile::open(&node.path(), node.device_number(), driver).expect("open the node");
    let info = DeviceInfo { driver: Some(driver), abi_version: node.abi_version() };
    let (context, _opened) = DeviceContext::open(file, &info).expect("open the device");
    let table = context.file().gid_table(256).expect("the table");
    assert!(!table.is_empty());
    for entry in &table {
        let single = context.file().gid_entry(entry.port_num, entry.gid_index).expect("the entry");
        assert_eq!(single.as_bytes(), entry.as_bytes(), "index {}", entry.gid_index);
    }
    context.file().gid_entry(2, 0).expect_err("the device should have one port");
}

/// Checks that a port's GID table from the ioctl equals the one in sysfs.
fn check_gids(name: &str) {
    let device = device(name);
    let port = device.port(1).expect("port 1 should exist");
    let by_sysfs: Vec<_> = port.gids().expect("GIDs").collect();
    assert_ne!(by_sysfs, []);
    let context = Context::open(&device).expect("open");
    assert_eq!(context.gids(1).expect("read the table by ioctl"), by_sysfs);
    assert_eq!(context.gids(2).expect_err("the device should have one port").errno(), libc::EINVAL);
    in_child(|| {
        hide("/sys");
        let context = Context::open(&device).expect("open");
        assert_eq!(port.gids().expect_err("sysfs should be missing").errno(), libc::ENOENT);
        let unnamed = by_sysfs.iter().cloned().map(|mut entry| {
            entry.netdev = None;
            entry
        });
        assert_eq!(
            context.gids(1).expect("read the table by ioctl alone"),
            unnamed.collect::<Vec<_>>()
        );
        forbid_ioctl();
        let error = context.gids(1).expect_err("no source should answer");
        assert_eq!(error.errno(), libc::ENOENT, "{error}");
        assert!(error.to_string().contains("mount sysfs"), "{error}");
    });
    in_child(|| {
        let ours = Context::open(&device).expect("open");
        forbid_ioctl();
        assert_eq!(ours.gids(1).expect("read the table by sysfs"), by_sysfs);
        let error = context.gids(1).expect_err("the object should belong to the parent");
        assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ioctl_and_sysfs_gid_tables_agree() {
    check_gids(roce_name());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ioctl_and_sysfs_gid_tables_agree_on_siw() {
    check_gids("siw0");
}

/// Checks that a GID table that exceeds the buffer of the first read is read completely.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn long_gid_table_is_read_whole() {
    const ADDRESSES: usize = 100;
    // One process changes all addresses: each start of `ip` costs the guest as much as the rest of the test.
    let change = |verb: &str, options: &str| {
        let end = roce_end();
        let line = |number| format!("address {verb} fd00:1::{number:x}/64 dev {end} {options}\n");
        let lines: String = (1..=ADDRESSES).map(line).collect();
        let mut ip = Command::new("ip");
        let mut ip = ip.args(["-6", "-batch", "-"]).stdin(Stdio::piped()).spawn().expect("run ip");
        let mut input = ip.stdin.take().expect("a pipe");
        input.write_all(lines.as_bytes()).expect("write to ip");
        drop(input);
        assert!(ip.wait().expect("wait for ip").success(), "ip address {verb}");
    };
    let device = device(roce_name());
    let port = device.port(1).expect("port 1 should be there");
    let context = Context::open(&device).expect("open");
    let table = || context.gids(1).expect("GIDs");
    let before = table().len();
    change("add", "nodad");
    wait_until("the device has the addresses", || table().len() == before + ADDRESSES);
    assert_eq!(table(), port.gids().expect("GIDs").collect::<Vec<_>>());
    change("del", "");
    wait_until("the device has lost the addresses", || table().len() == before);
}
