use std::sync::Arc;

use super::*;
use crate::acks::{Acks, Counted};
use crate::registry::Registry;

fn event(event_type: EventType, status: i32) -> Event {
    let token = Registry::<()>::default().reserve();
    let facts = EventFacts::new(event_type, status, token, 0, EventData::None);
    Event::new(facts, Arc::new(Acks::default()).track(true))
}

#[test]
fn expected_event_is_no_failure() {
    assert!(event(EventType::Established, 0).error_for(EventType::Established).is_none());
}

#[test]
fn any_unexpected_event_is_failure() {
    for number in 0..30 {
        for status in [i32::MIN, -4096, -110, -1, 0, 1, 28, i32::MAX] {
            let event = event(number.into(), status);
            let Some(error) = event.error_for(EventType::RouteResolved) else { continue };
            assert!(!error.to_string().is_empty());
            let _ = error.errno();
        }
    }
}

#[test]
fn failure_kinds_match_event_and_status() {
    let kind = |event_type, status| {
        let error = event(event_type, status).error_for(EventType::Established);
        error.expect("the event should be a failure").to_string()
    };
    assert!(kind(EventType::Rejected, 8).contains("no program listens on the port"));
    assert!(kind(EventType::Unreachable, -110).contains("unreachable"));
    let errno = |event_type, status| {
        let error = event(event_type, status).error_for(EventType::Established);
        error.expect("the event should be a failure").errno()
    };
    assert_eq!(errno(EventType::Unreachable, -110), libc::ETIMEDOUT);
    assert_eq!(errno(EventType::Unreachable, 1), libc::EHOSTUNREACH);
    assert_eq!(errno(EventType::Rejected, -104), libc::ECONNREFUSED);
    assert_eq!(errno(EventType::Rejected, 8), libc::ECONNREFUSED);
    assert!(kind(EventType::Disconnected, 0).contains("the connection has ended"));
    assert_eq!(errno(EventType::Disconnected, 0), libc::ENOTCONN);
    assert!(kind(EventType::ConnectError, -libc::ENXIO).contains("the device was removed"));
    assert!(kind(EventType::ConnectError, -libc::EIO).contains("the device was removed"));
    assert!(kind(EventType::DeviceRemoval, 0).contains("the device was removed"));
    let reset = event(EventType::ConnectError, -libc::ECONNRESET);
    let reset = reset.error_for(EventType::Established).expect("the event should be a failure");
    assert_eq!(*reset.kind(), ErrorKind::Os(libc::ECONNRESET), "{reset}");
    let ended = event(EventType::Disconnected, -libc::ECONNRESET);
    let ended = ended.error_for(EventType::Disconnected).expect("the event should be a failure");
    assert_eq!(*ended.kind(), ErrorKind::Os(libc::ECONNRESET));
    let hint = format!(": timed out; {}", hint::NO_MACHINE);
    assert!(kind(EventType::AddrError, -110).ends_with(&hint));
    let hint = format!("(ENETUNREACH); {}", hint::NO_ROUTE);
    assert!(kind(EventType::AddrError, -libc::ENETUNREACH).ends_with(&hint));
    let hint = format!(": No such device (ENODEV); {}", hint::NO_DEVICE);
    assert!(kind(EventType::AddrError, -19).ends_with(&hint));
    assert!(kind(EventType::RouteError, -110).ends_with("timed out"));
}

#[test]
fn unexpected_event_is_named_with_its_id() {
    let mut event = event(EventType::AddrResolved, 0);
    let text = |event: &Event| {
        let error = event.error_for(EventType::Established).expect("the event should be a failure");
        assert_eq!(error.subject(), "RDMA_CM_EVENT_ESTABLISHED");
        error.to_string()
    };
    let expected = format!("RDMA_CM_EVENT_ADDR_RESOLVED of id {} came", event.facts.token);
    assert!(text(&event).contains(&expected), "{}", text(&event));
    event.facts.status = 7;
    assert!(text(&event).contains("ADDR_RESOLVED with status 7 of id"), "{}", text(&event));
    // A request belongs to the id that the program knows.
    let listener = Registry::<()>::default().reserve();
    event.facts.listener = Some(listener);
    let expected = format!("of id {listener}, which listens, came");
    assert!(text(&event).contains(&expected), "{}", text(&event));
}
