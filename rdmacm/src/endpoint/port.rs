//! PortRetry that the kernel chooses: of RDMA's own space, while iWARP needs the same one of TCP, which may have given it away.

use crate::error::Error;

/// How many ports may be tried, where the program has not asked for one.
#[derive(Debug, Clone)]
pub(super) struct PortRetry {
    left: u32,
}

impl PortRetry {
    /// For `port`, of which 0 leaves the choice to the kernel.
    pub(super) fn new(port: u16) -> Self {
        Self { left: if port == 0 { 16 } else { 0 } }
    }

    /// Returns `true` if another port is to be tried after `error`.
    pub(super) fn try_another(&mut self, error: &Error) -> bool {
        let is_taken = matches!(error.errno(), libc::EADDRINUSE | libc::EADDRNOTAVAIL);
        let tries = is_taken && self.left > 0;
        self.left -= u32::from(tries);
        tries
    }
}
