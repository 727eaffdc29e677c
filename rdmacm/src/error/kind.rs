//! [`ErrorKind`]: the cause of an error, its text and its errno.

use std::borrow::Cow;
use std::fmt;

use nix::errno::Errno;
use ucma_abi::ib_cm_sidr_status;
use verbs_abi::ib_wc_status;

use super::errno::{EaiName, ErrnoName, ErrnoText};
use super::rejection::Rejection;
use crate::sys::ownership::WrongProcess;

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
        /// The advice for the user.
        remedy: &'static str,
    },
    /// Refused here, before the kernel was asked, as it would have been refused there or would have
    /// been unsound.
    #[error("{reason} ({})", ErrnoName(*.errno))]
    Invalid {
        /// The errno that the manual page names for the case, or EINVAL.
        errno: i32,
        /// The reason.
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
    /// A posted request failed, and the connection with it.
    #[error("{}", FailedText(*.0))]
    Failed(ib_wc_status),
    /// The connection was ended by an error, and neither a completion nor an event says which: what was posted was
    /// flushed. On rxe, for example, the side whose memory the peer may not access learns no more than this.
    #[error("the connection was ended by an error that the device does not tell")]
    UnreportedCause,
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
    /// An answer of the kernel or the device does not follow the ABI.
    #[error("malformed answer: {0}")]
    Malformed(Cow<'static, str>),
}

impl ErrorKind {
    /// Returns the errno that [`Error::errno`](super::Error::errno) reports.
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::Os(errno)
            | Self::Remedy { errno, .. }
            | Self::Invalid { errno, .. }
            | Self::Unposted { errno, .. }
            | Self::DeviceGone(errno) => *errno,
            Self::Rejected(_) => Errno::ECONNREFUSED as i32,
            Self::Unreachable(status) if *status < 0 => status.saturating_neg(),
            Self::Unreachable(_) => Errno::EHOSTUNREACH as i32,
            Self::NotResolved { code, .. } => EaiName(*code).errno() as i32,
            Self::TimedOut => Errno::ETIMEDOUT as i32,
            Self::Disconnected => Errno::ENOTCONN as i32,
            Self::Overrun => Errno::ENOBUFS as i32,
            Self::Failed(status) => match *status {
                ib_wc_status::IB_WC_LOC_LEN_ERR | ib_wc_status::IB_WC_REM_INV_REQ_ERR => {
                    Errno::EMSGSIZE as i32
                }
                ib_wc_status::IB_WC_RETRY_EXC_ERR | ib_wc_status::IB_WC_RNR_RETRY_EXC_ERR => {
                    Errno::ETIMEDOUT as i32
                }
                ib_wc_status::IB_WC_REM_ACCESS_ERR => Errno::EACCES as i32,
                _ => Errno::EIO as i32,
            },
            Self::UnreportedCause => Errno::ECONNABORTED as i32,
            Self::WouldBlock => Errno::EAGAIN as i32,
            Self::WouldDeadlock(_) => Errno::EDEADLK as i32,
            Self::Unsupported(_) => Errno::EOPNOTSUPP as i32,
            Self::WrongProcess(_) => Errno::EACCES as i32,
            Self::Malformed(_) => Errno::EPROTO as i32,
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
                let too_long = "a message is longer than the buffer that was to receive it";
                write!(f, "{too_long}, or was to take a key back that is no window's ({status})")
            }
            ib_wc_status::IB_WC_REM_INV_REQ_ERR | ib_wc_status::IB_WC_REM_OP_ERR => {
                let too_long =
                    "the peer has refused the message, which may be too long for its buffer";
                write!(f, "{too_long}, or was to take a key back that is no window's ({status})")
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
