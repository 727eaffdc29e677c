//! [`Event`]: an event that was delivered to the program.

use nix::errno::Errno;

use super::event_facts::EventFacts;
use super::id::CmId;
use super::param::{ConnParam, DatagramParam};
use super::parse::{EventData, EventType};
use super::record::IDS;
use crate::acks::Unacknowledged;
use crate::addr::Address;
use crate::error::{Error, ErrorKind, UnreachableReason, hint};
use crate::error::{RejectReason, Rejection};
use crate::registry::Token;

const WAIT: &str = "wait for";

/// The statuses with which rdma_cm and uverbs report a removed device.
const DEVICE_REMOVED_STATUSES: [i32; 2] = [-(Errno::ENXIO as i32), -(Errno::EIO as i32)];

/// An event of an id, returned by [`EventChannel::get_event`](super::EventChannel::get_event).
///
/// Dropping the event acknowledges it (`rdma_ack_cm_event`). Until then [`CmId::destroy`] waits on
/// the id that the event counts for. A `ConnectRequest` counts for the listening id, any other
/// event for the id that it is about. [`CmId::leave_multicast`] waits for the events of its group.
/// The program owns the event and may send it to another thread.
///
/// A `ConnectRequest` owns the id of the new connection: take it with
/// [`take_request`](Self::take_request). If the id stays in the event, dropping the event destroys
/// it, which rejects the peer.
#[doc(alias = "rdma_cm_event")]
#[doc(alias = "rdma_ack_cm_event")]
#[derive(Debug)]
pub struct Event {
    // Declared before `unacknowledged`: fields drop in order. A request that was not taken is
    // destroyed before a pending destroy of its listener continues.
    pub(super) request: Option<CmId>,
    pub(super) facts: EventFacts,
    pub(super) unacknowledged: Option<Unacknowledged>,
    /// The count of the multicast group; an event of a group counts for the id and the group.
    pub(super) group_unacknowledged: Option<Unacknowledged>,
}

impl Event {
    /// Creates an event without a request, which counts for an id until it is dropped.
    pub(super) fn new(facts: EventFacts, unacknowledged: Unacknowledged) -> Self {
        let unacknowledged = Some(unacknowledged);
        Self { request: None, facts, unacknowledged, group_unacknowledged: None }
    }

    /// Acknowledges the event and returns its content.
    pub(super) fn into_facts(self) -> EventFacts {
        let Self { request, facts, unacknowledged, group_unacknowledged } = self;
        drop((request, unacknowledged, group_unacknowledged));
        facts
    }

    /// Creates an event that is acknowledged already.
    pub(super) fn acknowledged(facts: EventFacts) -> Self {
        Self { request: None, facts, unacknowledged: None, group_unacknowledged: None }
    }

    /// Returns the type of the event.
    pub fn event_type(&self) -> EventType {
        self.facts.event_type
    }

    /// Returns the status of the event: 0 if nothing failed, otherwise usually a negative errno.
    ///
    /// With `Rejected` it is the [reason](Self::rejection). With `Unreachable` on an id for
    /// datagrams it may be an `ib_cm_sidr_status`.
    pub fn status(&self) -> i32 {
        self.facts.status
    }

    /// Returns the token of the id that the event is about: see [`CmId::token`].
    ///
    /// With `ConnectRequest` it is the token of the new id.
    pub fn token(&self) -> Token {
        self.facts.token
    }

    /// Returns the program's number of the id at the time when the event was read.
    ///
    /// See [`CmId::set_user_data`]. With `ConnectRequest` it is the number of the listening id,
    /// which is also the initial number of the new id.
    pub fn user_data(&self) -> u64 {
        self.facts.user_data
    }

    /// Returns the token of the listening id of a `ConnectRequest`.
    #[doc(alias = "listen_id")]
    pub fn listener(&self) -> Option<Token> {
        self.facts.listener
    }

    /// Returns the address of the group, as it was joined, of `MulticastJoin` and `MulticastError`.
    pub fn multicast(&self) -> Option<Address> {
        self.facts.group.as_deref().copied()
    }

    /// Returns the parameters of the event.
    pub fn data(&self) -> &EventData {
        &self.facts.data
    }

    /// Returns the parameters of a connection, if the event has them.
    pub fn connection(&self) -> Option<&ConnParam> {
        match &self.facts.data {
            EventData::Connection(param) => Some(param),
            _ => None,
        }
    }

    /// Returns the destination for datagrams, if the event has it.
    ///
    /// `Established` on an id for datagrams and `MulticastJoin` have a destination. For
    /// `ConnectRequest` and `Unreachable` on an id for datagrams, only the private data is set.
    pub fn datagram(&self) -> Option<&DatagramParam> {
        match &self.facts.data {
            EventData::Datagram(param) => Some(param),
            _ => None,
        }
    }

    /// Returns the private data of the peer's program; empty if the event has none.
    ///
    /// On InfiniBand and RoCE the length is that of the message's field, and the part that the peer
    /// did not fill is zero.
    pub fn private_data(&self) -> &[u8] {
        match &self.facts.data {
            EventData::Connection(param) => &param.private_data,
            EventData::Datagram(param) => &param.private_data,
            EventData::None | EventData::Argument(_) => &[],
        }
    }

    /// Returns the id of the new connection of a `ConnectRequest`, until the id is taken.
    pub fn request(&self) -> Option<&CmId> {
        self.request.as_ref()
    }

    /// Takes the id of the new connection out of a `ConnectRequest`.
    ///
    /// The event still counts for the listening id until it is dropped.
    pub fn take_request(&mut self) -> Option<CmId> {
        self.request.take()
    }

    /// Returns the rejection of a `Rejected` event.
    pub fn rejection(&self) -> Option<Rejection> {
        (self.facts.event_type == EventType::Rejected).then(|| Rejection {
            reason: RejectReason(self.facts.status),
            private_data: self.private_data().to_vec(),
        })
    }

    /// Returns the error that this event means to a caller that waited for `wanted`.
    ///
    /// Returns `None` if the event is a successful `wanted`.
    pub fn error_for(&self, wanted: EventType) -> Option<Error> {
        self.failure_with_advice(wanted, "")
    }

    /// Returns the failure of the event, or an error with `advice` if it is not the `wanted` one.
    pub(super) fn failure_with_advice(&self, wanted: EventType, advice: &str) -> Option<Error> {
        use EventType as T;
        if self.facts.event_type == wanted && self.facts.status == 0 {
            return None;
        }
        let status = self.facts.status;
        let kind = match self.facts.event_type {
            T::Rejected => {
                self.rejection().map(|rejection| ErrorKind::Rejected(Box::new(rejection)))?
            }
            T::Unreachable => ErrorKind::Unreachable(UnreachableReason::of_status(status)),
            T::DeviceRemoval => ErrorKind::DeviceRemoved(Errno::ENODEV as i32),
            T::Disconnected if wanted != T::Disconnected => ErrorKind::Disconnected,
            _ if status == -(Errno::ETIMEDOUT as i32) => ErrorKind::TimedOut,
            // The library could not complete the connection, because its commands were refused.
            T::ConnectError if DEVICE_REMOVED_STATUSES.contains(&status) => {
                ErrorKind::DeviceRemoved(status.wrapping_neg())
            }
            _ if status < 0 => ErrorKind::Os(status.wrapping_neg()),
            other => return Some(self.unexpected_event_error(wanted, other, advice)),
        };
        let id = IDS.get(self.facts.token.get());
        let id = id.map_or_else(|| format!("id {}", self.facts.token), |id| id.with_peer());
        let error = Error::new(WAIT, format!("{wanted} on {id}"), kind);
        Some(if self.facts.event_type == T::AddrError { with_address_hint(error) } else { error })
    }

    /// Returns the error for an event that reports no failure but is not the wanted one.
    fn unexpected_event_error(&self, wanted: EventType, seen: EventType, advice: &str) -> Error {
        let id = match self.facts.listener {
            Some(listener) => format!("id {listener}, which listens,"),
            None => format!("id {}", self.facts.token),
        };
        let status = match self.facts.status {
            0 => String::new(),
            status => format!(" with status {status}"),
        };
        let reason = format!("{seen}{status} of {id} came first{advice}");
        Error::invalid(WAIT, wanted.to_string(), reason)
    }
}

/// Adds the hint to an error of address resolution.
pub(super) fn with_address_hint(error: Error) -> Error {
    error
        .with_hint(Errno::ENODEV, hint::NO_DEVICE)
        .with_hint(Errno::ENETUNREACH, hint::NO_ROUTE)
        .with_hint(Errno::EHOSTUNREACH, hint::NO_MACHINE)
        .with_hint_for(&ErrorKind::TimedOut, hint::NO_MACHINE)
}

#[cfg(test)]
mod tests;
