//! [`Connecting`], a connection attempt in progress.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::Epoll;

use super::attempt::{Attempt, Handshake, Phase, Step, WAIT_FOR};
use super::connect_attempt::ConnectAttempt;
use super::connection::Connection;
#[cfg(doc)]
use super::connector::Connector;
use super::deadline::has_passed;
#[cfg(doc)]
use super::incoming::Incoming;
use super::kernel_objects::NewEndpoint;
use super::readiness::Readiness;
use super::state::State;
use super::trace::Trace;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel};
use crate::error::{Error, ErrorKind, Result};

/// A connection that comes about, of [`Connector::start`] or [`Incoming::start`]: for event loops.
///
/// Goes on by [`try_wait`](Self::try_wait), which is worth trying when the descriptor
/// ([`AsFd`]) is readable, and when the [`deadline`](Self::deadline) has passed. The descriptor is
/// that of the [`Connection`] which comes of it: who has added it to a poll has added both.
///
/// Dropping it ends the attempt, and leaves nothing in the kernel. What [takes its
/// time](super#calls-that-take-their-time) in a call does so here too.
///
/// ```no_run
/// use rdmacm::ErrorKind;
/// use rdmacm::endpoint::Connector;
/// # fn sleep(_: impl std::os::fd::AsFd, _: Option<std::time::Instant>) {}
///
/// let server: std::net::SocketAddr = "10.0.0.1:7471".parse()?;
/// let mut connecting = Connector::new().start(server)?;
/// let connection = loop {
///     match connecting.try_wait() {
///         // Among other things that the loop waits for.
///         Err(error) if *error.kind() == ErrorKind::WouldBlock => {
///             sleep(&connecting, connecting.deadline());
///         }
///         done => break done?,
///     }
/// };
/// println!("connected to {:?}", connection.peer_addr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Connecting {
    /// Absent after the attempt is over.
    attempt: Option<Attempt>,
    readiness: Arc<Readiness>,
    trace: Trace,
    /// The server that was asked, for errors.
    server: Option<Address>,
}

impl Connecting {
    /// Waits for the address of the peer, which `id` resolves since before `until` was counted.
    pub(super) fn to_peer(
        id: CmId,
        channel: EventChannel,
        attempt: ConnectAttempt,
        until: Option<Instant>,
        overall: Option<Instant>,
        trace: Trace,
    ) -> Result<Self> {
        trace.is("resolving");
        let server = Some(attempt.server);
        Self::new(Phase::Address(id, Box::new(attempt)), channel, until, overall, trace, server)
    }

    /// Waits until an accepted connection is established.
    pub(super) fn accepted(
        endpoint: NewEndpoint,
        channel: EventChannel,
        request_data: Vec<u8>,
        until: Option<Instant>,
        trace: Trace,
    ) -> Result<Self> {
        trace.is("accepting");
        let handshake = Handshake { endpoint, request_data: Some(request_data) };
        Self::new(Phase::Answer(Box::new(handshake)), channel, until, until, trace, None)
    }

    fn new(
        phase: Phase,
        channel: EventChannel,
        until: Option<Instant>,
        overall: Option<Instant>,
        trace: Trace,
        server: Option<Address>,
    ) -> Result<Self> {
        let readiness = channel.set_nonblocking(true).and_then(|()| Readiness::new(&channel));
        let readiness = Arc::new(readiness.inspect_err(|error| trace.failed(error))?);
        let attempt = Attempt::new(phase, channel, until, overall);
        Ok(Self { attempt: Some(attempt), readiness, trace, server })
    }

    /// Goes on as far as that is possible now; the connection, when it stands.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] where there is something to wait for; any other one ends the
    /// attempt, and nothing is left: those of [`Connector::connect`] or [`Incoming::accept`], with
    /// [`ErrorKind::TimedOut`] when the [`deadline`](Self::deadline) has passed, and
    /// [`ErrorKind::Invalid`] when it is over already. (On iWARP a call that gives the attempt up may take its
    /// time: see [`Connector::timeout`].)
    pub fn try_wait(&mut self) -> Result<Connection> {
        let Some(attempt) = self.attempt.take() else {
            return Err(Error::invalid(WAIT_FOR, "a connection", "the attempt is over"));
        };
        self.advance(attempt).map_err(|error| {
            if *error.kind() == ErrorKind::WouldBlock {
                return error;
            }
            let error = match self.server {
                Some(server) => error.on_the_way_to(server),
                None => error,
            };
            self.trace.failed(&error);
            error
        })
    }

    fn advance(&mut self, mut attempt: Attempt) -> Result<Connection> {
        loop {
            // An event that has come counts, also after the deadline.
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

    /// Waits until the connection stands, or will not. A signal does not end that.
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
    pub(super) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.readiness.epoll)
    }

    /// When to [try](Self::try_wait) again at the latest: the timeout of what is waited for, or
    /// of all together, is over then. `None` where there is none, or the attempt is over.
    pub fn deadline(&self) -> Option<Instant> {
        self.attempt.as_ref().and_then(Attempt::deadline)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if self.attempt.is_some() {
            self.trace.is("given up");
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
    /// The descriptor that becomes readable, and will be that of the connection.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}
