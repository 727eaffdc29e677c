//! The state of a synchronous id ([`SyncMode`]), and the events that end a waiting call.

use std::fmt;
use std::sync::{Mutex, MutexGuard, RwLock};

use nix::errno::Errno;

use super::channel::EventChannel;
use super::event_facts::EventFacts;
use super::parse::EventType;
use crate::addr::Address;
use crate::error::{Error, ErrorKind};
use crate::lock::ignore_poison;
use crate::sync::HandoffMutex;

/// The additional state of a synchronous id.
#[derive(Debug)]
pub(super) struct SyncMode {
    pub(super) channel: EventChannel,
    /// Lock of the calls that wait.
    ///
    /// A call that waits for its outcome, or that ends the mode, holds it for writing. Calls that wait for requests
    /// hold it for reading.
    pub(super) call_lock: RwLock<()>,
    /// Lock of the thread that waits on the channel for requests.
    ///
    /// It ensures that a removal of the device is reported once.
    pub(super) request_reader: HandoffMutex<()>,
    /// The event that ended the last waiting call.
    last_event: Mutex<Option<EventFacts>>,
    /// The event of a call that timed out.
    pending_call: Mutex<Option<Awaited>>,
}

/// The event that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) event: EventType,
    /// The multicast group that the event must be about, if any.
    pub(super) group: Option<Address>,
}

impl Awaited {
    /// Returns the event that reports that the id has joined `group`.
    pub(super) fn join(group: Address) -> Self {
        Self { event: EventType::MulticastJoin, group: Some(group) }
    }

    /// Returns `true` if an event of type `seen` ends the call.
    ///
    /// `group` is the multicast group that the event is about, if any.
    pub(super) fn is_ended_by(self, seen: EventType, group: Option<Address>) -> bool {
        ends_call(seen, self.event) && group.is_none_or(|group| self.group == Some(group))
    }
}

impl From<EventType> for Awaited {
    fn from(event: EventType) -> Self {
        Self { event, group: None }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.event)?;
        self.group.map_or(Ok(()), |group| write!(f, " of {group}"))
    }
}

impl SyncMode {
    pub(super) fn new(channel: EventChannel) -> Self {
        Self {
            channel,
            call_lock: RwLock::default(),
            request_reader: HandoffMutex::default(),
            last_event: Mutex::default(),
            pending_call: Mutex::default(),
        }
    }

    /// Forgets a pending call that joins `group`, which the id has left.
    pub(super) fn forget_join(&self, group: &Address) {
        self.pending_call().take_if(|awaited| awaited.group.as_ref() == Some(group));
    }

    pub(super) fn last_event(&self) -> MutexGuard<'_, Option<EventFacts>> {
        ignore_poison(self.last_event.lock())
    }

    pub(super) fn pending_call(&self) -> MutexGuard<'_, Option<Awaited>> {
        ignore_poison(self.pending_call.lock())
    }
}

/// Returns `true` if `seen` ends a call that waits for `awaited`.
pub(super) fn ends_call(seen: EventType, awaited: EventType) -> bool {
    use EventType as T;
    seen == awaited
        || match seen {
            T::DeviceRemoval => true,
            T::AddrError => awaited == T::AddrResolved,
            T::RouteError => awaited == T::RouteResolved,
            T::AddrinfoError => awaited == T::AddrinfoResolved,
            T::MulticastError => awaited == T::MulticastJoin,
            T::ConnectResponse | T::Disconnected => awaited == T::Established,
            T::Unreachable => awaited == T::Established,
            T::ConnectError | T::Rejected => matches!(awaited, T::Established | T::Disconnected),
            T::TimewaitExit => awaited == T::Disconnected,
            _ => false,
        }
}

/// Returns the error of `operation` on an id while another thread waits in a call of the id.
pub(super) fn busy_error(operation: &'static str, id: &impl fmt::Display) -> Error {
    let reason = "another thread waits in a call of the id, or has moved the id".into();
    let kind = ErrorKind::InvalidInput { errno: Errno::EBUSY as i32, reason };
    Error::new(operation, id.to_string(), kind)
}

#[cfg(test)]
mod tests;
