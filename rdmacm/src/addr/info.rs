//! Names to addresses: `rdma_getaddrinfo`.

use std::ffi::{CString, c_int};
use std::net::SocketAddr;

use bitflags::bitflags;
use verbs_abi::ib_path_rec_data;

use super::{Address, Family, IbAddress, decode};
use crate::cm::{PortSpace, find_service};
use crate::error::{Error, ErrorKind, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::sys::resolver::{self, Failure, Found, Wanted};
use crate::verbs::QpType;

const OPERATION: &str = "resolve the name";
const SA: AddrInfoFlags = AddrInfoFlags::SA;

bitflags! {
    /// How [`getaddrinfo`] is to go about it. The numbers are the C library's.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct AddrInfoFlags: u32 {
        /// For the side that listens: the results are source addresses, and without a node wildcards. `RAI_PASSIVE`.
        #[doc(alias = "RAI_PASSIVE")]
        const PASSIVE = 0x1;
        /// The node is an address and no name: nobody is asked. `RAI_NUMERICHOST`.
        #[doc(alias = "RAI_NUMERICHOST")]
        const NUMERICHOST = 0x2;
        /// No time is spent on finding a route. `RAI_NOROUTE`. [`getaddrinfo`] never spends any.
        #[doc(alias = "RAI_NOROUTE")]
        const NOROUTE = 0x4;
        /// [`Hints::family`] says how the node is to be read: with [`Family::Ib`] and
        /// [`NUMERICHOST`](Self::NUMERICHOST) as a GID. `RAI_FAMILY`.
        #[doc(alias = "RAI_FAMILY")]
        const FAMILY = 0x8;
        /// The subnet administrator is asked for the service, by its name or its id, at each active
        /// InfiniBand port until one knows it; a node cannot be looked up. `RAI_SA`. Linux 6.18.
        #[doc(alias = "RAI_SA")]
        const SA = 0x10;
        /// The host's `getaddrinfo` is asked, as without the flag. `RAI_DNS`. Not with
        /// [`SA`](Self::SA).
        #[doc(alias = "RAI_DNS")]
        const DNS = 0x20;
    }
}

/// What [`getaddrinfo`] is to find. `struct rdma_addrinfo`, as hints.
///
/// Made from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// How to go about it.
    pub flags: AddrInfoFlags,
    /// Of which family the addresses are to be, where it matters. [`Family::Ib`] counts only with
    /// [`AddrInfoFlags::NUMERICHOST`] and [`AddrInfoFlags::FAMILY`].
    pub family: Option<Family>,
    /// Which type of queue pair is to be used, where it matters.
    pub qp_type: Option<QpType>,
    /// Which port space is to be used, where it matters.
    pub port_space: Option<PortSpace>,
    /// The local address, for results that have none of their own.
    pub src_addr: Option<Address>,
    /// The peer's address, where no name is given.
    pub dst_addr: Option<Address>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

/// Where and how to reach a peer, or to listen: a result of [`getaddrinfo`].
/// `struct rdma_addrinfo`.
#[doc(alias = "rdma_addrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddrInfo {
    /// [`PASSIVE`](AddrInfoFlags::PASSIVE) where the result is for the side that listens.
    pub flags: AddrInfoFlags,
    /// The family of the addresses; `None` where there are none.
    pub family: Option<Family>,
    /// The type of queue pair.
    pub qp_type: QpType,
    /// The port space.
    pub port_space: PortSpace,
    /// The local address: of a passive result, or from the hints.
    pub src_addr: Option<Address>,
    /// The peer's address. A passive result has none.
    pub dst_addr: Option<Address>,
    /// The full name of the local node, where hints were given and it was looked up by name.
    pub src_canonname: Option<String>,
    /// The full name of the peer's node, where hints were given and it was looked up by name.
    pub dst_canonname: Option<String>,
    /// Paths to the peer, in place of resolving a route. [`getaddrinfo`] leaves them empty: the C
    /// library has them from the ibacm service, which this one does not ask.
    pub route: Vec<ib_path_rec_data>,
    /// What goes before the program's own private data. Empty for the same reason.
    pub connect: Vec<u8>,
}

/// Finds the addresses of a node and a service, each with the queue pair type and port space that
/// go with it. No kernel command, no event: this is the host's `getaddrinfo`.
///
/// `node` is a name or an IP address (an IPv6 one with its scope, as in `fe80::1%eth0`), `service` a
/// port number or a name. All results come back, best first, where C programs see only the
/// first. What the hints leave open comes out in each of its kinds: without any, every address
/// comes once with RC in [`PortSpace::Tcp`] and once with UD in [`PortSpace::Udp`]. A queue pair type
/// alone means the port space `Tcp` (RC), `Udp` (UD) or `Ib` (the others).
///
/// With [`AddrInfoFlags::SA`] services are looked up that the subnet administrator knows: on a
/// channel of its own `RDMA_USER_CM_CMD_BIND` and `RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE` for each
/// active InfiniBand port.
///
/// With neither node nor service the result is what the hints say, by themselves.
///
/// Numbers need nobody. Names need what the C library needs to look them up: with glibc
/// `/etc/nsswitch.conf` and the shared libraries that it names, which a static binary has to find
/// on the host in the version that it was linked with; with musl `/etc/hosts` and
/// `/etc/resolv.conf`.
///
/// # Errors
///
/// [`ErrorKind::NotResolved`] with the C library's `EAI_*` code; [`ErrorKind::Os`] where the lookup
/// failed for the system's reasons (`EAI_SYSTEM`); [`ErrorKind::Invalid`] without node, service and
/// hints, for a zero byte in a string, and for a queue pair type that the port space does not have.
/// With SA: ENOENT where no port is there, else the error of the last port;
/// [`ErrorKind::Unsupported`] with a node, with DNS, and on an older kernel.
#[doc(alias = "rdma_getaddrinfo")]
pub fn getaddrinfo(
    node: Option<&str>,
    service: Option<&str>,
    hints: Option<&Hints>,
) -> Result<Vec<AddrInfo>> {
    let subject = subject(node, service);
    if node.is_none() && service.is_none() && hints.is_none() {
        let reason = "there is neither a node nor a service nor hints";
        return Err(Error::invalid(OPERATION, subject, reason));
    }
    if let Some(flags) = hints.map(|hints| hints.flags).filter(|flags| flags.contains(SA)) {
        return find_service(OPERATION, &subject, node, service, flags);
    }
    let plain = Hints::default();
    let wanted = hints.map(|hints| wanted(hints, node.is_some()));
    let hints = hints.unwrap_or(&plain);
    if let (Some(port_space), Some(qp_type)) = (hints.port_space, hints.qp_type) {
        if !port_space.qp_types().contains(&qp_type) {
            let reason = format!("port space {port_space:?} has no queue pairs of {qp_type}");
            return Err(Error::invalid(OPERATION, subject, reason));
        }
    }
    if node.is_none() && service.is_none() {
        return Ok(vec![hints.as_they_are()]);
    }
    let text = |text: Option<&str>| text.map(CString::new).transpose();
    let (Ok(node), Ok(service)) = (text(node), text(service)) else {
        return Err(Error::invalid(OPERATION, subject, "there is a zero byte in it"));
    };
    match resolver::getaddrinfo(node.as_deref(), service.as_deref(), wanted) {
        Ok(found) => Ok(hints.results(&found)),
        Err(Failure::Os(errno)) => Err(Error::os(OPERATION, subject, errno)),
        Err(Failure::Eai(code, reason)) => {
            Err(Error::new(OPERATION, subject, ErrorKind::NotResolved { code, reason }))
        }
    }
}

/// `node` and `service` as an error names them.
fn subject(node: Option<&str>, service: Option<&str>) -> String {
    match (node, service) {
        (Some(node), Some(service)) => format!("{node:?}, service {service:?}"),
        (Some(node), None) => format!("{node:?}"),
        (None, Some(service)) => format!("of service {service:?}"),
        (None, None) => String::new(),
    }
}

/// The hints in the terms of the C library.
fn wanted(hints: &Hints, with_node: bool) -> Wanted {
    let mut flags = 0;
    if hints.flags.contains(AddrInfoFlags::PASSIVE) {
        flags |= libc::AI_PASSIVE;
    }
    if hints.flags.contains(AddrInfoFlags::NUMERICHOST) {
        flags |= libc::AI_NUMERICHOST;
    } else if with_node {
        flags |= libc::AI_CANONNAME;
    }
    let family = match hints.family {
        Some(Family::Inet) => libc::AF_INET,
        Some(Family::Inet6) => libc::AF_INET6,
        // A GID is written as an IPv6 address.
        Some(Family::Ib) if hints.means_gid() => libc::AF_INET6,
        Some(Family::Ib) | None => libc::AF_UNSPEC,
    };
    let socktype = match hints.qp_type {
        Some(QpType::IB_UVERBS_QPT_UD) => libc::SOCK_DGRAM,
        Some(_) => libc::SOCK_STREAM,
        None => 0,
    };
    let protocol = match hints.port_space {
        Some(PortSpace::Tcp) => libc::IPPROTO_TCP,
        Some(PortSpace::Udp | PortSpace::IpoIb) => libc::IPPROTO_UDP,
        Some(PortSpace::Ib) | None => 0,
    };
    Wanted { flags, family, socktype, protocol }
}

impl Hints {
    /// Whether the node is a GID.
    fn means_gid(&self) -> bool {
        self.family == Some(Family::Ib)
            && self.flags.contains(AddrInfoFlags::FAMILY | AddrInfoFlags::NUMERICHOST)
    }

    /// The one result where nothing is to be looked up.
    fn as_they_are(&self) -> AddrInfo {
        let qp_type = self.qp_type.or_else(|| Some(self.port_space?.qp_types()[0]));
        let qp_type = qp_type.unwrap_or(QpType::IB_UVERBS_QPT_RC);
        let mut info = AddrInfo::new(qp_type, self.port_space);
        info.flags = self.flags;
        info.family = self.dst_addr.or(self.src_addr).map(|address| address.family());
        info.src_addr = self.src_addr;
        info.dst_addr = self.dst_addr;
        info
    }

    /// What the C library found, as far as it is something for RDMA.
    fn results(&self, found: &[Found]) -> Vec<AddrInfo> {
        let canonname = found.iter().find_map(|found| found.canonname.clone());
        let result = |found| self.result(found, canonname.clone());
        found.iter().filter_map(result).collect()
    }

    fn result(&self, found: &Found, canonname: Option<String>) -> Option<AddrInfo> {
        let qp_type = self.qp_type.unwrap_or(qp_type_of(found)?);
        let mut info = AddrInfo::new(qp_type, self.port_space);
        let mut address = decode(&found.address)?;
        if let (Address::Ip(SocketAddr::V6(gid)), true) = (address, self.means_gid()) {
            let mut ib = IbAddress::new((*gid.ip()).into(), info.port_space, gid.port());
            ib.flowinfo = u32::from_be(gid.flowinfo());
            ib.scope_id = gid.scope_id().into();
            address = ib.into();
        }
        info.family = Some(address.family());
        if self.flags.contains(AddrInfoFlags::PASSIVE) {
            info.flags = AddrInfoFlags::PASSIVE;
            (info.src_addr, info.src_canonname) = (Some(address), canonname);
        } else {
            info.src_addr = self.src_addr;
            (info.dst_addr, info.dst_canonname) = (Some(address), canonname);
        }
        Some(info)
    }
}

impl AddrInfo {
    /// Without addresses; for the usual port space where none is named.
    pub(crate) fn new(qp_type: QpType, port_space: Option<PortSpace>) -> Self {
        let port_space = port_space.unwrap_or(match qp_type {
            QpType::IB_UVERBS_QPT_RC => PortSpace::Tcp,
            QpType::IB_UVERBS_QPT_UD => PortSpace::Udp,
            _ => PortSpace::Ib,
        });
        Self {
            flags: AddrInfoFlags::empty(),
            family: None,
            qp_type,
            port_space,
            src_addr: None,
            dst_addr: None,
            src_canonname: None,
            dst_canonname: None,
            route: Vec::new(),
            connect: Vec::new(),
        }
    }
}

/// The type of queue pair that stands for a result's type of socket.
fn qp_type_of(found: &Found) -> Option<QpType> {
    const TYPES: [(c_int, c_int, QpType); 2] = [
        (libc::SOCK_STREAM, libc::IPPROTO_TCP, QpType::IB_UVERBS_QPT_RC),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP, QpType::IB_UVERBS_QPT_UD),
    ];
    let socket = (found.socktype, found.protocol);
    TYPES.iter().find(|entry| (entry.0, entry.1) == socket).map(|entry| entry.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric() -> Hints {
        Hints { flags: AddrInfoFlags::NUMERICHOST, ..Hints::default() }
    }

    fn only(node: Option<&str>, service: Option<&str>, hints: &Hints) -> AddrInfo {
        let mut found = getaddrinfo(node, service, Some(hints)).expect("found");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn eai(node: Option<&str>, service: Option<&str>, hints: &Hints) -> (c_int, String) {
        let error = getaddrinfo(node, service, Some(hints)).expect_err("nothing is found");
        let ErrorKind::NotResolved { code, .. } = error.kind() else { panic!("{error:?}") };
        (*code, error.to_string())
    }

    #[test]
    fn every_kind_that_the_hints_leave_open() {
        let found = getaddrinfo(Some("10.0.0.1"), Some("7174"), None).expect("found");
        let kinds: Vec<_> = found.iter().map(|info| (info.qp_type, info.port_space)).collect();
        let rc = (QpType::IB_UVERBS_QPT_RC, PortSpace::Tcp);
        let ud = (QpType::IB_UVERBS_QPT_UD, PortSpace::Udp);
        assert_eq!(kinds, [rc, ud]);
        for info in found {
            assert_eq!(info.dst_addr, Some(([10, 0, 0, 1], 7174).into()));
            assert_eq!((info.family, info.src_addr), (Some(Family::Inet), None));
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
            let hints = Hints { port_space, qp_type, ..numeric() };
            let info = only(Some("10.0.0.1"), Some("1"), &hints);
            assert_eq!((info.port_space, info.qp_type), expected);
            let alone = only(None, None, &hints);
            assert_eq!((alone.port_space, alone.qp_type), expected);
        }
        let hints = Hints { port_space: Some(S::Udp), qp_type: Some(rc), ..numeric() };
        let error = getaddrinfo(Some("10.0.0.1"), None, Some(&hints)).expect_err("they do not");
        assert!(error.to_string().contains("port space Udp has no queue pairs of"), "{error}");
    }

    #[test]
    fn passive_results_are_sources() {
        let flags = AddrInfoFlags::PASSIVE;
        let family = Some(Family::Inet);
        let hints = Hints { flags, family, port_space: Some(PortSpace::Tcp), ..Hints::default() };
        let info = only(None, Some("20079"), &hints);
        assert_eq!(info.src_addr, Some(([0, 0, 0, 0], 20079).into()));
        assert_eq!((info.dst_addr, info.flags), (None, flags));
        let info = only(Some("10.0.0.1"), Some("20079"), &hints);
        assert_eq!(info.src_addr, Some(([10, 0, 0, 1], 20079).into()));
    }

    #[test]
    fn a_source_in_the_hints_comes_along() {
        let source = Address::from(([10, 0, 0, 2], 0));
        let port_space = Some(PortSpace::Tcp);
        let hints = Hints { src_addr: Some(source), port_space, ..numeric() };
        let info = only(Some("10.0.0.1"), Some("1"), &hints);
        assert_eq!(info.src_addr, Some(source));
        let destination = Some(([10, 0, 0, 9], 7).into());
        let info = only(None, None, &Hints { dst_addr: destination, ..hints });
        assert_eq!((info.src_addr, info.dst_addr), (Some(source), destination));
        assert_eq!(info.family, Some(Family::Inet));
    }

    #[test]
    fn a_scope_names_an_interface() {
        let hints = Hints { port_space: Some(PortSpace::Tcp), ..numeric() };
        let info = only(Some("fe80::1%lo"), Some("1"), &hints);
        let Some(Address::Ip(SocketAddr::V6(address))) = info.dst_addr else { panic!("{info:?}") };
        assert_ne!(address.scope_id(), 0);
        assert_eq!(info.family, Some(Family::Inet6));
    }

    #[test]
    fn a_gid_is_written_as_an_ipv6_address() {
        let flags = AddrInfoFlags::NUMERICHOST | AddrInfoFlags::FAMILY;
        let port_space = Some(PortSpace::Tcp);
        let hints = Hints { flags, family: Some(Family::Ib), port_space, ..Hints::default() };
        let info = only(Some("fe80::5"), Some("7174"), &hints);
        let Some(Address::Ib(ib)) = info.dst_addr else { panic!("{info:?}") };
        assert_eq!(ib.to_string(), "[fe80::5]:0x1061c06");
        assert_eq!((ib.pkey, ib.service_id_mask), (0xffff, u64::MAX));
        assert_eq!(info.family, Some(Family::Ib));
        // In C an IPv4 address is read as if it were a longer one.
        eai(Some("10.0.0.1"), Some("7174"), &hints);
        // Without the flag the family is no more than a wish.
        let hints = Hints { flags: AddrInfoFlags::NUMERICHOST, ..hints };
        assert_eq!(only(Some("10.0.0.1"), None, &hints).family, Some(Family::Inet));
    }

    #[test]
    fn what_is_not_found_is_said_as_the_c_library_says_it() {
        let (code, text) = eai(Some("no.such.host"), None, &numeric());
        assert_eq!(code, libc::EAI_NONAME);
        assert!(text.starts_with("cannot resolve the name \"no.such.host\": "), "{text}");
        assert!(text.ends_with("(EAI_NONAME)"), "{text}");
        let (_, text) = eai(Some("10.0.0.1"), Some("no-such-service"), &numeric());
        assert!(text.contains("service \"no-such-service\""), "{text}");
        let inet6 = Hints { family: Some(Family::Inet6), ..numeric() };
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
