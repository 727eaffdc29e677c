//! [`DatagramConfig`], the configuration of a datagram socket.

#[cfg(doc)]
use crate::endpoint::datagrams::socket::DatagramSocket;

/// The configuration of a [`DatagramSocket`].
///
/// # Examples
///
/// ```
/// use rdmacm::endpoint::DatagramConfig;
///
/// DatagramConfig::new().receive_buffers(256).max_cached_peers(1024);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramConfig {
    pub(super) send_buffers: u32,
    pub(super) receive_buffers: u32,
    pub(super) max_cached_peers: u32,
}

impl Default for DatagramConfig {
    fn default() -> Self {
        Self { send_buffers: 16, receive_buffers: 64, max_cached_peers: 256 }
    }
}

impl DatagramConfig {
    /// Returns the default configuration. Each method documents the default of its parameter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of send buffers, at least 1 \[default: 16\].
    ///
    /// A buffer is in use from [`acquire_buffer`](DatagramSocket::acquire_buffer) until its datagram is sent. So this
    /// many datagrams may be in flight or held by the program.
    #[must_use]
    pub fn send_buffers(mut self, count: u32) -> Self {
        self.send_buffers = count;
        self
    }

    /// Sets the number of receive buffers, at least 1 \[default: 64\].
    ///
    /// This many datagrams may arrive before the program takes them. A datagram that finds no buffer is lost without a
    /// report.
    #[must_use]
    pub fn receive_buffers(mut self, count: u32) -> Self {
        self.receive_buffers = count;
        self
    }

    /// Sets the number of senders whose address handles the socket keeps \[default: 256\].
    ///
    /// An answer to a sender that is no longer kept takes some system calls and a kernel object again.
    #[must_use]
    pub fn max_cached_peers(mut self, count: u32) -> Self {
        self.max_cached_peers = count;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_set_their_parameters() {
        let config = DatagramConfig::new().send_buffers(1).receive_buffers(2).max_cached_peers(3);
        let expected = DatagramConfig { send_buffers: 1, receive_buffers: 2, max_cached_peers: 3 };
        assert_eq!(config, expected);
    }
}
