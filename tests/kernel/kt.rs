//! `kt0`, the tests' own device: the kernel module of `tests/kmod`, loaded while a test needs it.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::thread;

use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use rdmacm::device::Device;
use rdmacm::verbs::Context;
use rdmacm_tests::{DEBUGFS, mount_debugfs};
use verbs_abi::ib_event_type;

use crate::fixtures;

/// The loaded module.
///
/// Dropping this value unloads the module. No context of the device may be open then.
#[derive(Debug)]
pub(crate) struct Kt {
    pub(crate) device: Device,
}

impl Kt {
    pub(crate) fn load() -> Self {
        Self::load_with(c"")
    }

    /// Loads the module with parameters.
    pub(crate) fn load_with(parameters: &CStr) -> Self {
        mount_debugfs();
        let module = File::open(fixtures::promised("RDMACM_TEST_MODULE")).expect("open the module");
        finit_module(&module, parameters, ModuleInitFlags::empty()).expect("load the module");
        Self { device: fixtures::device("kt0") }
    }

    pub(crate) fn context(&self) -> Context {
        Context::open(&self.device).expect("open kt0")
    }

    /// Returns the number of objects of a kind on the device.
    ///
    /// The kinds are `context`, `pd`, `mr`, `mw`, `ah`, `cq`, `srq`, `qp` and `xrcd`.
    #[track_caller]
    pub(crate) fn count(&self, kind: &str) -> u32 {
        let counts = fs::read_to_string(file("counts")).expect("read the counts");
        let mut pairs = counts.lines().filter_map(|line| line.split_once(' '));
        let (_, count) = pairs.find(|(name, _)| *name == kind).expect("the kind should be known");
        count.parse().expect("a count should be a number")
    }

    /// Makes the device refuse to destroy objects of a kind until the value is dropped.
    #[track_caller]
    pub(crate) fn keep(&self, kind: Kept) -> Keeping<'_> {
        keep(kind as i32);
        Keeping { _kt: self }
    }

    /// Raises an asynchronous event.
    ///
    /// `number` is that of a queue pair, an XRC shared receive queue or a port. The number of a queue pair also
    /// identifies its send completion queue and its shared receive queue.
    #[track_caller]
    pub(crate) fn raise(&self, event: ib_event_type, number: u32) {
        fs::write(file("event"), format!("{} {number}", event.0)).expect("raise an event");
    }

    /// Delivers a message of `length` bytes through an XRC target to an XRC shared receive queue.
    pub(crate) fn deliver(&self, target: u32, srq: u32, length: u32) -> io::Result<()> {
        fs::write(file("deliver"), format!("{target} {srq} {length}"))
    }
}

/// The kinds of objects that the device can refuse to destroy, with the numbers of `enum kt_kind`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    MemoryRegions = 2,
    SharedReceiveQueues = 6,
    QueuePairs = 7,
}

/// A guard during whose life the device refuses to destroy objects of one kind.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    _kt: &'a Kt,
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        keep(-1);
    }
}

fn keep(kind: i32) {
    fs::write("/sys/module/rdmacm_test/parameters/kept", kind.to_string()).expect("set the kind");
}

impl Drop for Kt {
    fn drop(&mut self) {
        let gone = delete_module(c"rdmacm_test", DeleteModuleFlags::O_NONBLOCK);
        if !thread::panicking() {
            gone.expect("no object of kt0 should be open");
        }
    }
}

fn file(name: &str) -> String {
    format!("{DEBUGFS}/rdmacm_test/{name}")
}
