//! Retries with other ports ([`PortRetry`]), if the kernel chooses the port.
//!
//! The kernel chooses a port from RDMA's port space. iWARP needs the same port of TCP, which may already use it.

use crate::error::Error;

/// The number of ports that may still be tried, if the program has not requested a port.
#[derive(Debug, Clone)]
pub(in crate::endpoint) struct PortRetry {
    left: u32,
}

impl PortRetry {
    /// Creates the counter for `port`; 0 lets the kernel choose the port.
    pub(in crate::endpoint) fn new(port: u16) -> Self {
        Self { left: if port == 0 { 16 } else { 0 } }
    }

    /// Counts a retry and returns `true` if another port should be tried after `error`.
    pub(in crate::endpoint) fn try_another(&mut self, error: &Error) -> bool {
        let is_taken = matches!(error.errno(), libc::EADDRINUSE | libc::EADDRNOTAVAIL);
        let tries = is_taken && self.left > 0;
        self.left -= u32::from(tries);
        tries
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn only_taken_ports_of_kernel_are_retried() {
        let tries =
            |ports: &mut PortRetry, errno| ports.try_another(&Error::os("listen", "", errno));
        let mut ports = PortRetry::new(0);
        assert!(!tries(&mut ports, Errno::EACCES));
        // The library tries 16 further ports.
        for _ in 0..8 {
            assert!(
                tries(&mut ports, Errno::EADDRINUSE) && tries(&mut ports, Errno::EADDRNOTAVAIL)
            );
        }
        assert!(!tries(&mut ports, Errno::EADDRINUSE));
        assert!(!tries(&mut PortRetry::new(7471), Errno::EADDRINUSE));
    }
}
