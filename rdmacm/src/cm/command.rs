//! Commands on an id, sent to the channel that owns the id, and the errors of refused commands.

use nix::errno::Errno;
use ucma_abi::Command;

use super::record::Inner;
use crate::device;
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::sys::command::CommandError;
use crate::sys::ucma::UcmaFile;

impl Inner {
    /// Sends a command to the channel that owns the id.
    pub(super) fn send<C: Command>(&self, request: C) -> Result<C::Response, CommandError> {
        self.run(|file| file.command(request))
    }

    /// Calls `command`, which sends a command on the file of the channel, in the same way as
    /// [`send`](Self::send).
    pub(super) fn run<T>(
        &self,
        command: impl FnOnce(&UcmaFile) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        self.process.check()?;
        let binding = self.binding();
        // The error that the kernel would return.
        if self.is_destroyed() {
            Err(CommandError::Os(Errno::ENOENT))
        } else {
            binding.channel.run(command)
        }
    }

    /// Sends a command for `operation` on `subject`; the error names both.
    pub(super) fn command<C: Command>(
        &self,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        request: C,
    ) -> Result<C::Response> {
        self.send(request).map_err(|refused| self.not_done(operation, subject(), refused))
    }

    /// Returns the error of `operation` on `subject`.
    ///
    /// EINVAL becomes [`ErrorKind::DeviceRemoved`] if the device is being removed: then the id is
    /// in another state than the program knows.
    #[cold]
    pub(super) fn not_done(
        &self,
        operation: &'static str,
        subject: String,
        refused: CommandError,
    ) -> Error {
        let is_removed = || match self.bound_to() {
            Ok((guid, index)) => device::is_being_removed(guid, index),
            Err(error) => matches!(error.kind(), ErrorKind::DeviceRemoved(_)),
        };
        let refused = match refused {
            CommandError::Os(Errno::EINVAL) if is_removed() => CommandError::Os(Errno::ENXIO),
            refused => refused,
        };
        Self::refused(operation, subject, refused)
    }

    /// Returns the error of `operation` on `subject`, an id.
    pub(super) fn refused(
        operation: &'static str,
        subject: String,
        refused: CommandError,
    ) -> Error {
        match refused {
            // The kernel closed the id when its device was removed.
            CommandError::Os(Errno::ENXIO) => {
                Error::new(operation, subject, ErrorKind::DeviceRemoved(Errno::ENXIO as i32))
            }
            refused => refused.into_error(operation, subject),
        }
    }
}
