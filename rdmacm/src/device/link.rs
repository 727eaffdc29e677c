//! Links: ports, and software devices over network devices.
//!
//! The functions of iproute2's `rdma link`, so that a machine without it can have an rxe or siw device.

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
pub enum LinkKind {
    /// Software RoCE, module rdma_rxe.
    Rxe,
    /// Software iWARP, module siw.
    Siw,
}

impl LinkKind {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`LinkKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a kind of link: rxe or siw")]
pub struct ParseLinkKindError;

impl FromStr for LinkKind {
    type Err = ParseLinkKindError;

    fn from_str(text: &str) -> Result<Self, ParseLinkKindError> {
        let kinds = [Self::Rxe, Self::Siw];
        kinds.into_iter().find(|kind| kind.name() == text).ok_or(ParseLinkKindError)
    }
}

/// Every port of every device.
///
/// Sends `RDMA_NLDEV_CMD_GET` as a dump and `RDMA_NLDEV_CMD_PORT_GET` per port, or reads sysfs, as
/// [`super::list`] and [`Device::port`](super::Device::port) do. A port that tells nothing is
/// listed all the same.
///
/// # Errors
///
/// The errors of [`super::list`].
pub fn list() -> Result<Vec<Port>> {
    let sources = &mut Sources::open();
    let devices = discovery::devices(sources)?;
    Ok(devices.iter().flat_map(|device| Port::all(sources, device)).collect())
}

/// Makes a software device `name` over the network device `netdev`.
///
/// Sends `RDMA_NLDEV_CMD_NEWLINK`; the kernel loads the driver's module. When the call returns the
/// device is registered and listed; udev, where there is one, makes its node a moment later.
///
/// # Errors
///
/// - EINVAL before the kernel is asked: a name that is empty, too long (63 bytes; 15 of a network
///   device) or holds NUL, and `%` in the device's name. From the kernel: it has no such driver, or
///   the network device cannot carry it.
/// - ENODEV: no such network device in this network namespace.
/// - EEXIST: the network device has a device of this kind already.
/// - ENFILE: the name is taken.
/// - EPERM: the caller lacks CAP_NET_ADMIN in the initial user namespace, or `netdev` is a VLAN
///   device, which rxe refuses.
/// - EPROTONOSUPPORT: ib_core is not loaded.
#[doc(alias = "RDMA_NLDEV_CMD_NEWLINK")]
pub fn add(name: &str, kind: LinkKind, netdev: &str) -> Result<()> {
    add_by(&mut Sources::open(), name, kind, netdev)
}

fn add_by(sources: &mut Sources, name: &str, kind: LinkKind, netdev: &str) -> Result<()> {
    const OPERATION: &str = "add the RDMA link";
    let subject = format!("{name} ({kind} on {netdev})");
    let bad = check_name(name, DEVICE_NAME_SIZE, "the device's name")
        .or_else(|| name.contains('%').then(|| "the device's name holds a '%'".to_owned()))
        .or_else(|| check_name(netdev, NETDEV_NAME_SIZE, "the network device's name"));
    if let Some(reason) = bad {
        return Err(Error::invalid(OPERATION, subject, reason));
    }
    let request = Request::new(nl::RDMA_NLDEV_CMD_NEWLINK)
        .string(nl::RDMA_NLDEV_ATTR_DEV_NAME, name)
        .string(nl::RDMA_NLDEV_ATTR_LINK_TYPE, kind.name())
        .string(nl::RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
    let done = sources.netlink().and_then(|netlink| netlink.command(request));
    done.map_err(|failure| {
        explained(failure, OPERATION, subject, |errno| match (errno, kind) {
            (Errno::ENODEV, _) => Some("there is no network device of that name here"),
            (Errno::EEXIST, _) => Some("the network device has a link of this kind already"),
            (Errno::ENFILE, _) => Some("another RDMA device has that name"),
            (Errno::EPERM, LinkKind::Siw) => Some(NEEDS_ADMIN),
            (Errno::EPERM, LinkKind::Rxe) => {
                Some("it needs CAP_NET_ADMIN in the initial user namespace, and no VLAN device")
            }
            (Errno::EINVAL, LinkKind::Rxe) => {
                Some("the kernel has no rxe (modprobe rdma_rxe), or not for such a network device")
            }
            (Errno::EINVAL, LinkKind::Siw) => {
                Some("the kernel has no siw (modprobe siw), or not for such a network device")
            }
            _ => None,
        })
    })
}

/// Removes the software device `name`.
///
/// Sends `RDMA_NLDEV_CMD_GET` as a dump to find its index, and `RDMA_NLDEV_CMD_DELLINK`.
///
/// **Blocks** in the kernel, and cannot be interrupted, while any process holds a descriptor or a
/// mapping of the device's user contexts: rxe and siw cannot take a context from its user. Close
/// them first.
///
/// # Errors
///
/// - ENODEV: no device of that name.
/// - EINVAL: not a software device, or it was removed meanwhile.
/// - EPERM: the caller lacks CAP_NET_ADMIN in the initial user namespace.
/// - [`ErrorKind::Unsupported`] where devices are known from sysfs alone.
#[doc(alias = "RDMA_NLDEV_CMD_DELLINK")]
pub fn delete(name: &str) -> Result<()> {
    delete_by(&mut Sources::open(), name)
}

fn delete_by(sources: &mut Sources, name: &str) -> Result<()> {
    const OPERATION: &str = "delete the RDMA link";
    let devices = discovery::devices(sources)?;
    let device = devices.iter().find(|device| device.name == name).ok_or_else(|| {
        let reason = "there is no RDMA device of that name".into();
        let kind = ErrorKind::Invalid { errno: Errno::ENODEV as i32, reason };
        Error::new(OPERATION, name.to_owned(), kind)
    })?;
    let index = device.netlink_index(OPERATION)?;
    let request =
        Request::new(nl::RDMA_NLDEV_CMD_DELLINK).u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, index);
    let done = sources.netlink().and_then(|netlink| netlink.command(request));
    done.map_err(|failure| {
        explained(failure, OPERATION, name.to_owned(), |errno| match errno {
            Errno::EINVAL => Some("only software devices can be deleted"),
            Errno::EPERM => Some(NEEDS_ADMIN),
            _ => None,
        })
    })
}

const NEEDS_ADMIN: &str = "it needs CAP_NET_ADMIN in the initial user namespace";

/// Why a name cannot be sent. The kernel would cut a long one off.
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

/// The failure with what an errno means here.
fn explained(
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
        Some(remedy) => Error::new(operation, subject, ErrorKind::Remedy { errno, remedy }),
        None => failure.error(operation, subject),
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;
    use crate::sys::netlink::fake::{acknowledgement, done, error, hex, message};
    use crate::sys::sysfs::fake::Tree;

    #[test]
    fn bad_names_are_refused_before_the_kernel_is_asked() {
        let (mut sources, kernel) = Sources::netlink_only(&[]);
        let long = "x".repeat(64);
        let names = [
            ("", "v0", "empty"),
            (&long, "v0", "63 bytes"),
            ("rxe%d", "v0", "'%'"),
            ("r\0", "v0", "NUL"),
            ("rxe0", "", "empty"),
            ("rxe0", "sixteen-bytes-xx", "15 bytes"),
            ("rxe0", "v\0", "NUL"),
        ];
        for (name, netdev, reason) in names {
            let error = add_by(&mut sources, name, LinkKind::Rxe, netdev).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL);
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(kernel.requests().is_empty());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn add_asks_for_an_acknowledgement() {
        let (mut sources, kernel) = Sources::netlink_only(&[acknowledgement(1)]);
        add_by(&mut sources, "siw0", LinkKind::Siw, "v1").unwrap();
        let expected =
            hex("2c000000 0314 0500 01000000 00000000  | NEWLINK, NLM_F_REQUEST | NLM_F_ACK
             0900 0200 73697730 00 000000          | DEV_NAME
             0800 4100 736977 00                   | LINK_TYPE
             0700 3300 7631 00 00                  | NDEV_NAME");
        assert_eq!(kernel.requests(), [expected]);
    }

    #[test]
    fn errors_of_add_say_what_to_do() {
        let cases = [
            (libc::ENODEV, "no network device"),
            (libc::EEXIST, "has a link"),
            (libc::ENFILE, "has that name"),
            (libc::EPERM, "CAP_NET_ADMIN"),
            (libc::EINVAL, "modprobe siw"),
            (libc::ENOMEM, "siw0 (siw on v1)"),
        ];
        for (errno, text) in cases {
            let (mut sources, _kernel) = Sources::netlink_only(&[error(1, -errno)]);
            let error = add_by(&mut sources, "siw0", LinkKind::Siw, "v1").unwrap_err();
            assert_eq!(error.errno(), errno);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn without_netlink_nothing_can_be_added() {
        let tree = Tree::new(golden::SYSFS);
        let mut sources = Sources::sysfs_only(&tree);
        let error = add_by(&mut sources, "rxe1", LinkKind::Rxe, "v0").unwrap_err();
        assert_eq!(error.errno(), libc::EPROTONOSUPPORT);
        let error = delete_by(&mut sources, "rxe0").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn delete_goes_by_index() {
        let listed = |sequence| message(0x1401, sequence, &hex(golden::DEVICE));
        let (mut sources, kernel) = Sources::netlink_only(&[
            listed(1),
            done(1, 0),
            acknowledgement(2),
            listed(3),
            done(3, 0),
            error(4, -libc::EINVAL),
            listed(5),
            done(5, 0),
        ]);
        delete_by(&mut sources, "rxe0").unwrap();
        let request = kernel.requests().remove(1);
        assert_eq!(request[4..8], hex("0414 0500"));
        assert_eq!(request[16..], hex("0800 0100 00000000"));
        let error = delete_by(&mut sources, "rxe0").unwrap_err();
        assert!(error.to_string().contains("software devices"), "{error}");
        let error = delete_by(&mut sources, "rxe1").unwrap_err();
        assert_eq!((error.errno(), error.subject()), (libc::ENODEV, "rxe1"));
    }

    #[test]
    fn kinds_by_name() {
        for kind in [LinkKind::Rxe, LinkKind::Siw] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("mlx5".parse::<LinkKind>(), Err(ParseLinkKindError));
    }
}
