//! [`ResourceCounts`]: the number of objects of each type on a device.

use std::fmt;

use verbs_abi::netlink as nl;

use super::Device;
use super::sources::Sources;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::sys::netlink::{Attributes, Request};

/// The number of objects of each type on a device, in the kernel's order.
///
/// If two counts taken at different times are equal, no object was leaked in between. The text form is
/// `pd 1, cq 1, qp 1, cm_id 0, mr 0, ctx 0, srq 0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceCounts {
    counts: Vec<(String, u64)>,
}

impl Device {
    /// Counts the objects of each type that exist on the device now.
    ///
    /// Objects of the kernel and of other processes are included. The call sends `RDMA_NLDEV_CMD_RES_GET`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] without netlink.
    /// - EINVAL if the device was removed.
    pub fn resources(&self) -> Result<ResourceCounts> {
        ResourceCounts::read(&mut Sources::open(), self)
    }
}

impl ResourceCounts {
    /// Returns the number of objects of a type.
    ///
    /// The types are `pd`, `cq`, `qp`, `cm_id`, `mr`, `ctx`, `srq`, and those that newer kernels add.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }

    /// Returns an iterator over all types and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(name, count)| (name.as_str(), *count))
    }

    pub(super) fn read(sources: &mut Sources, device: &Device) -> Result<Self> {
        const OPERATION: &str = "count the objects of";
        let index = device.netlink_index(OPERATION)?;
        let request =
            Request::new(nl::RDMA_NLDEV_CMD_RES_GET).u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, index);
        sources
            .netlink()
            .and_then(|netlink| netlink.get(request, Self::from_netlink))
            .map_err(|failure| failure.error(OPERATION, device.name.clone()))
    }

    fn from_netlink(answer: Attributes<'_>) -> Option<Self> {
        let summary = answer.nests(nl::RDMA_NLDEV_ATTR_RES_SUMMARY).next()?;
        let counts = summary
            .nests(nl::RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY)
            .map(|entry| {
                let name = entry.string(nl::RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)?;
                Some((name, entry.u64(nl::RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR)?))
            })
            .collect::<Option<_>>()?;
        Some(Self { counts })
    }
}

impl fmt::Display for ResourceCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, count)) in self.counts.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{discovery, golden};
    use super::*;
    use crate::ErrorKind;
    use crate::sys::netlink::fake::{done, hex, message};
    use crate::sys::sysfs::fake::Tree;

    #[test]
    #[cfg(target_endian = "little")]
    fn count_is_found_by_name() {
        let (mut sources, _kernel) = Sources::netlink_only(&[
            message(0x1401, 1, &hex(golden::DEVICE)),
            done(1, 0),
            message(0x1409, 2, &hex(golden::RESOURCES)),
        ]);
        let device = discovery::devices(&mut sources).unwrap().remove(0);
        let resources = ResourceCounts::read(&mut sources, &device).unwrap();
        assert_eq!(resources.to_string(), "pd 1, cq 1, qp 1, cm_id 0, mr 0, ctx 0, srq 0");
        assert_eq!((resources.count("qp"), resources.count("mr")), (Some(1), Some(0)));
        assert_eq!(resources.count("xrcd"), None);
        assert_eq!(resources.iter().count(), 7);
    }

    #[test]
    fn counts_need_netlink() {
        let tree = Tree::new(golden::SYSFS);
        let mut sources = Sources::sysfs_only(&tree);
        let device = discovery::devices(&mut sources).unwrap().remove(0);
        let error = ResourceCounts::read(&mut sources, &device).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}
