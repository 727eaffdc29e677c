//! What a connection is made of, and how its events are waited for.

use std::time::{Duration, Instant};

use super::settings::Settings;
use crate::cm::{CmId, Event, EventChannel, EventType};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{
    Buffer, BufferQueues, CompletionChannel, CompletionQueue, ProtectionDomain, QueuePairInit,
};

/// The kernel's objects of a connection, with its receives posted.
#[derive(Debug)]
pub(super) struct Parts {
    // First: it ends the connection, and holds the queue pair too.
    pub(super) id: CmId,
    _queues: BufferQueues,
    _cq: CompletionQueue,
    /// The buffers for sending.
    _free: Vec<Buffer>,
}

impl Parts {
    /// Makes them for `id`, which has a device.
    pub(super) fn new(id: CmId, settings: &Settings) -> Result<(Self, CompletionChannel)> {
        settings.check()?;
        let context = id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let completions = CompletionChannel::new(&context)?;
        completions.set_nonblocking(true)?;
        let cq = CompletionQueue::new(&context, settings.buffers(), Some(&completions))?;
        let init = QueuePairInit { caps: settings.caps(), ..QueuePairInit::new(&cq) };
        let mut queues = BufferQueues::new(id.create_qp(&pd, &init)?);
        let count = |number| usize::try_from(number).expect("32 bits fit");
        let mut free = Buffer::alloc(&pd, count(settings.buffers()), settings.buffer_size)?;
        for buffer in free.drain(count(settings.send_buffers)..) {
            queues.receive(buffer)?;
        }
        Ok((Self { id, _queues: queues, _cq: cq, _free: free }, completions))
    }
}

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

/// Waits until `id`, which is alone on `channel`, has a successful event `wanted`.
pub(super) fn expect(
    channel: &EventChannel,
    id: &CmId,
    wanted: EventType,
    deadline: Option<Instant>,
) -> Result<Event> {
    loop {
        let event = match deadline {
            None => Some(channel.get_event()?),
            Some(deadline) => {
                channel.get_event_timeout(deadline.saturating_duration_since(Instant::now()))?
            }
        };
        let Some(event) = event else {
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
