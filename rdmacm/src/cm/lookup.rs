//! [`getaddrinfo`]: looks up names at the host, or at the subnet administrators of all ports.

use nix::errno::Errno;

use super::channel::EventChannel;
use super::id::CmId;
use super::names::{self, OPERATION};
use super::parse::EventType;
use super::service::check_administrator;
#[cfg(doc)]
use crate::ErrorKind;
use crate::addr::port_space::PortSpace;
use crate::addr::{AddrInfo, AddrInfoFlags, AddrInfoHints, Address, IbAddress};
use crate::device::{self, Gid};
use crate::error::{Error, Result};

/// Returns the addresses of a node and a service, each with its queue pair type and port space.
///
/// `node` is a name or an IP address; an IPv6 address may have a scope, as in `fe80::1%eth0`. `service` is a port
/// number or a name. The call returns all results, best first; C programs get only the first. If the hints leave a
/// property open, there is a result for each of its values. Without hints, every address is returned with RC in
/// [`PortSpace::Tcp`] and with UD in [`PortSpace::Udp`]. A queue pair type without a port space implies `Tcp` for RC,
/// `Udp` for UD and `Ib` for the other types.
///
/// With [`AddrInfoFlags::SA`] the call looks up services at the subnet administrator of each active InfiniBand port. It
/// opens a channel for that.
///
/// With neither node nor service the result repeats the hints.
///
/// Numbers need no lookup. Names need the configuration that the C library uses:
///
/// - glibc needs `/etc/nsswitch.conf` and the shared libraries that it names. A static binary needs them on the host in
///   the version with which it was linked.
/// - musl needs `/etc/hosts` and `/etc/resolv.conf`.
///
/// # Errors
///
/// - [`ErrorKind::NameResolution`] with the C library's `EAI_*` code if the lookup fails.
/// - [`ErrorKind::Os`] if the lookup fails for a reason of the system (`EAI_SYSTEM`).
/// - [`ErrorKind::InvalidInput`] without node, service and hints, for a zero byte in a string, and for a queue pair
///   type that the port space does not support.
///
/// With SA, in addition:
///
/// - ENOENT if there is no port, otherwise the error of the last port.
/// - [`ErrorKind::Unsupported`] with a node, with DNS, and on a kernel older than Linux 6.18.
///
/// Kernel command: none for the host's `getaddrinfo`; with SA, `RDMA_USER_CM_CMD_BIND` and
/// `RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE` for each port. No event follows.
#[doc(alias = "rdma_getaddrinfo")]
pub fn getaddrinfo(
    node: Option<&str>,
    service: Option<&str>,
    hints: Option<&AddrInfoHints>,
) -> Result<Vec<AddrInfo>> {
    match hints.map(|hints| hints.flags) {
        Some(flags) if flags.contains(AddrInfoFlags::SA) => find_service(node, service, flags),
        _ => names::resolve(node, service, hints),
    }
}

/// Asks the subnet administrator of each active InfiniBand port for a service, until one has it.
fn find_service(
    node: Option<&str>,
    service: Option<&str>,
    flags: AddrInfoFlags,
) -> Result<Vec<AddrInfo>> {
    let subject = names::subject(node, service);
    check_administrator(OPERATION, || subject.clone(), node, flags)?;
    let hints = AddrInfoHints { flags: AddrInfoFlags::SA, ..AddrInfoHints::default() };
    let mut failure = Error::os(OPERATION, subject, Errno::ENOENT);
    for gid in device::infiniband_gids()? {
        match ask_port(gid, service, &hints) {
            Ok(found) => return Ok(found),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Asks the subnet administrator of the port that has `gid`.
fn ask_port(gid: Gid, service: Option<&str>, hints: &AddrInfoHints) -> Result<Vec<AddrInfo>> {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Ib)?;
    let local = IbAddress::new(gid, PortSpace::Ib, 0);
    id.bind(local)?;
    id.resolve_addrinfo(None, service, Some(hints))?;
    channel.expect_event(EventType::AddrinfoResolved)?;
    let mut found = id.query_addrinfo()?;
    for info in &mut found {
        if let Some(Address::Ib(peer)) = info.dst_addr {
            info.src_addr = Some(IbAddress { pkey: peer.pkey, ..local }.into());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
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
        let mut found = getaddrinfo(node, service, Some(hints)).expect("found");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn eai(node: Option<&str>, service: Option<&str>, hints: &AddrInfoHints) -> (c_int, String) {
        let error = getaddrinfo(node, service, Some(hints)).expect_err("nothing is found");
        let ErrorKind::NameResolution { code, .. } = error.kind() else { panic!("{error:?}") };
        (*code, error.to_string())
    }

    #[test]
    fn lookup_returns_each_kind_open_in_hints() {
        let found = getaddrinfo(Some("10.0.0.1"), Some("7174"), None).expect("found");
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
    fn port_space_and_queue_pair_type_go_together() {
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
        let error = getaddrinfo(Some("10.0.0.1"), None, Some(&hints)).expect_err("they do not");
        assert!(error.to_string().contains("port space Udp has no queue pairs of"), "{error}");
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
        // C reads an IPv4 address as if it were a longer one.
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
        let error = getaddrinfo(None, None, None).expect_err("nothing was asked");
        assert_eq!(error.errno(), libc::EINVAL);
        let error = getaddrinfo(Some("10.0\0.0.1"), None, None).expect_err("no C string");
        assert!(error.to_string().contains("zero byte"), "{error}");
        let service = getaddrinfo(None, Some("\0"), None).expect_err("no C string");
        assert_eq!(service.errno(), libc::EINVAL);
        for node in ["", " ", "10.0.0.1.5", "::g", "[::1]", &"x".repeat(5000)] {
            eai(Some(node), Some("1"), &numeric());
        }
    }
}
