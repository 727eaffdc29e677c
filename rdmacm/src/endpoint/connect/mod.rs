//! The beginning of connections: connectors, listeners, requests and attempts.

pub(super) mod attempt;
pub(super) mod attempt_peer;
pub(super) mod connect_attempt;
pub(super) mod connecting;
pub(super) mod connector;
pub(super) mod incoming;
pub(super) mod listener;
pub(super) mod port;

use std::time::Instant;

use self::connect_attempt::ConnectAttempt;
use self::connecting::Connecting;
use self::connector::Connector;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel, PortSpace};
use crate::endpoint::connection::handle::Connection;
#[cfg(doc)]
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::to_addresses::ToAddresses;
use crate::endpoint::wait::deadline::deadline_after;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Connector {
    /// Connects to a listener at `server`.
    ///
    /// The call resolves the address and the route, creates the queue pair with posted receives, and connects. Each
    /// step ([`CmId::resolve_addr`], [`CmId::resolve_route`], [`CmId::create_qp`], [`CmId::connect`]) follows the event
    /// of the previous step. If `server` names several addresses, they are tried in turn until one attempt succeeds.
    /// After an error no object remains, neither here nor in the kernel.
    ///
    /// A server that is not started yet refuses: see [errors](crate::guide::errors) for a loop.
    ///
    /// The call blocks its thread. A task calls
    /// [`task::Connection::connect`](crate::endpoint::task::Connection::connect).
    ///
    /// # Errors
    ///
    /// The errors of the lookup of a name, and of the attempt to connect to the last address:
    /// - [`ErrorKind::Rejected`] if the peer's program or device rejects, with its reason and private data.
    /// - [`ErrorKind::TimedOut`] if one of the timeouts elapses.
    /// - [`ErrorKind::Unreachable`] if the peer does not answer.
    /// - ENODEV if no device leads to the address.
    /// - [`ErrorKind::InvalidInput`] if the private data are too long, or if the [`ConnectionConfig`] has no buffer.
    /// - EINVAL or ENOMEM if the [`ConnectionConfig`] exceeds the limits of the device.
    /// - EMFILE if the process has too many descriptors.
    /// - EINVAL if this side cannot use the peer's answer: see the driver notes for siw.
    /// - On iWARP the errors of TCP, such as ECONNREFUSED if no program listens, and EADDRINUSE if TCP uses the port of
    ///   the [local address](Self::local_addr).
    ///
    /// # Driver notes
    ///
    /// On iWARP this side must send the first message: the program that accepts must not send before it has received
    /// one. The library does not delay messages of the accepting side. A message that directly follows the peer's
    /// answer may arrive before siw has processed the answer. siw then takes the message for an invalid answer, ends
    /// the attempt, and this call fails with EINVAL. It also fails with EINVAL if the peer ends the connection directly
    /// after its answer. (Linux 6.1 and 6.12 at least.)
    ///
    /// siw may leave the first message unread at a peer that is still accepting, until more data arrive: see
    /// [`CmId::accept`]. On iWARP the library therefore posts a write without bytes every 100 ms, 8 times or until a
    /// message of the peer has arrived. It does so in calls that wait or are retried, as for a connection that is
    /// [kept alive](ConnectionConfig::keep_alive_interval). The peer's program does not notice these writes, so they do
    /// not replace the first message.
    ///
    /// On iWARP a port that the kernel has chosen may be in use by TCP. Then the attempt begins again with another
    /// port, up to 16 times, and so do its timeouts, except for the total one.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_create_ep")]
    pub fn connect(&self, server: impl ToAddresses) -> Result<Connection> {
        self.start_connect(server)?.wait()
    }

    /// Begins to [connect](Self::connect) without waiting, for event loops.
    ///
    /// A name is looked up before this returns, which blocks.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect) that are found at once: invalid input, and ENODEV if no device has the
    /// [local address](Self::local_addr). The [`Connecting`] returns the others.
    pub fn start_connect(&self, server: impl ToAddresses) -> Result<Connecting> {
        self.start_with_deadline(server.to_target().resolve()?, self.total_deadline())
    }

    /// Returns the deadline of an attempt that begins now.
    pub(super) fn total_deadline(&self) -> Option<Instant> {
        self.total_timeout.and_then(deadline_after)
    }

    /// Starts to connect to the servers in turn until one attempt succeeds.
    ///
    /// All attempts end at `total_deadline` at the latest.
    pub(super) fn start_with_deadline(
        &self,
        servers: Vec<Address>,
        total_deadline: Option<Instant>,
    ) -> Result<Connecting> {
        self.config.check()?;
        Connecting::connect(self, servers, total_deadline)
    }

    /// Creates an id on `channel` and starts to resolve the address of `server`.
    ///
    /// Returns the id, the attempt, the deadline of the resolution, and the trace.
    pub(super) fn start_resolving(
        &self,
        channel: &EventChannel,
        server: Address,
    ) -> Result<(CmId, ConnectAttempt, Option<Instant>, Trace)> {
        let id = CmId::new(channel, PortSpace::Tcp)?;
        let trace = Trace::connection(id.token(), || Some(server));
        let deadline = deadline_after(self.resolve_addr_timeout);
        self.resolve(&id, server).inspect_err(|error| trace.failed(error))?;
        Ok((id, ConnectAttempt::new(self, server), deadline, trace))
    }
}
