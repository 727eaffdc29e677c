//! Routes of the kernel to a peer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rdmacm::addr::IbAddress;
use rdmacm::cm::{EventType, PortSpace};
use rdmacm::device::Gid;

use crate::fixtures::{LONG, channel, id, listen, resolve, roce, roce_end, roce_v6, siw};
use crate::netdev::ip;

/// Returns the GID that stands for an IP address on RoCE.
fn gid(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn route_fills_as_id_is_resolved() {
    let (ours, theirs) = (channel(), channel());
    for address in [roce(0), roce_v6(0)] {
        let (_listener, server) = listen(&theirs, address);
        let id = id(&ours);
        let route = id.route().expect("route");
        assert_eq!((route.port_num, route.pkey), (0, 0));
        assert!(route.local.gid.is_zero() && route.paths.is_empty(), "{route:?}");
        id.resolve_addr(None, server, LONG).expect("resolve the address");
        ours.expect_event(EventType::AddrResolved).expect("the address should be resolved");
        let route = id.route().expect("route");
        assert_eq!((route.port_num, route.pkey), (1, 0));
        assert!(route.paths.is_empty(), "{route:?}");
        let local = id.local_addr().expect("query").expect("the id should have an address");
        for (ib, ip) in [(route.local, local), (route.peer, server)] {
            let expected = IbAddress::new(gid(ip.ip()), PortSpace::Tcp, ip.port());
            assert_eq!((ib.gid, ib.service_id), (expected.gid, expected.service_id));
        }
        let error =
            id.resolve_route(Duration::ZERO).expect_err("a timeout of zero should end the call");
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
        assert!(error.to_string().contains("must not be zero"), "{error}");
        id.resolve_route(LONG).expect("resolve the route");
        ours.expect_event(EventType::RouteResolved).expect("the route should be resolved");
        let [path] = id.route().expect("route").paths[..] else { panic!("there is one path") };
        assert_eq!((path.sgid, path.dgid), (route.local.gid, route.peer.gid));
        assert_eq!((path.pkey, path.reversible), (0xffff, true));
        assert!((1..=5).contains(&path.mtu), "{path:?}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn path_has_gids_of_both_ends() {
    // No machine has this address, but the kernel has an entry for it.
    ip(&["neigh", "replace", "10.0.0.88", "lladdr", "02:00:00:00:00:88", "dev", roce_end()]);
    let there = SocketAddr::from(([10, 0, 0, 88], 7471));
    let route = resolve(&channel(), there).route().expect("route");
    let [path] = route.paths[..] else { panic!("{route:?}") };
    assert_eq!((path.sgid, path.dgid), (gid(roce(0).ip()), gid(there.ip())));
    assert_eq!((route.local.gid, route.peer.gid), (path.sgid, path.dgid));
    ip(&["neigh", "delete", "10.0.0.88", "dev", roce_end()]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_route_has_no_paths() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, siw(0));
    let route = resolve(&ours, server).route().expect("route");
    assert_eq!(route.port_num, 1);
    assert_eq!(route.paths, []);
    // The text is the hardware address, without further bytes.
    assert_ne!(Ipv6Addr::from(route.local.gid).segments()[0], 0);
    assert_eq!(Ipv6Addr::from(route.local.gid).segments()[3..], [0; 5]);
}
