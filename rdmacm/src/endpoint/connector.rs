//! Connecting.

use std::time::Duration;

use super::connection::Connection;
use super::establish::{deadline, earlier, expect};
use super::parts::Parts;
use super::settings::Settings;
use super::state::State;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel, EventType, PortSpace};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// How to connect. The same may connect many times.
///
/// ```no_run
/// use rdmacm::endpoint::{Connector, Settings};
/// use std::time::Duration;
///
/// let settings = Settings { buffer_size: 64 * 1024, ..Settings::default() };
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
    source: Option<Address>,
    type_of_service: Option<u8>,
    ack_timeout: Option<u8>,
    address_timeout: Duration,
    route_timeout: Duration,
    connect_timeout: Duration,
    timeout: Option<Duration>,
    private_data: Vec<u8>,
    settings: Settings,
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

    /// How long the peer may take to answer.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long all of it may take together.
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

    /// Connects to a listener at `server`.
    ///
    /// Resolves the address and the route, makes the queue pair with its receives posted, and
    /// connects ([`CmId::resolve_addr`], [`CmId::resolve_route`], [`CmId::create_qp`],
    /// [`CmId::connect`]), each when the event of the one before has come. After an error nothing
    /// is left, in the kernel neither.
    ///
    /// On iWARP this side is to send the first message. siw may leave it lying with a peer that is
    /// still accepting, until this side sends another one or closes: see [`CmId::accept`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rejected`] with the peer's reason and private data; [`ErrorKind::TimedOut`] for
    /// each of the timeouts; [`ErrorKind::Unreachable`]; ENODEV where no device leads there;
    /// [`ErrorKind::Invalid`] for private data that is too long, and for [`Settings`] without a
    /// buffer; EINVAL and ENOMEM for more than the device has; on iWARP those of TCP, as
    /// ECONNREFUSED where nobody listens.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_create_ep")]
    pub fn connect(&self, server: impl Into<Address>) -> Result<Connection> {
        let overall = deadline(self.timeout);
        let phase = |timeout| earlier(deadline(Some(timeout)), overall);
        self.settings.check()?;
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        if let Some(type_of_service) = self.type_of_service {
            id.set_tos(type_of_service)?;
        }
        if let Some(ack_timeout) = self.ack_timeout {
            id.set_ack_timeout(ack_timeout)?;
        }
        let until = phase(self.address_timeout);
        id.resolve_addr(self.source, server, self.address_timeout)?;
        expect(&channel, &id, EventType::AddrResolved, until)?;
        let until = phase(self.route_timeout);
        id.resolve_route(self.route_timeout)?;
        expect(&channel, &id, EventType::RouteResolved, until)?;
        let (parts, traffic, completions) = Parts::new(id, &self.settings)?;
        let until = phase(self.connect_timeout);
        parts.id.connect(&self.settings.param(&self.private_data))?;
        let established = expect(&channel, &parts.id, EventType::Established, until)?;
        let private_data = established.private_data().to_vec();
        drop(established);
        let state = State::new(parts, traffic);
        Connection::new(state, channel, completions, private_data)
    }
}
