//! The sources of information about devices.

#[cfg(any(test, fuzzing))]
use crate::sys::netlink::fake::{Kernel, kernel};
use crate::sys::netlink::{Failure, Socket};
use crate::sys::sysfs::Directory;
#[cfg(any(test, fuzzing))]
use crate::sys::sysfs::fake::Tree;

/// The mount point of sysfs.
pub(super) const SYSFS: &str = "/sys";

/// The two ways to ask the kernel about devices. Either may be missing.
#[derive(Debug)]
pub(super) struct Sources {
    netlink: Result<Socket, Failure>,
    /// The root of sysfs.
    pub(super) sysfs: Directory,
}

impl Sources {
    pub(super) fn open() -> Self {
        Self { netlink: Socket::open(), sysfs: Directory::new(SYSFS) }
    }

    /// Returns the netlink socket, or the reason for which there is none.
    pub(super) fn netlink(&mut self) -> Result<&mut Socket, Failure> {
        self.netlink.as_mut().map_err(|failure| *failure)
    }
}

#[cfg(any(test, fuzzing))]
impl Sources {
    /// Returns sources with a socket that has these responses, and without sysfs.
    pub(super) fn netlink_only(answers: &[Vec<u8>]) -> (Self, Kernel) {
        let (socket, kernel) = kernel(answers);
        (Self { netlink: Ok(socket), sysfs: Directory::new("/nonexistent") }, kernel)
    }

    /// Returns sources without netlink, and with a tree of files.
    pub(super) fn sysfs_only(tree: &Tree) -> Self {
        Self { netlink: Err(Failure::Os(libc::EPROTONOSUPPORT)), sysfs: tree.directory() }
    }
}
