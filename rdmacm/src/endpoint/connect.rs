//! [`Connector::connect`] and [`Connector::start`]: the beginning of connection attempts.

use std::time::Instant;

use super::connect_attempt::ConnectAttempt;
use super::connecting::Connecting;
use super::connection::Connection;
use super::connector::Connector;
use super::deadline::within;
#[cfg(doc)]
use super::settings::Settings;
use super::trace::Trace;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel, PortSpace};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Connector {
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
    /// The errors of [`connect`](Self::connect) that come at once: what is invalid, and ENODEV where no
    /// device has the [source](Self::source) address. The others come later, of the [`Connecting`].
    pub fn start(&self, server: impl Into<Address>) -> Result<Connecting> {
        self.start_by(server.into(), self.overall())
    }

    /// Returns the deadline of an attempt that begins now.
    pub(super) fn overall(&self) -> Option<Instant> {
        self.timeout.and_then(within)
    }

    /// Starts to connect, until `overall` at the latest.
    pub(super) fn start_by(&self, server: Address, overall: Option<Instant>) -> Result<Connecting> {
        self.settings.check()?;
        let channel = EventChannel::new()?;
        let (id, attempt, until, trace) = self.ask(&channel, server)?;
        Connecting::to_peer(id, channel, attempt, until, overall, trace)
    }

    /// Creates an id on `channel` and asks for the address of `server`. Returns the id, the attempt, the time at which the
    /// address is to be there, and the trace.
    pub(super) fn ask(
        &self,
        channel: &EventChannel,
        server: Address,
    ) -> Result<(CmId, ConnectAttempt, Option<Instant>, Trace)> {
        let id = CmId::new(channel, PortSpace::Tcp)?;
        let trace = Trace::connection(id.token(), || Some(server));
        let until = within(self.address_timeout);
        self.resolve(&id, server).inspect_err(|error| trace.failed(error))?;
        Ok((id, ConnectAttempt::new(self, server), until, trace))
    }
}
