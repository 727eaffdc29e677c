//! Helpers that several of the test targets share.

pub mod heap;
mod process;
pub mod rng;
pub mod roce;
pub mod rxe;
pub mod siw;

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
pub use process::{Ended, Process};
use rdmacm::device::{self, Device};

/// Returns the value of the environment variable `name`, which the test bed's runner promises.
pub fn promised(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this with cargo xtask test"))
}

/// Returns the RDMA device `name`, which must be promised, on the promised kernel.
pub fn promised_device(name: &str) -> Device {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let kernel = promised("RDMACM_TEST_KERNEL");
    assert!(release.starts_with(&format!("{kernel}.")), "{kernel} was promised, this is {release}");
    let devices = promised("RDMACM_TEST_DEVICES");
    assert!(devices.split(',').any(|device| device == name), "of {devices} none is {name}");
    let found = device::list().expect("list the devices");
    found.into_iter().find(|device| device.name() == name).expect("a promised device should exist")
}

/// Returns the number of open descriptors of this process, among them the one that counts.
pub fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("list the descriptors").count()
}

/// The directory of debugfs.
pub const DEBUGFS: &str = "/sys/kernel/debug";

/// Mounts debugfs, unless it is mounted.
pub fn mount_debugfs() {
    match mount(Some("none"), DEBUGFS, Some("debugfs"), MsFlags::empty(), None::<&str>) {
        Ok(()) | Err(Errno::EBUSY) => {}
        Err(errno) => panic!("mount debugfs: {errno}"),
    }
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_in_time(condition), "timed out waiting until {what}");
}

/// Waits at most a minute until `condition` holds. Returns `false` if it does not.
pub fn holds_in_time(condition: impl FnMut() -> bool) -> bool {
    holds_within(Duration::from_secs(60), condition)
}

/// Waits at most `limit` until `condition` holds. Returns `false` if it does not.
pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Reports that the running test checks nothing on this kernel; the test then returns. `cargo xtask test` counts it as
/// skipped, with this reason.
pub fn skip(reason: &str) {
    println!("[skipped] {reason}");
}

/// Reports that the running test repeats a part of its work. `cargo xtask test` counts this, with this reason.
pub fn try_again(reason: &str) {
    println!("[tried again] {reason}");
}
