//! [`EventFacts`]: the content of an event, without the objects that the event owns.

use super::parse::{EventData, EventType};
use crate::addr::Address;
use crate::registry::Token;

/// The content of an event. [`Event`](super::Event) documents the fields.
#[derive(Debug, Clone)]
pub(super) struct EventFacts {
    pub(super) event_type: EventType,
    pub(super) status: i32,
    pub(super) token: Token,
    pub(super) user_data: u64,
    pub(super) listener: Option<Token>,
    pub(super) data: EventData,
    /// The address of the multicast group. It is boxed because few events have one and events are
    /// moved.
    pub(super) group: Option<Box<Address>>,
}

impl EventFacts {
    /// Creates the content of an event that is neither a request nor about a group.
    pub(super) fn new(
        event_type: EventType,
        status: i32,
        token: Token,
        user_data: u64,
        data: EventData,
    ) -> Self {
        Self { event_type, status, token, user_data, listener: None, data, group: None }
    }
}
