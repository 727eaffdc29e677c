//! The connection of one member: its core, its kernel objects, and the attempt to connect.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::config::PollGroupConfig;
use super::member_table::Member;
use super::resources::{MemberBuffer, MemberIo, Resources};
use crate::cm::{CmId, EventType};
use crate::endpoint::connect::attempt_peer::AttemptPeer;
use crate::endpoint::connect::connect_attempt::ConnectAttempt;
use crate::endpoint::connect::connector::Connector;
use crate::endpoint::core::operation::Interest;
use crate::endpoint::core::{Core, Effects, EndReason, Messages, Protocol, Queue};
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::wait::deadline::{deadline_after, earlier, has_passed};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{AsyncEventType, Completion, Context, OwnedSends};

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The address of the peer is being resolved.
    Address,
    /// The route to the peer is being resolved.
    Route,
    /// The peer was asked, or accepted, and has not answered.
    Answer,
    Established,
    /// The program has closed the member.
    ///
    /// Some messages have not been sent yet, or the peer is not disconnected yet.
    Closing,
}

impl Phase {
    /// Returns the event that the phase waits for, before the connection is established.
    pub(super) fn awaited(self) -> Option<EventType> {
        match self {
            Self::Address => Some(EventType::AddrResolved),
            Self::Route => Some(EventType::RouteResolved),
            Self::Answer => Some(EventType::Established),
            Self::Established | Self::Closing => None,
        }
    }
}

/// An attempt to connect, or to be accepted.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The parameters of this side, if it connects.
    pub(super) connect_attempt: Option<ConnectAttempt>,
    /// The peer, for errors.
    pub(super) peer: AttemptPeer,
    /// The private data of the request, if the peer connects.
    pub(super) private_data: Vec<u8>,
    /// The deadline of the phase.
    pub(super) deadline: Option<Instant>,
    /// The deadline of the whole attempt.
    pub(super) total_deadline: Option<Instant>,
}

/// The resource that a member lacks since a call returned [`WouldBlock`](ErrorKind::WouldBlock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingResource {
    None,
    /// A place in its send queue.
    Place,
    /// A buffer of the group. The member is in the queue of members that wait for a buffer.
    Buffer,
}

/// The connection of one member.
#[derive(Debug)]
pub(super) struct Link {
    // Declared first: dropping the id ends the connection, and the id holds the queue pair too.
    pub(super) id: CmId,
    /// The send queue; `None` before the member has a queue pair.
    pub(super) sends: Option<OwnedSends>,
    pub(super) core: Core<MemberBuffer, Infallible>,
    /// The index of the place for receiving.
    pub(super) receive_index: u32,
    pub(super) phase: Phase,
    /// Absent when the connection is established.
    pub(super) attempt: Option<Box<Attempt>>,
    /// The number of messages that the program holds, or that wait for it.
    pub(super) held: u32,
    /// The poll of the group in which the last message arrived.
    ///
    /// See [`Starvation`](super::starvation::Starvation).
    pub(super) last_poll: u64,
    pub(super) missing: MissingResource,
    /// `true` if [`Event::Sent`](super::Event::Sent) is due when all messages have been sent.
    pub(super) wants_sent: bool,
    /// `true` if the member has connected over iWARP and still posts empty writes.
    ///
    /// They make the peer's kernel process the first message: see [`CmId::accept`].
    pub(super) writes_first: bool,
    /// `true` if the member is in the list of ending members.
    pub(super) is_ending: bool,
    /// The reason why connecting has failed.
    pub(super) failure: Option<Error>,
    pub(super) peer_addr: Option<SocketAddr>,
    pub(super) private_data: Box<[u8]>,
    pub(super) trace: Trace,
}

impl Link {
    pub(super) fn new(
        id: CmId,
        context: &Context,
        config: &PollGroupConfig,
        (phase, attempt): (Phase, Attempt),
        writes_first: bool,
        trace: Trace,
    ) -> Self {
        let capabilities = context.driver_capabilities();
        let places = config.send_buffers_per_member.min(config.send_buffers);
        let writes_first = writes_first && config.keep_alive_interval.is_none();
        let is_kept_alive = writes_first || config.keep_alive_interval.is_some();
        // The core counts one receive for each message that the program may hold, and one more that may fail.
        let receives = config.max_held.saturating_add(1);
        let keep_alive_index = places.saturating_add(receives);
        let keep_alive = is_kept_alive.then(|| MemberBuffer::new(keep_alive_index, None));
        let (oversize, disconnect) = (capabilities.oversize_status, capabilities.disconnect_status);
        // The group itself detects that messages may have found no buffer.
        let mut messages = Messages::new(false, 0, oversize, disconnect, keep_alive);
        messages.qp_follows_connection = capabilities.qp_follows_connection;
        let free = (0..places).map(|index| MemberBuffer::new(index, None)).collect();
        let receives = usize::try_from(receives).expect("32 bits fit");
        let receive_index = places;
        let mut core = Core::new(free, receives, Protocol::Messages(messages));
        if writes_first {
            core.end_keep_alive_soon();
        }
        Self {
            id,
            sends: None,
            core,
            receive_index,
            phase,
            attempt: Some(Box::new(attempt)),
            held: 0,
            last_poll: 0,
            missing: MissingResource::None,
            wants_sent: false,
            writes_first,
            is_ending: false,
            failure: None,
            peer_addr: None,
            private_data: Box::default(),
            trace,
        }
    }

    /// Returns `true` if the member may send.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Established && self.core.end().is_none() && !self.is_ending
    }

    pub(super) fn qp_num(&self) -> Option<u32> {
        self.sends.as_ref().map(|sends| sends.qp().number())
    }

    /// Records the resource that the member lacks, and returns `true` if it has lacked none before.
    pub(super) fn set_missing(&mut self, missing: MissingResource) -> bool {
        std::mem::replace(&mut self.missing, missing) == MissingResource::None
    }

    /// Adds `member`, which has this connection, to the list of ending members, unless it is in the list.
    pub(super) fn mark_ending(&mut self, member: Member, ending: &mut Vec<Member>) {
        if !self.is_ending {
            self.is_ending = true;
            ending.push(member);
        }
    }

    /// Returns `true` if the reason of the end is known. Later events do not change it.
    pub(super) fn is_finished(&self) -> bool {
        self.is_ending && self.core.end() != Some(EndReason::Unreported)
    }

    /// Handles the event that the peer, or the kernel of this side, has ended the connection.
    pub(super) fn on_disconnected(&mut self, failure: Option<AsyncEventType>) {
        // All completions have been polled, unless polling has failed.
        let _ = self.core.on_disconnected(None::<&mut MemberIo<'_>>, failure);
    }

    /// Passes a completion to the core.
    pub(super) fn complete(
        &mut self,
        shared: &mut Resources,
        queue: Queue,
        buffer: MemberBuffer,
        completion: &Completion,
    ) -> Result<()> {
        let completed = Some((queue, buffer, *completion));
        let mut io = MemberIo { shared, sends: self.sends.as_mut(), completed };
        self.core.poll(&mut io, Interest::All).map(drop)
    }

    /// Begins a phase of an attempt to connect. Returns its timeout.
    ///
    /// # Errors
    ///
    /// Returns `TimedOut` if the whole attempt has timed out, so that the kernel begins no useless step.
    pub(super) fn begin(
        &mut self,
        phase: Phase,
        timeout: impl FnOnce(&Connector) -> Duration,
    ) -> Result<Duration> {
        let Some(attempt) = &mut self.attempt else { return Ok(Duration::ZERO) };
        if has_passed(attempt.total_deadline) {
            return Err(self.attempt_peer().total_timeout_error());
        }
        let timeout = attempt
            .connect_attempt
            .as_ref()
            .map_or(Duration::ZERO, |connect_attempt| timeout(&connect_attempt.connector));
        attempt.deadline = earlier(deadline_after(timeout), attempt.total_deadline);
        self.phase = phase;
        Ok(timeout)
    }

    /// Returns the error that the time of the attempt is over.
    pub(super) fn timeout_error(&self) -> Error {
        let awaited = self.phase.awaited().unwrap_or(EventType::Established);
        let subject = format!("{awaited} on id {}", self.id.token());
        let late = Error::new("wait for", subject, ErrorKind::TimedOut);
        self.attempt_peer().step_error(late, awaited)
    }

    /// Returns the peer of the attempt, for errors.
    pub(super) fn attempt_peer(&self) -> AttemptPeer {
        self.attempt.as_ref().map_or(AttemptPeer::Client(None), |attempt| attempt.peer)
    }

    /// Handles the time of a keep-alive write, or of a first write.
    pub(super) fn on_timer(&mut self, shared: &mut Resources) {
        let mut io = MemberIo { shared, sends: self.sends.as_mut(), completed: None };
        // There is no completion to poll that could fail.
        let _ = self.core.on_timer(&mut io);
        if self.core.take_effects().contains(Effects::STOP_TIMER) {
            self.writes_first = false;
        }
    }

    /// Returns the name of the connection in errors.
    pub(super) fn name(&self) -> String {
        match self.peer_addr {
            Some(peer) => format!("the connection to {peer}"),
            None => format!("the connection of id {}", self.id.token()),
        }
    }

    /// Returns the error of an operation, or of the end, of this connection.
    pub(super) fn error(&self, operation: &'static str, kind: ErrorKind) -> Error {
        Error::new(operation, self.name(), kind)
    }
}
