//! RDMA devices: which there are, what they are, and their ports.
//!
//! ```no_run
//! for device in rdmacm::device::list()? {
//!     let driver = device.driver().map_or("?".into(), |driver| driver.to_string());
//!     println!("{} ({driver})", device.name());
//! }
//! # Ok::<(), rdmacm::Error>(())
//! ```
//!
//! Knowledge comes from the kernel's RDMA netlink, and from sysfs where netlink is missing or
//! silent; a container may lack either. What neither tells is `None`. A [`Device`] is a snapshot:
//! it does not notice that its device is removed or renamed. An opened device is marked when that is
//! known: [`Context::is_gone`](crate::verbs::Context::is_gone).

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
pub use chardev::{Chardev, rdma_cm};
pub use gid_table::{GidEntry, GidTable, GidType};
pub use guid::{Gid, Guid, ParseGuidError};
pub use kind::Transport;
pub use port::Port;
pub use resources::Resources;
pub use verbs_abi::{
    ib_port_phys_state as PhysicalState, ib_port_state as PortState, rdma_driver_id as DriverId,
    rdma_link_layer as LinkLayer, rdma_node_type as NodeType,
};

pub(crate) use chardev::open_rdma_cm;
pub(crate) use gid_table::of_opened as gids_of_opened;

use crate::error::Result;
use crate::sys::netlink::Request;
use sources::Sources;

/// All RDMA devices of this network namespace, as the kernel orders them.
///
/// Sends `RDMA_NLDEV_CMD_GET` as a dump, and `RDMA_NLDEV_CMD_GET_CHARDEV` for `uverbs` per device,
/// which makes the kernel load ib_uverbs. Without netlink reads `class/infiniband` and
/// `class/infiniband_verbs` in sysfs; the index is then unknown. A device that the kernel tells
/// little about is listed with what is known.
///
/// # Errors
///
/// The list is empty where the kernel says that there is no device. Where there is nobody to ask,
/// neither netlink nor sysfs, that is an error with netlink's errno (EPROTONOSUPPORT where ib_core
/// is not loaded) and the remedy. [`ErrorKind::Unsupported`] if sysfs was read and says that uverbs
/// has another ABI version than the library.
///
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
#[doc(alias = "ibv_free_device_list")]
#[doc(alias = "ibv_get_device_list")]
pub fn list() -> Result<Vec<Device>> {
    discovery::list(&mut Sources::open())
}

/// The device that [is the one](Device::is) with `guid` and `index`.
pub(crate) fn find(guid: Guid, index: Option<u32>) -> Result<Option<Device>> {
    discovery::find(&mut Sources::open(), guid, index)
}

/// Returns `true` if the device that an id is bound to is on its way out: the kernel takes it off its list, then
/// gives each id its new state, then closes them. To a thread that has left the device's network
/// namespace it is gone too.
#[cold]
pub(crate) fn goes(guid: Guid, index: Option<u32>) -> bool {
    // A list may leave out a device while another one goes: each is asked for by its place in it.
    (0..2).all(|_| discovery::is_unlisted(&mut Sources::open(), guid, index))
}

/// The first GID of each active InfiniBand port, by which ids are bound to it.
pub(crate) fn infiniband_gids() -> Result<Vec<Gid>> {
    gid_table::of_infiniband(&mut Sources::open())
}

/// Returns `true` if the kernel copies pinned pages at fork, so that registered memory needs no
/// `MADV_DONTFORK`.
///
/// Sends `RDMA_NLDEV_CMD_SYS_GET`. A kernel before 5.13 does not know the attribute: `false`, though 5.12
/// copies.
///
/// # Errors
///
/// The errno of the netlink socket where there is none.
#[doc(alias = "ibv_is_fork_initialized")]
#[doc(alias = "ibv_fork_init")]
pub fn copies_on_fork() -> Result<bool> {
    let request = Request::new(nl::RDMA_NLDEV_CMD_SYS_GET);
    let answer = Sources::open().netlink().and_then(|netlink| {
        netlink.get(request, |answer| Some(answer.u8(nl::RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK)))
    });
    match answer {
        Ok(attribute) => Ok(attribute == Some(1)),
        Err(failure) => Err(failure.error("ask whether the kernel copies on fork", "")),
    }
}
