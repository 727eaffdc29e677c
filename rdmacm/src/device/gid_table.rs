//! The GID and P_Key tables of a port.
//!
//! Only sysfs shows them to all users. A program that has opened the device can query the GIDs in one call.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;

use nix::errno::Errno;
use verbs_abi::ioctl::{
    IB_UVERBS_GID_TYPE_IB, IB_UVERBS_GID_TYPE_ROCE_V1, IB_UVERBS_GID_TYPE_ROCE_V2,
    ib_uverbs_gid_entry,
};
use zerocopy::IntoBytes;

use super::sources::Sources;
use super::{Device, Gid, LinkLayer, Port, PortState, discovery};
use crate::error::{Error, Result};
use crate::sys::command::CommandError;
use crate::sys::sysfs::Directory;

const OPERATION: &str = "read the GID table of";

/// An entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The place in the table, as address vectors name it.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// The kind of packets of the GID.
    pub gid_type: Option<GidType>,
    /// The network device that has the address.
    pub netdev: Option<String>,
}

/// The kind of packets of a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand, or RoCE directly over Ethernet.
    RoceV1,
    /// RoCE over UDP.
    RoceV2,
}

impl fmt::Display for GidType {
    /// Writes the name that the kernel uses, for example `RoCE v2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RoceV1 => "IB/RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// The entries of a port's GID table that are in use, in order; see [`Port::gids`].
#[derive(Debug)]
pub struct GidTable {
    directory: Directory,
    unread: Range<u32>,
}

impl Port {
    /// Returns the used entries of the GID table.
    ///
    /// The call reads `gids` and `gid_attrs` of the port in sysfs. The iterator reads each entry when it is requested:
    /// the table of rxe has 1,024 slots, most of them empty. An opened device returns all entries at once:
    /// [`Context::gids`](crate::verbs::Context::gids).
    ///
    /// # Errors
    ///
    /// - ENOENT if sysfs is not mounted or the device was removed.
    #[doc(alias = "ibv_query_gid")]
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self) -> Result<GidTable> {
        let slots = self.directory.child("gids").names().unwrap_or_default().len();
        if slots == 0 {
            self.check_directory(OPERATION)?;
        }
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        Ok(GidTable { directory: self.directory.clone(), unread: 0..slots })
    }

    /// Returns the P_Key table: the keys by their index, 0 for an empty slot.
    ///
    /// The call reads `pkeys` of the port in sysfs. The table of siw is empty.
    ///
    /// # Errors
    ///
    /// - ENOENT if sysfs is not mounted or the device was removed.
    #[doc(alias = "ibv_query_pkey")]
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn pkeys(&self) -> Result<Vec<u16>> {
        let directory = self.directory.child("pkeys");
        let slots = directory.names().unwrap_or_default().len();
        if slots == 0 {
            self.check_directory("read the P_Key table of")?;
        }
        let key = |slot: usize| directory.hexadecimal(&slot.to_string())?.try_into().ok();
        Ok((0..slots).map(|slot| key(slot).unwrap_or(0)).collect())
    }

    fn check_directory(&self, operation: &'static str) -> Result<()> {
        if self.directory.exists() {
            return Ok(());
        }
        let hint = "mount sysfs at /sys: netlink does not show these tables";
        Err(Error::os(operation, self.subject(), Errno::ENOENT).with_hint(Errno::ENOENT, hint))
    }
}

/// Returns the first GID of each active InfiniBand port.
///
/// A port or device that is broken, or is removed meanwhile, is left out.
pub(super) fn of_infiniband(sources: &mut Sources) -> Result<Vec<Gid>> {
    let mut found = Vec::new();
    for device in discovery::devices(sources)? {
        let active = Port::all(sources, &device).into_iter().filter(|port| {
            port.link_layer() == Some(LinkLayer::IB_LINK_LAYER_INFINIBAND)
                && port.state() == Some(PortState::IB_PORT_ACTIVE)
        });
        found.extend(active.filter_map(|port| Some(port.gids().ok()?.next()?.gid)));
    }
    Ok(found)
}

impl GidTable {
    fn entry(&self, index: u32) -> Option<GidEntry> {
        let gid: Ipv6Addr = self.directory.value(&format!("gids/{index}"))?;
        let gid = Some(Gid::from(gid)).filter(|gid| !gid.is_zero())?;
        let gid_type = self.directory.text(&format!("gid_attrs/types/{index}"));
        let gid_type = match gid_type.as_deref() {
            Some("IB/RoCE v1") => Some(GidType::RoceV1),
            Some("RoCE v2") => Some(GidType::RoceV2),
            _ => None,
        };
        let netdev = netdev(&self.directory, index);
        Some(GidEntry { index, gid, gid_type, netdev })
    }
}

/// Returns the name of an entry's network device, from `ports/PORT` in sysfs.
///
/// Other interfaces of the kernel report a number, which may refer to another device in this network namespace.
fn netdev(directory: &Directory, index: u32) -> Option<String> {
    directory.text(&format!("gid_attrs/ndevs/{index}"))
}

/// Returns the table of port `number` of an opened device.
///
/// `list` queries the entries of all ports of the device. If that fails, the table is read from sysfs.
pub(crate) fn of_opened(
    device: &Device,
    number: u32,
    list: impl FnOnce() -> Result<Vec<ib_uverbs_gid_entry>, CommandError>,
) -> Result<Vec<GidEntry>> {
    let port = Port::without_properties(device, number);
    port.check_number(OPERATION, device)?;
    match list() {
        Ok(listed) => Ok(port.entries(&listed)),
        Err(_) => Ok(port.gids()?.collect()),
    }
}

impl Port {
    /// Returns the entries of this port in the form of sysfs.
    fn entries(&self, listed: &[ib_uverbs_gid_entry]) -> Vec<GidEntry> {
        let own = listed.iter().filter(|entry| entry.port_num == self.number());
        let entry = |entry: &ib_uverbs_gid_entry| {
            let gid = Gid(entry.gid.as_bytes().try_into().expect("16 bytes"));
            let gid_type = match entry.gid_type {
                IB_UVERBS_GID_TYPE_IB | IB_UVERBS_GID_TYPE_ROCE_V1 => Some(GidType::RoceV1),
                IB_UVERBS_GID_TYPE_ROCE_V2 => Some(GidType::RoceV2),
                _ => None,
            };
            let index = entry.gid_index;
            let has_netdev = entry.netdev_ifindex != 0;
            let netdev = has_netdev.then(|| netdev(&self.directory, index)).flatten();
            GidEntry { index, gid, gid_type, netdev }
        };
        own.map(entry).filter(|entry| !entry.gid.is_zero()).collect()
    }
}

impl Iterator for GidTable {
    type Item = GidEntry;

    fn next(&mut self) -> Option<GidEntry> {
        loop {
            let index = self.unread.next()?;
            if let Some(entry) = self.entry(index) {
                return Some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests;
