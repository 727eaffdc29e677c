//! Rejected connections.

use std::fmt;

use nix::errno::Errno;
use ucma_abi::ib_cm_rej_reason;

/// Why a connection was rejected: the status of a `Rejected` event.
///
/// On InfiniBand and RoCE a reason of the InfiniBand connection manager (`ib_cm_rej_reason` in the
/// kernel's `include/rdma/ib_cm.h`). On iWARP there are no reasons: the number is a negative errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

impl RejectReason {
    /// Nobody listens on the port.
    pub const INVALID_SERVICE_ID: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_INVALID_SERVICE_ID);
    /// The peer's program said no, see [`CmId::reject`](super::CmId::reject).
    pub const CONSUMER_DEFINED: Self = Self::of(ib_cm_rej_reason::IB_CM_REJ_CONSUMER_DEFINED);

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
            Self::CONSUMER_DEFINED => write!(f, "the program said no (reason {})", self.0),
            Self(errno) if errno < 0 => {
                write!(f, "{}", Errno::from_raw(errno.wrapping_neg()).desc())
            }
            Self(reason) => match ib_cm_rej_reason(reason.unsigned_abs()).name() {
                Some(name) => write!(f, "{name} (reason {reason})"),
                None => write!(f, "reason {reason}"),
            },
        }
    }
}

/// A rejected connection: what the peer said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: RejectReason,
    /// Private data of the peer's program, zero-padded to the transport's fixed length on
    /// InfiniBand and RoCE (148 bytes). All zero where the peer's kernel rejected.
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
        assert_eq!(RejectReason(-111).to_string(), "Connection refused");
        assert!(!RejectReason(i32::MIN).to_string().is_empty());
    }
}
