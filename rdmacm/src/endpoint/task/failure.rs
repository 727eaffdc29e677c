//! Errors of runtimes.

use std::borrow::Cow;
use std::io;

use crate::error::{Error, ErrorKind};

/// Returns the error of an operation that the runtime has not begun when it ends.
pub(super) fn canceled(operation: &'static str, subject: impl Into<Cow<'static, str>>) -> Error {
    Error::new(operation, subject, ErrorKind::Os(libc::ECANCELED))
}

/// Returns the error of an operation for which the runtime returned `error`.
///
/// See [`Runtime`](super::runtime::Runtime).
pub(super) fn refused(
    operation: &'static str,
    subject: impl Into<Cow<'static, str>>,
    error: &io::Error,
) -> Error {
    let kind = match error.raw_os_error() {
        Some(errno) => ErrorKind::Os(errno),
        None if error.kind() == io::ErrorKind::Unsupported => {
            ErrorKind::Unsupported(error.to_string().into())
        }
        // A runtime that has ended reports no errno.
        None => ErrorKind::Os(libc::ECANCELED),
    };
    Error::new(operation, subject, kind)
}
