//! Commands on an id: sending them to the channel that owns the id, and the errors of refused ones.

use nix::errno::Errno;
use ucma_abi::Command;

use super::record::Inner;
use crate::device;
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::sys::command::Refused;
use crate::sys::ucma::UcmaFile;

impl Inner {
    /// Sends a command to the channel that owns the id.
    pub(super) fn send<C: Command>(&self, request: C) -> Result<C::Response, Refused> {
        self.run(|file| file.command(request))
    }

    /// Calls `command`, which sends a command on the file of the channel, as [`send`](Self::send) does.
    pub(super) fn run<T>(
        &self,
        command: impl FnOnce(&UcmaFile) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.process.check()?;
        let binding = self.binding();
        // What the kernel would say.
        if self.is_destroyed() {
            Err(Refused::Os(Errno::ENOENT))
        } else {
            binding.channel.run(command)
        }
    }

    /// Sends a command for `operation` on `subject`, which the error names.
    pub(super) fn command<C: Command>(
        &self,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        request: C,
    ) -> Result<C::Response> {
        self.send(request).map_err(|refused| self.not_done(operation, subject(), refused))
    }

    /// The error of `operation` on `subject`, which may have been refused for the state that the id is in:
    /// where its device is on its way out, that is another one than the program knows of.
    #[cold]
    pub(super) fn not_done(
        &self,
        operation: &'static str,
        subject: String,
        refused: Refused,
    ) -> Error {
        let device_goes = || match self.bound_to() {
            Ok((guid, index)) => device::goes(guid, index),
            Err(error) => matches!(error.kind(), ErrorKind::DeviceGone(_)),
        };
        let refused = match refused {
            Refused::Os(Errno::EINVAL) if device_goes() => Refused::Os(Errno::ENXIO),
            refused => refused,
        };
        Self::refused(operation, subject, refused)
    }

    /// The error of `operation` on `subject`, an id.
    pub(super) fn refused(operation: &'static str, subject: String, refused: Refused) -> Error {
        match refused {
            // The kernel closed the id when its device went.
            Refused::Os(Errno::ENXIO) => {
                Error::new(operation, subject, ErrorKind::DeviceGone(Errno::ENXIO as i32))
            }
            refused => refused.during(operation, subject),
        }
    }
}
