//! Binding and resolving, with existing and absent addresses.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use rdmacm::ErrorKind;
use rdmacm::addr::{Address, IbAddress};
use rdmacm::cm::{CmId, EventChannel, EventType, PortSpace};
use rdmacm::device::Gid;

use crate::fixtures::{
    LONG, assert_invalid, channel, device, id, listen, resolve, roce, roce_ends, roce_ip,
    roce_name, roce_v6, siw,
};
use crate::netdev::ip;

/// A network device without RDMA. Dropping it removes the device.
struct Plain(&'static str);

impl Plain {
    fn new(name: &'static str, address: &str) -> Self {
        let plain = Self(name);
        ip(&["link", "add", name, "type", "dummy"]);
        ip(&["address", "add", address, "dev", name]);
        ip(&["link", "set", name, "up"]);
        plain
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        ip(&["link", "delete", self.0]);
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[track_caller]
fn binds_to(address: SocketAddr, device: &str) {
    let channel = channel();
    let id = id(&channel);
    assert_eq!(id.local_addr().expect("query"), None);
    let error = id.context().expect_err("the id should have no device yet");
    assert_invalid(&error, &["not bound to a device"]);
    assert_eq!(error.errno(), libc::EINVAL);
    id.bind(address).expect("bind");
    let bound = id.local_addr().expect("query").expect("the id should be bound");
    assert_eq!(bound.ip(), address.ip());
    assert_ne!(bound.port(), 0);
    assert_eq!(id.peer_addr().expect("query"), None);
    let context = id.context().expect("the device");
    assert_eq!(context.device().name(), device);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn port_address_binds_to_its_device() {
    binds_to(roce(0), roce_name());
    binds_to(roce_v6(0), roce_name());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_address_binds_to_siw_device() {
    binds_to(siw(0), "siw0");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn wildcard_listener_gets_device_per_request() {
    let (ours, theirs) = (channel(), channel());
    // The kernel treats a loopback address as a wildcard.
    for wildcard in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0", "[::1]:0"] {
        let (listener, bound) = listen(&theirs, address(wildcard));
        listener.context().expect_err("a wildcard listener should have no device");
        let server = match bound.is_ipv4() {
            true => roce(bound.port()),
            false => roce_v6(bound.port()),
        };
        let client = crate::fixtures::ask(&ours, server, &rdmacm::cm::ConnParam::default());
        let request = crate::fixtures::request(&theirs);
        assert_eq!(request.context().expect("a device").device().name(), roce_name());
        assert_eq!(request.local_addr().expect("query"), Some(server));
        assert_eq!(request.peer_addr().expect("query"), client.id.local_addr().expect("query"));
        request.reject(b"").expect("reject");
        ours.get_event().expect("the request should be rejected");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unbound_listen_takes_port_of_all_addresses() {
    let channel = channel();
    let id = id(&channel);
    id.listen(1).expect("listen");
    let bound = id.local_addr().expect("query").expect("the id should be bound");
    assert!(bound.ip().is_unspecified(), "{bound}");
    assert_ne!(bound.port(), 0);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn port_in_use_is_refused() {
    let channel = channel();
    let (_listener, taken) = listen(&channel, roce(0));
    let error = id(&channel).bind(taken).expect_err("the address should be in use");
    assert_eq!(error.errno(), libc::EADDRINUSE);
    let text = error.to_string();
    assert!(text.contains("bind id") && text.contains(&taken.to_string()), "{text}");
    // Another address still has the port free.
    id(&channel).bind(roce_v6(taken.port())).expect("bind");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn address_without_rdma_device_is_refused() {
    let _plain = Plain::new("plain0", "10.7.0.1/24");
    let channel = channel();
    let plain = address("10.7.0.1:0");
    let error = id(&channel).bind(plain).expect_err("the address should belong to no device");
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    assert!(error.to_string().contains("10.7.0.1"), "{error}");
    let error = id(&channel).bind(address("10.99.0.1:0")).expect_err("address should be unused");
    assert_eq!(error.errno(), libc::EADDRNOTAVAIL, "{error}");
    // Resolving fails in the opposite direction, too.
    let error = failed_to_resolve(&channel, Some(plain), address("10.7.0.2:7471"));
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    let error = failed_to_resolve(&channel, None, address("10.7.0.1:7471"));
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    let error = failed_to_resolve(&channel, None, address("203.0.113.1:7471"));
    assert_eq!(error.errno(), libc::ENETUNREACH, "{error}");
}

/// Returns the error of the call, or that of its event.
fn failed_to_resolve(
    channel: &EventChannel,
    source: Option<SocketAddr>,
    destination: impl Into<Address>,
) -> rdmacm::Error {
    let id = id(channel);
    match id.resolve_addr(source.map(Into::into), destination, LONG) {
        Err(error) => error,
        Ok(()) => {
            channel.expect_event(EventType::AddrResolved).expect_err("resolution should fail")
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unused_address_times_out() {
    let channel = channel();
    let id = id(&channel);
    let timeout = Duration::from_millis(300);
    id.resolve_addr(None, address("10.0.0.77:7471"), timeout).expect("start");
    let error = channel.expect_event(EventType::AddrResolved).expect_err("no peer should answer");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error:?}");
    assert_eq!(error.errno(), libc::ETIMEDOUT);
    id.destroy().expect("destroy");
    // The failure arrives as an event, and concerns another id.
    let id = crate::fixtures::id(&channel);
    id.resolve_addr(Some(roce(0).into()), address("10.0.0.78:7471"), timeout).expect("start");
    let event = channel.get_event().expect("an event");
    assert_eq!((event.event_type(), event.token()), (EventType::AddrError, id.token()));
    assert_eq!(event.status(), -libc::ETIMEDOUT);
    drop(event);
    // The next attempt succeeds.
    id.resolve_addr(None, roce(7471), LONG).expect("start");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn source_address_can_be_chosen() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let id = id(&ours);
    let source = roce(
        resolve(&ours, server)
            .local_addr()
            .expect("query")
            .expect("the id should have an address")
            .port(),
    );
    id.resolve_addr(Some(source.into()), server, LONG).expect("resolve");
    ours.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    assert_eq!(id.local_addr().expect("query"), Some(source));
    let mixed = crate::fixtures::id(&ours).resolve_addr(Some(source.into()), roce_v6(1), LONG);
    assert_invalid(
        &mixed.expect_err("mixed address families should be refused"),
        &[roce_ip(), &roce_v6(0).ip().to_string(), "family"],
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn scope_selects_interface_without_source() {
    // The address belongs to the other end of the cable, which has another scope.
    let [end, other] = roce_ends();
    let near = if_nametoindex(end).expect("the device should exist");
    let peer = SocketAddrV6::new(link_local(other), 7471, 0, near);
    let channel = channel();
    let id = id(&channel);
    id.resolve_addr(None, peer, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    assert_eq!(id.context().expect("a device").device().name(), roce_name());
}

/// Returns the link-local address of a network device.
fn link_local(netdev: &str) -> Ipv6Addr {
    let table = fs::read_to_string("/proc/net/if_inet6").expect("addresses");
    let mut lines = table.lines().filter(|line| line.ends_with(&format!(" {netdev}")));
    let line = lines.find(|line| line.starts_with("fe80")).expect("a link-local address");
    u128::from_str_radix(&line[..32], 16).expect("an address").into()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn infiniband_address_binds_service_on_each_port() {
    let channel = channel();
    for (port_space, service) in [(PortSpace::Ib, PortSpace::Ib), (PortSpace::Tcp, PortSpace::Tcp)]
    {
        let id = CmId::new(&channel, port_space).expect("an id");
        id.bind(IbAddress::new(Gid::default(), service, 0)).expect("bind");
        // The id has no IP address.
        assert_eq!(id.local_addr().expect("query"), None);
        let local = id.route().expect("route").local;
        assert!(local.gid.is_zero());
        assert_eq!(local.service_id >> 16, IbAddress::new(local.gid, service, 0).service_id >> 16);
        assert_ne!(local.port(), 0);
        let again = CmId::new(&channel, port_space).expect("an id");
        let error = again.bind(local).expect_err("the address should be in use");
        // The kernel returns this errno for a wildcard.
        assert_eq!(error.errno(), libc::EADDRNOTAVAIL, "{error}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn service_of_other_port_space_is_refused() {
    let channel = channel();
    for (port_space, service) in [
        (PortSpace::Tcp, PortSpace::Udp),
        (PortSpace::Udp, PortSpace::Tcp),
        (PortSpace::Tcp, PortSpace::Ib),
        (PortSpace::IpoIb, PortSpace::IpoIb),
    ] {
        let id = CmId::new(&channel, port_space).expect("an id");
        let address = IbAddress::new(Gid::default(), service, 0);
        let error = id.bind(address).expect_err("the service id should be refused");
        assert_eq!(error.errno(), libc::EPROTONOSUPPORT, "{error}");
        assert!(error.to_string().contains("bind id"), "{error}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn infiniband_address_has_no_route_on_ethernet() {
    let channel = channel();
    let gid = device(roce_name()).port(1).expect("a port").gids().expect("GIDs").next();
    let there = IbAddress::new(gid.expect("the port should have a GID").gid, PortSpace::Tcp, 7471);
    let error = id(&channel).bind(there).expect_err("the port should not exist");
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    assert!(error.to_string().contains(&there.to_string()), "{error}");
    // The kernel selects the device by the GID, and then has no network interface for the path.
    let id = id(&channel);
    id.resolve_addr(None, there, LONG).expect("resolve");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    let route = id.route().expect("route");
    assert_eq!((route.local.gid, route.peer.gid, route.pkey), (there.gid, there.gid, 0xffff));
    assert_eq!(route.peer.service_id, there.service_id);
    assert_eq!((id.peer_addr().expect("query"), id.local_addr().expect("query")), (None, None));
    let error = id.resolve_route(LONG).expect_err("the path should have no interface");
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    // No device has this address.
    let nowhere = IbAddress::new(Gid([0xfe; 16]), PortSpace::Tcp, 7471);
    let error = failed_to_resolve(&channel, None, nowhere);
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    let mixed = crate::fixtures::id(&channel).resolve_addr(Some(roce(0).into()), there, LONG);
    assert_invalid(
        &mixed.expect_err("mixed address families should be refused"),
        &[roce_ip(), "family"],
    );
}
