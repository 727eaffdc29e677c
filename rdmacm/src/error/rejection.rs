//! [`Rejection`]: a rejected connection, its reason and the peer's private data.

use std::fmt;

use ucma_abi::ib_cm_rej_reason;

use super::errno::ErrnoText;
#[cfg(doc)]
use crate::cm::{CmId, Ece};

/// Why a connection was rejected: the status of a `Rejected` event.
///
/// On InfiniBand and RoCE a reason of the InfiniBand connection manager (`ib_cm_rej_reason` in the
/// kernel's `include/rdma/ib_cm.h`). On iWARP there are no reasons: the number is a negative
/// [`errno`](Self::errno), of which the device's driver has its own idea. siw says ECONNRESET where
/// the peer's program said no and where the peer closed before it said anything, ECONNREFUSED where
/// the two sides do not fit. (A port on which nobody listens is no rejection there: the connect
/// command itself fails with ECONNREFUSED.)
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

impl RejectReason {
    /// Nobody listens on the port.
    pub const INVALID_SERVICE_ID: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_INVALID_SERVICE_ID);
    /// The peer has given the attempt up: its deadline passed, or its program ended the attempt.
    pub const TIMEOUT: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_TIMEOUT);
    /// The peer's program said no, see [`CmId::reject`].
    pub const CONSUMER_DEFINED: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_CONSUMER_DEFINED);
    /// The peer's program does not take the options of [`Ece`], see
    /// [`CmId::reject_ece`].
    pub const VENDOR_OPTION_NOT_SUPPORTED: Self =
        Self::of(ib_cm_rej_reason::IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED);

    /// The errno of the driver, where the rejection has one: on iWARP. That of the
    /// [error](crate::Error::errno) is ECONNREFUSED for every rejection.
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
            Self::INVALID_SERVICE_ID => write!(f, "nobody listens on the port (reason {})", self.0),
            Self::TIMEOUT => write!(f, "the peer has given up (reason {})", self.0),
            Self::CONSUMER_DEFINED => write!(f, "the program said no (reason {})", self.0),
            Self(errno) if errno < 0 => ErrnoText(errno.wrapping_neg()).fmt(f),
            Self(reason) => match ib_cm_rej_reason(reason.unsigned_abs()).name() {
                Some(name) => write!(f, "{name} (reason {reason})"),
                None => write!(f, "reason {reason}"),
            },
        }
    }
}

/// A rejected connection: what the peer said.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Why.
    pub reason: RejectReason,
    /// Private data of the peer's program, zero-padded to the transport's fixed length on
    /// InfiniBand and RoCE (148 bytes); on iWARP as long as it was sent. All zero, or empty, where
    /// the peer's kernel rejected.
    pub private_data: Vec<u8>,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rejected by the peer: {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_can_be_said() {
        assert_eq!(RejectReason(28).to_string(), "the program said no (reason 28)");
        assert_eq!(RejectReason(34).to_string(), "reason 34");
        assert_eq!(RejectReason(-111).to_string(), "Connection refused (ECONNREFUSED)");
        assert!(!RejectReason(i32::MIN).to_string().is_empty());
    }

    #[test]
    fn only_a_negative_number_is_an_errno() {
        let errnos =
            [-111, -1, 0, 28, i32::MIN, i32::MAX].map(|number| RejectReason(number).errno());
        assert_eq!(errnos, [Some(111), Some(1), None, None, None, None]);
    }
}
