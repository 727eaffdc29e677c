//! Connecting.

use std::time::{Duration, Instant};

use super::connecting::Connecting;
use super::connection::Connection;
use super::deadline::within;
use super::port::Ports;
use super::settings::Settings;
use super::trace::Trace;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel, PortSpace};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

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
    source: Option<Address>,
    type_of_service: Option<u8>,
    ack_timeout: Option<u8>,
    address_timeout: Duration,
    pub(super) route_timeout: Duration,
    pub(super) connect_timeout: Duration,
    timeout: Option<Duration>,
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

    /// Connects to a listener at `server`.
    ///
    /// Resolves the address and the route, makes the queue pair with its receives posted, and
    /// connects ([`CmId::resolve_addr`], [`CmId::resolve_route`], [`CmId::create_qp`],
    /// [`CmId::connect`]), each when the event of the one before has come. After an error nothing
    /// is left, in the kernel neither.
    ///
    /// On iWARP this side is to send the first message. siw may leave it lying with a peer that is
    /// still accepting, until something else comes: see [`CmId::accept`]. So on iWARP this side
    /// writes nothing, every 100 ms for the first second or until the peer says something, in calls
    /// that wait or are tried again, as when it is [kept alive](Settings::keep_alive). There a port
    /// of the kernel's choice that TCP turns out to have is given up for another, up to 16 times, and
    /// each time the timeouts of the phases begin anew.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rejected`] with the peer's reason and private data; [`ErrorKind::TimedOut`] for
    /// each of the timeouts; [`ErrorKind::Unreachable`]; ENODEV where no device leads there;
    /// [`ErrorKind::Invalid`] for private data that is too long, and for [`Settings`] without a
    /// buffer; EINVAL and ENOMEM for more than the device has; on iWARP those of TCP, as
    /// ECONNREFUSED where nobody listens, EADDRINUSE where TCP has the [source](Self::source)'s port.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_create_ep")]
    pub fn connect(&self, server: impl Into<Address>) -> Result<Connection> {
        self.start(server)?.wait()
    }

    /// Begins to [connect](Self::connect), and does not wait: for event loops.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect) that come at once: what is invalid, and ENODEV where no
    /// device has the [source](Self::source) address. The others come later, of the [`Connecting`].
    pub fn start(&self, server: impl Into<Address>) -> Result<Connecting> {
        self.start_by(server.into(), self.overall())
    }

    /// When all of what begins now is to be done.
    pub(super) fn overall(&self) -> Option<Instant> {
        self.timeout.and_then(within)
    }

    /// Begins to connect, of which all is to be done at `overall`.
    pub(super) fn start_by(&self, server: Address, overall: Option<Instant>) -> Result<Connecting> {
        self.settings.check()?;
        let channel = EventChannel::new()?;
        let (id, asking, until, trace) = self.ask(&channel, server)?;
        Connecting::to_peer(id, channel, asking, until, overall, trace)
    }

    /// Creates an id on `channel` and asks for the address of `server`. Returns the id, the attempt, the time at which the
    /// address is to be there, and the trace.
    pub(super) fn ask(
        &self,
        channel: &EventChannel,
        server: Address,
    ) -> Result<(CmId, Asking, Option<Instant>, Trace)> {
        let id = CmId::new(channel, PortSpace::Tcp)?;
        let trace = Trace::connection(id.token(), || Some(server));
        let until = within(self.address_timeout);
        self.resolve(&id, server).inspect_err(|error| trace.failed(error))?;
        Ok((id, Asking::new(self, server), until, trace))
    }

    /// Gives the id what it has from the beginning, and asks for the peer's address.
    fn resolve(&self, id: &CmId, server: Address) -> Result<()> {
        if let Some(type_of_service) = self.type_of_service {
            id.set_tos(type_of_service)?;
        }
        if let Some(ack_timeout) = self.ack_timeout {
            id.set_ack_timeout(ack_timeout)?;
        }
        id.resolve_addr(self.source, server, self.address_timeout)
    }
}

/// A connector that asks a server, and its ports for that.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) connector: Connector,
    pub(super) server: Address,
    ports: Ports,
}

impl Asking {
    fn new(connector: &Connector, server: Address) -> Self {
        let ports = Ports::new(connector.source.map_or(0, |source| source.port()));
        Self { connector: connector.clone(), server, ports }
    }

    /// Begins once more after `error`, if another port may help: the id, and when it is to have its
    /// address.
    pub(super) fn once_more(
        &mut self,
        channel: &EventChannel,
        error: Error,
    ) -> Result<(CmId, Option<Instant>)> {
        if !self.ports.try_another(&error) {
            return Err(error);
        }
        let until = within(self.connector.address_timeout);
        let resolving = CmId::new(channel, PortSpace::Tcp).and_then(|id| {
            self.connector.resolve(&id, self.server)?;
            Ok(id)
        });
        // Why it was to begin once more says more than why it cannot.
        resolving.map(|id| (id, until)).map_err(|_| error)
    }
}
