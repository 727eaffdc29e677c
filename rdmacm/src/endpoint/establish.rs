//! Waiting for the events of a connection that comes about.

use std::time::{Duration, Instant};

use crate::cm::{CmId, Event, EventChannel, EventType};
use crate::error::{Error, ErrorKind, Result};

/// When `timeout` from now is over; never, where it has no end.
pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// The earlier of two deadlines.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// The next event on `channel`, or `None` if none came until `deadline`. A signal ends no wait.
pub(super) fn next(channel: &EventChannel, deadline: Option<Instant>) -> Result<Option<Event>> {
    let rest = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    loop {
        // So long a time that its end is beyond the clock has none.
        match channel.get_event_timeout(deadline.map_or(Duration::MAX, rest)) {
            Err(error) if error.errno() == libc::EINTR => {}
            read => return read,
        }
    }
}

/// Waits until `id`, which is alone on `channel`, has a successful event `wanted`.
pub(super) fn expect(
    channel: &EventChannel,
    id: &CmId,
    wanted: EventType,
    deadline: Option<Instant>,
) -> Result<Event> {
    loop {
        let Some(event) = next(channel, deadline)? else {
            let subject = format!("{wanted} on id {}", id.token());
            return Err(Error::new("wait for", subject, ErrorKind::TimedOut));
        };
        match event.failure(wanted) {
            None => return Ok(event),
            // The address of a neighbour, or of an interface, has changed: no end of anything.
            Some(_) if event.event_type() == EventType::AddrChange => {}
            Some(error) => return Err(error),
        }
    }
}
