//! Links: ports, and software devices over network devices.
//!
//! The module replaces iproute2's `rdma link`: a machine without iproute2 can have an rxe or siw device.

use std::fmt;
use std::str::FromStr;

use nix::errno::Errno;
use verbs_abi::netlink as nl;

use super::sources::Sources;
use super::{Port, discovery};
use crate::error::{Error, ErrorKind, Result, hint};
use crate::sys::netlink::{Failure, Request};

/// `IB_DEVICE_NAME_MAX`, with the NUL.
const DEVICE_NAME_SIZE: usize = 64;
/// `IFNAMSIZ`, with the NUL.
const NETDEV_NAME_SIZE: usize = 16;

/// The software devices of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkType {
    /// Software RoCE, module rdma_rxe.
    Rxe,
    /// Software iWARP, module siw.
    Siw,
    /// The link type of another module, by the kernel's name.
    Other(&'static str),
}

impl LinkType {
    /// Returns the kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of a text that names no [`LinkType`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown link type: expected rxe or siw")]
pub struct ParseLinkTypeError;

impl FromStr for LinkType {
    type Err = ParseLinkTypeError;

    fn from_str(text: &str) -> Result<Self, ParseLinkTypeError> {
        let types = [Self::Rxe, Self::Siw];
        types.into_iter().find(|link_type| link_type.name() == text).ok_or(ParseLinkTypeError)
    }
}

/// Returns all ports of all devices.
///
/// The call sends `RDMA_NLDEV_CMD_GET` as a dump and `RDMA_NLDEV_CMD_PORT_GET` per port. Without netlink it reads
/// sysfs, like [`super::list`] and [`Device::port`](super::Device::port). A port without known properties is listed
/// too.
///
/// # Errors
///
/// - The errors of [`super::list`].
pub fn list() -> Result<Vec<Port>> {
    let sources = &mut Sources::open();
    let devices = discovery::devices(sources)?;
    Ok(devices.iter().flat_map(|device| Port::all(sources, device)).collect())
}

/// Creates a software device `name` over the network device `netdev`.
///
/// The call sends `RDMA_NLDEV_CMD_NEWLINK`; the kernel loads the module of the driver. When the call returns, the
/// device is registered and listed. If udev runs, it creates the node shortly afterwards.
///
/// # Errors
///
/// The call checks the names before it sends a request:
///
/// - EINVAL if a name is empty, too long or has a NUL byte, or if the name of the device has a `%`. The maximum is 63
///   bytes, or 15 bytes for a network device.
///
/// The kernel returns:
///
/// - EINVAL if it has no such driver, or if the network device cannot carry the software device.
/// - ENODEV if this network namespace has no such network device.
/// - EEXIST if the network device already has a device of this type.
/// - ENFILE if the name is in use.
/// - EPERM if the caller lacks CAP_NET_ADMIN in the initial user namespace, or if `netdev` is a VLAN device, which rxe
///   refuses.
/// - EPROTONOSUPPORT if ib_core is not loaded.
#[doc(alias = "RDMA_NLDEV_CMD_NEWLINK")]
pub fn add(name: &str, link_type: LinkType, netdev: &str) -> Result<()> {
    add_by(&mut Sources::open(), name, link_type, netdev)
}

fn add_by(sources: &mut Sources, name: &str, link_type: LinkType, netdev: &str) -> Result<()> {
    const OPERATION: &str = "add the RDMA link";
    let subject = format!("{name} ({link_type} on {netdev})");
    let bad = check_name(name, DEVICE_NAME_SIZE, "the device's name")
        .or_else(|| name.contains('%').then(|| "the device's name holds a '%'".to_owned()))
        .or_else(|| check_name(netdev, NETDEV_NAME_SIZE, "the network device's name"));
    if let Some(reason) = bad {
        return Err(Error::invalid(OPERATION, subject, reason));
    }
    let request = Request::new(nl::RDMA_NLDEV_CMD_NEWLINK)
        .string(nl::RDMA_NLDEV_ATTR_DEV_NAME, name)
        .string(nl::RDMA_NLDEV_ATTR_LINK_TYPE, link_type.name())
        .string(nl::RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
    let done = sources.netlink().and_then(|netlink| netlink.command(request));
    done.map_err(|failure| {
        with_errno_hint(failure, OPERATION, subject, |errno| match (errno, link_type) {
            (Errno::ENODEV, _) => Some("there is no network device of that name here"),
            (Errno::EEXIST, _) => Some("the network device has a link of this type already"),
            (Errno::ENFILE, _) => Some("another RDMA device has that name"),
            (Errno::EPERM, LinkType::Siw | LinkType::Other(_)) => Some(NEEDS_ADMIN),
            (Errno::EPERM, LinkType::Rxe) => Some(
                "the command needs CAP_NET_ADMIN in the initial user namespace, and rxe refuses VLAN devices",
            ),
            (Errno::EINVAL, LinkType::Rxe) => {
                Some("the kernel has no rxe (modprobe rdma_rxe), or rxe does not support this network device")
            }
            (Errno::EINVAL, LinkType::Siw) => {
                Some("the kernel has no siw (modprobe siw), or siw does not support this network device")
            }
            (Errno::EINVAL, LinkType::Other(_)) => {
                Some("no loaded module supports this link type on this network device")
            }
            _ => None,
        })
    })
}

/// Removes the software device `name`.
///
/// The call sends `RDMA_NLDEV_CMD_GET` as a dump to find the index, and `RDMA_NLDEV_CMD_DELLINK`.
///
/// The call **blocks** in the kernel while any process has a descriptor or a mapping of the device's user contexts,
/// and cannot be interrupted. rxe and siw cannot revoke a context from its user. Close the contexts first.
///
/// # Errors
///
/// - ENODEV if no device has the name.
/// - EINVAL if the device is not a software device, or was removed meanwhile.
/// - EPERM if the caller lacks CAP_NET_ADMIN in the initial user namespace.
/// - [`ErrorKind::Unsupported`] if devices are known from sysfs only.
#[doc(alias = "RDMA_NLDEV_CMD_DELLINK")]
pub fn delete(name: &str) -> Result<()> {
    delete_by(&mut Sources::open(), name)
}

fn delete_by(sources: &mut Sources, name: &str) -> Result<()> {
    const OPERATION: &str = "delete the RDMA link";
    let devices = discovery::devices(sources)?;
    let device = devices.iter().find(|device| device.name == name).ok_or_else(|| {
        let reason = "there is no RDMA device of that name".into();
        let kind = ErrorKind::InvalidInput { errno: Errno::ENODEV as i32, reason };
        Error::new(OPERATION, name.to_owned(), kind)
    })?;
    let index = device.netlink_index(OPERATION)?;
    let request =
        Request::new(nl::RDMA_NLDEV_CMD_DELLINK).u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, index);
    let done = sources.netlink().and_then(|netlink| netlink.command(request));
    done.map_err(|failure| {
        with_errno_hint(failure, OPERATION, name.to_owned(), |errno| match errno {
            Errno::EINVAL => Some("only software devices can be deleted"),
            Errno::EPERM => Some(NEEDS_ADMIN),
            _ => None,
        })
    })
}

const NEEDS_ADMIN: &str = "the command needs CAP_NET_ADMIN in the initial user namespace";

/// Returns the reason for which a name cannot be sent, if any.
///
/// The kernel would truncate a long name.
fn check_name(name: &str, size: usize, what: &str) -> Option<String> {
    if name.is_empty() {
        Some(format!("{what} is empty"))
    } else if name.len() >= size {
        Some(format!("{what} is longer than {} bytes", size - 1))
    } else if name.contains('\0') {
        Some(format!("{what} holds a NUL byte"))
    } else {
        None
    }
}

/// Returns the error with a hint on the meaning of its errno in this operation.
fn with_errno_hint(
    failure: Failure,
    operation: &'static str,
    subject: String,
    meaning: impl Fn(Errno) -> Option<&'static str>,
) -> Error {
    let Failure::Os(errno) = failure else { return failure.error(operation, subject) };
    let meaning = match Errno::from_raw(errno) {
        Errno::EPROTONOSUPPORT => Some(hint::MODULES),
        errno => meaning(errno),
    };
    match meaning {
        Some(hint) => Error::new(operation, subject, ErrorKind::Os(errno))
            .with_hint(Errno::from_raw(errno), hint),
        None => failure.error(operation, subject),
    }
}

#[cfg(test)]
mod tests;
