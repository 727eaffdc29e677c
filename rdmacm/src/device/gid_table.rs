//! The GID and P_Key tables of a port.
//!
//! Only sysfs shows them to all users. A program that has opened the device can query the GIDs in one call.

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
    let port = Port::unasked(device, number);
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
mod tests {
    use super::super::golden;
    use super::*;
    use crate::sys::netlink::fake::{done, error, hex, message};
    use crate::sys::sysfs::fake::Tree;

    fn ports(tree: &Tree) -> Vec<Port> {
        let mut sources = Sources::sysfs_only(tree);
        let devices = discovery::devices(&mut sources).unwrap();
        devices.iter().flat_map(|device| Port::all(&mut sources, device)).collect()
    }

    #[test]
    fn empty_slots_are_skipped() {
        let tree = Tree::new(golden::SYSFS);
        let entries: Vec<_> = ports(&tree)[0].gids().unwrap().collect();
        let [first, second] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((first.index, second.index), (0, 2));
        assert_eq!(second.gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0001");
        assert_eq!(second.gid_type, Some(GidType::RoceV2));
        assert_eq!(second.netdev.as_deref(), Some("v0"));
    }

    #[test]
    fn siw_has_one_gid_without_attributes_and_no_pkey() {
        let tree = Tree::new(golden::SYSFS);
        let siw = &ports(&tree)[1];
        let entries: Vec<_> = siw.gids().unwrap().collect();
        assert_eq!((entries.len(), entries[0].gid_type, &entries[0].netdev), (1, None, &None));
        assert!(siw.pkeys().unwrap().is_empty());
    }

    #[test]
    fn ioctl_gid_table_equals_sysfs_table() {
        let tree = Tree::new(golden::SYSFS);
        let port = &ports(&tree)[0];
        let by_sysfs: Vec<_> = port.gids().unwrap().collect();
        let listed = |entry: &GidEntry| {
            let mut listed = ib_uverbs_gid_entry {
                gid_index: entry.index,
                port_num: 1,
                gid_type: IB_UVERBS_GID_TYPE_ROCE_V2,
                netdev_ifindex: 3,
                ..ib_uverbs_gid_entry::default()
            };
            listed.gid.as_mut_bytes().copy_from_slice(&entry.gid.0);
            listed
        };
        let mut entries: Vec<_> = by_sysfs.iter().map(listed).collect();
        let other_port = ib_uverbs_gid_entry { port_num: 2, ..entries[0] };
        let empty = ib_uverbs_gid_entry { gid: Default::default(), gid_index: 9, ..entries[0] };
        entries.extend([other_port, empty]);
        assert_eq!(port.entries(&entries), by_sysfs);
        let device = discovery::devices(&mut Sources::sysfs_only(&tree)).unwrap().remove(0);
        let error = of_opened(&device, 0, || Ok(entries)).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
    }

    #[test]
    fn pkeys_keep_their_index() {
        let tree = Tree::new(&[
            ("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
            ("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"),
            ("class/infiniband/mlx5_0/ports/1/pkeys/1", "0x0000"),
            ("class/infiniband/mlx5_0/ports/1/pkeys/2", "0x8001"),
        ]);
        assert_eq!(ports(&tree)[0].pkeys().unwrap(), [0xffff, 0, 0x8001]);
    }

    #[test]
    fn missing_sysfs_is_named_in_error() {
        let tree = Tree::new(golden::SYSFS);
        let port = ports(&tree).remove(0);
        drop(tree);
        let error = port.gids().unwrap_err();
        assert_eq!(error.errno(), libc::ENOENT);
        assert!(error.to_string().contains("mount sysfs"), "{error}");
        assert_eq!(port.pkeys().unwrap_err().errno(), libc::ENOENT);
    }

    #[test]
    fn broken_device_hides_no_other_infiniband_port() {
        const GID: &str = "fe80:0000:0000:0000:0000:0000:0000:0001";
        let tree = Tree::new(&[
            ("class/infiniband/a_silent/ports/1/lid", "0x1"),
            ("class/infiniband/b_without_gids/ports/1/state", "4: ACTIVE"),
            ("class/infiniband/b_without_gids/ports/1/link_layer", "InfiniBand"),
            ("class/infiniband/c_down/ports/1/state", "1: DOWN"),
            ("class/infiniband/c_down/ports/1/link_layer", "InfiniBand"),
            ("class/infiniband/c_down/ports/1/gids/0", GID),
            ("class/infiniband/d_ethernet/ports/1/state", "4: ACTIVE"),
            ("class/infiniband/d_ethernet/ports/1/link_layer", "Ethernet"),
            ("class/infiniband/d_ethernet/ports/1/gids/0", GID),
            ("class/infiniband/e_half/ports/1/state", "many"),
            ("class/infiniband/e_half/ports/2/state", "4: ACTIVE"),
            ("class/infiniband/e_half/ports/2/link_layer", "InfiniBand"),
            ("class/infiniband/e_half/ports/2/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("class/infiniband/e_half/ports/2/gids/1", "fe80:0000:0000:0000:0000:0000:0000:0002"),
        ]);
        let found = of_infiniband(&mut Sources::sysfs_only(&tree)).unwrap();
        let [gid] = found[..] else { panic!("{found:?}") };
        assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0000:0000:0000:0002");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn unreadable_gid_table_hides_no_other_port() {
        let device = |index: &str, name: &str| {
            let text = format!(
                "0800 0100 {index} | DEV_INDEX
                 0600 0200 {name} 00 0000 | DEV_NAME of one letter
                 0800 0300 01000000 | PORT_INDEX: one port"
            );
            message(0x1401, 1, &hex(&text))
        };
        let port = hex("0500 0c00 04000000 | PORT_STATE ACTIVE
                        0800 0900 03000000 | LID");
        let (mut sources, _kernel) = Sources::netlink_only(&[
            [device("00000000", "61"), device("01000000", "62"), device("02000000", "63")].concat(),
            done(1, 0),
            message(0x1401, 2, &port),
            error(3, -libc::EINVAL),
            message(0x1401, 4, &port),
        ]);
        let tree = Tree::new(&[(
            "class/infiniband/c/ports/1/gids/0",
            "fe80:0000:0000:0000:0000:0000:0000:0003",
        )]);
        sources.sysfs = tree.directory();
        let found = of_infiniband(&mut sources).unwrap();
        let [gid] = found[..] else { panic!("{found:?}") };
        assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0000:0000:0000:0003");
    }
}
