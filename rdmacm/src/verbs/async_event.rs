//! Asynchronous events ([`AsyncEvent`]) of devices, ports and objects of a context.
//!
//! They report conditions that no completion reports.

use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use verbs_abi::{ib_event_type, ib_uverbs_async_event_desc};

use super::context::{ASYNC_EVENTS, Context};
use super::event_file::READ;
use super::event_source::{self, record_failure, token};
use super::read_ahead::Reader;
use crate::acks::Unacknowledged;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::registry::Token;

/// Maximum number of events that are read ahead at once.
const MAX_READS: usize = 1024;

/// The asynchronous events of a context: a descriptor that is readable if there is an event.
///
/// A clone refers to the same descriptor, as does every channel that [`Context::async_events`]
/// returns. If there are several readers, each event is delivered to one of them. Use the
/// descriptor for waiting only, and the methods of this type for reading. The kernel keeps events
/// until they are read.
///
/// # Events that the library reads
///
/// While no `AsyncEventChannel` of the context exists, the library reads events when a connection
/// of [`endpoint`](crate::endpoint) ends, because they may report the cause. The last 64 of these
/// events are kept for the program. They are returned first, and do not make the descriptor
/// readable.
///
/// While a channel exists, the library reads no events. A connection then reports the cause only if
/// the program has read the event before the connection ends.
#[doc(alias = "async_fd")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncEventChannel {
    context: Context,
    /// `None` in a forked child, in which no event is read.
    _reader: Option<Reader>,
}

impl Context {
    /// Returns the channel of the context's asynchronous events.
    ///
    /// The kernel opens the descriptor together with the context, and it stays open as long as the
    /// context.
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_events(&self) -> AsyncEventChannel {
        let reader = self.file().is_owner().then(|| self.lock_read_ahead().reader());
        AsyncEventChannel { context: self.clone(), _reader: reader }
    }

    /// Reads the asynchronous events that the device has raised, without waiting.
    ///
    /// Each event is recorded for its object and kept for the program. If the program reads the
    /// events itself, the function does nothing.
    pub(super) fn read_events_ahead(&self) {
        if !self.file().is_owner() {
            return;
        }
        // Locked while it reads: a second caller finds the events of its object recorded.
        let mut ahead = self.lock_read_ahead();
        if ahead.is_read_by_program() {
            return;
        }
        let now = Some(Instant::now());
        for _ in 0..MAX_READS {
            let read = self.async_file().next_before(self, now, |read| Some(*read));
            // The program gets this error when it reads events itself.
            let Ok(Some(read)) = read else { break };
            self.record(&read);
            // Acknowledged at once, so that no destruction waits for the program to read the event.
            if event(&read, track).is_some() {
                ahead.push(read);
            }
        }
    }

    /// Records an event that reports the removal of the device, or the failure of a queue pair.
    fn record(&self, read: &ib_uverbs_async_event_desc) {
        match read.event_type {
            ib_event_type::IB_EVENT_DEVICE_FATAL => self.mark_removed(),
            // `IB_EVENT_QP_REQ_ERR` is not recorded. siw raises it for a refused read, but also if
            // the peer closes the connection while siw sends the response.
            ib_event_type::IB_EVENT_QP_ACCESS_ERR => {
                record_failure(read.element.get(), read.event_type);
            }
            _ => {}
        }
    }
}

impl AsyncEventChannel {
    /// Returns the next event, and waits for one unless the descriptor is non-blocking.
    ///
    /// Reads the descriptor. Events of destroyed objects are discarded.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldBlock`] if the descriptor is non-blocking and there is no event.
    /// - EINTR if a signal interrupts the call. No event is lost.
    /// - [`ErrorKind::NotOwner`] in a forked child.
    #[doc(alias = "ibv_get_async_event")]
    pub fn get_event(&self) -> Result<AsyncEvent> {
        if let Some(event) = self.take_ahead()? {
            return Ok(event);
        }
        self.context.async_file().next(&self.context, |read| self.take(read))
    }

    /// Returns the next event, or `None` if there is none within `timeout`.
    ///
    /// The deadline holds even if other threads read events. To ensure that, the first call on a
    /// blocking descriptor makes it non-blocking. [`get_event`](Self::get_event) still blocks.
    ///
    /// # Errors
    ///
    /// The errors of [`get_event`](Self::get_event), except [`ErrorKind::WouldBlock`].
    pub fn get_event_timeout(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        if let Some(event) = self.take_ahead()? {
            return Ok(Some(event));
        }
        let deadline = Instant::now().checked_add(timeout);
        self.context.async_file().next_before(&self.context, deadline, |read| self.take(read))
    }

    /// Enables or disables non-blocking mode of [`get_event`](Self::get_event).
    ///
    /// In non-blocking mode, the call returns [`ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    ///
    /// - The errors of `fcntl`.
    /// - [`ErrorKind::NotOwner`] in a forked child, because the parent shares the mode.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.context.async_file().set_nonblocking(&self.context, nonblocking)
    }

    /// Returns the context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    fn take(&self, read: &ib_uverbs_async_event_desc) -> Option<AsyncEvent> {
        self.context.record(read);
        event(read, track)
    }

    /// Takes the oldest event that the library has read ahead and whose object still exists.
    fn take_ahead(&self) -> Result<Option<AsyncEvent>> {
        self.context.check_process(READ, || ASYNC_EVENTS.to_owned())?;
        let mut ahead = self.context.lock_read_ahead();
        let name = |number| token(number).map(|token| (token, None));
        Ok(iter::from_fn(|| ahead.pop()).find_map(|read| event(&read, name)))
    }
}

impl AsFd for AsyncEventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.async_file().as_fd()
    }
}

impl AsRawFd for AsyncEventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// An asynchronous event of a device, a port or an object.
///
/// Dropping the event acknowledges it. Until then, `destroy` of its object waits.
#[doc(alias = "ibv_async_event")]
#[doc(alias = "ibv_ack_async_event")]
#[derive(Debug)]
pub struct AsyncEvent {
    event_type: ib_event_type,
    element: AsyncElement,
    _unacknowledged: Option<Unacknowledged>,
}

/// The device, port or object that an [`AsyncEvent`] concerns.
///
/// Tokens are unique among the three kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncElement {
    /// A queue pair, identified by its [token](super::QueuePair::token).
    QueuePair(Token),
    /// A completion queue, identified by its [token](super::CompletionQueue::token).
    CompletionQueue(Token),
    /// A shared receive queue, identified by its [token](super::SharedReceiveQueue::token).
    SharedReceiveQueue(Token),
    /// A port of the device, counted from 1.
    Port(u32),
    /// The device.
    Device,
    /// The kernel's value for an event type that this crate does not know: the number of a token or
    /// a port.
    Unknown(u64),
}

/// The kinds of [`AsyncElement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    QueuePair,
    CompletionQueue,
    SharedReceiveQueue,
    Port,
    Device,
    Unknown,
}

/// Returns the kind of element that events of a type concern.
fn kind(event_type: ib_event_type) -> Kind {
    use ib_event_type as T;
    match event_type {
        T::IB_EVENT_QP_FATAL
        | T::IB_EVENT_QP_REQ_ERR
        | T::IB_EVENT_QP_ACCESS_ERR
        | T::IB_EVENT_COMM_EST
        | T::IB_EVENT_SQ_DRAINED
        | T::IB_EVENT_PATH_MIG
        | T::IB_EVENT_PATH_MIG_ERR
        | T::IB_EVENT_QP_LAST_WQE_REACHED => Kind::QueuePair,
        T::IB_EVENT_CQ_ERR => Kind::CompletionQueue,
        T::IB_EVENT_SRQ_ERR | T::IB_EVENT_SRQ_LIMIT_REACHED => Kind::SharedReceiveQueue,
        T::IB_EVENT_PORT_ACTIVE
        | T::IB_EVENT_PORT_ERR
        | T::IB_EVENT_LID_CHANGE
        | T::IB_EVENT_PKEY_CHANGE
        | T::IB_EVENT_SM_CHANGE
        | T::IB_EVENT_CLIENT_REREGISTER
        | T::IB_EVENT_GID_CHANGE => Kind::Port,
        T::IB_EVENT_DEVICE_FATAL | T::IB_EVENT_DEVICE_SPEED_CHANGE => Kind::Device,
        _ => Kind::Unknown,
    }
}

/// An object that an event concerns, and the value that acknowledges the event if that is still
/// due.
type TrackedObject = (Token, Option<Unacknowledged>);

/// Counts an event as passed to the program.
pub(super) fn track(number: u64) -> Option<TrackedObject> {
    event_source::track(number).map(|(token, unacknowledged)| (token, Some(unacknowledged)))
}

/// Builds an event, or returns `None` if its object no longer exists.
///
/// `name` looks up the object by its number.
pub(super) fn event(
    read: &ib_uverbs_async_event_desc,
    name: impl Fn(u64) -> Option<TrackedObject>,
) -> Option<AsyncEvent> {
    let (event_type, number) = (read.event_type, read.element.get());
    let object = |element: fn(Token) -> AsyncElement| {
        let (token, unacknowledged) = name(number)?;
        Some((element(token), unacknowledged))
    };
    let (element, unacknowledged) = match kind(event_type) {
        Kind::QueuePair => object(AsyncElement::QueuePair)?,
        Kind::CompletionQueue => object(AsyncElement::CompletionQueue)?,
        Kind::SharedReceiveQueue => object(AsyncElement::SharedReceiveQueue)?,
        // The kernel's own port number has 32 bits.
        Kind::Port => (AsyncElement::Port(u32::try_from(number).unwrap_or(u32::MAX)), None),
        Kind::Device => (AsyncElement::Device, None),
        // If the event concerns an object, the kernel has counted it.
        Kind::Unknown => (AsyncElement::Unknown(number), name(number).and_then(|(_, event)| event)),
    };
    Some(AsyncEvent { event_type, element, _unacknowledged: unacknowledged })
}

impl AsyncEvent {
    /// Returns the type of the event.
    pub fn event_type(&self) -> ib_event_type {
        self.event_type
    }

    /// Returns the device, port or object that the event concerns.
    pub fn element(&self) -> AsyncElement {
        self.element
    }

    /// Returns the token of the object that the event concerns, or `None` for a port or a device.
    ///
    /// The object is a queue pair, a completion queue or a shared receive queue.
    pub fn token(&self) -> Option<Token> {
        match self.element {
            AsyncElement::QueuePair(token)
            | AsyncElement::CompletionQueue(token)
            | AsyncElement::SharedReceiveQueue(token) => Some(token),
            AsyncElement::Port(_) | AsyncElement::Device | AsyncElement::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
