//! Name lookup at the host, with the C library's `getaddrinfo`.

use std::ffi::{CString, c_int};
use std::net::SocketAddr;

use crate::addr::port_space::PortSpace;
use crate::addr::{
    AddrInfo, AddrInfoFlags, AddrInfoHints, Address, AddressFamily, IbAddress, decode,
};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::resolver::{self, Failure, LookupHints, LookupResult};
use crate::verbs::QpType;

pub(super) const OPERATION: &str = "resolve the name";

/// Looks up `node` and `service` at the host.
///
/// Flags of `hints` that are not for the host are ignored.
pub(super) fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    hints: Option<&AddrInfoHints>,
) -> Result<Vec<AddrInfo>> {
    let subject = subject(node, service);
    if node.is_none() && service.is_none() && hints.is_none() {
        let reason = "the call needs a node, a service or hints";
        return Err(Error::invalid(OPERATION, subject, reason));
    }
    let plain = AddrInfoHints::default();
    let wanted = hints.map(|hints| lookup_hints(hints, node.is_some()));
    let hints = hints.unwrap_or(&plain);
    if let (Some(port_space), Some(qp_type)) = (hints.port_space, hints.qp_type) {
        if !port_space.qp_types().contains(&qp_type) {
            let reason =
                format!("the port space {port_space} has no queue pairs of type {qp_type}");
            return Err(Error::invalid(OPERATION, subject, reason));
        }
    }
    if node.is_none() && service.is_none() {
        return Ok(vec![hints.to_addr_info()]);
    }
    let text = |text: Option<&str>| text.map(CString::new).transpose();
    let (Ok(node), Ok(service)) = (text(node), text(service)) else {
        return Err(Error::invalid(
            OPERATION,
            subject,
            "the node or the service contains a zero byte",
        ));
    };
    match resolver::getaddrinfo(node.as_deref(), service.as_deref(), wanted) {
        Ok(found) => Ok(hints.results(&found)),
        Err(Failure::Os(errno)) => Err(Error::os(OPERATION, subject, errno)),
        Err(Failure::Eai(code, reason)) => {
            Err(Error::new(OPERATION, subject, ErrorKind::NameResolution { code, reason }))
        }
    }
}

/// Returns the text that names `node` and `service` in an error.
pub(super) fn subject(node: Option<&str>, service: Option<&str>) -> String {
    match (node, service) {
        (Some(node), Some(service)) => format!("{node:?}, service {service:?}"),
        (Some(node), None) => format!("{node:?}"),
        (None, Some(service)) => format!("of service {service:?}"),
        (None, None) => String::new(),
    }
}

/// Converts the hints into those of the C library.
fn lookup_hints(hints: &AddrInfoHints, with_node: bool) -> LookupHints {
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
        Some(AddressFamily::Inet) => libc::AF_INET,
        Some(AddressFamily::Inet6) => libc::AF_INET6,
        // A GID is written as an IPv6 address.
        Some(AddressFamily::Ib) if hints.is_gid_lookup() => libc::AF_INET6,
        Some(AddressFamily::Ib) | None => libc::AF_UNSPEC,
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
    LookupHints { flags, family, socktype, protocol }
}

impl AddrInfoHints {
    /// Returns `true` if the node is a GID.
    fn is_gid_lookup(&self) -> bool {
        self.family == Some(AddressFamily::Ib)
            && self.flags.contains(AddrInfoFlags::FAMILY | AddrInfoFlags::NUMERICHOST)
    }

    /// Returns the only result if there is nothing to look up.
    fn to_addr_info(&self) -> AddrInfo {
        let qp_type = self.qp_type.or_else(|| Some(self.port_space?.qp_types()[0]));
        let qp_type = qp_type.unwrap_or(QpType::IB_UVERBS_QPT_RC);
        let mut info = AddrInfo::new(qp_type, self.port_space);
        info.flags = self.flags;
        info.family = self.dst_addr.or(self.src_addr).map(|address| address.family());
        info.src_addr = self.src_addr;
        info.dst_addr = self.dst_addr;
        info
    }

    /// Returns the results of the C library's lookup that RDMA can use.
    fn results(&self, found: &[LookupResult]) -> Vec<AddrInfo> {
        let canonname = found.iter().find_map(|found| found.canonname.clone());
        let result = |found| self.result(found, canonname.clone());
        found.iter().filter_map(result).collect()
    }

    fn result(&self, found: &LookupResult, canonname: Option<String>) -> Option<AddrInfo> {
        let qp_type = self.qp_type.unwrap_or(qp_type_of(found)?);
        let mut info = AddrInfo::new(qp_type, self.port_space);
        let mut address = decode(&found.address)?;
        if let (Address::Ip(SocketAddr::V6(gid)), true) = (address, self.is_gid_lookup()) {
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

/// Returns the queue pair type that corresponds to the socket type of a result.
fn qp_type_of(found: &LookupResult) -> Option<QpType> {
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

    #[test]
    fn flags_are_those_of_c_library() {
        let flags = |flags, with_node| {
            let hints = AddrInfoHints { flags, ..AddrInfoHints::default() };
            lookup_hints(&hints, with_node).flags
        };
        assert_eq!(flags(AddrInfoFlags::empty(), false), 0);
        assert_eq!(flags(AddrInfoFlags::empty(), true), libc::AI_CANONNAME);
        let passive = AddrInfoFlags::PASSIVE;
        assert_eq!(flags(passive, true), libc::AI_PASSIVE | libc::AI_CANONNAME);
        let numeric = libc::AI_PASSIVE | libc::AI_NUMERICHOST;
        assert_eq!(flags(passive | AddrInfoFlags::NUMERICHOST, true), numeric);
    }
}
