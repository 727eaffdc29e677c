//! [`Connector`], the options of connection attempts.

use std::time::Duration;

use super::settings::Settings;
use crate::addr::Address;
use crate::cm::CmId;
use crate::error::Result;

/// How to connect. The same may connect many times.
///
/// ```no_run
/// use rdmacm::endpoint::{Connector, Settings};
/// use std::time::Duration;
///
/// let settings = Settings { receive_buffer_size: 64 * 1024, ..Settings::default() };
/// let connection = Connector::new()
///     .settings(settings)
///     .private_data(b"who I am")
///     .timeout(Duration::from_secs(5))
///     .connect("10.0.0.1:7471".parse::<std::net::SocketAddr>()?)?;
/// println!("connected to {:?}", connection.peer_addr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    pub(super) source: Option<Address>,
    type_of_service: Option<u8>,
    ack_timeout: Option<u8>,
    pub(super) address_timeout: Duration,
    pub(super) route_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) private_data: Vec<u8>,
    pub(super) settings: Settings,
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

impl Connector {
    /// Connects from whatever address leads to the peer, with the default [`Settings`]; 2 seconds
    /// for the address, 2 for the route, 30 for the peer's answer, and no deadline over all.
    pub fn new() -> Self {
        Self {
            source: None,
            type_of_service: None,
            ack_timeout: None,
            address_timeout: Duration::from_secs(2),
            route_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(30),
            timeout: None,
            private_data: Vec::new(),
            settings: Settings::default(),
        }
    }

    /// The local address to connect from, and with it the device.
    #[must_use]
    pub fn source(mut self, source: impl Into<Address>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The type of service of the packets: see [`CmId::set_tos`].
    #[must_use]
    pub fn type_of_service(mut self, type_of_service: u8) -> Self {
        self.type_of_service = Some(type_of_service);
        self
    }

    /// How long the device waits for an acknowledgement before it [tries
    /// again](Settings::retry_count): see [`CmId::set_ack_timeout`].
    #[must_use]
    pub fn ack_timeout(mut self, ack_timeout: u8) -> Self {
        self.ack_timeout = Some(ack_timeout);
        self
    }

    /// How long finding the peer's address may take.
    #[must_use]
    pub fn address_timeout(mut self, timeout: Duration) -> Self {
        self.address_timeout = timeout;
        self
    }

    /// How long finding the route may take.
    #[must_use]
    pub fn route_timeout(mut self, timeout: Duration) -> Self {
        self.route_timeout = timeout;
        self
    }

    /// How long the peer may take to answer. (On iWARP as with [`timeout`](Self::timeout).)
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long all of it may take together. (On iWARP an attempt that is given up when the peer has been asked takes
    /// until its driver gives up too, siw about 10 s: [the call](Self::connect) comes back so much later.)
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Bytes for the peer's program, which sees them [before it
    /// accepts](super::Incoming::private_data): at most 56 on InfiniBand and RoCE, 251 on iWARP.
    #[must_use]
    pub fn private_data(mut self, private_data: &[u8]) -> Self {
        self.private_data = private_data.to_vec();
        self
    }

    /// What the connection is to have.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the options of `id`, and starts to resolve the address of the peer.
    pub(super) fn resolve(&self, id: &CmId, server: Address) -> Result<()> {
        if let Some(type_of_service) = self.type_of_service {
            id.set_tos(type_of_service)?;
        }
        if let Some(ack_timeout) = self.ack_timeout {
            id.set_ack_timeout(ack_timeout)?;
        }
        id.resolve_addr(self.source, server, self.address_timeout)
    }
}
