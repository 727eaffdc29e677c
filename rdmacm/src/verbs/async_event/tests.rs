use std::fs::File;
use std::io::Write as _;

use zerocopy::{FromBytes, IntoBytes as _};

use super::*;
use crate::driver::External;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::error::ErrorKind;
use crate::sys::uverbs::UverbsFile;
use crate::verbs::event_source::EventSource;
use crate::verbs::read_ahead::MAX_EVENTS;
use crate::verbs::{CompletionQueue, ProtectionDomain, QueuePair, QueuePairInit};

/// Builds an event from the 16 bytes that a read returns: element, type, zero.
fn read(element: u64, event_type: u32) -> Option<AsyncEvent> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&element.to_ne_bytes());
    bytes[8..12].copy_from_slice(&event_type.to_ne_bytes());
    event(&ib_uverbs_async_event_desc::read_from_bytes(&bytes).expect("16 bytes"), track)
}

/// The numbers are those of `enum ib_event_type`, `include/rdma/ib_verbs.h`.
#[test]
fn every_event_type_names_its_element() {
    let event_source = EventSource::new();
    let (number, token) = (event_source.user_handle().get(), event_source.token());
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
        let event = read(about, event_type).expect("the object exists");
        assert_eq!((event.event_type().0, event.element()), (event_type, element));
        let object = !matches!(event_type, 8..=13 | 17..=20);
        assert_eq!(event.token(), object.then_some(token), "{event_type}");
    }
}

#[test]
fn late_events_are_dropped_and_unknown_returned() {
    let event_source = EventSource::new();
    let number = event_source.user_handle().get();
    // A type that does not exist yet: the destruction of its object waits for the event.
    let event = read(number, 1000).expect("an event");
    assert_eq!(event.element(), AsyncElement::Unknown(number));
    event_source.check(String::new).expect_err("an event should be unacknowledged");
    drop(event);
    event_source.check(String::new).expect("the event is acknowledged");
    drop(event_source);
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
    qp.destroy().expect("no event should be unacknowledged");
}

#[test]
fn events_are_left_to_reading_program() {
    let (qp, mut to) = reported_by_pipe();
    let events = qp.pd().context().async_events();
    report(&mut to, qp.token().get(), ib_event_type::IB_EVENT_QP_ACCESS_ERR);
    assert_eq!(qp.peer_failure(), None);
    assert_eq!(events.as_raw_fd(), events.as_fd().as_raw_fd());
    let event = events.get_event().expect("the program should get the event");
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
    let event_sources = [(); 3].map(|()| EventSource::new());
    for port in 0..256 {
        let event = read(port, 1000).expect("an event");
        assert_eq!(event.element(), AsyncElement::Unknown(port));
        for event_source in &event_sources {
            event_source.check(String::new).expect("the object has no event");
        }
    }
}

/// The destruction of a queue pair would wait for this thread, which holds an event.
#[test]
fn held_event_keeps_queue_pair() {
    let (qp, mut to) = reported_by_pipe();
    let events = qp.pd().context().async_events();
    report(&mut to, qp.token().get(), ib_event_type::IB_EVENT_COMM_EST);
    let held = events.get_event().expect("an event");
    let (qp, error) = qp.destroy().expect_err("this thread holds an event").into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    drop(held);
    qp.destroy().expect("the event is acknowledged");
}
