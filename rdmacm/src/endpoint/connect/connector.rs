//! [`Connector`], the options of connection attempts.

use std::time::Duration;

use crate::addr::Address;
use crate::cm::CmId;
use crate::endpoint::connection_config::ConnectionConfig;
use crate::error::Result;

/// The options of connection attempts. One connector may connect many times.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use rdmacm::endpoint::{ConnectionConfig, Connector};
///
/// let config = ConnectionConfig::new().receive_buffer_size(64 * 1024);
/// let connection = Connector::new()
///     .config(config)
///     .private_data(b"who I am")
///     .total_timeout(Duration::from_secs(5))
///     .connect("10.0.0.1:7471")?;
/// println!("connected to {:?}", connection.peer_addr());
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    pub(in crate::endpoint) local_addr: Option<Address>,
    tos: Option<u8>,
    ack_timeout: Option<u8>,
    pub(in crate::endpoint) resolve_addr_timeout: Duration,
    pub(in crate::endpoint) resolve_route_timeout: Duration,
    pub(in crate::endpoint) response_timeout: Duration,
    pub(in crate::endpoint) total_timeout: Option<Duration>,
    pub(in crate::endpoint) private_data: Vec<u8>,
    pub(in crate::endpoint) config: ConnectionConfig,
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

impl Connector {
    /// Returns the default options.
    ///
    /// The kernel chooses the local address. The address and the route may each take 2 seconds, the answer of the peer
    /// 30; there is no total timeout. The connection has the default [`ConnectionConfig`].
    pub fn new() -> Self {
        Self {
            local_addr: None,
            tos: None,
            ack_timeout: None,
            resolve_addr_timeout: Duration::from_secs(2),
            resolve_route_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(30),
            total_timeout: None,
            private_data: Vec::new(),
            config: ConnectionConfig::default(),
        }
    }

    /// Sets the local address to connect from, which also selects the device.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    ///
    /// use rdmacm::endpoint::Connector;
    ///
    /// // With port 0 the kernel chooses a port.
    /// let connector = Connector::new().local_addr((Ipv4Addr::new(10, 0, 0, 2), 0));
    /// ```
    #[must_use]
    pub fn local_addr(mut self, source: impl Into<Address>) -> Self {
        self.local_addr = Some(source.into());
        self
    }

    /// Sets the type of service of the packets: see [`CmId::set_tos`].
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = Some(tos);
        self
    }

    /// Sets the time until the device [retries](ConnectionConfig::retry_count) an unacknowledged packet.
    ///
    /// See [`CmId::set_ack_timeout`].
    #[must_use]
    pub fn ack_timeout(mut self, ack_timeout: u8) -> Self {
        self.ack_timeout = Some(ack_timeout);
        self
    }

    /// Sets the time for resolving the peer's address.
    #[must_use]
    pub fn resolve_addr_timeout(mut self, timeout: Duration) -> Self {
        self.resolve_addr_timeout = timeout;
        self
    }

    /// Sets the time for resolving the route.
    #[must_use]
    pub fn resolve_route_timeout(mut self, timeout: Duration) -> Self {
        self.resolve_route_timeout = timeout;
        self
    }

    /// Sets the time for the peer's answer.
    ///
    /// # Driver notes
    ///
    /// On siw a time above about 10 s has no effect, because the driver gives up first. After a shorter time the call
    /// returns only when the driver gives up: see [`total_timeout`](Self::total_timeout).
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets the time for the whole attempt, including the attempts to reach further addresses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::{ErrorKind, endpoint::Connector};
    ///
    /// let connector = Connector::new().total_timeout(Duration::from_secs(5));
    /// match connector.connect("server.example:7471") {
    ///     Ok(connection) => println!("connected to {:?}", connection.peer_addr()),
    ///     Err(error) if *error.kind() == ErrorKind::TimedOut => println!("no answer in 5 seconds"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    ///
    /// # Driver notes
    ///
    /// On iWARP the kernel connects TCP first. If the peer's machine does not answer, this takes minutes, and no
    /// timeout of this type ends it. After the request was sent, an attempt cannot be canceled until the driver gives
    /// up too (siw after about 10 s). [`connect`](Self::connect) then returns that much later.
    #[must_use]
    pub fn total_timeout(mut self, timeout: Duration) -> Self {
        self.total_timeout = Some(timeout);
        self
    }

    /// Sets the private data for the peer's program.
    ///
    /// The program can read it [before it accepts](crate::endpoint::Incoming::private_data). The maximum is 56 bytes on
    /// InfiniBand and RoCE, and 251 bytes on iWARP.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::Connector;
    ///
    /// let connector = Connector::new().private_data(b"version 2");
    /// ```
    #[must_use]
    pub fn private_data(mut self, private_data: &[u8]) -> Self {
        self.private_data = private_data.to_vec();
        self
    }

    /// Sets the configuration of the connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::{ConnectionConfig, Connector};
    ///
    /// let config = ConnectionConfig::new().receive_buffers(64);
    /// let connector = Connector::new().config(config);
    /// ```
    #[must_use]
    pub fn config(mut self, config: ConnectionConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the options of `id`, and starts to resolve the address of the peer.
    pub(in crate::endpoint) fn resolve(&self, id: &CmId, server: Address) -> Result<()> {
        if let Some(tos) = self.tos {
            id.set_tos(tos)?;
        }
        if let Some(ack_timeout) = self.ack_timeout {
            id.set_ack_timeout(ack_timeout)?;
        }
        id.resolve_addr(self.local_addr, server, self.resolve_addr_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_set_their_parameters() {
        let address = Address::from(([10, 0, 0, 2], 0));
        let connector = Connector::new().local_addr(address).tos(1).ack_timeout(2);
        assert_eq!((connector.local_addr, connector.tos), (Some(address), Some(1)));
        assert_eq!(connector.ack_timeout, Some(2));
        let [addr, route, response, total] = [3, 4, 5, 6].map(Duration::from_secs);
        let connector = connector.resolve_addr_timeout(addr).resolve_route_timeout(route);
        let connector = connector.response_timeout(response).total_timeout(total);
        assert_eq!(
            (connector.resolve_addr_timeout, connector.resolve_route_timeout),
            (addr, route)
        );
        assert_eq!((connector.response_timeout, connector.total_timeout), (response, Some(total)));
        let config = ConnectionConfig::new().send_buffers(7);
        let connector = connector.private_data(b"hello").config(config);
        assert_eq!(
            (&connector.private_data[..], connector.config.send_buffers),
            (&b"hello"[..], 7)
        );
    }
}
