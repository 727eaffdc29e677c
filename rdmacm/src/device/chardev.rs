//! The character devices that the library opens: one uverbs per device, and rdma_cm.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use ucma_abi::RDMA_USER_CM_ABI_VERSION;
use verbs_abi::netlink as nl;

use super::sources::Sources;
use crate::error::{Error, ErrorKind, Result, node_error};
use crate::sys::netlink::{Attributes, Request};
use crate::sys::node::open_node;
use crate::sys::per_process::PerProcess;

/// A character device of the RDMA subsystem, with the properties that the kernel reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharDevice {
    pub(super) name: String,
    pub(super) number: Option<u64>,
    pub(super) abi: Option<u32>,
}

impl CharDevice {
    /// Returns the kernel's name: `uverbs0`, `rdma_cm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the conventional path of the node: `/dev/infiniband/uverbs0`.
    pub fn path(&self) -> String {
        format!("/dev/infiniband/{}", self.name)
    }

    /// Returns the device number, to compare with `st_rdev` of the node.
    pub fn device_number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the ABI version: of the driver for a uverbs device, of ucma for rdma_cm.
    pub fn abi_version(&self) -> Option<u32> {
        self.abi
    }

    /// Parses the response to `RDMA_NLDEV_CMD_GET_CHARDEV`.
    pub(super) fn from_netlink(answer: Attributes<'_>) -> Option<Self> {
        Some(Self {
            name: answer.string(nl::RDMA_NLDEV_ATTR_CHARDEV_NAME)?,
            number: answer.u64(nl::RDMA_NLDEV_ATTR_CHARDEV).and_then(decode_device_number),
            abi: answer
                .u64(nl::RDMA_NLDEV_ATTR_CHARDEV_ABI)
                .and_then(|version| version.try_into().ok()),
        })
    }
}

const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

/// Device number of the connection manager's node whose ABI version was checked; 0 before that.
///
/// No device has the number 0.
static CHECKED: PerProcess<AtomicU64> = PerProcess::new();

/// Returns the character device of the connection manager.
///
/// The call sends `RDMA_NLDEV_CMD_GET_CHARDEV` for `rdma_cm`, which makes the kernel load rdma_ucm. If netlink does not
/// answer, it reads `class/misc/rdma_cm` in sysfs. If neither answers, number and ABI version are unknown, but the node
/// may still exist and open.
pub fn cm_char_device() -> CharDevice {
    rdma_cm_from(&mut Sources::open())
}

pub(super) fn rdma_cm_from(sources: &mut Sources) -> CharDevice {
    const NAME: &str = "rdma_cm";
    let request =
        Request::new(nl::RDMA_NLDEV_CMD_GET_CHARDEV).string(nl::RDMA_NLDEV_ATTR_CHARDEV_TYPE, NAME);
    let answer =
        sources.netlink().and_then(|netlink| netlink.get(request, CharDevice::from_netlink));
    answer.unwrap_or_else(|_| {
        let directory = sources.sysfs.child("class/misc/rdma_cm");
        CharDevice {
            name: NAME.to_owned(),
            number: directory.device_number("dev"),
            abi: directory.value("abi_version"),
        }
    })
}

/// Opens the connection manager's node, whose ABI version must be that of this crate.
pub(crate) fn open_rdma_cm() -> Result<OwnedFd> {
    match CHECKED.load(Ordering::Relaxed) {
        0 => open_and_check(),
        number => open_node(RDMA_CM, Some(number)).or_else(|_| open_and_check()),
    }
}

/// Opens the node if its device number is not known, or has changed.
fn open_and_check() -> Result<OwnedFd> {
    let CharDevice { number, abi, .. } = cm_char_device();
    if let Some(found) = abi {
        check_abi(RDMA_CM, found, RDMA_USER_CM_ABI_VERSION)?;
    }
    let fd = open_node(RDMA_CM, number).map_err(|failure| node_error(failure, RDMA_CM))?;
    if let (Some(number), Some(_)) = (number, abi) {
        CHECKED.store(number, Ordering::Relaxed);
    }
    Ok(fd)
}

/// Returns an error if the kernel's ABI version is not that of the library.
pub(super) fn check_abi(
    subject: impl Into<Cow<'static, str>>,
    found: u32,
    wanted: u32,
) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let reason =
        format!("the kernel's ABI version is {found}, and this library supports only {wanted}");
    Err(Error::new("use", subject, ErrorKind::Unsupported(reason.into())))
}

/// Decodes the kernel's `huge_encode_dev`: 12 bits of major between the two parts of 20 bits of
/// minor.
fn decode_device_number(encoded: u64) -> Option<u64> {
    let encoded = u32::try_from(encoded).ok()?;
    let major = (encoded >> 8) & 0xfff;
    let minor = (encoded & 0xff) | ((encoded >> 12) & 0xfff00);
    Some(libc::makedev(major, minor))
}

#[cfg(test)]
mod tests;
