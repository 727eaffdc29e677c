//! [`Connecting`], a connection attempt in progress.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;
use std::vec;

use nix::sys::epoll::Epoll;

use super::attempt::{Attempt, Handshake, Phase, Step, WAIT_FOR};
use super::attempt_peer::AttemptPeer;
use super::connector::Connector;
#[cfg(doc)]
use super::incoming::Incoming;
use crate::addr::Address;
use crate::cm::EventChannel;
use crate::endpoint::connection::handle::Connection;
use crate::endpoint::shared::kernel_objects::NewEndpoint;
use crate::endpoint::shared::readiness::Readiness;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::wait::deadline::has_passed;
use crate::error::{Error, ErrorKind, Result};

/// A connection attempt in progress, for event loops.
///
/// Created by [`Connector::start_connect`] or [`Incoming::start_accept`]. Call [`try_wait`](Self::try_wait) when the
/// descriptor ([`AsFd`]) is readable and when the [`deadline`](Self::deadline) has passed. The [`Connection`] has the
/// same descriptor, so an event loop registers it once.
///
/// Dropping it ends the attempt and leaves nothing in the kernel. Calls that [take their
/// time](crate::endpoint#calls-that-take-their-time) take it here too.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::ErrorKind;
/// use rdmacm::endpoint::Connector;
/// # fn sleep(_: impl std::os::fd::AsFd, _: Option<std::time::Instant>) {}
///
/// let mut connecting = Connector::new().start_connect("10.0.0.1:7471")?;
/// let connection = loop {
///     match connecting.try_wait() {
///         // An event loop waits for other descriptors too.
///         Err(error) if *error.kind() == ErrorKind::WouldBlock => {
///             sleep(&connecting, connecting.deadline());
///         }
///         done => break done?,
///     }
/// };
/// println!("connected to {:?}", connection.peer_addr());
/// # Ok::<(), rdmacm::Error>(())
/// ```
pub struct Connecting {
    /// Absent after the attempt is over.
    attempt: Option<Attempt>,
    /// Absent if there is one server only.
    others: Option<Box<OtherServers>>,
    readiness: Arc<Readiness>,
    trace: Trace,
    /// The peer, for errors.
    peer: AttemptPeer,
}

/// The servers that are tried in turn if the attempt fails.
struct OtherServers {
    connector: Connector,
    servers: vec::IntoIter<Address>,
}

/// Starts an attempt to connect to `server`.
fn start(
    connector: &Connector,
    server: Address,
    total_deadline: Option<Instant>,
) -> Result<(Attempt, Trace)> {
    let channel = EventChannel::new()?;
    let (id, attempt, deadline, trace) = connector.start_resolving(&channel, server)?;
    trace.set_state("resolving");
    let phase = Phase::Address(id, Box::new(attempt));
    Ok((Attempt::new(phase, channel, deadline, total_deadline), trace))
}

impl Connecting {
    /// Connects to the servers in turn until one attempt succeeds, until `total_deadline` at the latest.
    pub(in crate::endpoint) fn connect(
        connector: &Connector,
        servers: Vec<Address>,
        total_deadline: Option<Instant>,
    ) -> Result<Self> {
        let mut servers = servers.into_iter();
        let (attempt, trace, server) = loop {
            let server = servers.next().expect("a target has an address");
            match start(connector, server, total_deadline) {
                Ok((attempt, trace)) => break (attempt, trace, server),
                Err(error) if servers.len() == 0 => return Err(error),
                Err(_) => {}
            }
        };
        let others = (servers.len() > 0)
            .then(|| Box::new(OtherServers { connector: connector.clone(), servers }));
        Self::new(attempt, others, trace, AttemptPeer::Server(server))
    }

    /// Waits until an accepted connection is established.
    pub(in crate::endpoint) fn accepted(
        endpoint: NewEndpoint,
        channel: EventChannel,
        peer: AttemptPeer,
        request_data: Vec<u8>,
        deadline: Option<Instant>,
        trace: Trace,
    ) -> Result<Self> {
        trace.set_state("accepting");
        let handshake = Handshake { endpoint, request_data: Some(request_data), peer };
        let attempt = Attempt::new(Phase::Answer(Box::new(handshake)), channel, deadline, deadline);
        Self::new(attempt, None, trace, peer)
    }

    fn new(
        attempt: Attempt,
        others: Option<Box<OtherServers>>,
        trace: Trace,
        peer: AttemptPeer,
    ) -> Result<Self> {
        let channel = attempt.channel();
        let readiness = channel.set_nonblocking(true).and_then(|()| Readiness::new(channel));
        let readiness = Arc::new(readiness.inspect_err(|error| trace.failed(error))?);
        Ok(Self { attempt: Some(attempt), others, readiness, trace, peer })
    }

    /// Advances the attempt without waiting, and returns the connection when it is established.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldBlock`] if the attempt waits for an event. Every other error ends it and destroys its
    ///   objects.
    /// - [`ErrorKind::TimedOut`] if the [`deadline`](Self::deadline) has passed.
    /// - [`ErrorKind::InvalidInput`] if the attempt has ended before.
    /// - The errors of [`Connector::connect`] or [`Incoming::accept`].
    ///
    /// # Driver notes
    ///
    /// On iWARP a call that cancels the attempt may block: see [`Connector::total_timeout`].
    pub fn try_wait(&mut self) -> Result<Connection> {
        loop {
            let Some(attempt) = self.attempt.take() else {
                return Err(Error::invalid(
                    WAIT_FOR,
                    "a connection",
                    "the attempt has already ended",
                ));
            };
            let total_deadline = attempt.total_deadline();
            let error = match self.advance(attempt) {
                Err(error) if *error.kind() != ErrorKind::WouldBlock => error,
                other => return other,
            };
            let error = self.peer.add_to(error);
            self.trace.failed(&error);
            if has_passed(total_deadline) {
                return Err(error);
            }
            self.start_next(total_deadline, error)?;
        }
    }

    /// Starts an attempt to connect to the next server.
    ///
    /// Returns the error of the last attempt if no server is left.
    fn start_next(&mut self, total_deadline: Option<Instant>, mut last_error: Error) -> Result<()> {
        let Some(OtherServers { connector, servers }) = self.others.as_deref_mut() else {
            return Err(last_error);
        };
        for server in servers {
            let started = start(connector, server, total_deadline).and_then(|(attempt, trace)| {
                attempt.channel().set_nonblocking(true)?;
                self.readiness.add_channel(attempt.channel())?;
                Ok((attempt, trace))
            });
            match started {
                Ok((attempt, trace)) => {
                    (self.attempt, self.trace) = (Some(attempt), trace);
                    self.peer = AttemptPeer::Server(server);
                    return Ok(());
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn advance(&mut self, mut attempt: Attempt) -> Result<Connection> {
        loop {
            // An event that has arrived counts, even after the deadline.
            let Some(event) = attempt.event(&self.trace)? else {
                if has_passed(attempt.deadline()) {
                    return Err(attempt.error(ErrorKind::TimedOut));
                }
                let later = attempt.error(ErrorKind::WouldBlock);
                self.attempt = Some(attempt);
                return Err(later);
            };
            match attempt.advance(&event, &self.trace)? {
                Step::Phase(next) => attempt = next,
                Step::Established(handshake, channel, private_data) => {
                    let state = State::new(handshake.endpoint, None);
                    let (readiness, trace) = (Arc::clone(&self.readiness), &mut self.trace);
                    return Connection::new(state, channel, readiness, private_data, trace);
                }
            }
        }
    }

    /// Waits until the connection is established or the attempt fails. A signal does not end the wait.
    ///
    /// # Errors
    ///
    /// The errors of [`try_wait`](Self::try_wait), but never [`ErrorKind::WouldBlock`].
    pub fn wait(mut self) -> Result<Connection> {
        loop {
            match self.try_wait() {
                Err(error) if *error.kind() == ErrorKind::WouldBlock => {
                    self.readiness.wait(self.deadline())?;
                }
                finished => return finished,
            }
        }
    }

    /// Returns the epoll instance of the attempt, and of the connection.
    pub(in crate::endpoint) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.readiness.epoll)
    }

    /// Returns the time at which to call [`try_wait`](Self::try_wait) at the latest.
    ///
    /// It is the earlier one of the deadlines of the current step and of the whole attempt. `None` if there is none, or
    /// if the attempt has ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.attempt.as_ref().and_then(Attempt::deadline)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if self.attempt.is_some() {
            self.trace.set_state("canceled");
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let awaited = self.attempt.as_ref().map(|attempt| attempt.awaited().1);
        f.debug_struct("Connecting")
            .field("awaited", &awaited)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

impl AsFd for Connecting {
    /// Returns the descriptor that becomes readable. The connection will have the same descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl AsRawFd for Connecting {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
