//! Where knowledge about devices comes from.

#[cfg(any(test, fuzzing))]
use crate::sys::netlink::fake::{Kernel, kernel};
use crate::sys::netlink::{Failure, Socket};
use crate::sys::sysfs::Directory;
#[cfg(any(test, fuzzing))]
use crate::sys::sysfs::fake::Tree;

/// Where sysfs is mounted.
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

    /// Netlink, or why there is none.
    pub(super) fn netlink(&mut self) -> Result<&mut Socket, Failure> {
        self.netlink.as_mut().map_err(|failure| *failure)
    }
}

#[cfg(any(test, fuzzing))]
impl Sources {
    /// A socket that has these answers, and no sysfs.
    pub(super) fn netlink_only(answers: &[Vec<u8>]) -> (Self, Kernel) {
        let (socket, kernel) = kernel(answers);
        (Self { netlink: Ok(socket), sysfs: Directory::new("/nonexistent") }, kernel)
    }

    /// No netlink, and a tree of files.
    pub(super) fn sysfs_only(tree: &Tree) -> Self {
        Self { netlink: Err(Failure::Os(libc::EPROTONOSUPPORT)), sysfs: tree.directory() }
    }
}
