//! The RDMA devices of the system, their properties and their ports.
//!
//! ```no_run
//! for device in rdmacm::device::list()? {
//!     let driver = device.driver().map_or("?".into(), |driver| driver.to_string());
//!     println!("{} ({driver})", device.name());
//! }
//! # Ok::<(), rdmacm::Error>(())
//! ```
//!
//! The properties come from the kernel's RDMA netlink, and from sysfs if netlink is missing or does not answer. A
//! container may lack either. A property that neither reports is `None`. A [`Device`] is a snapshot: it does not
//! change when its device is removed or renamed. An opened device is marked when the library detects its removal: see
//! [`Context::is_device_removed`](crate::verbs::Context::is_device_removed).

mod attributes;
mod chardev;
mod discovery;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod gid_table;
#[cfg(any(test, fuzzing))]
mod golden;
mod guid;
mod kind;
pub mod link;
mod port;
mod resources;
mod sources;

use verbs_abi::netlink as nl;

pub use attributes::Device;
pub use chardev::{CharDevice, cm_char_device};
pub use gid_table::{GidEntry, GidTable, GidType};
pub use guid::{Gid, Guid, ParseGidError, ParseGuidError};
pub use kind::Transport;
pub use port::Port;
pub use resources::ResourceCounts;
pub use verbs_abi::{
    ib_port_phys_state as PhysicalState, ib_port_state as PortState, rdma_driver_id as DriverId,
    rdma_link_layer as LinkLayer, rdma_node_type as NodeType,
};

pub(crate) use chardev::open_rdma_cm;
pub(crate) use gid_table::of_opened as gids_of_opened;

use crate::error::Result;
use crate::sys::netlink::Request;
use sources::Sources;

/// Returns all RDMA devices of this network namespace, in the order of the kernel.
///
/// The list is empty if the kernel reports that there is no device. A device is listed even if few of its properties
/// are known.
///
/// The call sends `RDMA_NLDEV_CMD_GET` as a dump, and `RDMA_NLDEV_CMD_GET_CHARDEV` for `uverbs` per device, which makes
/// the kernel load ib_uverbs. Without netlink it reads `class/infiniband` and `class/infiniband_verbs` in sysfs; the
/// index is then unknown.
///
/// # Errors
///
/// - The errno of netlink, with a [hint](crate::Error::hint), if neither netlink nor sysfs answers: EPROTONOSUPPORT if
///   ib_core is not loaded.
/// - [`ErrorKind::Unsupported`] if sysfs was read and the ABI version of uverbs is not that of the library.
///
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
#[doc(alias = "ibv_free_device_list")]
#[doc(alias = "ibv_get_device_list")]
pub fn list() -> Result<Vec<Device>> {
    discovery::list(&mut Sources::open())
}

/// Returns the [device](Device::is) with `guid` and `index`.
pub(crate) fn find(guid: Guid, index: Option<u32>) -> Result<Option<Device>> {
    discovery::find(&mut Sources::open(), guid, index)
}

/// Returns `true` if the device to which an id is bound is being removed.
///
/// The kernel takes the device off its list, then changes the state of each id, then closes the ids. For a thread that
/// has left the device's network namespace, the device counts as removed too.
#[cold]
pub(crate) fn is_being_removed(guid: Guid, index: Option<u32>) -> bool {
    // A list may leave out a device while another device is removed, because the kernel finds each device by its place
    // in the list.
    (0..2).all(|_| discovery::is_unlisted(&mut Sources::open(), guid, index))
}

/// Returns the first GID of each active InfiniBand port, with which ids are bound to the port.
pub(crate) fn infiniband_gids() -> Result<Vec<Gid>> {
    gid_table::of_infiniband(&mut Sources::open())
}

/// Returns `true` if the kernel copies pinned pages at fork.
///
/// Registered memory then needs no `MADV_DONTFORK`. The call sends `RDMA_NLDEV_CMD_SYS_GET`. A kernel before 5.13 does
/// not have the attribute, so the result is `false`, although 5.12 copies the pages.
///
/// # Errors
///
/// - The errno of the netlink socket if there is none.
#[doc(alias = "ibv_is_fork_initialized")]
#[doc(alias = "ibv_fork_init")]
pub fn supports_copy_on_fork() -> Result<bool> {
    let request = Request::new(nl::RDMA_NLDEV_CMD_SYS_GET);
    let answer = Sources::open().netlink().and_then(|netlink| {
        netlink.get(request, |answer| Some(answer.u8(nl::RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK)))
    });
    match answer {
        Ok(attribute) => Ok(attribute == Some(1)),
        Err(failure) => Err(failure.error("ask whether the kernel copies on fork", "")),
    }
}
