//! Options of an id whose effect can be observed.

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PathRecord, PortSpace};
use rdmacm::verbs::QpType;
use rdmacm::verbs_abi::{ib_path_flags, ib_path_rec_data};

use crate::fixtures::{
    LONG, Side, assert_invalid, channel, id, listen, request, resolve, roce, siw,
};
use crate::io::Shape;

/// Returns an id whose address is resolved, but not its route.
fn addressed(channel: &EventChannel, server: std::net::SocketAddr) -> CmId {
    let id = id(channel);
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    id
}

fn resolve_route(channel: &EventChannel, id: &CmId) {
    id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
}

/// Connects `id` and accepts its request. Returns both sides.
fn connect(id: CmId, channels: [&EventChannel; 2]) -> (Side, Side) {
    let client = Side::new(id, Shape::default());
    client.id.connect(&ConnParam::default()).expect("connect");
    let server = Side::new(request(channels[1]), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    channels[0].expect_event(EventType::Established).expect("the client should be connected");
    channels[1].expect_event(EventType::Established).expect("the server should be connected");
    (client, server)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_share_address_until_one_listens() {
    let channel = channel();
    let [first, second, third] = [id(&channel), id(&channel), id(&channel)];
    first.set_reuseaddr(true).expect("set");
    first.bind(roce(0)).expect("bind");
    let shared = first.local_addr().expect("query").expect("the id should have an address");
    let error = third.bind(shared).expect_err("an id without reuse should not share the address");
    assert_eq!(error.errno(), libc::EADDRINUSE, "{error}");
    second.set_reuseaddr(true).expect("set");
    second.bind(shared).expect("both ids should share the address");
    let error = first.listen(0).expect_err("a listener should not share the address");
    assert_eq!(error.errno(), libc::EADDRINUSE, "{error}");
    let error = first.set_reuseaddr(false).expect_err("reuse should be fixed on a bound id");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert!(error.to_string().contains("set the reuse of the address of id"), "{error}");
    second.destroy().expect("destroy");
    first.listen(0).expect("the only id should listen");
    first.set_reuseaddr(true).expect_err("reuse should be fixed on a listening id");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn one_port_serves_each_family_separately() {
    let channel = channel();
    let wildcard = |v6: bool, port| match v6 {
        true => std::net::SocketAddr::from(([0_u16; 8], port)),
        false => ([0_u8; 4], port).into(),
    };
    let both = id(&channel);
    both.set_afonly(false).expect("set");
    both.bind(wildcard(true, 0)).expect("bind");
    let port = both.local_addr().expect("query").expect("the id should have an address").port();
    let error = id(&channel)
        .bind(wildcard(false, port))
        .expect_err("the port should be in use for IPv4 too");
    // The kernel returns this errno for wildcards.
    assert_eq!(error.errno(), libc::EADDRNOTAVAIL, "{error}");
    both.destroy().expect("destroy");
    let only = id(&channel);
    only.set_afonly(true).expect("set");
    only.bind(wildcard(true, port)).expect("bind");
    only.listen(0).expect("listen");
    let other = id(&channel);
    other.bind(wildcard(false, port)).expect("the port of IPv4 should be free");
    other.listen(0).expect("listen");
    let error = only.set_afonly(false).expect_err("the option should be fixed on a bound id");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_gets_ack_timeout() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let id = addressed(&ours, server);
    let error = id.set_ack_timeout(32).expect_err("a timeout above 31 should be refused");
    assert_invalid(&error, &["set the ACK timeout of id", "ack_timeout 32", "maximum of 31"]);
    id.set_ack_timeout(22).expect("set");
    resolve_route(&ours, &id);
    // The timeout covers both directions, so the lifetime of a packet is half of it.
    assert_eq!(id.route().expect("route").paths[0].packet_life_time, 21);
    let client = Side::new(id, Shape::default());
    client.id.connect(&ConnParam::default()).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    server.id.set_ack_timeout(19).expect("set");
    server.id.accept(&ConnParam::default()).expect("accept");
    ours.expect_event(EventType::Established).expect("the client should be connected");
    for (side, timeout) in [(client, 22), (server, 19)] {
        assert_eq!(side.io.qp().query().expect("query").timeout, timeout);
    }
    let datagrams = CmId::new(&ours, PortSpace::Udp).expect("an id");
    let error = datagrams.set_ack_timeout(1).expect_err("the id should have no ACK timeout");
    assert_invalid(&error, &["have no ACK timeout"]);
    let uc = CmId::with_qp_type(&ours, PortSpace::Ib, QpType::IB_UVERBS_QPT_UC).expect("an id");
    uc.set_ack_timeout(1).expect_err("the id should have no ACK timeout");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tos_becomes_traffic_class_of_both_sides() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let id = addressed(&ours, server);
    id.set_tos(0x28).expect("set");
    resolve_route(&ours, &id);
    assert_eq!(id.route().expect("route").paths[0].traffic_class, 0x28);
    let (client, server) = connect(id, [&ours, &theirs]);
    for side in [client, server] {
        assert_eq!(side.io.qp().query().expect("query").dest.traffic_class, 0x28);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_leaves_tos_to_tcp() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, siw(0));
    let id = addressed(&ours, server);
    id.set_tos(0x28).expect("set");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn path_record_replaces_route_resolution() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let known = resolve(&ours, server).route().expect("route").paths;
    let path = ib_path_rec_data::from(&known[0]);
    let early = id(&ours);
    let error = early.set_ib_path(&[path]).expect_err("the id should have no address yet");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let id = addressed(&ours, server);
    let mut useless = path;
    useless.flags = PathRecord::FLAGS | ib_path_flags::IB_PATH_ALTERNATE;
    for paths in [&[][..], &[useless]] {
        let error = id.set_ib_path(paths).expect_err("the paths should be unusable");
        assert_invalid(&error, &["set the path of id", "no path"]);
    }
    id.set_ib_path(&[useless, path]).expect("set");
    ours.expect_event(EventType::RouteResolved).expect("the event should arrive");
    assert_eq!(id.route().expect("route").paths, known);
    id.set_ib_path(&[path]).expect_err("the id should have a route already");
    connect(id, [&ours, &theirs]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn options_may_be_set_before_device_is_known() {
    let channel = channel();
    let id = id(&channel);
    id.set_tos(1).expect("set");
    id.set_ack_timeout(0).expect("set");
    id.set_ack_timeout(31).expect("set");
    id.set_reuseaddr(true).expect("set");
    id.set_reuseaddr(false).expect("set");
    id.set_afonly(true).expect("set");
}
