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
pub use kind::{ErrorKind, UnreachableReason};
pub use rejection::{RejectReason, Rejection};

pub use crate::sys::ownership::NotOwner;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: the operation, its object, and the reason of the failure.
///
/// It prints as one sentence: `cannot resolve the address 10.0.0.9:7471 of id 3: No such device (ENODEV)`. The kernel's
/// errno is unchanged: see [`Error::errno`].
// Two words at most: the result of a call then fits into registers.
#[derive(Clone, thiserror::Error)]
#[error(
    "cannot {}{}{}: {}{}{}",
    self.operation(),
    if self.subject().is_empty() { "" } else { " " },
    self.subject(),
    self.kind(),
    if self.hint().is_some() { "; " } else { "" },
    self.hint().unwrap_or_default(),
)]
pub struct Error(Cause);

#[derive(Clone)]
enum Cause {
    Failed(Box<Failure>),
    /// This variant allocates nothing, because polling programs get it often.
    WouldBlock(&'static Wait),
}

#[derive(Clone)]
struct Failure {
    operation: &'static str,
    subject: Cow<'static, str>,
    kind: ErrorKind,
    hint: Option<&'static str>,
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
        // Any operation may need a descriptor, and the kernel's limit is one for the whole process.
        Self(Cause::Failed(Box::new(Failure {
            operation,
            subject: subject.into(),
            kind,
            hint: None,
        })))
        .with_hint(Errno::EMFILE, hint::DESCRIPTORS)
    }

    /// Creates an error of the kernel.
    pub(crate) fn os(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        errno: Errno,
    ) -> Self {
        Self::new(operation, subject, ErrorKind::Os(errno as i32))
    }

    /// Creates an error of the library's own check.
    pub(crate) fn invalid(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let kind = ErrorKind::InvalidInput { errno: Errno::EINVAL as i32, reason: reason.into() };
        Self::new(operation, subject, kind)
    }

    /// Creates the error of a message of `length` bytes for a send buffer of `capacity` bytes.
    pub(crate) fn message_too_long(length: usize, capacity: usize, hint: &'static str) -> Self {
        let reason = format!("a send buffer has room for {capacity}").into();
        let kind = ErrorKind::InvalidInput { errno: Errno::EMSGSIZE as i32, reason };
        Self::new("fill a buffer with", format!("{length} bytes"), kind)
            .with_optional_hint(Some(hint))
    }

    /// Creates the error of a call that would wait.
    pub(crate) fn would_block(wait: &'static Wait) -> Self {
        Self(Cause::WouldBlock(wait))
    }

    /// Creates the error of a response that does not parse.
    pub(crate) fn malformed(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        what: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(operation, subject, ErrorKind::MalformedResponse(what.into()))
    }

    /// Adds a hint for the user if the kernel's answer was `errno` and there is no hint yet.
    pub(crate) fn with_hint(self, errno: Errno, hint: &'static str) -> Self {
        self.with_hint_for(&ErrorKind::Os(errno as i32), hint)
    }

    /// Adds a hint for the user if the error is of `kind` and there is no hint yet.
    pub(crate) fn with_hint_for(self, kind: &ErrorKind, hint: &'static str) -> Self {
        let is_meant = matches!(&self.0, Cause::Failed(failure) if failure.kind == *kind);
        self.with_optional_hint(is_meant.then_some(hint))
    }

    /// Adds a hint for the user if there is none yet.
    pub(crate) fn with_optional_hint(mut self, hint: Option<&'static str>) -> Self {
        if let Cause::Failed(failure) = &mut self.0 {
            failure.hint = failure.hint.or(hint);
        }
        self
    }

    /// Replaces the hint for the user, if there is another one.
    pub(crate) fn with_other_hint(mut self, hint: Option<&'static str>) -> Self {
        if let Cause::Failed(failure) = &mut self.0 {
            failure.hint = hint.or(failure.hint);
        }
        self
    }

    /// Adds the peer that the operation was for, unless the error names it already.
    pub(crate) fn with_peer(mut self, peer: impl fmt::Display) -> Self {
        let peer = peer.to_string();
        match &mut self.0 {
            Cause::Failed(failure) if failure.subject.split(' ').all(|word| word != peer) => {
                let separator = if failure.subject.is_empty() { "" } else { ", " };
                let addition = format!("{separator}for the connection to {peer}");
                failure.subject.to_mut().push_str(&addition);
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

    /// Returns the cause.
    pub fn kind(&self) -> &ErrorKind {
        static WOULD_BLOCK: ErrorKind = ErrorKind::WouldBlock;
        match &self.0 {
            Cause::Failed(failure) => &failure.kind,
            Cause::WouldBlock(_) => &WOULD_BLOCK,
        }
    }

    /// Returns a proposal for the user, or a further fact about the cause.
    ///
    /// An example is `raise RLIMIT_NOFILE (ulimit -n)`. [`Display`](fmt::Display) writes it too.
    pub fn hint(&self) -> Option<&str> {
        match &self.0 {
            Cause::Failed(failure) => failure.hint,
            Cause::WouldBlock(_) => None,
        }
    }

    /// Returns the kind that the standard library gives to the [`errno`](Self::errno).
    ///
    /// For example, it is [`ConnectionRefused`](std::io::ErrorKind::ConnectionRefused) if no program listens, on RoCE
    /// and on iWARP alike. It is [`WouldBlock`](std::io::ErrorKind::WouldBlock) only for [`ErrorKind::WouldBlock`] and
    /// for commands that the kernel refuses with EAGAIN. A name that cannot be looked up at the moment (`EAI_AGAIN`) is
    /// [`Other`](std::io::ErrorKind::Other). [`ErrorKind::Disconnected`] is
    /// [`NotConnected`](std::io::ErrorKind::NotConnected). A peer that does not answer any more
    /// (`IB_WC_RETRY_EXC_ERR`) is [`TimedOut`](std::io::ErrorKind::TimedOut).
    pub fn io_kind(&self) -> std::io::ErrorKind {
        match self.kind() {
            ErrorKind::NameResolution { .. } if self.errno() == libc::EAGAIN => {
                std::io::ErrorKind::Other
            }
            _ => std::io::Error::from_raw_os_error(self.errno()).kind(),
        }
    }

    /// Returns the error as an errno.
    ///
    /// If the kernel refused, this is the kernel's errno. Otherwise it is the errno that the C library sets. So every
    /// [`ErrorKind::Rejected`] is ECONNREFUSED. [`ErrorKind::Unreachable`] is the status of the event if that is an
    /// errno.
    ///
    /// If the C library sets no suitable errno, the result is the closest one: EHOSTUNREACH for a peer that refused to
    /// report the destination of datagrams. For [`ErrorKind::NameResolution`] it is the errno of the `EAI_*` code.
    #[doc(alias = "rdma_seterrno")]
    pub fn errno(&self) -> i32 {
        self.kind().errno()
    }
}

impl fmt::Debug for Error {
    /// Writes the sentence of [`Display`](fmt::Display) instead of the structure.
    ///
    /// A program that returns the error from `main` shows this text to its user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Error> for std::io::Error {
    /// Keeps the whole error as the source. The kind is that of [`Error::io_kind`].
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

#[cfg(test)]
mod tests;
