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
mod tests;
