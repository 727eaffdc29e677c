//! Removal of a device while the process uses it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, EventChannel, EventType, Membership, PortSpace};
use rdmacm::device::{self, link};
use rdmacm::endpoint::Listener;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, Context, MemoryRegion,
    ProtectionDomain, QpState, QueuePair, QueuePairInit, SendFlags, SendOperation,
};
use rdmacm::{Error, ErrorKind};
use rdmacm_tests::wait_until;

use crate::fixtures::{
    Connection, LONG, Side, announce, ask, asleep, channel, connect, id, is_card, listen, request,
    resolve,
};
use crate::io::Shape;
use crate::netdev::{ip, run, wait_until_active, wait_until_usable};

/// A device for one test, over a network device that the test creates.
pub(crate) struct Own {
    kind: link::LinkType,
    pub(crate) name: &'static str,
    pub(crate) netdev: &'static str,
    pub(crate) address: SocketAddr,
}

impl Own {
    pub(crate) fn roce() -> Self {
        match is_card() {
            true => Self::new(link::LinkType::Other("mlx5_card"), "mlx5_7"),
            false => Self::new(link::LinkType::Rxe, "rxe7"),
        }
    }

    pub(crate) fn siw() -> Self {
        Self::new(link::LinkType::Siw, "siw7")
    }

    fn new(kind: link::LinkType, name: &'static str) -> Self {
        let own = Self { kind, name, netdev: "own0", address: ([10, 6, 0, 1], 0).into() };
        ip(&["link", "add", own.netdev, "type", "dummy"]);
        ip(&["address", "add", "10.6.0.1/24", "dev", own.netdev]);
        ip(&["link", "set", own.netdev, "up"]);
        own.add_link();
        own
    }

    pub(crate) fn add_link(&self) {
        link::add(self.name, self.kind, self.netdev).expect("add the link");
        match self.kind {
            link::LinkType::Siw => wait_until_active(self.name),
            _ => wait_until_usable(self.name, self.address.ip()),
        }
    }

    /// Asserts that the process can use the device after it is added again.
    pub(crate) fn comes_back(&self) {
        assert!(!self.exists());
        self.add_link();
        Connection::to(self.address, Shape::default(), &ConnParam::default()).close();
    }

    /// Begins to delete the link. The deletion ends when no process has the device open.
    pub(crate) fn delete(&self) -> Deletion {
        let (tx, rx) = mpsc::channel();
        let name = self.name;
        thread::spawn(move || tx.send(link::delete(name)));
        Deletion(rx)
    }

    pub(crate) fn exists(&self) -> bool {
        device::list().expect("list").iter().any(|device| device.name() == self.name)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        ip(&["link", "delete", self.netdev]);
    }
}

/// A link that is being deleted.
pub(crate) struct Deletion(Receiver<rdmacm::Result<()>>);

impl Deletion {
    pub(crate) fn waits(&self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    #[track_caller]
    pub(crate) fn finish(self) {
        self.0
            .recv_timeout(LONG)
            .expect("device should be closed everywhere")
            .expect("delete the link");
    }
}

#[track_caller]
fn assert_removed<T>(result: Result<T, Error>) {
    assert_removed_with(libc::ENXIO, result);
}

#[track_caller]
fn assert_removed_with<T>(errno: i32, result: Result<T, Error>) {
    let Err(error) = result else { panic!("the call should fail") };
    assert!(
        matches!(error.kind(), ErrorKind::DeviceRemoved(found) if *found == errno),
        "{error:?}"
    );
    assert!(error.to_string().contains("the device was removed"), "{error}");
}

/// Asserts that objects in the context of `side`, whose device is removed, are unusable.
fn assert_context_is_unusable(side: &Side) {
    let context = side.id.context().expect("the id should keep its context");
    assert!(context.is_device_removed());
    let pd = side.io.qp().pd();
    let assert_removed = |result: Result<(), Error>| assert_removed_with(libc::EIO, result);
    assert_removed(context.query_device().map(drop));
    assert_removed(context.query_port(1).map(drop));
    assert_removed(ProtectionDomain::new(&context).map(drop));
    assert_removed(CompletionChannel::new(&context).map(drop));
    assert_removed(CompletionQueue::new(&context, 1, None).map(drop));
    assert_removed(MemoryRegion::alloc(pd, 64, AccessFlags::empty()).map(drop));
    assert_removed(QueuePair::new(pd, &QueuePairInit::new(side.io.cq())).map(drop));
    assert_removed(side.io.qp().query().map(drop));
    assert_removed(side.io.receive(1, 0..8));
    assert_removed(side.io.post(2, SendOperation::Send, 0..8, SendFlags::SIGNALED));
    assert_removed(side.io.qp().lock_send_queue().map(drop));
    assert_removed(side.io.qp().lock_receive_queue().map(drop));
    assert_removed(side.io.cq().request_notify(false));
    // The context is not shared any more. While the device node exists, a call returns another context.
    assert_ne!(Context::shared(context.device()).ok().as_ref(), Some(&context));
    // Earlier requests have completed, or complete when the queue pair fails.
    side.io.cq().poll(&mut [Completion::default()]).expect("poll");
}

/// Returns the error of the next event on `channel`, which reports the removal.
#[track_caller]
fn removal_error(channel: &EventChannel) -> Error {
    let event = channel.expect_event_timeout(EventType::Established, LONG);
    let error = event.expect_err("the event should report the removal");
    assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error:?}");
    error
}

/// Checks that a listener on all devices also serves a device that is added later.
fn later_device_is_usable(own: impl FnOnce() -> Own) {
    let (ours, theirs) = (channel(), channel());
    let (_listener, any) = listen(&theirs, (Ipv4Addr::UNSPECIFIED, 0).into());
    let before = device::list().expect("list");
    let own = own();
    assert!(before.iter().all(|device| device.name() != own.name));
    let context = Context::open(&crate::fixtures::device(own.name)).expect("open");
    context.query_device().expect("query");
    let client = ask(&ours, (own.address.ip(), any.port()).into(), &ConnParam::default());
    let server = Side::new(request(&theirs), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    ours.expect_event_timeout(EventType::Established, LONG)
        .expect("the connection should be established");
    theirs
        .expect_event_timeout(EventType::Established, LONG)
        .expect("the connection should be established");
    for side in [&client, &server] {
        assert_eq!(side.id.context().expect("a device").device().name(), own.name);
    }
    server.io.receive(1, 0..8).expect("post a receive");
    client.io.post(2, SendOperation::Send, 0..8, SendFlags::SIGNALED).expect("post a send");
    server.io.done(1);
    client.io.done(2);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn later_device_is_found() {
    later_device_is_usable(Own::roce);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn later_siw_device_is_found() {
    later_device_is_usable(Own::siw);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_without_verbs_get_removal_event() {
    let own = Own::roce();
    let channel = channel();
    let (listener, server) = listen(&channel, own.address);
    let bound = id(&channel);
    bound.bind(own.address).expect("bind");
    let resolved = resolve(&channel, server);
    // No process has the device open, so the kernel removes it at once.
    own.delete().finish();
    assert!(!own.exists());
    let mut ids = vec![listener, bound, resolved];
    let mut reported: Vec<_> = ids
        .iter()
        .map(|_| {
            let error = removal_error(&channel);
            error.subject().to_owned()
        })
        .collect();
    reported.sort_unstable();
    reported.dedup();
    assert_eq!(reported.len(), ids.len(), "{reported:?}");
    for id in &ids {
        assert_removed(id.local_addr());
        assert_removed(id.context());
        assert_removed(id.listen(0));
        assert_removed(id.bind(own.address));
        assert_removed(id.resolve_addr(None, server, LONG));
        assert_removed(id.resolve_route(LONG));
    }
    drop(ids.pop());
    for id in ids {
        id.destroy().expect("destroy");
    }
}

/// Checks that a command during the removal reports the removal.
///
/// Between the change of an id's state and its event, the kernel refuses commands with the errno of a wrong call.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn commands_during_removal_report_removal() {
    for _ in 0..4 {
        let own = Own::roce();
        let channel = channel();
        let (_listener, server) = listen(&channel, own.address);
        let ids: Vec<_> = (0..50).map(|_| resolve(&channel, server)).collect();
        let again = ids[0].resolve_route(LONG).expect_err("the route should be resolved");
        assert_eq!(*again.kind(), ErrorKind::Os(libc::EINVAL), "{again}");
        let deletion = own.delete();
        // This loop does not sleep, because the state lasts a short time.
        assert!((0..1_000_000).any(|_| !own.exists()), "the kernel should remove the device");
        for id in &ids {
            assert_removed_with(libc::ENXIO, id.resolve_route(LONG));
            assert_removed_with(libc::ENXIO, id.listen(0));
        }
        drop(ids);
        deletion.finish();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn removal_wakes_all_request_waiters() {
    let own = Own::roce();
    let listener = CmId::new_sync(PortSpace::Tcp).expect("an id");
    listener.bind(own.address).expect("bind");
    listener.listen(1).expect("listen");
    listener.set_timeout(Some(LONG));
    let wait =
        |listener: &CmId| assert_removed_with(libc::ENODEV, listener.get_request().map(drop));
    thread::scope(|scope| {
        let waiting = [(); 3].map(|()| scope.spawn(|| wait(&listener)));
        own.delete().finish();
        waiting.into_iter().for_each(|waiting| waiting.join().expect("thread should not panic"));
    });
    wait(&listener);
}

/// Destroys a queue pair that is still in a group, which its id can no longer leave.
///
/// The kernel destroys no queue pair that is in a group.
///
/// On the card, the kernel refuses the command to leave a group shortly before it destroys the objects of the device.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_in_group_is_destroyed_after_removal() {
    let own = Own::roce();
    let channel = channel();
    let id = CmId::new(&channel, PortSpace::Udp).expect("create an id");
    id.bind(own.address).expect("bind");
    let qp = id.create_ep_qp(&EndpointQpInit::default()).expect("queue pair");
    id.join_multicast(([239, 1, 3, 1], 0), Membership::Full).expect("join");
    drop(
        channel
            .expect_event_timeout(EventType::MulticastJoin, LONG)
            .expect("the id should join the group"),
    );
    let deletion = own.delete();
    removal_error(&channel);
    id.destroy().expect("destroy");
    qp.destroy().expect("the queue pair should be in no group");
    deletion.finish();
}

/// Checks that both sides get the removal event, and keep the device until they drop their objects.
fn device_is_held_by_descriptors(own: &Own) {
    let connection = Connection::to(own.address, Shape::default(), &ConnParam::default());
    let deletion = own.delete();
    for (side, channel) in [
        (&connection.client, &connection.client_channel),
        (&connection.server, &connection.server_channel),
    ] {
        let event = loop {
            let event = channel.get_event_timeout(LONG).expect("read").expect("an event");
            // The other side may have disconnected first.
            if event.event_type() != EventType::Disconnected {
                break event;
            }
        };
        assert_eq!(event.event_type(), EventType::DeviceRemoval);
        assert_eq!((event.token(), event.status()), (side.id.token(), 0));
    }
    for side in [&connection.client, &connection.server] {
        // The kernel closes the id shortly after the event.
        wait_until("the id is closed", || side.id.local_addr().is_err());
        assert_removed(side.id.local_addr());
        assert_removed(side.id.connect(&ConnParam::default()));
        assert_removed(side.id.disconnect());
        assert_removed(side.id.reject(b""));
        assert_context_is_unusable(side);
    }
    let Connection { client, server, .. } = connection;
    client.id.destroy().expect("destroy");
    server.id.destroy().expect("destroy");
    assert!(deletion.waits(), "the deletion should wait for the context");
    drop((client.io, server.io));
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_descriptors_delay_removal() {
    device_is_held_by_descriptors(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connection_descriptors_delay_removal() {
    device_is_held_by_descriptors(&Own::siw());
}

/// Checks that each thread that waits for requests, and each later call, gets the error.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn removal_is_reported_to_all_listener_threads() {
    let own = Own::roce();
    let listener = Listener::bind(own.address).expect("listen");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let waiters = [(); 3].map(|()| {
            let (tx, listener) = (tx.clone(), &listener);
            scope.spawn(move || {
                announce(&tx);
                listener.accept_timeout(LONG)
            })
        });
        (0..3).for_each(|_| asleep(rx.recv().expect("a thread should begin")));
        let error = listener.try_accept().expect_err("no request should come");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
        own.delete().finish();
        for waiter in waiters {
            assert_removed_with(libc::ENODEV, waiter.join().expect("thread should not panic"));
        }
    });
    assert_removed_with(libc::ENODEV, listener.accept());
    assert_removed_with(libc::ENODEV, listener.accept_timeout(LONG));
    assert_removed_with(libc::ENODEV, listener.try_accept());
    drop(listener);
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn readded_device_is_different() {
    let own = Own::roce();
    let first = crate::fixtures::device(own.name);
    Connection::to(own.address, Shape::default(), &ConnParam::default()).close();
    own.delete().finish();
    drop(own);
    let own = Own::roce();
    let second = crate::fixtures::device(own.name);
    assert_ne!(first.index(), second.index());
    assert_eq!(first.resources().expect_err("device should be removed").errno(), libc::EINVAL);
    Connection::to(own.address, Shape::default(), &ConnParam::default()).close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_links_are_refused() {
    let own = Own::roce();
    let kind = link::LinkType::Rxe;
    let errno =
        |result: rdmacm::Result<()>| result.expect_err("the call should be refused").errno();
    assert_eq!(errno(link::add("rxe8", kind, "nowhere0")), libc::ENODEV);
    assert_eq!(errno(link::add("rxe8", kind, own.netdev)), libc::EEXIST);
    assert_eq!(errno(link::add(own.name, kind, "v1")), libc::ENFILE);
    assert_eq!(errno(link::delete("rxe8")), libc::ENODEV);
    let names = |port: &device::Port| port.device_name().to_owned();
    let listed: Vec<_> = link::list().expect("list").iter().map(names).collect();
    assert!(listed.contains(&own.name.to_owned()), "{listed:?}");
}

/// The address that only the bond's device has.
const BOND: &str = "10.7.0.1:0";

/// A device over a bond, whose hardware address is that of its active network device.
struct Bond;

impl Bond {
    fn new() -> Self {
        run("modprobe", &["bonding", "max_bonds=0"]);
        let mode = ["mode", "active-backup", "fail_over_mac", "active", "miimon", "20"];
        ip(&[&["link", "add", "bond7", "type", "bond"], &mode[..]].concat());
        for slave in ["slave0", "slave1"] {
            ip(&["link", "add", slave, "type", "dummy"]);
            ip(&["link", "set", slave, "master", "bond7"]);
        }
        ip(&["address", "add", "10.7.0.1/24", "dev", "bond7"]);
        ip(&["link", "set", "bond7", "up"]);
        link::add("rxe8", link::LinkType::Rxe, "bond7").expect("add the link");
        wait_until_usable("rxe8", Self::address().ip());
        Self
    }

    fn address() -> SocketAddr {
        BOND.parse().expect("an address")
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        for netdev in ["bond7", "slave0", "slave1"] {
            ip(&["link", "delete", netdev]);
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn hardware_address_change_is_reported() {
    let _bond = Bond::new();
    let channel = channel();
    let bound = id(&channel);
    bound.bind(Bond::address()).expect("bind");
    let (listener, _) = listen(&channel, Bond::address());
    let (shape, param) = (Shape::default(), ConnParam::default());
    let (client, server) = connect([&channel, &channel], Bond::address(), shape, &param);
    ip(&["link", "set", "slave0", "down"]);
    let mut reported = [(); 4].map(|()| {
        let event = channel.get_event_timeout(LONG).expect("read").expect("an event");
        assert_eq!((event.event_type(), event.status()), (EventType::AddrChange, 0));
        event.token()
    });
    reported.sort_unstable();
    let mut ids = [&bound, &listener, &client.id, &server.id].map(CmId::token);
    ids.sort_unstable();
    assert_eq!(reported, ids);
    // Each connection still works.
    assert!(!client.id.context().expect("a device").is_device_removed());
    for side in [&client, &server] {
        assert_eq!(side.io.qp().query().expect("query").qp_state, QpState::IB_QPS_RTS);
    }
    let address = listener.local_addr().expect("query").expect("the id should be bound");
    // The kernel replaces the GIDs of the device after it has reported the change.
    let mut late = None;
    wait_until("the address can be resolved", || {
        let id = id(&channel);
        let asked = id.resolve_addr(None, address, LONG);
        let resolved = asked.and_then(|()| channel.expect_event(EventType::AddrResolved).map(drop));
        if let Err(error) = &resolved {
            assert_eq!(error.errno(), libc::ENODEV, "{error}");
        }
        late = resolved.is_ok().then_some(id);
        late.is_some()
    });
    let late = late.expect("an id");
    assert_eq!(late.peer_addr().expect("query"), Some(address));
    for id in [bound, listener, late] {
        id.destroy().expect("destroy");
    }
}
