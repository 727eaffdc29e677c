//! [`Rejection`]: a rejected connection, its reason and the peer's private data.

use std::fmt;

use ucma_abi::ib_cm_rej_reason;

use super::errno::ErrnoText;
#[cfg(doc)]
use crate::cm::{CmId, Ece};

/// The reason for which a connection was rejected: the status of a `Rejected` event.
///
/// On InfiniBand and RoCE, the number is a reason of the InfiniBand connection manager: `ib_cm_rej_reason` in the
/// kernel's `include/rdma/ib_cm.h`. iWARP has no reasons: the number is a negative [`errno`](Self::errno) that the
/// driver chooses.
///
/// # Driver notes
///
/// siw reports ECONNRESET if the peer application rejected the connection or closed it without an answer. It reports
/// ECONNREFUSED if the parameters of the two sides do not match. A port on which no program listens is no rejection:
/// the connect command itself fails with ECONNREFUSED.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

impl RejectReason {
    /// No program listens on the port.
    pub const INVALID_SERVICE_ID: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_INVALID_SERVICE_ID);
    /// The peer has canceled the attempt: its deadline passed, or its program ended the attempt.
    pub const TIMEOUT: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_TIMEOUT);
    /// The peer application rejected the request: see [`CmId::reject`].
    pub const CONSUMER_DEFINED: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_CONSUMER_DEFINED);
    /// The peer application rejected the options of [`Ece`]: see [`CmId::reject_ece`].
    pub const VENDOR_OPTION_NOT_SUPPORTED: Self =
        Self::of(ib_cm_rej_reason::IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED);

    /// Returns the errno of the driver on iWARP, or `None` for a reason of InfiniBand.
    ///
    /// The errno of the [error](crate::Error::errno) is ECONNREFUSED for every rejection.
    pub fn errno(self) -> Option<i32> {
        self.0.checked_neg().filter(|errno| *errno > 0)
    }

    const fn of(reason: ib_cm_rej_reason) -> Self {
        // The reasons are small numbers.
        Self(reason.0 as i32)
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectReason({self})")
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INVALID_SERVICE_ID => {
                write!(f, "no program listens on the port (reason {})", self.0)
            }
            Self::TIMEOUT => write!(f, "the peer has canceled the attempt (reason {})", self.0),
            Self::CONSUMER_DEFINED => {
                write!(f, "rejected by the peer application (reason {})", self.0)
            }
            Self(errno) if errno < 0 => ErrnoText(errno.wrapping_neg()).fmt(f),
            Self(reason) => match ib_cm_rej_reason(reason.unsigned_abs()).name() {
                Some(name) => write!(f, "{name} (reason {reason})"),
                None => write!(f, "reason {reason}"),
            },
        }
    }
}

/// The rejection of a connection: the reason and the private data of the peer.
///
/// # Examples
///
/// ```
/// use rdmacm::endpoint::RejectReason;
/// use rdmacm::{Error, ErrorKind};
///
/// /// Returns `true` if it makes sense to connect again later.
/// fn may_retry(error: &Error) -> bool {
///     let ErrorKind::Rejected(rejection) = error.kind() else { return false };
///     match rejection.reason {
///         // The server may not have started yet.
///         RejectReason::INVALID_SERVICE_ID => true,
///         // The peer application sends the reason as private data.
///         RejectReason::CONSUMER_DEFINED => rejection.private_data.starts_with(b"busy"),
///         _ => false,
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// The reason.
    pub reason: RejectReason,
    /// The private data of the peer application.
    ///
    /// On InfiniBand and RoCE it is padded with zeros to 148 bytes; on iWARP it has the length that was sent. If the
    /// peer's kernel rejected the request, it is zeros, or empty.
    pub private_data: Vec<u8>,
}

impl fmt::Debug for Rejection {
    /// Writes the private data as text without the zeros at the end, and its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.private_data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let (text, length) = (self.private_data[..end].escape_ascii(), self.private_data.len());
        f.debug_struct("Rejection")
            .field("reason", &self.reason)
            .field("private_data", &format_args!("b\"{text}\" ({length} bytes)"))
            .finish()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RejectReason::CONSUMER_DEFINED => self.reason.fmt(f),
            reason => write!(f, "rejected by the peer: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests;
