//! What can go wrong, and what it happened to.

use std::borrow::Cow;
use std::fmt;

use nix::errno::Errno;
use ucma_abi::ib_cm_sidr_status;
use verbs_abi::ib_wc_status;

use crate::cm::Rejection;
use crate::sys::remedy;

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

/// What a call would wait for: what it does, and to what.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) operation: &'static str,
    pub(crate) subject: &'static str,
}

/// Why an operation failed.
///
/// Only what a caller would branch on has a variant of its own; the rest is [`ErrorKind::Os`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel refused.
    #[error("{}", ErrnoText(*.0))]
    Os(i32),
    /// The kernel refused, and there is something that the user can do about it.
    #[error("{}; {remedy}", ErrnoText(*.errno))]
    Remedy {
        /// The kernel's errno.
        errno: i32,
        /// What to do.
        remedy: &'static str,
    },
    /// Refused here, before the kernel was asked, as it would have been refused there or would have
    /// been unsound.
    #[error("{reason} ({})", ErrnoName(*.errno))]
    Invalid {
        /// The errno that the manual page names for the case, or EINVAL.
        errno: i32,
        /// What was wrong.
        reason: Cow<'static, str>,
    },
    /// The first of the last `unposted` requests that were pushed was refused, and none of those is
    /// posted; the ones before them are. Of drivers that keep their queues in the kernel; elsewhere of
    /// one request, where the kernel refuses what it is asked before that goes into the queue.
    #[doc(alias = "bad_wr")]
    #[error("{}; the last {unposted} of the requests are not posted", ErrnoText(*.errno))]
    Unposted {
        /// The kernel's errno.
        errno: i32,
        /// How many.
        unposted: usize,
    },
    /// The peer, or its kernel, rejected the connection.
    #[error("{0}")]
    Rejected(Box<Rejection>),
    /// The peer does not answer, or refused to say where to send datagrams. Holds the status of the
    /// event: a negative errno, or an [`ib_cm_sidr_status`].
    #[error("the peer is unreachable: {}", UnreachableText(*.0))]
    Unreachable(i32),
    /// A name was not found, or could not be looked up.
    #[error("{reason} ({})", EaiName(*.code))]
    NotResolved {
        /// The `EAI_*` code of the host's `getaddrinfo`, which is what `rdma_getaddrinfo` returns.
        code: i32,
        /// The C library's words for it.
        reason: String,
    },
    /// The time allowed for the operation is over.
    #[error("timed out")]
    TimedOut,
    /// The connection has ended: the peer has closed it, or is gone, or this side has.
    #[error("the connection has ended")]
    Disconnected,
    /// The connection has ended, as it does on iWARP where a message finds no buffer, and there was none for a time:
    /// messages of the peer may be lost.
    #[error("the connection has ended, and messages for which there was no buffer may be lost")]
    Overrun,
    /// What was posted failed, and the connection with it.
    #[error("{}", FailedText(*.0))]
    Failed(ib_wc_status),
    /// A non-blocking operation found nothing to do.
    #[error("the operation would block")]
    WouldBlock,
    /// The call would wait for something that only its own thread can do.
    #[error("the call would wait for its own thread: {0}")]
    WouldDeadlock(&'static str),
    /// The device under the object was removed.
    #[error("the device is gone: {}", ErrnoText(*.0))]
    DeviceGone(i32),
    /// The running kernel, the device or its driver does not offer this.
    #[error("not supported: {0}")]
    Unsupported(Cow<'static, str>),
    /// The object was opened by another process, or before the process changed its credentials, and
    /// the kernel accepts commands only from the credentials that opened it.
    #[error(
        "it was opened {0}, and the kernel takes commands only from the credentials that opened it"
    )]
    WrongProcess(WrongProcess),
    /// What the kernel or the device answered does not follow its ABI.
    #[error("malformed answer: {0}")]
    Malformed(Cow<'static, str>),
}

/// How an object came to belong to another process: see [`ErrorKind::WrongProcess`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongProcess {
    /// The process forked after opening it.
    #[error("before a fork")]
    Forked,
    /// The process changed its credentials (setuid, capabilities, user namespace) after opening it.
    #[error("with other credentials")]
    Credentials,
}

impl Error {
    pub(crate) fn new(
        operation: &'static str,
        subject: impl Into<Cow<'static, str>>,
        kind: ErrorKind,
    ) -> Self {
        // Whatever was tried, this is about the process.
        Self(Cause::Failed(Box::new(Failure { operation, subject: subject.into(), kind })))
            .with_remedy(Errno::EMFILE, remedy::DESCRIPTORS)
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

    /// The same with what the user can do about it, where the kernel said `errno`.
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

    /// The same, and whom it was to serve, unless that is said already.
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

    /// The same reason, of what was tried with it.
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

    /// What was tried: `resolve the address`.
    pub fn operation(&self) -> &str {
        match &self.0 {
            Cause::Failed(failure) => failure.operation,
            Cause::WouldBlock(wait) => wait.operation,
        }
    }

    /// What it was tried on: `10.0.0.9:7471 of id 3`. May be empty.
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
        match self.kind() {
            ErrorKind::Os(errno)
            | ErrorKind::Remedy { errno, .. }
            | ErrorKind::Invalid { errno, .. }
            | ErrorKind::Unposted { errno, .. }
            | ErrorKind::DeviceGone(errno) => *errno,
            ErrorKind::Rejected(_) => Errno::ECONNREFUSED as i32,
            ErrorKind::Unreachable(status) if *status < 0 => status.saturating_neg(),
            ErrorKind::Unreachable(_) => Errno::EHOSTUNREACH as i32,
            ErrorKind::NotResolved { code, .. } => EaiName(*code).errno() as i32,
            ErrorKind::TimedOut => Errno::ETIMEDOUT as i32,
            ErrorKind::Disconnected => Errno::ENOTCONN as i32,
            ErrorKind::Overrun => Errno::ENOBUFS as i32,
            ErrorKind::Failed(status) => match *status {
                ib_wc_status::IB_WC_LOC_LEN_ERR | ib_wc_status::IB_WC_REM_INV_REQ_ERR => {
                    Errno::EMSGSIZE as i32
                }
                ib_wc_status::IB_WC_RETRY_EXC_ERR | ib_wc_status::IB_WC_RNR_RETRY_EXC_ERR => {
                    Errno::ETIMEDOUT as i32
                }
                ib_wc_status::IB_WC_REM_ACCESS_ERR => Errno::EACCES as i32,
                _ => Errno::EIO as i32,
            },
            ErrorKind::WouldBlock => Errno::EAGAIN as i32,
            ErrorKind::WouldDeadlock(_) => Errno::EDEADLK as i32,
            ErrorKind::Unsupported(_) => Errno::EOPNOTSUPP as i32,
            ErrorKind::WrongProcess(_) => Errno::EACCES as i32,
            ErrorKind::Malformed(_) => Errno::EPROTO as i32,
        }
    }
}

impl fmt::Debug for Error {
    /// The same sentence: what the user sees of a program that returns the error from `main`.
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

/// An errno as `No such device (ENODEV)`.
pub(crate) struct ErrnoText(pub(crate) i32);

impl fmt::Display for ErrnoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Errno::from_raw(self.0) {
            Errno::UnknownErrno => write!(f, "errno {}", self.0),
            errno => write!(f, "{} ({errno:?})", errno.desc()),
        }
    }
}

/// The status of an `Unreachable` event.
struct UnreachableText(i32);

impl fmt::Display for UnreachableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ib_cm_sidr_status as S;
        let status = self.0;
        match S(status.unsigned_abs()) {
            _ if status < 0 => ErrnoText(status.wrapping_neg()).fmt(f),
            S::IB_SIDR_UNSUPPORTED => write!(f, "nobody listens on the port (status {status})"),
            S::IB_SIDR_REJECT => write!(f, "the program said no (status {status})"),
            other => match other.name() {
                Some(name) => write!(f, "{name} (status {status})"),
                None => write!(f, "status {status}"),
            },
        }
    }
}

/// The status of a failed work request.
struct FailedText(ib_wc_status);

impl fmt::Display for FailedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        match status {
            ib_wc_status::IB_WC_LOC_LEN_ERR => {
                write!(f, "a message is longer than the buffer that was to receive it ({status})")
            }
            ib_wc_status::IB_WC_REM_INV_REQ_ERR | ib_wc_status::IB_WC_REM_OP_ERR => {
                write!(f, "the peer cannot take what was sent, as where it is too long ({status})")
            }
            ib_wc_status::IB_WC_REM_ACCESS_ERR => {
                write!(f, "the peer's memory does not allow it ({status})")
            }
            ib_wc_status::IB_WC_RETRY_EXC_ERR => write!(f, "the peer does not answer ({status})"),
            ib_wc_status::IB_WC_RNR_RETRY_EXC_ERR => {
                write!(f, "the peer receives nothing any more ({status})")
            }
            status => write!(f, "a work request failed: {status}"),
        }
    }
}

/// An errno as `ENODEV`.
struct ErrnoName(i32);

impl fmt::Display for ErrnoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Errno::from_raw(self.0))
    }
}

/// An `EAI_*` code as `EAI_NONAME`.
struct EaiName(i32);

impl EaiName {
    fn errno(&self) -> Errno {
        match self.0 {
            libc::EAI_AGAIN => Errno::EAGAIN,
            libc::EAI_MEMORY => Errno::ENOMEM,
            libc::EAI_FAMILY => Errno::EAFNOSUPPORT,
            libc::EAI_BADFLAGS | libc::EAI_SERVICE | libc::EAI_SOCKTYPE => Errno::EINVAL,
            _ => Errno::ENOENT,
        }
    }
}

impl fmt::Display for EaiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::EAI_AGAIN => "EAI_AGAIN",
            libc::EAI_BADFLAGS => "EAI_BADFLAGS",
            libc::EAI_FAIL => "EAI_FAIL",
            libc::EAI_FAMILY => "EAI_FAMILY",
            libc::EAI_MEMORY => "EAI_MEMORY",
            libc::EAI_NODATA => "EAI_NODATA",
            libc::EAI_NONAME => "EAI_NONAME",
            libc::EAI_SERVICE => "EAI_SERVICE",
            libc::EAI_SOCKTYPE => "EAI_SOCKTYPE",
            code => return write!(f, "getaddrinfo's code {code}"),
        };
        f.write_str(name)
    }
}

/// An object that could not be destroyed, and why. The object is unharmed: it can be used, or
/// destroyed again later.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DestroyError<T> {
    object: T,
    error: Error,
}

impl<T> DestroyError<T> {
    pub(crate) fn new(object: T, error: Error) -> Self {
        Self { object, error }
    }

    /// Why it failed.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The object, and the error.
    pub fn into_parts(self) -> (T, Error) {
        (self.object, self.error)
    }
}

impl<T> From<DestroyError<T>> for Error {
    /// Drops the object.
    fn from(refused: DestroyError<T>) -> Self {
        refused.error
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
