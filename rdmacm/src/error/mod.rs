//! [`Error`]: a failed operation, the object that it was applied to, and the cause ([`ErrorKind`]).

mod command;
mod destroy;
mod errno;
pub(crate) mod hint;
mod kind;
mod rejection;

use std::borrow::Cow;
use std::fmt;

use nix::errno::Errno;

pub(crate) use command::{IntoError, node_error};
pub use destroy::DestroyError;
pub use kind::ErrorKind;
pub use rejection::{RejectReason, Rejection};

pub use crate::sys::ownership::WrongProcess;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: what was tried, on what, and why it failed.
///
/// Printed as one sentence: `cannot resolve the address 10.0.0.9:7471 of id 3: No such device
/// (ENODEV)`. The kernel's errno is kept as it was, see [`Error::errno`].
// Two words at most: what a call returns fits into registers.
#[derive(Clone, thiserror::Error)]
#[error(
    "cannot {}{}{}: {}",
    self.operation(),
    if self.subject().is_empty() { "" } else { " " },
    self.subject(),
    self.kind(),
)]
pub struct Error(Cause);

#[derive(Clone)]
enum Cause {
    Failed(Box<Failure>),
    /// Nothing is allocated to say so: it is said again and again.
    WouldBlock(&'static Wait),
}

#[derive(Clone)]
struct Failure {
    operation: &'static str,
    subject: Cow<'static, str>,
    kind: ErrorKind,
}

/// The operation that a call would wait for, and its object.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) operation: &'static str,
    pub(crate) subject: &'static str,
}

impl Error {
    pub(crate) fn new(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        kind: ErrorKind,
    ) -> Self {
        // Whatever was tried, this is about the process.
        Self(Cause::Failed(Box::new(Failure { operation, subject: subject.into(), kind })))
            .with_remedy(Errno::EMFILE, hint::DESCRIPTORS)
    }

    /// An error of the kernel.
    pub(crate) fn os(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        errno: Errno,
    ) -> Self {
        Self::new(operation, subject, ErrorKind::Os(errno as i32))
    }

    /// A refusal of our own.
    pub(crate) fn invalid(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let kind = ErrorKind::Invalid { errno: Errno::EINVAL as i32, reason: reason.into() };
        Self::new(operation, subject, kind)
    }

    /// That the call would wait.
    pub(crate) fn would_block(wait: &'static Wait) -> Self {
        Self(Cause::WouldBlock(wait))
    }

    /// An answer that does not parse.
    pub(crate) fn malformed(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        what: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(operation, subject, ErrorKind::Malformed(what.into()))
    }

    /// Adds advice for the user, if the kernel said `errno`.
    pub(crate) fn with_remedy(mut self, errno: Errno, remedy: &'static str) -> Self {
        let errno = errno as i32;
        match &mut self.0 {
            Cause::Failed(failure) if failure.kind == ErrorKind::Os(errno) => {
                failure.kind = ErrorKind::Remedy { errno, remedy };
            }
            _ => {}
        }
        self
    }

    /// Adds the peer that the operation was for, unless the error names it already.
    pub(crate) fn on_the_way_to(mut self, peer: impl fmt::Display) -> Self {
        let peer = peer.to_string();
        match &mut self.0 {
            Cause::Failed(failure) if failure.subject.split(' ').all(|word| word != peer) => {
                failure.subject.to_mut().push_str(&format!(", for the connection to {peer}"));
            }
            _ => {}
        }
        self
    }

    /// Returns an error of another operation with this reason.
    pub(crate) fn of(
        mut self,
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
    ) -> Self {
        if let Cause::Failed(failure) = &mut self.0 {
            (failure.operation, failure.subject) = (operation, subject.into());
        }
        self
    }

    /// Returns the operation that failed: `resolve the address`.
    pub fn operation(&self) -> &str {
        match &self.0 {
            Cause::Failed(failure) => failure.operation,
            Cause::WouldBlock(wait) => wait.operation,
        }
    }

    /// Returns the object of the operation: `10.0.0.9:7471 of id 3`. May be empty.
    pub fn subject(&self) -> &str {
        match &self.0 {
            Cause::Failed(failure) => &failure.subject,
            Cause::WouldBlock(wait) => wait.subject,
        }
    }

    /// Why it failed.
    pub fn kind(&self) -> &ErrorKind {
        static WOULD_BLOCK: ErrorKind = ErrorKind::WouldBlock;
        match &self.0 {
            Cause::Failed(failure) => &failure.kind,
            Cause::WouldBlock(_) => &WOULD_BLOCK,
        }
    }

    /// The error as an errno: the kernel's own where the kernel refused, else the one that the C
    /// library leaves. So every [`ErrorKind::Rejected`] is ECONNREFUSED, and
    /// [`ErrorKind::Unreachable`] is the event's status where that is an errno.
    ///
    /// Where C leaves what is no errno of this error, the closest one: EHOSTUNREACH for a peer that
    /// refused to say where to send datagrams, for [`ErrorKind::NotResolved`] that of the `EAI_*`
    /// code.
    #[doc(alias = "rdma_seterrno")]
    pub fn errno(&self) -> i32 {
        self.kind().errno()
    }
}

impl fmt::Debug for Error {
    /// Writes the sentence of [`Display`](fmt::Display), which a program shows that returns the error from `main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Error> for std::io::Error {
    /// Keeps the whole error as the source, and the `ErrorKind` that its errno has.
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_operation_subject_and_errno() {
        let error = Error::os("resolve the address", "10.0.0.9:7471 of id 3", Errno::ENODEV);
        assert_eq!(
            error.to_string(),
            "cannot resolve the address 10.0.0.9:7471 of id 3: No such device (ENODEV)"
        );
        assert_eq!(error.errno(), libc::ENODEV);
    }

    #[test]
    fn a_remedy_is_for_its_errno_only() {
        let error = || Error::os("bind", "id 1", Errno::ENODEV);
        let with = error().with_remedy(Errno::ENODEV, "buy a device");
        assert_eq!(with.to_string(), "cannot bind id 1: No such device (ENODEV); buy a device");
        assert_eq!(with.errno(), libc::ENODEV);
        let without = error().with_remedy(Errno::EINVAL, "try again");
        assert_eq!(without.to_string(), "cannot bind id 1: No such device (ENODEV)");
        assert_eq!(format!("{without:?}"), without.to_string());
    }

    #[test]
    fn a_peer_is_named_once() {
        let error = |subject| Error::new("wait for", subject, ErrorKind::TimedOut);
        for (subject, named) in [
            ("it on id 1", "it on id 1, for the connection to 10.0.0.9:7471"),
            ("10.0.0.9:7471 of id 1", "10.0.0.9:7471 of id 1"),
            ("110.0.0.9:7471", "110.0.0.9:7471, for the connection to 10.0.0.9:7471"),
        ] {
            assert_eq!(error(subject).on_the_way_to("10.0.0.9:7471").subject(), named);
        }
    }

    #[test]
    fn an_unknown_errno_is_kept() {
        let error = Error::new("connect", "", ErrorKind::Os(4095));
        assert_eq!(error.to_string(), "cannot connect: errno 4095");
        assert_eq!(error.errno(), 4095);
    }

    #[test]
    fn goes_into_io_error_whole() {
        let error = Error::os("listen", "id 1", Errno::EADDRINUSE);
        let io = std::io::Error::from(error);
        assert_eq!(io.kind(), std::io::ErrorKind::AddrInUse);
        assert!(io.to_string().contains("cannot listen id 1"));
    }
}
