//! An attempt at a connection: the phases that the events of its id lead through.

use std::time::{Duration, Instant};

use super::attempt_peer::AttemptPeer;
use super::connect_attempt::ConnectAttempt;
use crate::cm::{CmId, ConnParam, Event, EventChannel, EventType};
use crate::device::Transport;
use crate::endpoint::core::FIRST_WRITE_INTERVAL;
use crate::endpoint::shared::kernel_objects::NewEndpoint;
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::wait::deadline::{deadline_after, earlier, has_passed};
use crate::error::{Error, ErrorKind, Result};

/// The operation of a call that waits for the next phase.
pub(in crate::endpoint) const WAIT_FOR: &str = "wait for";

/// A connection attempt in progress.
pub(in crate::endpoint) struct Attempt {
    // Declared first: the id is dropped before its channel.
    phase: Phase,
    channel: EventChannel,
    /// The deadline of the phase.
    deadline: Option<Instant>,
    /// The deadline of all phases together.
    total_deadline: Option<Instant>,
}

/// The event that an attempt waits for.
pub(in crate::endpoint) enum Phase {
    Address(CmId, Box<ConnectAttempt>),
    Route(CmId, Box<ConnectAttempt>),
    Answer(Box<Handshake>),
}

/// The parts of a connection that is not established yet.
pub(in crate::endpoint) struct Handshake {
    pub(in crate::endpoint) endpoint: NewEndpoint,
    /// The private data of the peer's request, if the peer has asked for the connection.
    pub(in crate::endpoint) request_data: Option<Vec<u8>>,
    /// The peer, for errors.
    pub(in crate::endpoint) peer: AttemptPeer,
}

/// The state of an attempt after an event.
pub(in crate::endpoint) enum Step {
    Phase(Attempt),
    /// The connection is established; the peer has sent these private data.
    Established(Box<Handshake>, EventChannel, Vec<u8>),
}

/// Asks the peer to connect, until `deadline` at the latest.
///
/// On iWARP the kernel connects by TCP within the command, and a signal interrupts that. The kernel has
/// then taken the attempt back, so the command is repeated, as the kernel does if the signal's handler
/// was installed with `SA_RESTART`.
pub(in crate::endpoint) fn connect(
    id: &CmId,
    param: &ConnParam,
    peer: AttemptPeer,
    deadline: Option<Instant>,
) -> Result<()> {
    loop {
        match id.connect(param) {
            Err(error) if error.errno() == libc::EINTR => {
                if has_passed(deadline) {
                    let awaited = EventType::Established;
                    let subject = format!("{awaited} on id {}", id.token());
                    let late = Error::new(WAIT_FOR, subject, ErrorKind::TimedOut);
                    return Err(peer.step_error(late, awaited));
                }
            }
            connected => {
                return connected.map_err(|error| peer.step_error(error, EventType::Established));
            }
        }
    }
}

/// Starts to resolve the route of `id` to `peer`.
pub(in crate::endpoint) fn resolve_route(
    id: &CmId,
    timeout: Duration,
    peer: AttemptPeer,
) -> Result<()> {
    // The kernel refuses a timeout of zero.
    let started = id.resolve_route(timeout.max(Duration::from_millis(1)));
    started.map_err(|error| peer.step_error(error, EventType::RouteResolved))
}

impl Attempt {
    pub(in crate::endpoint) fn new(
        phase: Phase,
        channel: EventChannel,
        deadline: Option<Instant>,
        total_deadline: Option<Instant>,
    ) -> Self {
        Self { phase, channel, deadline: earlier(deadline, total_deadline), total_deadline }
    }

    /// Returns the channel of the events of the attempt.
    pub(in crate::endpoint) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Returns the deadline of all phases together.
    pub(in crate::endpoint) fn total_deadline(&self) -> Option<Instant> {
        self.total_deadline
    }

    /// Returns the deadline of the phase.
    pub(in crate::endpoint) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the event for which the attempt waits, if it has arrived.
    pub(in crate::endpoint) fn event(&self, trace: &Trace) -> Result<Option<Event>> {
        loop {
            let read = self.channel.get_event().inspect(|event| trace.event(event));
            match read {
                // A neighbor or an interface has changed. The attempt continues.
                Ok(event) if event.event_type() == EventType::AddrChange => {}
                Ok(event) => {
                    let failure = event.error_for(self.awaited().1);
                    return failure.map_or(Ok(Some(event)), |error| Err(self.event_error(error)));
                }
                Err(error) if *error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the step that follows the event.
    pub(in crate::endpoint) fn advance(self, event: &Event, trace: &Trace) -> Result<Step> {
        // The next step may take long, and no caller would wait for its result.
        if !matches!(self.phase, Phase::Answer(_)) && has_passed(self.total_deadline) {
            return Err(self.peer().total_timeout_error());
        }
        let Self { phase, channel, total_deadline, .. } = self;
        let phase_deadline = |timeout: Duration| earlier(deadline_after(timeout), total_deadline);
        let (phase, deadline) = match phase {
            Phase::Address(id, attempt) => {
                let timeout = attempt.connector.resolve_route_timeout;
                let deadline = phase_deadline(timeout);
                resolve_route(&id, timeout, AttemptPeer::Server(attempt.server))?;
                (Phase::Route(id, attempt), deadline)
            }
            Phase::Route(id, mut attempt) => {
                let connector = &attempt.connector;
                let mut config = connector.config.clone();
                let transport = id.context()?.transport();
                let has_first_writes =
                    transport == Transport::Iwarp && config.keep_alive_interval.is_none();
                config.keep_alive_interval = config
                    .keep_alive_interval
                    .or_else(|| has_first_writes.then_some(FIRST_WRITE_INTERVAL));
                let mut endpoint = NewEndpoint::create(id, &config, true)?;
                if has_first_writes {
                    endpoint.core.end_keep_alive_soon();
                }
                let deadline = phase_deadline(connector.response_timeout);
                let param = config.param(&connector.private_data);
                let peer = AttemptPeer::Server(attempt.server);
                match connect(&endpoint.objects.id, &param, peer, deadline) {
                    Ok(()) => {
                        trace.set_state("connecting");
                        let handshake = Handshake { endpoint, request_data: None, peer };
                        (Phase::Answer(Box::new(handshake)), deadline)
                    }
                    Err(error) => {
                        let (id, deadline) = attempt.retry_on_new_port(&channel, error)?;
                        trace.record_retry(id.token());
                        (Phase::Address(id, attempt), earlier(deadline, total_deadline))
                    }
                }
            }
            Phase::Answer(mut handshake) => {
                let requested = handshake.request_data.take();
                let private_data = requested.unwrap_or_else(|| event.private_data().to_vec());
                return Ok(Step::Established(handshake, channel, private_data));
            }
        };
        Ok(Step::Phase(Self { phase, channel, deadline, total_deadline }))
    }

    /// Returns the event that the attempt waits for, and its id.
    pub(in crate::endpoint) fn awaited(&self) -> (&CmId, EventType) {
        match &self.phase {
            Phase::Address(id, _) => (id, EventType::AddrResolved),
            Phase::Route(id, _) => (id, EventType::RouteResolved),
            Phase::Answer(handshake) => (&handshake.endpoint.objects.id, EventType::Established),
        }
    }

    pub(in crate::endpoint) fn error(&self, kind: ErrorKind) -> Error {
        let (id, wanted) = self.awaited();
        self.phase_error(Error::new(WAIT_FOR, format!("{wanted} on id {}", id.token()), kind))
    }

    /// Returns the error of an event as the failure of the phase.
    fn event_error(&self, error: Error) -> Error {
        let (id, awaited) = self.awaited();
        let is_iwarp = id.context().is_ok_and(|device| device.transport() == Transport::Iwarp);
        self.peer().event_error(error, awaited, is_iwarp)
    }

    /// Returns `error` as the failure of the phase.
    fn phase_error(&self, error: Error) -> Error {
        self.peer().step_error(error, self.awaited().1)
    }

    /// Returns the peer, for errors.
    fn peer(&self) -> AttemptPeer {
        match &self.phase {
            Phase::Answer(handshake) => handshake.peer,
            Phase::Address(_, attempt) | Phase::Route(_, attempt) => {
                AttemptPeer::Server(attempt.server)
            }
        }
    }
}
