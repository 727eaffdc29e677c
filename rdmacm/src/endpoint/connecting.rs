//! A connection that comes about: of the events of its id, one after the other.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use nix::sys::epoll::Epoll;

use super::connection::Connection;
use super::connector::Asking;
#[cfg(doc)]
use super::connector::Connector;
use super::core::FIRST;
use super::deadline::{earlier, has_passed, within};
use super::kernel_objects::NewEndpoint;
#[cfg(doc)]
use super::listener::Incoming;
use super::readiness::Readiness;
use super::state::State;
use super::trace::Trace;
use crate::addr::Address;
use crate::cm::{CmId, ConnParam, Event, EventChannel, EventType};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};

const WAIT_FOR: &str = "wait for";

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
    /// Absent when it is over.
    attempt: Option<Attempt>,
    readiness: Arc<Readiness>,
    trace: Trace,
    /// Whom it has asked, for its errors.
    server: Option<Address>,
}

struct Attempt {
    // First: the id goes before its channel.
    phase: Phase,
    channel: EventChannel,
    /// When the phase is over.
    until: Option<Instant>,
    /// When all of it is.
    overall: Option<Instant>,
}

/// What an attempt waits for.
enum Phase {
    Address(CmId, Box<Asking>),
    Route(CmId, Box<Asking>),
    Answer(Box<Answer>),
}

/// What a connection will have, when it stands.
struct Answer {
    endpoint: NewEndpoint,
    /// What the peer sent along with its request, if it was the peer that asked.
    asked: Option<Vec<u8>>,
}

/// What becomes of an attempt.
enum Next {
    Phase(Attempt),
    Stands(Box<Answer>, EventChannel, Vec<u8>),
}

impl Connecting {
    /// Waits for the address of the peer, which `id` resolves since before `until` was counted.
    pub(super) fn to_peer(
        id: CmId,
        channel: EventChannel,
        asking: Asking,
        until: Option<Instant>,
        overall: Option<Instant>,
        trace: Trace,
    ) -> Result<Self> {
        trace.is("resolving");
        let server = Some(asking.server);
        Self::new(Phase::Address(id, Box::new(asking)), channel, until, overall, trace, server)
    }

    /// Waits until what was accepted stands.
    pub(super) fn accepted(
        endpoint: NewEndpoint,
        channel: EventChannel,
        asked: Vec<u8>,
        until: Option<Instant>,
        trace: Trace,
    ) -> Result<Self> {
        trace.is("accepting");
        let answer = Answer { endpoint, asked: Some(asked) };
        Self::new(Phase::Answer(Box::new(answer)), channel, until, until, trace, None)
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
        let until = earlier(until, overall);
        let attempt = Attempt { phase, channel, until, overall };
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
        self.go_on(attempt).map_err(|error| {
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

    fn go_on(&mut self, mut attempt: Attempt) -> Result<Connection> {
        loop {
            // What has come is looked at first, also by who comes late.
            let Some(event) = attempt.event(&self.trace)? else {
                if has_passed(attempt.until) {
                    return Err(attempt.error(ErrorKind::TimedOut));
                }
                let later = attempt.error(ErrorKind::WouldBlock);
                self.attempt = Some(attempt);
                return Err(later);
            };
            match attempt.go_on(event, &self.trace)? {
                Next::Phase(next) => attempt = next,
                Next::Stands(answer, channel, private_data) => {
                    let state = State::new(answer.endpoint, None);
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
    /// Those of [`try_wait`](Self::try_wait), but never [`ErrorKind::WouldBlock`].
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

    /// What its descriptor is of, and the connection's.
    #[cfg(feature = "tokio")]
    pub(super) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.readiness.epoll)
    }

    /// When to [try](Self::try_wait) again at the latest: the timeout of what is waited for, or
    /// of all together, is over then. `None` where there is none, or the attempt is over.
    pub fn deadline(&self) -> Option<Instant> {
        self.attempt.as_ref().and_then(|attempt| attempt.until)
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

/// Asks the peer to connect, until `until` at the latest.
///
/// On iWARP the kernel connects by TCP within the command, and a signal interrupts that. The kernel has
/// then taken the attempt back, so the command is repeated, as the kernel does if the signal's handler
/// was installed with `SA_RESTART`.
pub(super) fn connect(id: &CmId, param: &ConnParam, until: Option<Instant>) -> Result<()> {
    loop {
        match id.connect(param) {
            Err(error) if error.errno() == libc::EINTR => {
                if has_passed(until) {
                    let awaited = EventType::Established;
                    let subject = format!("{awaited} on id {}", id.token());
                    return Err(Error::new(WAIT_FOR, subject, ErrorKind::TimedOut));
                }
            }
            connected => return connected,
        }
    }
}

impl Attempt {
    /// What it waits for, if it has come.
    fn event(&self, trace: &Trace) -> Result<Option<Event>> {
        loop {
            let read = self.channel.get_event().inspect(|event| trace.event(event));
            match read {
                // Of a neighbour, or of an interface: no end of anything.
                Ok(event) if event.event_type() == EventType::AddrChange => {}
                Ok(event) => {
                    let failure = event.failure(self.awaited().1);
                    return failure.map_or(Ok(Some(event)), Err);
                }
                Err(error) if *error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Does what comes after the event that it waited for.
    fn go_on(self, event: Event, trace: &Trace) -> Result<Next> {
        // What comes next takes its time, for nobody.
        if !matches!(self.phase, Phase::Answer(_)) && has_passed(self.overall) {
            return Err(self.error(ErrorKind::TimedOut));
        }
        let Self { phase, channel, overall, .. } = self;
        let phase_within = |timeout: Duration| earlier(within(timeout), overall);
        let (phase, until) = match phase {
            Phase::Address(id, asking) => {
                let timeout = asking.connector.route_timeout;
                let until = phase_within(timeout);
                // The kernel refuses to look for no time.
                id.resolve_route(timeout.max(Duration::from_millis(1)))?;
                (Phase::Route(id, asking), until)
            }
            Phase::Route(id, mut asking) => {
                let connector = &asking.connector;
                let mut settings = connector.settings.clone();
                let transport = id.context()?.transport();
                let looks = transport == Transport::Iwarp && settings.keep_alive.is_none();
                settings.keep_alive = settings.keep_alive.or_else(|| looks.then_some(FIRST));
                let mut endpoint = NewEndpoint::create(id, &settings, true)?;
                if looks {
                    endpoint.core.end_keep_alive_soon();
                }
                let until = phase_within(connector.connect_timeout);
                let param = settings.param(&connector.private_data);
                match connect(&endpoint.objects.id, &param, until) {
                    Ok(()) => {
                        trace.is("connecting");
                        let answer = Answer { endpoint, asked: None };
                        (Phase::Answer(Box::new(answer)), until)
                    }
                    Err(error) => {
                        let (id, until) = asking.once_more(&channel, error)?;
                        trace.again(id.token());
                        (Phase::Address(id, asking), earlier(until, overall))
                    }
                }
            }
            Phase::Answer(mut answer) => {
                let asked = answer.asked.take();
                let private_data = asked.unwrap_or_else(|| event.private_data().to_vec());
                return Ok(Next::Stands(answer, channel, private_data));
            }
        };
        Ok(Next::Phase(Self { phase, channel, until, overall }))
    }

    /// What it waits for, and of which id.
    fn awaited(&self) -> (&CmId, EventType) {
        match &self.phase {
            Phase::Address(id, _) => (id, EventType::AddrResolved),
            Phase::Route(id, _) => (id, EventType::RouteResolved),
            Phase::Answer(answer) => (&answer.endpoint.objects.id, EventType::Established),
        }
    }

    fn error(&self, kind: ErrorKind) -> Error {
        let (id, wanted) = self.awaited();
        Error::new(WAIT_FOR, format!("{wanted} on id {}", id.token()), kind)
    }
}
