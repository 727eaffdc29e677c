//! An event in the hands of the program.

use nix::errno::Errno;

use super::event_facts::EventFacts;
use super::id::CmId;
use super::param::{ConnParam, DatagramParam};
use super::parse::{EventData, EventType};
use super::record::IDS;
use crate::acks::Unacknowledged;
use crate::addr::Address;
use crate::error::{Error, ErrorKind};
use crate::error::{RejectReason, Rejection};
use crate::registry::Token;

const WAIT: &str = "wait for";

/// The statuses with which rdma_cm and uverbs say that the device is gone.
const GONE: [i32; 2] = [-(Errno::ENXIO as i32), -(Errno::EIO as i32)];

/// Something that happened to an id, from
/// [`EventChannel::get_event`](super::EventChannel::get_event).
///
/// Dropping the event acknowledges it (`rdma_ack_cm_event`). Until then [`CmId::destroy`] of the id
/// that it counts for waits: the listening id for a `ConnectRequest`, else the id that it is about.
/// [`CmId::leave_multicast`] waits for the events of its group.
/// An event is owned, and may go to another thread.
///
/// A `ConnectRequest` owns the id of the new connection: take it with
/// [`take_request`](Self::take_request). Left in the event, it is destroyed with it, which rejects
/// the peer.
#[doc(alias = "rdma_cm_event")]
#[doc(alias = "rdma_ack_cm_event")]
#[derive(Debug)]
pub struct Event {
    // Declared before `unacknowledged`: fields drop in order, so a request that was not taken is destroyed
    // before the destroy of its listener goes on.
    pub(super) request: Option<CmId>,
    pub(super) facts: EventFacts,
    pub(super) unacknowledged: Option<Unacknowledged>,
    /// An event of a multicast group counts for the group too.
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

    /// 0 where nothing failed, else a negative errno, or with `Rejected` the
    /// [reason](Self::rejection), or with `Unreachable` on an id for datagrams an
    /// `ib_cm_sidr_status`.
    pub fn status(&self) -> i32 {
        self.facts.status
    }

    /// The id that the event is about, see [`CmId::token`]. With `ConnectRequest` the new one.
    pub fn token(&self) -> Token {
        self.facts.token
    }

    /// The program's own number of that id, see [`CmId::set_user_data`], as it was when the event
    /// was read. With `ConnectRequest` the listening id's, which the new one begins with.
    pub fn user_data(&self) -> u64 {
        self.facts.user_data
    }

    /// With `ConnectRequest`, the id that listens.
    #[doc(alias = "listen_id")]
    pub fn listener(&self) -> Option<Token> {
        self.facts.listener
    }

    /// With `MulticastJoin` and `MulticastError`, the address of the group, as it was joined.
    pub fn multicast(&self) -> Option<Address> {
        self.facts.group.as_deref().copied()
    }

    /// The event's parameters.
    pub fn data(&self) -> &EventData {
        &self.facts.data
    }

    /// The parameters of a connection, where the event has them.
    pub fn connection(&self) -> Option<&ConnParam> {
        match &self.facts.data {
            EventData::Connection(param) => Some(param),
            _ => None,
        }
    }

    /// Where to send datagrams, where the event says it: `Established` on an id for datagrams, and
    /// `MulticastJoin`. `ConnectRequest` and `Unreachable` on such an id have only private data in it.
    pub fn datagram(&self) -> Option<&DatagramParam> {
        match &self.facts.data {
            EventData::Datagram(param) => Some(param),
            _ => None,
        }
    }

    /// Returns the private data of the peer's program; empty if the event has none.
    ///
    /// On InfiniBand and RoCE the length is that of the message's field, and what the peer did not
    /// fill is zero.
    pub fn private_data(&self) -> &[u8] {
        match &self.facts.data {
            EventData::Connection(param) => &param.private_data,
            EventData::Datagram(param) => &param.private_data,
            EventData::None | EventData::Argument(_) => &[],
        }
    }

    /// The id of the new connection, with `ConnectRequest` and until it is taken.
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

    /// The error that this event is to a program that waited for `wanted`, or `None` if it is what
    /// was wanted.
    pub fn failure(&self, wanted: EventType) -> Option<Error> {
        self.failure_with_advice(wanted, "")
    }

    /// Returns the failure that the event is, or with `advice` that it is not the `wanted` one.
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
            T::Unreachable => ErrorKind::Unreachable(status),
            T::DeviceRemoval => ErrorKind::DeviceGone(Errno::ENODEV as i32),
            T::Disconnected if wanted != T::Disconnected => ErrorKind::Disconnected,
            _ if status == -(Errno::ETIMEDOUT as i32) => ErrorKind::TimedOut,
            // What the library has not finished, as its commands were refused.
            T::ConnectError if GONE.contains(&status) => {
                ErrorKind::DeviceGone(status.wrapping_neg())
            }
            _ if status < 0 => ErrorKind::Os(status.wrapping_neg()),
            other => return Some(self.came_instead_of(wanted, other, advice)),
        };
        let id = IDS.get(self.facts.token.get());
        let id = id.map_or_else(|| format!("id {}", self.facts.token), |id| id.with_peer());
        Some(Error::new(WAIT, format!("{wanted} on {id}"), kind))
    }

    /// Nothing failed, but somebody waited for something else.
    fn came_instead_of(&self, wanted: EventType, came: EventType, advice: &str) -> Error {
        let whose = match self.facts.listener {
            Some(listener) => format!("id {listener}, which listens,"),
            None => format!("id {}", self.facts.token),
        };
        let status = match self.facts.status {
            0 => String::new(),
            status => format!(" with status {status}"),
        };
        let reason = format!("{came}{status} of {whose} came first{advice}");
        Error::invalid(WAIT, wanted.to_string(), reason)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::acks::{Acks, Counted};
    use crate::registry::Registry;

    fn event(event_type: EventType, status: i32) -> Event {
        let token = Registry::<()>::default().reserve();
        let facts = EventFacts::new(event_type, status, token, 0, EventData::None);
        Event::new(facts, Arc::new(Acks::default()).hand_out(true))
    }

    #[test]
    fn what_was_wanted_is_no_failure() {
        assert!(event(EventType::Established, 0).failure(EventType::Established).is_none());
    }

    #[test]
    fn every_event_and_status_can_be_a_failure() {
        for number in 0..30 {
            for status in [i32::MIN, -4096, -110, -1, 0, 1, 28, i32::MAX] {
                let event = event(number.into(), status);
                let Some(error) = event.failure(EventType::RouteResolved) else { continue };
                assert!(!error.to_string().is_empty());
                let _ = error.errno();
            }
        }
    }

    #[test]
    fn failures_are_what_a_program_branches_on() {
        let kind = |event_type, status| {
            let error = event(event_type, status).failure(EventType::Established);
            error.expect("a failure").to_string()
        };
        assert!(kind(EventType::Rejected, 8).contains("nobody listens on the port"));
        assert!(kind(EventType::Unreachable, -110).contains("unreachable"));
        let errno = |event_type, status| {
            let error = event(event_type, status).failure(EventType::Established);
            error.expect("a failure").errno()
        };
        assert_eq!(errno(EventType::Unreachable, -110), libc::ETIMEDOUT);
        assert_eq!(errno(EventType::Unreachable, 1), libc::EHOSTUNREACH);
        assert_eq!(errno(EventType::Rejected, -104), libc::ECONNREFUSED);
        assert_eq!(errno(EventType::Rejected, 8), libc::ECONNREFUSED);
        assert!(kind(EventType::Disconnected, 0).contains("the connection has ended"));
        assert_eq!(errno(EventType::Disconnected, 0), libc::ENOTCONN);
        assert!(kind(EventType::ConnectError, -libc::ENXIO).contains("the device is gone"));
        assert!(kind(EventType::ConnectError, -libc::EIO).contains("the device is gone"));
        assert!(kind(EventType::AddrError, -110).ends_with("timed out"));
        assert!(kind(EventType::AddrError, -19).ends_with("No such device (ENODEV)"));
    }

    #[test]
    fn what_came_first_is_named_with_whose_it_is() {
        let mut event = event(EventType::AddrResolved, 0);
        let said = |event: &Event| {
            let error = event.failure(EventType::Established).expect("a failure");
            assert_eq!(error.subject(), "RDMA_CM_EVENT_ESTABLISHED");
            error.to_string()
        };
        let expected = format!("RDMA_CM_EVENT_ADDR_RESOLVED of id {} came", event.facts.token);
        assert!(said(&event).contains(&expected), "{}", said(&event));
        event.facts.status = 7;
        assert!(said(&event).contains("ADDR_RESOLVED with status 7 of id"), "{}", said(&event));
        // A request is of the id that the program knows.
        let listener = Registry::<()>::default().reserve();
        event.facts.listener = Some(listener);
        let expected = format!("of id {listener}, which listens, came");
        assert!(said(&event).contains(&expected), "{}", said(&event));
    }
}
