//! Opens the character devices.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};

/// The reason why a device node cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFailure {
    /// The kernel's errno.
    Os(Errno),
    /// The file is not the device that the kernel names.
    OtherFile,
}

impl From<Errno> for NodeFailure {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

/// Opens the device node at `path`.
///
/// Checks that the node is a character device, and that it has the number `expected` if that is known.
pub fn open_node(path: &str, expected: Option<u64>) -> Result<OwnedFd, NodeFailure> {
    let fd = open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    let stat = fstat(&fd)?;
    let is_character = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    if !is_character || expected.is_some_and(|expected| expected != stat.st_rdev) {
        return Err(NodeFailure::OtherFile);
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_node_is_refused_by_kernel() {
        let failure = open_node("/dev/infiniband/none", None).expect_err("there is no such node");
        assert_eq!(failure, NodeFailure::Os(Errno::ENOENT));
    }

    #[test]
    fn regular_file_is_refused() {
        let file = std::env::current_exe().expect("test binary");
        let path = file.parent().expect("directory of the test binary").join("not-a-node");
        std::fs::write(&path, b"").expect("write a file");
        let failure = open_node(path.to_str().expect("utf-8 path"), None).expect_err("a file");
        assert_eq!(failure, NodeFailure::OtherFile);
    }

    #[test]
    fn other_device_is_refused() {
        let failure = open_node("/dev/null", Some(1)).expect_err("null is not device 0:1");
        assert_eq!(failure, NodeFailure::OtherFile);
        assert!(open_node("/dev/null", Some(libc::makedev(1, 3))).is_ok());
    }
}
