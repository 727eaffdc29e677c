//! [`Incoming`], a connection request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::attempt_peer::AttemptPeer;
use super::connecting::Connecting;
#[cfg(doc)]
use super::connector::Connector;
use crate::cm::{CmId, ConnParam, EventChannel, RejectReason};
use crate::device::Device;
use crate::endpoint::connection::handle::Connection;
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::shared::kernel_objects::NewEndpoint;
use crate::endpoint::shared::trace::{RequestTrace, Trace};
use crate::endpoint::wait::deadline::{deadline_after, has_passed};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// A connection request, which a program accepts or rejects.
///
/// Created by [`Listener::accept`](crate::endpoint::Listener::accept). Dropping it rejects the request. A request may
/// be sent to another thread, which accepts it while the listener's thread waits for the next one. Tasks use
/// [`task::Incoming`](crate::endpoint::task::Incoming).
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use rdmacm::endpoint::{Connection, ConnectionConfig, Incoming, RejectReason};
///
/// /// Accepts a client that knows the password.
/// fn admit(incoming: Incoming) -> rdmacm::Result<Option<Connection>> {
///     if !incoming.private_data().starts_with(b"sesame") {
///         incoming.reject(RejectReason::CONSUMER_DEFINED, b"wrong password")?;
///         return Ok(None);
///     }
///     incoming.accept(&ConnectionConfig::new(), b"welcome", Duration::from_secs(5)).map(Some)
/// }
/// ```
#[derive(Debug)]
pub struct Incoming {
    pub(in crate::endpoint) id: CmId,
    pub(in crate::endpoint) param: ConnParam,
    pub(in crate::endpoint) trace: RequestTrace,
}

impl Incoming {
    /// Accepts the request, and waits at most `timeout` until the connection is established.
    ///
    /// `config` sets the buffers of this side: a message of the peer must fit into one. `private_data` go to the peer's
    /// program: at most 196 bytes on InfiniBand and RoCE, 251 on iWARP. The connection gets an event channel of its own
    /// ([`CmId::migrate`]) and a queue pair with posted receives before [`CmId::accept`]. After an error no object
    /// remains, and the peer is rejected if it was not accepted yet.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    /// - [`ErrorKind::Unreachable`], [`ErrorKind::Disconnected`], ECONNREFUSED and others if the peer does not complete
    ///   the connection.
    /// - EINVAL, on siw ECONNRESET, or [`ErrorKind::Rejected`] if the peer has ended its attempt.
    /// - [`ErrorKind::InvalidInput`] if `private_data` are too long, or if `config` has no buffer.
    /// - EINVAL or ENOMEM if `config` exceeds the limits of the device.
    /// - EMFILE if the process has too many descriptors.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::endpoint::{ConnectionConfig, Incoming};
    ///
    /// # fn f(incoming: Incoming) -> rdmacm::Result<()> {
    /// let config = ConnectionConfig::new().receive_buffers(64);
    /// let connection = incoming.accept(&config, b"welcome", Duration::from_secs(5))?;
    /// println!("connected to {:?}", connection.peer_addr());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Driver notes
    ///
    /// On iWARP this side must not send before it has received a message: see [`Connector::connect`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(
        self,
        config: &ConnectionConfig,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connection> {
        self.start_accept(config, private_data, timeout)?.wait()
    }

    /// Accepts the request without waiting until the connection is established, for event loops.
    ///
    /// The [`Connecting`] has a descriptor and the deadline; its example shows the loop.
    ///
    /// # Errors
    ///
    /// The errors of [`accept`](Self::accept) that are found at once: invalid input, missing resources, and EINVAL if
    /// the peer has ended its attempt. The [`Connecting`] returns the others.
    pub fn start_accept(
        self,
        config: &ConnectionConfig,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connecting> {
        self.start_with_deadline(config, private_data, deadline_after(timeout))
    }

    /// Accepts the request. The connection must be established by `deadline`.
    pub(in crate::endpoint) fn start_with_deadline(
        self,
        config: &ConnectionConfig,
        private_data: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Connecting> {
        let Self { id, param, trace } = self;
        let trace = trace.answered();
        let client = AttemptPeer::query_client(&id);
        let accepted = accept(id, client, config, private_data, deadline);
        let (objects, channel) = accepted
            .map_err(|error| client.command_error(error))
            .inspect_err(|error| trace.failed(error))?;
        Connecting::accepted(objects, channel, client, param.private_data, deadline, trace)
            .map_err(|error| client.add_to(error))
    }

    /// Rejects the request.
    ///
    /// The peer gets the reason and the private data with [`ErrorKind::Rejected`].
    ///
    /// `private_data` are at most 148 bytes on InfiniBand and RoCE, 251 on iWARP. The reason is
    /// [`RejectReason::CONSUMER_DEFINED`] or [`RejectReason::VENDOR_OPTION_NOT_SUPPORTED`]; the kernel uses the others
    /// itself. iWARP carries no reason: the peer gets an errno.
    ///
    /// # Errors
    ///
    /// The request is rejected in any case.
    /// - [`ErrorKind::InvalidInput`] if `reason` is another one, or if `private_data` are too long.
    /// - EINVAL if the peer has ended its attempt.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Incoming, RejectReason};
    ///
    /// # fn f(incoming: Incoming) -> rdmacm::Result<()> {
    /// incoming.reject(RejectReason::CONSUMER_DEFINED, b"busy")?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, reason: RejectReason, private_data: &[u8]) -> Result<()> {
        const OPERATION: &str = "reject";
        let rejected = match reason {
            RejectReason::CONSUMER_DEFINED => self.id.reject(private_data),
            RejectReason::VENDOR_OPTION_NOT_SUPPORTED => self.id.reject_ece(private_data),
            RejectReason(number) => {
                let reason =
                    format!("reason {number} is reserved for the kernel; use `CONSUMER_DEFINED`");
                Err(Error::invalid(OPERATION, "", reason))
            }
        };
        rejected.map_err(|error| error.of(OPERATION, AttemptPeer::query_client(&self.id).subject()))
    }

    /// Returns the peer's address, or `None` for an InfiniBand address and after a fork.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr().ok().flatten()
    }

    /// Returns the local address to which the peer connects.
    ///
    /// Returns `None` for an InfiniBand address and after a fork.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr().ok().flatten()
    }

    /// Returns the device over which the request arrived.
    ///
    /// # Errors
    ///
    /// The errors of [`CmId::context`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Incoming, RejectReason};
    ///
    /// /// Rejects a request that did not arrive over the device `name`.
    /// fn over(incoming: Incoming, name: &str) -> rdmacm::Result<Option<Incoming>> {
    ///     if incoming.device()?.name() == name {
    ///         return Ok(Some(incoming));
    ///     }
    ///     incoming.reject(RejectReason::CONSUMER_DEFINED, b"another device")?;
    ///     Ok(None)
    /// }
    /// ```
    pub fn device(&self) -> Result<Device> {
        Ok(self.id.context()?.device().clone())
    }

    /// Returns the private data that the peer's program sent with the request.
    ///
    /// On InfiniBand and RoCE they have 56 bytes, filled with zeros; on iWARP they have the length that was sent.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::net::SocketAddr;
    ///
    /// use rdmacm::endpoint::Incoming;
    ///
    /// /// Returns the address and the name of a client, which sends its name in 16 bytes.
    /// fn client(incoming: &Incoming) -> (Option<SocketAddr>, Option<[u8; 16]>) {
    ///     (incoming.peer_addr(), incoming.private_data().first_chunk().copied())
    /// }
    /// ```
    pub fn private_data(&self) -> &[u8] {
        &self.param.private_data
    }

    /// Returns the parameters that the peer proposes, from the point of view of this side.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{ConnectionConfig, Incoming};
    ///
    /// /// Returns a configuration that reads no more at once than the peer offers.
    /// fn config(incoming: &Incoming) -> ConnectionConfig {
    ///     ConnectionConfig::new().initiator_depth(incoming.conn_param().initiator_depth.min(4))
    /// }
    /// ```
    pub fn conn_param(&self) -> &ConnParam {
        &self.param
    }

    /// Takes the id of the request, the proposal of the peer, and the trace of an answered request.
    pub(in crate::endpoint) fn into_parts(self) -> (CmId, ConnParam, Trace) {
        let Self { id, param, trace } = self;
        (id, param, trace.answered())
    }
}

/// Accepts the request of `id`, which is from `client`.
///
/// Before that, it moves the request to a separate channel and creates the objects of a connection.
fn accept(
    id: CmId,
    client: AttemptPeer,
    config: &ConnectionConfig,
    private_data: &[u8],
    deadline: Option<Instant>,
) -> Result<(NewEndpoint, EventChannel)> {
    if has_passed(deadline) {
        return Err(client.total_timeout_error());
    }
    let channel = EventChannel::new()?;
    id.migrate(&channel)?;
    let endpoint = NewEndpoint::create(id, config, true)?;
    endpoint.objects.id.accept(&config.param(private_data))?;
    Ok((endpoint, channel))
}
