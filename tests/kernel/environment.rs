//! The kernel, the devices and the addresses that the test bed has promised, by each way to ask.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use nix::sys::utsname::uname;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::device::{self, Device, DriverId, GidType, LinkLayer, NodeType, PortState, Transport};
use rdmacm::verbs::{
    AccessFlags, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpState,
    SharedReceiveQueue, SharedReceiveQueueAttributes,
};
use rdmacm::{Error, ErrorKind};
use rdmacm_tests::wait_until;

use crate::bed::{Connection, LONG, channel, device, listen, promised, request, resolve, rxe};
use crate::child::{forbid_ioctl, forbid_netlink, forbid_writing_to_the_next_file, hide, in_child};
use crate::io::Shape;

fn names(devices: &[Device]) -> String {
    devices.iter().map(Device::name).collect::<Vec<_>>().join(",")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_kernel_is_the_one_promised() {
    let name = uname().expect("ask the kernel for its name");
    let release = name.release().to_str().expect("a text");
    let version: Vec<&str> = release.split('.').take(2).collect();
    assert_eq!(version.join("."), promised("RDMACM_TEST_KERNEL"));
}

/// What both ways of asking tell.
fn check_devices(devices: &[Device]) {
    assert_eq!(names(devices), promised("RDMACM_TEST_DEVICES"));
    for device in devices {
        let (driver, node_type, transport, abi) = match device.name() {
            "rxe0" => {
                let (driver, node_type) = (DriverId::RDMA_DRIVER_RXE, NodeType::RDMA_NODE_IB_CA);
                (driver, node_type, Transport::InfiniBand, 2)
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
        let node = device.uverbs().expect("each has a verbs node");
        assert_eq!(node.abi_version(), Some(abi), "{device:?}");
        let file = fs::metadata(node.path()).expect("the node is there");
        assert_eq!(node.device_number(), Some(file.rdev()), "{device:?}");
    }
    let guids: HashSet<_> = devices.iter().map(Device::node_guid).collect();
    assert_eq!(guids.len(), devices.len(), "{devices:?}");
    let manager = device::rdma_cm();
    assert_eq!(manager.abi_version(), Some(4));
    let file = fs::metadata(manager.path()).expect("the node is there");
    assert_eq!(manager.device_number(), Some(file.rdev()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_devices_are_those_promised() {
    let devices = device::list().expect("list");
    check_devices(&devices);
    for device in &devices {
        let protocol = if device.name() == "siw0" { "iw" } else { "roce" };
        assert_eq!(device.protocol(), Some(protocol));
        assert!(device.index().is_some(), "{device:?}");
    }
    let indices: HashSet<_> = devices.iter().map(Device::index).collect();
    assert_eq!(indices.len(), devices.len(), "{devices:?}");
    assert!(device::copies_on_fork().expect("ask"));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn netlink_alone_tells_everything() {
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
fn sysfs_alone_is_enough() {
    in_child(|| {
        forbid_netlink();
        let alone = device::list().expect("list");
        check_devices(&alone);
        assert!(alone.iter().all(|device| device.index().is_none()), "{alone:?}");
        let error = alone[0].resources().expect_err("sysfs does not count objects");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        Connection::new(Shape::default()).close();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_connection_manager_of_another_abi_version_is_refused() {
    in_child(|| {
        forbid_netlink();
        hide("/sys/class/misc");
        fs::create_dir("/sys/class/misc/rdma_cm").expect("a directory");
        fs::write("/sys/class/misc/rdma_cm/abi_version", "5\n").expect("another version");
        let error = EventChannel::new().expect_err("this library speaks 4");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("/dev/infiniband/rdma_cm"), "{text}");
        assert!(text.contains("ABI version is 5") && text.contains("speaks 4"), "{text}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn verbs_of_another_abi_version_are_refused() {
    in_child(|| {
        forbid_netlink();
        hide("/sys/class/infiniband_verbs");
        fs::write("/sys/class/infiniband_verbs/abi_version", "7\n").expect("another version");
        let error = device::list().expect_err("this library speaks 6");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    });
}

/// A driver whose rings are not known: the rest works, and so does a connection between queue pairs of the program's own.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rings_of_another_version_are_left_alone() {
    in_child(|| {
        show_another_version();
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, rxe(0));
        let client = resolve(&ours, address);
        let context = client.context().expect("it has a device");
        assert!(context.query_device().expect("query the device").max_qp > 0);
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let memory = MemoryRegion::alloc(&pd, 4096, AccessFlags::empty()).expect("memory region");
        let rings = [
            CompletionQueue::new(&context, 1, None).map(drop),
            SharedReceiveQueue::new(&pd, SharedReceiveQueueAttributes::default()).map(drop),
        ];
        for error in rings.map(|made| made.expect_err("its rings are not known")) {
            expect_unknown(&error);
        }
        connect_named(&ours, &theirs, client, &ConnParam::default());
        memory.destroy().expect("destroy");
    });
}

/// A driver that wants more than the plain command to open its device: the connection manager serves queue pairs that the
/// program has by other means.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_device_that_cannot_be_opened_has_its_connections() {
    for errno in [libc::EINVAL, libc::EFAULT] {
        in_child(|| {
            show_another_version();
            let (ours, theirs) = (channel(), channel());
            let (_listener, address) = listen(&theirs, rxe(0));
            let client = resolve(&ours, address);
            forbid_writing_to_the_next_file(errno);
            expect_unknown(&client.context().expect_err("its driver wants more"));
            let most = ConnParam { qp_num: 0x11, ..ConnParam::default() };
            let error = client.connect(&most).expect_err("nobody knows what the device can");
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
            assert!(error.to_string().contains("rxe0"), "{error}");
            let rejected = resolve(&ours, address);
            let depths = ConnParam { responder_resources: 1, initiator_depth: 1, ..most.clone() };
            rejected.connect(&depths).expect("connect");
            request(&theirs).reject(b"no").expect("reject");
            let event = ours.expect_event(EventType::Rejected).expect_err("it is an error");
            assert!(matches!(event.kind(), ErrorKind::Rejected(_)), "{event}");
            connect_named(&ours, &theirs, client, &depths);
            asks_where_to_send(&ours, &theirs, &most);
        });
    }
}

/// Asks a peer where to send datagrams, of which nothing is outstanding.
fn asks_where_to_send(ours: &EventChannel, theirs: &EventChannel, param: &ConnParam) {
    let [asks, listener] =
        [ours, theirs].map(|channel| CmId::new(channel, PortSpace::Udp).expect("create an id"));
    listener.bind(rxe(0)).expect("bind");
    listener.listen(0).expect("listen");
    let address = listener.local_addr().expect("query").expect("a bound id has an address");
    asks.resolve_addr(None, address, LONG).expect("resolve the address");
    ours.expect_event(EventType::AddrResolved).expect("address resolved");
    asks.resolve_route(LONG).expect("resolve the route");
    ours.expect_event(EventType::RouteResolved).expect("route resolved");
    asks.connect(param).expect("ask");
    request(theirs).reject(b"no").expect("reject");
    ours.expect_event(EventType::Unreachable).expect_err("it is an error");
}

/// Has rxe0 be a device of which rdmacm knows no rings.
fn show_another_version() {
    let class = "/sys/class/infiniband_verbs";
    let uverbs = device("rxe0").uverbs().expect("it has verbs").name().to_owned();
    let directory = format!("{class}/{uverbs}");
    let number = fs::read_to_string(format!("{directory}/dev")).expect("read");
    forbid_netlink();
    hide(class);
    fs::create_dir(&directory).expect("a directory");
    fs::write(format!("{class}/abi_version"), "6\n").expect("the version");
    for (file, text) in [("ibdev", "rxe0\n"), ("abi_version", "9\n"), ("dev", &number)] {
        fs::write(format!("{directory}/{file}"), text).expect("write");
    }
}

/// An error that names the device and its driver.
fn expect_unknown(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    for part in ["rxe0", "RDMA_DRIVER_RXE", "ABI version 9"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// Makes and ends a connection between queue pairs that only their numbers are known of.
fn connect_named(ours: &EventChannel, theirs: &EventChannel, client: CmId, depths: &ConnParam) {
    let named = |qp_num| ConnParam { qp_num, ..depths.clone() };
    client.connect(&named(0x11)).expect("connect");
    let server = request(theirs);
    server.accept(&named(0x22)).expect("accept");
    let event = ours.expect_event(EventType::ConnectResponse).expect("an answer");
    assert_eq!(event.connection().expect("a connection's").qp_num, 0x22);
    drop(event);
    let step = client.init_qp_attr(QpState::IB_QPS_RTR).expect("attributes");
    assert_eq!(step.dest_qp_num, 0x22);
    client.establish().expect("establish");
    theirs.expect_event(EventType::Established).expect("the server is connected");
    client.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("the server hears of it");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn without_either_there_is_an_error_with_a_remedy() {
    in_child(|| {
        hide("/sys");
        forbid_netlink();
        let error = device::list().expect_err("there is nobody to ask");
        assert_eq!(error.errno(), libc::EPERM);
        assert!(error.to_string().contains("mount sysfs"), "{error}");
        // The channel needs neither.
        channel();
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ports_and_their_tables() {
    let port = device("rxe0").port(1).expect("rxe0 has a port");
    assert_eq!(port.state(), Some(PortState::IB_PORT_ACTIVE));
    assert_eq!(port.link_layer(), Some(LinkLayer::IB_LINK_LAYER_ETHERNET));
    assert_eq!(port.netdev(), Some("v0"));
    assert_eq!(port.pkeys().expect("P_Keys").first(), Some(&0xffff));
    for address in ["::ffff:10.0.0.1", "fd00::1"] {
        let wanted: std::net::Ipv6Addr = address.parse().expect("an address");
        let mut table = port.gids().expect("GIDs");
        let entry = table.find(|entry| entry.gid == wanted.into()).expect(address);
        assert_eq!(entry.kind, Some(GidType::RoceV2), "{entry:?}");
        assert_eq!(entry.netdev.as_deref(), Some("v0"), "{entry:?}");
    }
    assert_eq!(device("rxe0").port(2).expect_err("there is one port").errno(), libc::EINVAL);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_port_of_siw_and_its_tables() {
    let port = device("siw0").port(1).expect("siw0 has a port");
    assert_eq!(port.state(), Some(PortState::IB_PORT_ACTIVE));
    assert_eq!(port.netdev(), Some("v1"));
    assert_eq!(port.pkeys().expect("P_Keys"), []);
}

/// A port's GID table as the ioctl lists it, which is as sysfs shows it.
fn check_gids(name: &str) {
    let device = device(name);
    let port = device.port(1).expect("it has a port");
    let by_sysfs: Vec<_> = port.gids().expect("GIDs").collect();
    assert_ne!(by_sysfs, []);
    let context = Context::open(&device).expect("open");
    assert_eq!(context.gids(1).expect("by ioctl"), by_sysfs);
    assert_eq!(context.gids(2).expect_err("there is one port").errno(), libc::EINVAL);
    in_child(|| {
        hide("/sys");
        let context = Context::open(&device).expect("open");
        assert_eq!(port.gids().expect_err("there is no sysfs").errno(), libc::ENOENT);
        let unnamed = by_sysfs.iter().cloned().map(|mut entry| {
            entry.netdev = None;
            entry
        });
        assert_eq!(context.gids(1).expect("by ioctl alone"), unnamed.collect::<Vec<_>>());
        forbid_ioctl();
        let error = context.gids(1).expect_err("there is nobody to ask");
        assert_eq!(error.errno(), libc::ENOENT, "{error}");
        assert!(error.to_string().contains("mount sysfs"), "{error}");
    });
    in_child(|| {
        let ours = Context::open(&device).expect("open");
        forbid_ioctl();
        assert_eq!(ours.gids(1).expect("by sysfs"), by_sysfs);
        let error = context.gids(1).expect_err("it is the parent's");
        assert!(matches!(error.kind(), ErrorKind::WrongProcess(_)), "{error}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_ioctl_and_sysfs_have_one_gid_table() {
    check_gids("rxe0");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_ioctl_and_sysfs_have_one_gid_table_of_siw() {
    check_gids("siw0");
}

/// A table with more entries than the first read has room for.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn long_gid_table_is_read_whole() {
    const ADDRESSES: usize = 100;
    // One process changes all addresses: each start of `ip` costs the guest as much as the rest of the test.
    let change = |verb: &str, options: &str| {
        let line = |number| format!("address {verb} fd00:1::{number:x}/64 dev v0 {options}\n");
        let lines: String = (1..=ADDRESSES).map(line).collect();
        let mut ip = Command::new("ip");
        let mut ip = ip.args(["-6", "-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip");
        let mut input = ip.stdin.take().expect("a pipe");
        input.write_all(lines.as_bytes()).expect("write to ip");
        drop(input);
        assert!(ip.wait().expect("wait for ip").success(), "ip address {verb}");
    };
    let device = device("rxe0");
    let port = device.port(1).expect("port 1 should be there");
    let context = Context::open(&device).expect("open");
    let table = || context.gids(1).expect("GIDs");
    let before = table().len();
    change("add", "nodad");
    wait_until("rxe0 has the addresses", || table().len() == before + ADDRESSES);
    assert_eq!(table(), port.gids().expect("GIDs").collect::<Vec<_>>());
    change("del", "");
    wait_until("rxe0 has lost the addresses", || table().len() == before);
}
