//! Asynchronous events: what happens to a device, its ports, and objects of a context, that no
//! completion tells of.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use verbs_abi::{ib_event_type, ib_uverbs_async_event_desc};

use super::context::Context;
use super::reporter::hand_out;
use crate::acks::Unacknowledged;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::registry::Token;

/// Where the asynchronous events of a context arrive: a descriptor that is readable when there is
/// one.
///
/// A clone is the same descriptor, and so is what [`Context::async_events`] returns each time: of
/// several readers each event goes to one. It is for waiting only; events are read by these
/// methods. The kernel keeps events until they are read.
#[doc(alias = "async_fd")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncEventChannel {
    context: Context,
}

impl Context {
    /// The context's asynchronous events. The descriptor came with the context
    /// (`IB_USER_VERBS_CMD_GET_CONTEXT`), and is open as long as that.
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_events(&self) -> AsyncEventChannel {
        AsyncEventChannel { context: self.clone() }
    }
}

impl AsyncEventChannel {
    /// The next event; waits for one unless the descriptor is non-blocking.
    ///
    /// A `read` of the descriptor. Events of objects that no longer live are dropped here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] on a non-blocking descriptor without events; EINTR where a signal
    /// came first, with nothing lost; [`ErrorKind::WrongProcess`] after a fork.
    #[doc(alias = "ibv_get_async_event")]
    pub fn get_event(&self) -> Result<AsyncEvent> {
        self.context.async_file().next(&self.context, |read| self.take(read))
    }

    /// The next event, or `None` if none came within `timeout`.
    ///
    /// Holds its deadline whoever else reads. For that, the first call on a blocking descriptor
    /// makes it non-blocking; [`get_event`](Self::get_event) goes on blocking.
    ///
    /// # Errors
    ///
    /// As [`get_event`](Self::get_event), but never [`ErrorKind::WouldBlock`].
    pub fn get_event_timeout(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        let deadline = Instant::now().checked_add(timeout);
        self.context.async_file().next_by(&self.context, deadline, |read| self.take(read))
    }

    /// Makes [`get_event`](Self::get_event) return [`ErrorKind::WouldBlock`] instead of waiting, or
    /// wait again.
    ///
    /// # Errors
    ///
    /// Those of `fcntl`; [`ErrorKind::WrongProcess`] after a fork: the mode is the parent's too.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.context.async_file().set_nonblocking(&self.context, nonblocking)
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    fn take(&self, read: &ib_uverbs_async_event_desc) -> Option<AsyncEvent> {
        if read.event_type == ib_event_type::IB_EVENT_DEVICE_FATAL {
            self.context.mark_gone();
        }
        event(read)
    }
}

impl AsFd for AsyncEventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.async_file().as_fd()
    }
}

/// Something that happened to a device, a port or an object. Dropping the event acknowledges it.
///
/// Until then the `destroy` of its object waits.
#[doc(alias = "ibv_async_event")]
#[doc(alias = "ibv_ack_async_event")]
#[derive(Debug)]
pub struct AsyncEvent {
    event_type: ib_event_type,
    element: AsyncElement,
    _unacknowledged: Option<Unacknowledged>,
}

/// What an [`AsyncEvent`] is about. The tokens are unique among the three kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncElement {
    /// A queue pair, by its [token](super::QueuePair::token).
    QueuePair(Token),
    /// A completion queue, by its [token](super::CompletionQueue::token).
    CompletionQueue(Token),
    /// A shared receive queue, by its [token](super::SharedReceiveQueue::token).
    SharedReceiveQueue(Token),
    /// A port of the device, counted from 1.
    Port(u32),
    /// The device.
    Device,
    /// As the kernel has it, with an event that this crate does not know: a token's number, or a
    /// port's.
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

/// What events of a type are about.
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

/// Makes what was read the program's; `None` where its object is gone.
pub(super) fn event(read: &ib_uverbs_async_event_desc) -> Option<AsyncEvent> {
    let (event_type, number) = (read.event_type, read.element.get());
    let object = |element: fn(Token) -> AsyncElement| {
        let (token, unacknowledged) = hand_out(number)?;
        Some((element(token), Some(unacknowledged)))
    };
    let (element, unacknowledged) = match kind(event_type) {
        Kind::QueuePair => object(AsyncElement::QueuePair)?,
        Kind::CompletionQueue => object(AsyncElement::CompletionQueue)?,
        Kind::SharedReceiveQueue => object(AsyncElement::SharedReceiveQueue)?,
        // The kernel's own number has 32 bits.
        Kind::Port => (AsyncElement::Port(u32::try_from(number).unwrap_or(u32::MAX)), None),
        Kind::Device => (AsyncElement::Device, None),
        // If it is an object's, the kernel has counted the event.
        Kind::Unknown => (AsyncElement::Unknown(number), hand_out(number).map(|(_, event)| event)),
    };
    Some(AsyncEvent { event_type, element, _unacknowledged: unacknowledged })
}

impl AsyncEvent {
    /// What happened.
    pub fn event_type(&self) -> ib_event_type {
        self.event_type
    }

    /// What it happened to.
    pub fn element(&self) -> AsyncElement {
        self.element
    }

    /// The queue pair, completion queue or shared receive queue that it happened to, if it is one.
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
    use zerocopy::FromBytes;

    use super::*;
    use crate::verbs::reporter::Reporter;

    /// The 16 bytes that a read gives: element, type, zero.
    fn read(element: u64, event_type: u32) -> Option<AsyncEvent> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&element.to_ne_bytes());
        bytes[8..12].copy_from_slice(&event_type.to_ne_bytes());
        event(&ib_uverbs_async_event_desc::read_from_bytes(&bytes).expect("16 bytes"))
    }

    /// The numbers are those of `enum ib_event_type`, `include/rdma/ib_verbs.h`.
    #[test]
    fn every_type_says_what_it_is_about() {
        let reporter = Reporter::new();
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
    fn late_events_are_dropped_and_unknown_ones_are_values() {
        let reporter = Reporter::new();
        let number = reporter.user_handle().get();
        // Of a type that is yet to come: its object's destruction waits for it.
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

    #[test]
    fn an_unknown_event_of_a_port_is_no_objects() {
        let reporters = [(); 3].map(|()| Reporter::new());
        for port in 0..256 {
            let event = read(port, 1000).expect("an event");
            assert_eq!(event.element(), AsyncElement::Unknown(port));
            for reporter in &reporters {
                reporter.check(String::new).expect("it has no event");
            }
        }
    }
}
