//! Asynchronous events ([`AsyncEvent`]) of devices, ports and objects of a context.
//!
//! They report conditions that no completion reports.

use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use verbs_abi::{ib_event_type, ib_uverbs_async_event_desc};

use super::context::{ASYNC_EVENTS, Context};
use super::event_file::READ;
use super::read_ahead::Reader;
use super::reporter::{self, record_failure, token};
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
        if ahead.is_left_to_program() {
            return;
        }
        let now = Some(Instant::now());
        for _ in 0..MAX_READS {
            let read = self.async_file().next_by(self, now, |read| Some(*read));
            // The program gets this error when it reads events itself.
            let Ok(Some(read)) = read else { break };
            self.record(&read);
            // Acknowledged at once, so that no destruction waits for the program to read the event.
            if event(&read, hand_out).is_some() {
                ahead.push(read);
            }
        }
    }

    /// Records an event that reports the removal of the device, or the failure of a queue pair.
    fn record(&self, read: &ib_uverbs_async_event_desc) {
        match read.event_type {
            ib_event_type::IB_EVENT_DEVICE_FATAL => self.mark_gone(),
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
        self.context.async_file().next_by(&self.context, deadline, |read| self.take(read))
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
        event(read, hand_out)
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
type Named = (Token, Option<Unacknowledged>);

/// Counts an event as passed to the program.
pub(super) fn hand_out(number: u64) -> Option<Named> {
    reporter::hand_out(number).map(|(token, unacknowledged)| (token, Some(unacknowledged)))
}

/// Builds an event, or returns `None` if its object no longer exists.
///
/// `name` looks up the object by its number.
pub(super) fn event(
    read: &ib_uverbs_async_event_desc,
    name: impl Fn(u64) -> Option<Named>,
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
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use zerocopy::{FromBytes, IntoBytes as _};

    use super::*;
    use crate::driver::External;
    use crate::drivers::any::AnyDriver;
    use crate::drivers::null::Null;
    use crate::sys::uverbs::UverbsFile;
    use crate::verbs::read_ahead::MAX_EVENTS;
    use crate::verbs::reporter::EventSource;
    use crate::verbs::{CompletionQueue, ProtectionDomain, QueuePair, QueuePairInit};

    /// Builds an event from the 16 bytes that a read returns: element, type, zero.
    fn read(element: u64, event_type: u32) -> Option<AsyncEvent> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&element.to_ne_bytes());
        bytes[8..12].copy_from_slice(&event_type.to_ne_bytes());
        event(&ib_uverbs_async_event_desc::read_from_bytes(&bytes).expect("16 bytes"), hand_out)
    }

    /// The numbers are those of `enum ib_event_type`, `include/rdma/ib_verbs.h`.
    #[test]
    fn every_event_type_names_its_element() {
        let reporter = EventSource::new();
        let (number, token) = (reporter.user_handle().get(), reporter.token());
        for event_type in 0..=20 {
            let element = match event_type {
                0 => AsyncElement::CompletionQueue(token),
                1..=7 | 16 => AsyncElement::QueuePair(token),
                14 | 15 => AsyncElement::SharedReceiveQueue(token),
                8 | 20 => AsyncElement::Device,
                9..=13 | 17 | 18 => AsyncElement::Port(1),
                _ => AsyncElement::Unknown(number),
            };
            let about = if element == AsyncElement::Port(1) { 1 } else { number };
            let event = read(about, event_type).expect("it lives");
            assert_eq!((event.event_type().0, event.element()), (event_type, element));
            let object = !matches!(event_type, 8..=13 | 17..=20);
            assert_eq!(event.token(), object.then_some(token), "{event_type}");
        }
    }

    #[test]
    fn late_events_are_dropped_and_unknown_returned() {
        let reporter = EventSource::new();
        let number = reporter.user_handle().get();
        // A type that does not exist yet: the destruction of its object waits for the event.
        let event = read(number, 1000).expect("an event");
        assert_eq!(event.element(), AsyncElement::Unknown(number));
        reporter.check(String::new).expect_err("an event is out");
        drop(event);
        reporter.check(String::new).expect("it is acknowledged");
        drop(reporter);
        for event_type in [0, 1, 14] {
            assert!(read(number, event_type).is_none());
        }
        for (element, event_type) in [(number, 1000), (u64::MAX, u32::MAX), (0, 19)] {
            let event = read(element, event_type).expect("an event");
            assert_eq!(event.element(), AsyncElement::Unknown(element));
        }
        let port = read(u64::MAX, 9).expect("an event");
        assert_eq!(port.element(), AsyncElement::Port(u32::MAX));
    }

    /// Creates a queue pair on the null driver, and the pipe that supplies its asynchronous events.
    fn reported_by_pipe() -> (QueuePair, File) {
        let (from, to) = nix::unistd::pipe().expect("pipe");
        let driver = AnyDriver::External(External::new(Null::default()));
        let context = Context::on_file_with_events(UverbsFile::silent(), driver, from);
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let cq = CompletionQueue::new(&context, 4, None).expect("completion queue");
        let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
        (qp, to.into())
    }

    fn report(to: &mut File, element: u64, event_type: ib_event_type) {
        let (element, reserved) = (element.into(), 0);
        let event = ib_uverbs_async_event_desc { element, event_type, reserved };
        to.write_all(event.as_bytes()).expect("write");
    }

    #[test]
    fn failure_is_found_among_events_of_others() {
        let (qp, mut to) = reported_by_pipe();
        assert_eq!(qp.peer_failure(), None);
        let other = QueuePair::new(qp.pd(), &QueuePairInit::new(qp.send_cq())).expect("queue pair");
        report(&mut to, 1, ib_event_type::IB_EVENT_PORT_ERR);
        report(&mut to, other.token().get(), ib_event_type::IB_EVENT_QP_REQ_ERR);
        report(&mut to, qp.token().get(), ib_event_type::IB_EVENT_QP_LAST_WQE_REACHED);
        report(&mut to, qp.token().get(), ib_event_type::IB_EVENT_QP_ACCESS_ERR);
        assert_eq!(qp.peer_failure(), Some(ib_event_type::IB_EVENT_QP_ACCESS_ERR));
        assert_eq!(other.peer_failure(), None);
        // No event is unacknowledged, so the destruction does not wait. The program gets the other
        // events.
        drop(other);
        let events = qp.pd().context().async_events();
        let next = || events.get_event_timeout(Duration::ZERO).expect("read");
        let elements: Vec<_> = iter::from_fn(next).map(|event| event.element()).collect();
        let own = AsyncElement::QueuePair(qp.token());
        assert_eq!(elements, [AsyncElement::Port(1), own, own]);
        qp.destroy().expect("no event is out");
    }

    #[test]
    fn events_are_left_to_reading_program() {
        let (qp, mut to) = reported_by_pipe();
        let events = qp.pd().context().async_events();
        report(&mut to, qp.token().get(), ib_event_type::IB_EVENT_QP_ACCESS_ERR);
        assert_eq!(qp.peer_failure(), None);
        let event = events.get_event().expect("the event should be left");
        assert_eq!(event.element(), AsyncElement::QueuePair(qp.token()));
        assert_eq!(qp.peer_failure(), Some(ib_event_type::IB_EVENT_QP_ACCESS_ERR));
    }

    #[test]
    fn library_reads_again_after_last_channel() {
        let (qp, mut to) = reported_by_pipe();
        let events = qp.pd().context().async_events();
        let other = events.clone();
        report(&mut to, qp.token().get(), ib_event_type::IB_EVENT_QP_ACCESS_ERR);
        drop(events);
        assert_eq!(qp.peer_failure(), None);
        drop(other);
        assert_eq!(qp.peer_failure(), Some(ib_event_type::IB_EVENT_QP_ACCESS_ERR));
    }

    #[test]
    fn oldest_of_too_many_events_is_dropped() {
        let (qp, mut to) = reported_by_pipe();
        let count = u64::try_from(MAX_EVENTS).expect("64 bits fit") + 1;
        (1..=count).for_each(|port| report(&mut to, port, ib_event_type::IB_EVENT_PORT_ERR));
        assert_eq!(qp.peer_failure(), None);
        let events = qp.pd().context().async_events();
        let event = events.get_event().expect("an event");
        assert_eq!(event.element(), AsyncElement::Port(2));
    }

    #[test]
    fn unknown_port_event_belongs_to_no_object() {
        let reporters = [(); 3].map(|()| EventSource::new());
        for port in 0..256 {
            let event = read(port, 1000).expect("an event");
            assert_eq!(event.element(), AsyncElement::Unknown(port));
            for reporter in &reporters {
                reporter.check(String::new).expect("it has no event");
            }
        }
    }
}
