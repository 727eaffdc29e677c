use std::ffi::c_int;
use std::net::SocketAddr;

use super::*;
use crate::ErrorKind;
use crate::addr::AddressFamily;
use crate::verbs::QpType;

fn numeric() -> AddrInfoHints {
    AddrInfoHints { flags: AddrInfoFlags::NUMERICHOST, ..AddrInfoHints::default() }
}

fn only(node: Option<&str>, service: Option<&str>, hints: &AddrInfoHints) -> AddrInfo {
    let mut found = getaddrinfo(node, service, Some(hints)).expect("the lookup should succeed");
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn eai(node: Option<&str>, service: Option<&str>, hints: &AddrInfoHints) -> (c_int, String) {
    let error = getaddrinfo(node, service, Some(hints)).expect_err("the lookup should fail");
    let ErrorKind::NameResolution { code, .. } = error.kind() else { panic!("{error:?}") };
    (*code, error.to_string())
}

#[test]
fn lookup_returns_each_kind_open_in_hints() {
    let found =
        getaddrinfo(Some("10.0.0.1"), Some("7174"), None).expect("the lookup should succeed");
    let kinds: Vec<_> = found.iter().map(|info| (info.qp_type, info.port_space)).collect();
    let rc = (QpType::IB_UVERBS_QPT_RC, PortSpace::Tcp);
    let ud = (QpType::IB_UVERBS_QPT_UD, PortSpace::Udp);
    assert_eq!(kinds, [rc, ud]);
    for info in found {
        assert_eq!(info.dst_addr, Some(([10, 0, 0, 1], 7174).into()));
        assert_eq!((info.family, info.src_addr), (Some(AddressFamily::Inet), None));
        assert_eq!(info.flags, AddrInfoFlags::empty());
        assert!(info.route.is_empty() && info.connect.is_empty());
    }
}

#[test]
fn port_space_and_type_complete_each_other() {
    use PortSpace as S;
    use QpType as Q;
    let (rc, ud, xrc) = (Q::IB_UVERBS_QPT_RC, Q::IB_UVERBS_QPT_UD, Q::IB_UVERBS_QPT_XRC_INI);
    for (port_space, qp_type, expected) in [
        (Some(S::Tcp), None, (S::Tcp, rc)),
        (Some(S::Udp), None, (S::Udp, ud)),
        (Some(S::IpoIb), None, (S::IpoIb, ud)),
        (Some(S::Ib), Some(ud), (S::Ib, ud)),
        (None, Some(rc), (S::Tcp, rc)),
        (None, Some(ud), (S::Udp, ud)),
        (None, Some(xrc), (S::Ib, xrc)),
    ] {
        let hints = AddrInfoHints { port_space, qp_type, ..numeric() };
        let info = only(Some("10.0.0.1"), Some("1"), &hints);
        assert_eq!((info.port_space, info.qp_type), expected);
        let alone = only(None, None, &hints);
        assert_eq!((alone.port_space, alone.qp_type), expected);
    }
    let hints = AddrInfoHints { port_space: Some(S::Udp), qp_type: Some(rc), ..numeric() };
    let error = getaddrinfo(Some("10.0.0.1"), None, Some(&hints))
        .expect_err("the port space and the type do not match");
    assert!(error.to_string().contains("port space UDP has no queue pairs of type"), "{error}");
}

#[test]
fn passive_results_are_sources() {
    let flags = AddrInfoFlags::PASSIVE;
    let family = Some(AddressFamily::Inet);
    let hints = AddrInfoHints {
        flags,
        family,
        port_space: Some(PortSpace::Tcp),
        ..AddrInfoHints::default()
    };
    let info = only(None, Some("20079"), &hints);
    assert_eq!(info.src_addr, Some(([0, 0, 0, 0], 20079).into()));
    assert_eq!((info.dst_addr, info.flags), (None, flags));
    let info = only(Some("10.0.0.1"), Some("20079"), &hints);
    assert_eq!(info.src_addr, Some(([10, 0, 0, 1], 20079).into()));
}

#[test]
fn source_of_hints_is_returned() {
    let source = Address::from(([10, 0, 0, 2], 0));
    let port_space = Some(PortSpace::Tcp);
    let hints = AddrInfoHints { src_addr: Some(source), port_space, ..numeric() };
    let info = only(Some("10.0.0.1"), Some("1"), &hints);
    assert_eq!(info.src_addr, Some(source));
    let destination = Some(([10, 0, 0, 9], 7).into());
    let info = only(None, None, &AddrInfoHints { dst_addr: destination, ..hints });
    assert_eq!((info.src_addr, info.dst_addr), (Some(source), destination));
    assert_eq!(info.family, Some(AddressFamily::Inet));
}

#[test]
fn scope_names_interface() {
    let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..numeric() };
    let info = only(Some("fe80::1%lo"), Some("1"), &hints);
    let Some(Address::Ip(SocketAddr::V6(address))) = info.dst_addr else { panic!("{info:?}") };
    assert_ne!(address.scope_id(), 0);
    assert_eq!(info.family, Some(AddressFamily::Inet6));
}

#[test]
fn gid_is_written_as_ipv6_address() {
    let flags = AddrInfoFlags::NUMERICHOST | AddrInfoFlags::FAMILY;
    let port_space = Some(PortSpace::Tcp);
    let hints = AddrInfoHints {
        flags,
        family: Some(AddressFamily::Ib),
        port_space,
        ..AddrInfoHints::default()
    };
    let info = only(Some("fe80::5"), Some("7174"), &hints);
    let Some(Address::Ib(ib)) = info.dst_addr else { panic!("{info:?}") };
    assert_eq!(ib.to_string(), "[fe80::5]:0x1061c06");
    assert_eq!((ib.pkey, ib.service_id_mask), (0xffff, u64::MAX));
    assert_eq!(info.family, Some(AddressFamily::Ib));
    // The C library reads an IPv4 address as if it were a longer address.
    eai(Some("10.0.0.1"), Some("7174"), &hints);
    // Without the flag the family is only a preference.
    let hints = AddrInfoHints { flags: AddrInfoFlags::NUMERICHOST, ..hints };
    assert_eq!(only(Some("10.0.0.1"), None, &hints).family, Some(AddressFamily::Inet));
}

#[test]
fn lookup_failure_matches_c_library() {
    let (code, text) = eai(Some("no.such.host"), None, &numeric());
    assert_eq!(code, libc::EAI_NONAME);
    assert!(text.starts_with("cannot resolve the name \"no.such.host\": "), "{text}");
    assert!(text.ends_with("(EAI_NONAME)"), "{text}");
    let (_, text) = eai(Some("10.0.0.1"), Some("no-such-service"), &numeric());
    assert!(text.contains("service \"no-such-service\""), "{text}");
    let inet6 = AddrInfoHints { family: Some(AddressFamily::Inet6), ..numeric() };
    eai(Some("10.0.0.1"), None, &inet6);
}

#[test]
fn bad_input_is_refused() {
    let error = getaddrinfo(None, None, None).expect_err("a call without arguments should fail");
    assert_eq!(error.errno(), libc::EINVAL);
    let error =
        getaddrinfo(Some("10.0\0.0.1"), None, None).expect_err("a zero byte should be refused");
    assert!(error.to_string().contains("zero byte"), "{error}");
    let service = getaddrinfo(None, Some("\0"), None).expect_err("a zero byte should be refused");
    assert_eq!(service.errno(), libc::EINVAL);
    for node in ["", " ", "10.0.0.1.5", "::g", "[::1]", &"x".repeat(5000)] {
        eai(Some(node), Some("1"), &numeric());
    }
}
