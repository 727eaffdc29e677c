//! [`Failure`]: the reason why a netlink request has no answer.

use nix::errno::Errno;

/// The reason why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The kernel's errno.
    Os(i32),
    /// The answer does not follow the protocol.
    Malformed(&'static str),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Os(errno as i32)
    }
}
