//! The environment of a check: a kernel, the properties of the machine, and the common steps of checks.

use super::check::{CheckError, Machine, Version};
use super::kernel::{Answer, Call, File, Kernel, Outcome};

/// Device node of the connection manager.
pub(super) const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

/// Properties of the machine, determined before the checks run.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) machine: Machine,
    /// The verbs node, or the reason why there is none.
    pub(super) verbs: Result<String, String>,
    /// An address of the device, as `sockaddr` bytes of an IP socket address with port 0.
    pub(super) address: Option<Vec<u8>>,
}

/// The environment of a running check.
pub(super) struct Bench<'a> {
    kernel: &'a mut dyn Kernel,
    pub(super) machine: Machine,
    setting: &'a Setting,
}

impl<'a> Bench<'a> {
    pub(super) fn new(kernel: &'a mut dyn Kernel, setting: &'a Setting) -> Self {
        Self { kernel, machine: setting.machine, setting }
    }

    /// Opens a channel: a file of the connection manager.
    pub(super) fn channel(&mut self) -> Result<File, CheckError> {
        self.open(RDMA_CM)
    }

    /// Opens a file of verbs.
    pub(super) fn verbs(&mut self) -> Result<File, CheckError> {
        match &self.setting.verbs {
            Ok(node) => self.open(node),
            Err(why) => Err(CheckError::Skip(why.clone())),
        }
    }

    /// Opens a file at `node`.
    pub(super) fn open(&mut self, node: &str) -> Result<File, CheckError> {
        let opened = self.kernel.open(node);
        opened.map_err(|errno| {
            CheckError::Violation(format!("cannot open {node}: {}", Outcome::Errno(errno)))
        })
    }

    /// Returns an address of the device.
    pub(super) fn address(&self) -> Result<Vec<u8>, CheckError> {
        let none = || CheckError::Skip("no address of a device is given (--all)".into());
        self.setting.address.clone().ok_or_else(none)
    }

    /// Skips the check if the expected kernel is older than this version.
    pub(super) fn since(&self, major: u16, minor: u16) -> Result<(), CheckError> {
        let since = Version(major, minor);
        if self.machine.version >= since {
            return Ok(());
        }
        Err(CheckError::Skip(format!("needs Linux {since}")))
    }

    /// Returns the number of the descriptor of `file`.
    pub(super) fn descriptor(&self, file: File) -> u32 {
        self.kernel.descriptor(file)
    }

    pub(super) fn call(&mut self, file: File, call: &Call) -> Answer {
        self.kernel.call(file, call)
    }

    /// Makes a call that must have the outcome `expected`, and returns the stored response.
    pub(super) fn expect(
        &mut self,
        what: &str,
        file: File,
        call: &Call,
        expected: Outcome,
    ) -> Result<Vec<u8>, CheckError> {
        let answer = self.call(file, call);
        let violation = |seen: String| {
            Err(CheckError::Violation(format!("{what}: {seen}, expected {expected}")))
        };
        match answer.outcome() {
            Ok(outcome) if outcome == expected => Ok(answer.stored),
            Ok(outcome) => violation(outcome.to_string()),
            Err(odd) => violation(odd),
        }
    }

    /// Waits for an event.
    pub(super) fn wait(&mut self, what: &str, file: File) -> Result<(), CheckError> {
        if self.kernel.wait(file) {
            return Ok(());
        }
        Err(CheckError::Violation(format!("{what}: no event arrived")))
    }

    /// Closes one file before the end of the check.
    pub(super) fn close(&mut self, file: File) {
        self.kernel.close(file);
    }

    /// Closes all files.
    pub(super) fn end(&mut self) {
        self.kernel.end();
    }
}

/// Returns a violation if two values differ.
pub(super) fn check_equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    seen: T,
    expected: T,
) -> Result<(), CheckError> {
    if seen == expected {
        return Ok(());
    }
    Err(CheckError::Violation(format!("{what} is {seen:?}, expected {expected:?}")))
}

/// Returns the 4-byte number at `offset` of a response.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let bytes = bytes[offset..offset + size_of::<u32>()].try_into();
    u32::from_ne_bytes(bytes.expect("the slice should have 4 bytes"))
}

/// Returns the 8-byte number at `offset` of a response.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let bytes = bytes[offset..offset + size_of::<u64>()].try_into();
    u64::from_ne_bytes(bytes.expect("the slice should have 8 bytes"))
}
