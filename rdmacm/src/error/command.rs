//! Errors of the kernel: from commands, netlink requests, and opening device nodes.

use std::borrow::Cow;

use nix::errno::Errno;

use super::{Error, ErrorKind, Wait, hint};
use crate::sys::command::CommandError;
use crate::sys::netlink::Failure;
use crate::sys::node::NodeFailure;

/// Conversions of refused commands into errors, which state the operation and its object.
pub(crate) trait IntoError: Sized {
    /// Converts the refusal of `operation` on `subject` into an error.
    fn into_error(self, operation: &'static str, subject: impl Into<Cow<'static, str>>) -> Error;

    /// Converts the refusal of a call that does not block. EAGAIN means that the call would have to wait.
    fn during_wait(self, wait: &'static Wait) -> Error;
}

impl IntoError for CommandError {
    fn into_error(self, operation: &'static str, subject: impl Into<Cow<'static, str>>) -> Error {
        let kind = match self {
            Self::NotOwner(how) => ErrorKind::NotOwner(how),
            Self::Os(errno) => ErrorKind::Os(errno as i32),
            Self::Unnamed(errno) => ErrorKind::Os(errno),
        };
        Error::new(operation, subject, kind)
    }

    fn during_wait(self, wait: &'static Wait) -> Error {
        match self {
            Self::Os(Errno::EAGAIN) => Error::would_block(wait),
            other => other.into_error(wait.operation, wait.subject),
        }
    }
}

impl Failure {
    /// Converts the failure of `operation` on `subject` into an error.
    pub(crate) fn error(
        self,
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
    ) -> Error {
        match self {
            Self::Os(errno) => Error::new(operation, subject, ErrorKind::Os(errno)),
            Self::Malformed(what) => Error::malformed(operation, subject, what),
        }
    }
}

/// Returns the error of opening the device node at `path`.
pub(crate) fn node_error(failure: NodeFailure, path: &str) -> Error {
    const OPERATION: &str = "open";
    let (errno, hint) = match failure {
        NodeFailure::Os(errno @ (Errno::ENOENT | Errno::ENODEV | Errno::ENXIO)) => {
            (errno, hint::NODE)
        }
        NodeFailure::Os(errno @ Errno::EACCES) => {
            (errno, "give the user read and write permission on the node")
        }
        NodeFailure::Os(errno @ Errno::EPERM) => {
            (errno, "a device cgroup or another network namespace keeps the device")
        }
        NodeFailure::Os(errno) => return Error::os(OPERATION, path.to_owned(), errno),
        NodeFailure::OtherFile => {
            let reason = "the node is not the device that the kernel names; create the node again";
            let kind =
                ErrorKind::InvalidInput { errno: Errno::ENXIO as i32, reason: reason.into() };
            return Error::new(OPERATION, path.to_owned(), kind);
        }
    };
    Error::os(OPERATION, path.to_owned(), errno).with_hint(errno, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_node_error_names_path_and_hint() {
        let error = node_error(NodeFailure::Os(Errno::ENOENT), "/dev/infiniband/none");
        assert_eq!(error.errno(), libc::ENOENT);
        let text = error.to_string();
        assert!(text.contains("/dev/infiniband/none"), "{text}");
        assert!(text.contains("modprobe rdma_ucm"), "{text}");
        assert!(error.hint().is_some(), "{error}");
    }

    #[test]
    fn other_file_error_keeps_errno() {
        let error = node_error(NodeFailure::OtherFile, "/dev/null");
        assert_eq!(error.errno(), libc::ENXIO);
    }
}
