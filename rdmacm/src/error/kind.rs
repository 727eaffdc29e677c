//! [`ErrorKind`]: the cause of an error, its text and its errno.

use std::borrow::Cow;
use std::fmt;

use nix::errno::Errno;
use ucma_abi::ib_cm_sidr_status;
use verbs_abi::{ib_event_type, ib_wc_status};

use super::errno::{EaiName, ErrnoName, ErrnoText};
use super::rejection::Rejection;
use crate::sys::ownership::NotOwner;

/// The reason for which an operation failed.
///
/// Only reasons that a caller would handle differently have a variant; all others are [`ErrorKind::Os`].
///
/// # Examples
///
/// ```no_run
/// use rdmacm::{ErrorKind, endpoint::Connector};
///
/// match Connector::new().connect("10.0.0.1:7471") {
///     Ok(connection) => println!("connected to {:?}", connection.peer_addr()),
///     Err(error) => match error.kind() {
///         ErrorKind::Rejected(rejection) => println!("rejected: {rejection}"),
///         ErrorKind::TimedOut | ErrorKind::Unreachable(_) => println!("no answer"),
///         // The text names the operation, the object and the cause, and often a remedy.
///         _ => println!("{error}"),
///     },
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel refused, with this errno.
    ///
    /// [`Error::hint`](super::Error::hint) may have a proposal for the user.
    Os(i32),
    /// The library refused before it sent a command.
    ///
    /// The kernel would have refused, or the operation would have been unsound.
    #[non_exhaustive]
    InvalidInput {
        /// The errno that the manual page names for the case, or EINVAL.
        errno: i32,
        /// The reason.
        reason: Cow<'static, str>,
    },
    /// The kernel refused the first of the last `unposted` requests that were pushed.
    ///
    /// These requests are not posted; the requests before them are. Drivers that keep their queues in the kernel return
    /// this error. Other drivers return it for one request if the kernel refuses a command that comes before the
    /// request.
    #[doc(alias = "bad_wr")]
    #[non_exhaustive]
    PartiallyPosted {
        /// The kernel's errno.
        errno: i32,
        /// The number of requests that are not posted.
        unposted: usize,
    },
    /// The peer, or its kernel, rejected the connection.
    ///
    /// The [`Rejection`] has the [reason](crate::cm::RejectReason) and the private data of the peer.
    Rejected(Box<Rejection>),
    /// The peer does not answer, or refused to report the destination of datagrams.
    Unreachable(UnreachableReason),
    /// A name was not found, or could not be looked up.
    #[non_exhaustive]
    NameResolution {
        /// The `EAI_*` code of the host's `getaddrinfo`, as `rdma_getaddrinfo` returns it.
        code: i32,
        /// The text for the code, as `gai_strerror` returns it.
        reason: String,
    },
    /// The time allowed for the operation is over.
    TimedOut,
    /// The connection, socket or member has ended: one of the two sides closed it, or the peer failed.
    Disconnected,
    /// The connection has ended, and messages of the peer may be lost.
    ///
    /// - On iWARP a message that finds no buffer ends the connection without a report, and all buffers may have been in
    ///   use.
    /// - On any device, the program held
    ///   [`max_held`](crate::endpoint::poll_group::PollGroupConfig::max_held) messages of a member of a poll group, and
    ///   another one arrived.
    ReceiveOverrun,
    /// A posted request failed. A connection ends with it; a datagram socket does not.
    WorkRequestFailed(ib_wc_status),
    /// The device refused an access of the peer to memory of this side, which ended the connection.
    ///
    /// # Driver notes
    ///
    /// An asynchronous event of the device reports this: `IB_EVENT_QP_ACCESS_ERR`.
    ///
    /// - On rxe, Linux 7.2 raises it for each access, and Linux 6.12 does not raise it.
    /// - siw raises it for a write outside the memory that is exported to the peer. It raises no event for a read, nor
    ///   for a write whose key is not registered, or no longer registered. The connection then ends without a reason.
    PeerRequestFailed(ib_event_type),
    /// An error ended the connection, and neither a completion nor an event reports its cause.
    ///
    /// The posted requests were flushed. For example, on rxe of Linux 6.12 and before, the side whose memory the peer
    /// may not access gets only this error.
    UnreportedCause,
    /// A non-blocking operation would have to wait.
    WouldBlock,
    /// The call would wait for an action that only its own thread can perform. The text names that action.
    WouldDeadlock(&'static str),
    /// The device under the object was removed. The number is the kernel's errno: EIO, ENODEV or ENXIO.
    DeviceRemoved(i32),
    /// The running kernel, the device, its driver or the async runtime does not offer this.
    Unsupported(Cow<'static, str>),
    /// The kernel refuses commands on an object from other credentials than those that opened it.
    ///
    /// Another process opened the object, or the process changed its credentials afterwards.
    NotOwner(NotOwner),
    /// An answer of the kernel or the device does not follow the ABI.
    MalformedResponse(Cow<'static, str>),
}

impl ErrorKind {
    /// Returns the errno that [`Error::errno`](super::Error::errno) reports.
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::Os(errno)
            | Self::InvalidInput { errno, .. }
            | Self::PartiallyPosted { errno, .. }
            | Self::DeviceRemoved(errno) => *errno,
            Self::Rejected(_) => Errno::ECONNREFUSED as i32,
            Self::Unreachable(UnreachableReason::Os(errno)) => *errno,
            Self::Unreachable(UnreachableReason::Refused(_)) => Errno::EHOSTUNREACH as i32,
            Self::NameResolution { code, .. } => EaiName(*code).errno() as i32,
            Self::TimedOut => Errno::ETIMEDOUT as i32,
            Self::Disconnected => Errno::ENOTCONN as i32,
            Self::ReceiveOverrun => Errno::ENOBUFS as i32,
            Self::WorkRequestFailed(status) => match *status {
                ib_wc_status::IB_WC_LOC_LEN_ERR => Errno::EMSGSIZE as i32,
                ib_wc_status::IB_WC_RETRY_EXC_ERR | ib_wc_status::IB_WC_RNR_RETRY_EXC_ERR => {
                    Errno::ETIMEDOUT as i32
                }
                ib_wc_status::IB_WC_REM_ACCESS_ERR => Errno::EACCES as i32,
                _ => Errno::EIO as i32,
            },
            Self::PeerRequestFailed(_) => Errno::EACCES as i32,
            Self::UnreportedCause => Errno::ECONNABORTED as i32,
            Self::WouldBlock => Errno::EAGAIN as i32,
            Self::WouldDeadlock(_) => Errno::EDEADLK as i32,
            Self::Unsupported(_) => Errno::EOPNOTSUPP as i32,
            Self::NotOwner(_) => Errno::EACCES as i32,
            Self::MalformedResponse(_) => Errno::EPROTO as i32,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(errno) => ErrnoText(*errno).fmt(f),
            Self::InvalidInput { errno, reason } => write!(f, "{reason} ({})", ErrnoName(*errno)),
            Self::PartiallyPosted { errno, unposted } => {
                write!(f, "{}; the last {unposted} requests are not posted", ErrnoText(*errno))
            }
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Unreachable(reason) => write!(f, "the peer is unreachable: {reason}"),
            Self::NameResolution { code, reason } => write!(f, "{reason} ({})", EaiName(*code)),
            Self::TimedOut => f.write_str("timed out"),
            Self::Disconnected => f.write_str("the connection has ended"),
            Self::ReceiveOverrun => f.write_str(
                "the connection has ended, and messages for which there was no buffer may be lost",
            ),
            Self::WorkRequestFailed(status) => FailedText(*status).fmt(f),
            Self::PeerRequestFailed(event_type) => PeerRequestText(*event_type).fmt(f),
            Self::UnreportedCause => {
                f.write_str("the connection was ended by an error that the device does not report")
            }
            Self::WouldBlock => f.write_str("the operation would block"),
            Self::WouldDeadlock(reason) => {
                write!(f, "the call would wait for its own thread: {reason}")
            }
            Self::DeviceRemoved(errno) => {
                write!(f, "the device was removed: {}", ErrnoText(*errno))
            }
            Self::Unsupported(reason) => write!(f, "not supported: {reason}"),
            Self::NotOwner(reason) => write!(
                f,
                "the object was opened {reason}, and the kernel takes commands only from the credentials that opened it"
            ),
            Self::MalformedResponse(reason) => write!(f, "malformed response: {reason}"),
        }
    }
}

/// The reason why a peer is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnreachableReason {
    /// The errno of the event: ETIMEDOUT if the peer does not answer.
    Os(i32),
    /// The peer's kernel or program refused to report the destination of datagrams.
    ///
    /// It is [`IB_SIDR_UNSUPPORTED`](ib_cm_sidr_status::IB_SIDR_UNSUPPORTED) if no program listens on the port.
    Refused(ib_cm_sidr_status),
}

impl UnreachableReason {
    /// Returns the reason from the status of an `Unreachable` event.
    ///
    /// The status is a negative errno, or a number of `ib_cm_sidr_status`.
    pub(crate) fn of_status(status: i32) -> Self {
        match status {
            ..0 => Self::Os(status.saturating_neg()),
            0.. => Self::Refused(ib_cm_sidr_status(status.unsigned_abs())),
        }
    }
}

impl fmt::Display for UnreachableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ib_cm_sidr_status as S;
        match self {
            Self::Os(errno) => ErrnoText(*errno).fmt(f),
            Self::Refused(status) => {
                let text = match *status {
                    S::IB_SIDR_UNSUPPORTED => "no program listens on the port",
                    S::IB_SIDR_REJECT => "rejected by the peer application",
                    other => other.name().unwrap_or("an unknown answer"),
                };
                write!(f, "{text} (status {})", status.0)
            }
        }
    }
}

/// The asynchronous event of a request of the peer that failed.
struct PeerRequestText(ib_event_type);

impl fmt::Display for PeerRequestText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer was refused access to memory of this side ({})", self.0)
    }
}

/// The status of a failed work request.
struct FailedText(ib_wc_status);

impl fmt::Display for FailedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        match status {
            ib_wc_status::IB_WC_LOC_LEN_ERR => {
                let too_long = "a message is longer than its receive buffer";
                write!(f, "{too_long}, or invalidates a key that cannot be invalidated ({status})")
            }
            ib_wc_status::IB_WC_REM_INV_REQ_ERR | ib_wc_status::IB_WC_REM_OP_ERR => {
                let too_long = "the peer's device refused the message, which is longer than its receive buffer";
                write!(f, "{too_long} or invalidates a key that cannot be invalidated ({status})")
            }
            ib_wc_status::IB_WC_REM_ACCESS_ERR => {
                write!(f, "the peer's device refused access to its memory ({status})")
            }
            ib_wc_status::IB_WC_RETRY_EXC_ERR => write!(f, "the peer does not answer ({status})"),
            ib_wc_status::IB_WC_RNR_RETRY_EXC_ERR => {
                write!(f, "the peer posts no receives ({status})")
            }
            ib_wc_status::IB_WC_WR_FLUSH_ERR => write!(
                f,
                "the request was discarded, because the queue pair failed or the connection ended ({status})"
            ),
            status => write!(f, "a work request failed: {status}"),
        }
    }
}
