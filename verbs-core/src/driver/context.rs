//! The arguments of drivers: the device, and the queue pair for which they are called.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use verbs_abi::Command;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sys::command::CommandError;
use crate::sys::uverbs::UverbsFile;

/// The file to which the commands of a device are issued, and whether the device was removed.
#[derive(Debug, Clone, Copy)]
pub struct CommandContext<'a> {
    file: &'a UverbsFile,
    is_removed: &'a AtomicBool,
}

impl<'a> CommandContext<'a> {
    /// Creates the context of commands on `file`, which fail once `is_removed`.
    pub fn new(file: &'a UverbsFile, is_removed: &'a AtomicBool) -> Self {
        Self { file, is_removed }
    }

    /// Returns the file of the device.
    pub fn file(self) -> &'a UverbsFile {
        self.file
    }

    /// Returns an error in a forked child, and after the removal of the device.
    pub fn check(self) -> Result<(), CommandError> {
        match self.file.check_process() {
            // The kernel's errno after it has taken the driver away from a context.
            Ok(()) if self.is_removed.load(Ordering::Relaxed) => Err(CommandError::Os(Errno::EIO)),
            checked => checked,
        }
    }

    /// Sends a command. Returns the answer, and the driver's part of it.
    pub fn command<C, O>(self, request: C) -> Result<(C::Response, O), CommandError>
    where
        C: Command,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        self.check()?;
        self.file.driver_command(request, ())
    }
}

/// The queue pair for which a doorbell is rung.
#[derive(Debug, Clone, Copy)]
pub struct Doorbell<'a> {
    /// The file of the device.
    pub file: &'a UverbsFile,
    /// The kernel's handle of the queue pair.
    pub handle: u32,
    /// Held while the kernel changes the queue pair.
    pub changing: &'a Mutex<()>,
}

impl Doorbell<'_> {
    /// Makes the kernel process the send queue, by POST_SEND without requests.
    #[inline(always)]
    pub fn command(self) -> Result<(), CommandError> {
        self.file.ring(self.handle)
    }
}
