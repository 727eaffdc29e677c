//! Opening the character devices.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::remedy;
use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "open";

/// Opens the device node at `path` and checks that it is the character device numbered `expected`,
/// where that is known.
pub(crate) fn open_node(path: &str, expected: Option<u64>) -> Result<OwnedFd> {
    let fd = open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(|errno| {
        let remedy = match errno {
            Errno::ENOENT | Errno::ENODEV | Errno::ENXIO => remedy::NODE,
            Errno::EACCES => "give the user read and write permission on the node",
            Errno::EPERM => "a device cgroup or another network namespace keeps the device",
            _ => return Error::os(OPERATION, path.to_owned(), errno),
        };
        let kind = ErrorKind::Remedy { errno: errno as i32, remedy };
        Error::new(OPERATION, path.to_owned(), kind)
    })?;
    let stat = fstat(&fd).map_err(|errno| Error::os(OPERATION, path.to_owned(), errno))?;
    let is_character = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    if !is_character || expected.is_some_and(|expected| expected != stat.st_rdev) {
        let reason = "the node is not the device that the kernel names; make it anew";
        let kind = ErrorKind::Invalid { errno: Errno::ENXIO as i32, reason: reason.into() };
        return Err(Error::new(OPERATION, path.to_owned(), kind));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_node_names_the_path_and_the_remedy() {
        let error = open_node("/dev/infiniband/none", None);
        let error = error.expect_err("there is no such node");
        assert_eq!(error.errno(), libc::ENOENT);
        let text = error.to_string();
        assert!(text.contains("/dev/infiniband/none"), "{text}");
        assert!(text.contains("modprobe rdma_ucm"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_device_is_refused() {
        let file = std::env::current_exe().expect("test binary");
        let directory = file.parent().expect("directory of the test binary").join("not-a-node");
        std::fs::write(&directory, b"").expect("write a file");
        let error = open_node(directory.to_str().expect("utf-8 path"), None).expect_err("a file");
        assert_eq!(error.errno(), libc::ENXIO);
    }

    #[test]
    fn another_device_under_the_name_is_refused() {
        let error = open_node("/dev/null", Some(1)).expect_err("null is not device 0:1");
        assert_eq!(error.errno(), libc::ENXIO);
        assert!(open_node("/dev/null", Some(libc::makedev(1, 3))).is_ok());
    }
}
