//! Where a check works: a kernel, what is known of the machine, and the steps that checks have in common.

use super::check::{Machine, Trouble, Version};
use super::kernel::{Answer, Call, File, Kernel, Outcome};

/// The node of the connection manager.
pub(super) const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

/// What was found before the checks run.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) machine: Machine,
    /// The node for verbs, or why there is none.
    pub(super) verbs: Result<String, String>,
    /// An address of the device, as `sockaddr` bytes of an IP socket address with port 0.
    pub(super) address: Option<Vec<u8>>,
}

/// Where a check works.
pub(super) struct Bench<'a> {
    kernel: &'a mut dyn Kernel,
    pub(super) machine: Machine,
    setting: &'a Setting,
}

impl<'a> Bench<'a> {
    pub(super) fn new(kernel: &'a mut dyn Kernel, setting: &'a Setting) -> Self {
        Self { kernel, machine: setting.machine, setting }
    }

    /// A channel: a file of the connection manager.
    pub(super) fn channel(&mut self) -> Result<File, Trouble> {
        self.open(RDMA_CM)
    }

    /// A file of verbs.
    pub(super) fn verbs(&mut self) -> Result<File, Trouble> {
        match &self.setting.verbs {
            Ok(node) => self.open(node),
            Err(why) => Err(Trouble::Skip(why.clone())),
        }
    }

    /// A file at `node`.
    pub(super) fn open(&mut self, node: &str) -> Result<File, Trouble> {
        let opened = self.kernel.open(node);
        opened.map_err(|errno| {
            Trouble::Violation(format!("cannot open {node}: {}", Outcome::Errno(errno)))
        })
    }

    /// An address of the device.
    pub(super) fn address(&self) -> Result<Vec<u8>, Trouble> {
        let none = || Trouble::Skip("no address of a device is given (--all)".into());
        self.setting.address.clone().ok_or_else(none)
    }

    /// Goes on only where the kernel is to be this one or a later one.
    pub(super) fn since(&self, major: u16, minor: u16) -> Result<(), Trouble> {
        let since = Version(major, minor);
        if self.machine.version >= since {
            return Ok(());
        }
        Err(Trouble::Skip(format!("Linux {since} has it first")))
    }

    /// The number of the descriptor of `file`.
    pub(super) fn descriptor(&self, file: File) -> u32 {
        self.kernel.descriptor(file)
    }

    pub(super) fn call(&mut self, file: File, call: &Call) -> Answer {
        self.kernel.call(file, call)
    }

    /// Makes a call that must come to `expected`, and returns what was stored.
    pub(super) fn expect(
        &mut self,
        what: &str,
        file: File,
        call: &Call,
        expected: Outcome,
    ) -> Result<Vec<u8>, Trouble> {
        let answer = self.call(file, call);
        let violation =
            |seen: String| Err(Trouble::Violation(format!("{what}: {seen}, expected {expected}")));
        match answer.outcome() {
            Ok(outcome) if outcome == expected => Ok(answer.stored),
            Ok(outcome) => violation(outcome.to_string()),
            Err(odd) => violation(odd),
        }
    }

    /// Waits for an event.
    pub(super) fn wait(&mut self, what: &str, file: File) -> Result<(), Trouble> {
        if self.kernel.wait(file) {
            return Ok(());
        }
        Err(Trouble::Violation(format!("{what}: no event came")))
    }

    /// Closes one file before the end.
    pub(super) fn close(&mut self, file: File) {
        self.kernel.close(file);
    }

    /// Closes everything.
    pub(super) fn end(&mut self) {
        self.kernel.end();
    }
}

/// That two values are the same.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    seen: T,
    expected: T,
) -> Result<(), Trouble> {
    if seen == expected {
        return Ok(());
    }
    Err(Trouble::Violation(format!("{what} is {seen:?}, expected {expected:?}")))
}

/// The number of 4 bytes at `offset` of a response.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let bytes = bytes[offset..offset + size_of::<u32>()].try_into();
    u32::from_ne_bytes(bytes.expect("so many were taken"))
}

/// The number of 8 bytes at `offset` of a response.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let bytes = bytes[offset..offset + size_of::<u64>()].try_into();
    u64::from_ne_bytes(bytes.expect("so many were taken"))
}
