//! Conversion of driver and engine errors to [`Error`].

use std::borrow::Cow;

use nix::errno::Errno;

use super::context::Context;
use crate::driver::{CreateError, PollError, PostError, SizeError};
use crate::error::{Error, ErrorKind, IntoError as _, hint};
use crate::sys::command::CommandError;

impl Context {
    /// Returns the name of `what` of this device in errors, or of the device if `what` is empty.
    pub(super) fn subject(&self, what: &str) -> String {
        let name = self.device().name();
        if what.is_empty() { name.to_owned() } else { format!("{what} on {name}") }
    }

    /// Builds the error of `operation` on `what` of this device.
    pub(crate) fn refused(
        &self,
        operation: &'static str,
        what: &str,
        refused: CommandError,
    ) -> Error {
        let subject = self.subject(what);
        match refused {
            // The kernel detached the driver from the open context.
            CommandError::Os(Errno::EIO) => {
                Error::new(operation, subject, ErrorKind::DeviceRemoved(Errno::EIO as i32))
            }
            refused => refused.into_error(operation, subject),
        }
    }

    /// Builds the error of creating an object, with a hint if the rdma cgroup's limit is reached.
    pub(crate) fn creation_error(
        &self,
        operation: &'static str,
        what: &str,
        refused: CommandError,
    ) -> Error {
        self.refused(operation, what, refused).with_hint(Errno::EAGAIN, hint::OBJECTS)
    }

    /// Builds the error of an operation that not every driver supports. `does` names the operation.
    pub(super) fn refused_or_unsupported(
        &self,
        operation: &'static str,
        what: &str,
        does: &str,
        refused: CommandError,
    ) -> Error {
        match refused {
            CommandError::Os(Errno::EOPNOTSUPP) => {
                let name = self.device().name();
                let kind = ErrorKind::Unsupported(format!("{does} by the driver of {name}").into());
                Error::new(operation, self.subject(what), kind)
            }
            refused => self.refused(operation, what, refused),
        }
    }

    /// Builds the error of `operation` on `subject` for a failed post.
    #[cold]
    pub(super) fn not_posted(
        &self,
        operation: &'static str,
        subject: String,
        error: PostError,
    ) -> Error {
        let invalid = |errno: Errno, reason: Cow<'static, str>| ErrorKind::InvalidInput {
            errno: errno as i32,
            reason,
        };
        let kind = match error {
            PostError::Full(most) => {
                let reason = format!("the queue is full: {most} requests are outstanding");
                invalid(Errno::ENOMEM, reason.into())
            }
            PostError::Unpolled => {
                let reason =
                    "the completion queue has no room for another flush error; poll the queue";
                invalid(Errno::ENOMEM, reason.into())
            }
            PostError::Invalid(reason) => invalid(Errno::EINVAL, reason.into()),
            PostError::ManySges { given, most } => {
                let reason = format!("{given} scatter/gather entries exceed the maximum of {most}");
                invalid(Errno::EINVAL, reason.into())
            }
            PostError::ManyBytes { given, most } => {
                let reason = format!("{given} bytes of inline data exceed the maximum of {most}");
                invalid(Errno::EINVAL, reason.into())
            }
            PostError::Long(bytes) => {
                let reason = format!("a message of {bytes} bytes exceeds the maximum");
                invalid(Errno::EINVAL, reason.into())
            }
            PostError::Early(state) => {
                let reason = format!("the queue pair is in {state}, and sends need IB_QPS_RTS");
                invalid(Errno::EINVAL, reason.into())
            }
            PostError::TakenBack { requests, reason } => {
                let reason = format!(
                    "the driver refuses the first of the last {requests} requests, and none of \
                     them is posted: {reason}"
                );
                invalid(Errno::EINVAL, reason.into())
            }
            PostError::Unsupported(what) => ErrorKind::Unsupported(what.into()),
            PostError::Malformed(what) => return Error::malformed(operation, subject, what),
            PostError::Command(refused) => return self.refused(operation, &subject, refused),
            PostError::PartiallyPosted { refused, unposted } => {
                let errno = self.refused("post to", "a queue", refused).errno();
                ErrorKind::PartiallyPosted { errno, unposted }
            }
        };
        Error::new(operation, subject, kind)
    }

    /// Builds the error of `operation` on `what` of this device for a failed poll.
    #[cold]
    pub(super) fn not_polled(
        &self,
        operation: &'static str,
        what: &str,
        error: PollError,
    ) -> Error {
        match error {
            PollError::Absent(reason) => Error::invalid(operation, self.subject(what), reason),
            PollError::Malformed(reason) => Error::malformed(operation, self.subject(what), reason),
            PollError::Command(refused) => self.refused(operation, what, refused),
        }
    }

    /// Builds the error of creating `what`.
    #[cold]
    pub(super) fn not_created(&self, what: &'static str, error: CreateError) -> Error {
        const CREATE: &str = "create";
        match error {
            CreateError::Command(refused) => self.creation_error(CREATE, what, refused),
            // No system call returns this errno, which reports a failed check of the answer here.
            CreateError::Map(Errno::EPROTO) => Error::malformed(
                CREATE,
                self.subject(what),
                "the answer of the kernel's driver describes memory that cannot be mapped",
            ),
            CreateError::Map(errno) => {
                let operation = match what {
                    // On mlx5, a queue pair may need another page of registers.
                    QUEUE_PAIR => "map the rings or registers of",
                    _ => "map the ring of",
                };
                Error::os(operation, self.subject(what), errno)
                    .with_hint(Errno::ENOMEM, hint::MAPPINGS)
            }
            CreateError::Size(error) => {
                Error::invalid(CREATE, self.subject(what), size_reason(error))
            }
            CreateError::Unsupported(missing) => {
                Error::new(CREATE, self.subject(what), ErrorKind::Unsupported(missing.into()))
            }
            CreateError::UnknownDriver => {
                let missing = format!("the queues of the driver {}", self.driver_name());
                Error::new(CREATE, self.subject(what), ErrorKind::Unsupported(missing.into()))
            }
        }
    }

    /// Builds the error of creating the queue `what`.
    #[cold]
    pub(super) fn queue_not_created(&self, what: &'static str, error: CreateError) -> Error {
        let is_refused = matches!(error, CreateError::Command(_));
        let error = self.not_created(what, error);
        if !is_refused {
            return error;
        }
        let error = self.with_queue_hint(error).with_hint(Errno::EINVAL, hint::CAPACITIES);
        error.with_hint(Errno::EOPNOTSUPP, hint::QUEUE_TYPE)
    }

    /// Adds the [hints about pinning](with_pinning_hint) if the kernel pins the memory of queues.
    pub(super) fn with_queue_hint(&self, error: Error) -> Error {
        if self.engine().capabilities().pins_queue_memory {
            with_pinning_hint(error)
        } else {
            error
        }
    }
}

/// Returns the sentence of an error about the size of a queue.
pub(super) fn size_reason(error: SizeError) -> String {
    match error {
        SizeError::Zero { what } => format!("the number of {what} is 0"),
        SizeError::Exceeds { what, given, most } => {
            format!("{given} {what} exceed the maximum of {most}")
        }
    }
}

/// Adds hints to an error for the case that the kernel does not let the user pin memory.
pub(super) fn with_pinning_hint(error: Error) -> Error {
    let error = error.with_hint(Errno::EPERM, hint::LOCKED_MEMORY);
    error.with_hint(Errno::ENOMEM, hint::LOCKED_MEMORY_OR_OBJECTS)
}

/// Name of a queue pair in errors.
pub(super) const QUEUE_PAIR: &str = "a queue pair";

#[cfg(test)]
mod tests;
