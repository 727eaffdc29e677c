//! Limits of a process: each error names the missing resource, and no partial object remains.

use std::fs;
use std::os::fd::AsRawFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rdmacm::endpoint::{DatagramConfig, DatagramSocket, Listener};
use rdmacm::{Error, Result};

use crate::child::{become_ordinary_user, in_child};
use crate::fixtures::{objects, roce};

/// Raises the limit of `resource` by `step` until `make` succeeds. The process uses `used` of the resource.
///
/// Each failure before must satisfy `is_right`, and leave no object.
fn raise<T>(
    resource: Resource,
    used: fn() -> u64,
    step: u64,
    make: impl Fn() -> Result<T>,
    is_right: fn(&Error) -> bool,
) {
    in_child(|| {
        become_ordinary_user();
        // The allocator keeps this memory for its bookkeeping. Without any, it would end the process.
        drop((0..1000).map(|_| Box::new([0_u8; 100])).collect::<Vec<_>>());
        let (_, most) = getrlimit(resource).expect("ask for the limit");
        let (before, used) = (objects(), used());
        for failures in 0..2000 {
            setrlimit(resource, used + failures * step, most).expect("set the limit");
            let made = make().map(drop);
            setrlimit(resource, most, most).expect("set the limit");
            assert_eq!(objects(), before, "after {failures} failures");
            match made {
                Ok(()) => return assert!(failures > 0, "a call should have failed before"),
                Err(error) => assert!(is_right(&error), "{error}"),
            }
        }
        panic!("the call should succeed at last");
    });
}

/// Returns the lowest free descriptor number.
///
/// Higher numbers may be in use, because earlier tests leave gaps.
pub(crate) fn descriptors() -> u64 {
    let lowest = fs::File::open("/dev/null").expect("a descriptor should be left");
    lowest.as_raw_fd().try_into().expect("descriptors should not be negative")
}

/// Returns the bytes of the process's address space.
fn address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its size");
    let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

fn names(error: &Error, errno: i32, limit: &str) -> bool {
    error.errno() == errno && error.hint().is_some_and(|hint| hint.contains(limit))
}

fn socket() -> Result<DatagramSocket> {
    let config = DatagramConfig::new().send_buffers(4).receive_buffers(4);
    DatagramSocket::bind(roce(0), &config)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_limit_is_named_in_errors() {
    let is_right = |error: &Error| names(error, libc::EMFILE, "RLIMIT_NOFILE");
    raise(Resource::RLIMIT_NOFILE, descriptors, 1, socket, is_right);
    raise(Resource::RLIMIT_NOFILE, descriptors, 1, || Listener::bind(roce(0)), is_right);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn memlock_limit_is_named_in_errors() {
    let is_right = |error: &Error| {
        [libc::EPERM, libc::ENOMEM].iter().any(|errno| names(error, *errno, "RLIMIT_MEMLOCK"))
    };
    raise(Resource::RLIMIT_MEMLOCK, || 0, 4096, socket, is_right);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn address_space_limit_is_reported() {
    // The errno does not name the limit.
    let is_right = |error: &Error| error.errno() == libc::ENOMEM && !error.operation().is_empty();
    raise(Resource::RLIMIT_AS, address_space, 4096, socket, is_right);
}
