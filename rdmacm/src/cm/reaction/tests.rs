use ucma_abi::{rdma_cm_event_type, rdma_ucm_ece, rdma_ucm_event_resp};
use zerocopy::FromZeros;

use super::*;
use crate::driver::{Capabilities, External};
use crate::drivers::any::AnyDriver;
use crate::drivers::forged::Forged;
use crate::verbs::{CompletionQueue, ProtectionDomain, QueuePair, QueuePairInit};

fn event(event_type: EventType, status: i32) -> RawEvent {
    let mut response = rdma_ucm_event_resp::new_zeroed();
    response.event = rdma_cm_event_type(event_type.into());
    response.status = u32::from_ne_bytes(status.to_ne_bytes());
    response.ece = rdma_ucm_ece { vendor_id: 7, attr_mod: 9 };
    RawEvent::new(response)
}

/// Returns the event that the caller gets from an id without a queue pair.
#[track_caller]
fn reported(state: &mut State, event_type: EventType, status: i32) -> Option<Reported> {
    match plan(state, &event(event_type, status)) {
        Plan::Report(event) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_are_reported_unchanged() {
    for number in (0..30).filter(|number| EventType::from(*number) != EventType::AddrinfoResolved) {
        let event_type = EventType::from(number);
        let mut state = State::default();
        assert_eq!(reported(&mut state, event_type, -5), Some((event_type, -5)));
    }
}

#[test]
fn connection_lasts_from_established_to_end() {
    use EventType as T;
    let ends = [T::ConnectError, T::TimewaitExit, T::DeviceRemoval, T::Disconnected, T::Rejected];
    for end in ends {
        let mut state = State::default();
        reported(&mut state, T::Established, 0);
        reported(&mut state, T::Unreachable, 0);
        reported(&mut state, T::AddrChange, 0);
        assert!(state.established, "{end} has not come yet");
        reported(&mut state, end, 0);
        assert!(!state.established, "{end}");
        assert_eq!(state.removed, end == T::DeviceRemoval);
    }
}

#[test]
fn end_after_failed_connecting_is_not_reported() {
    use EventType as T;
    let mut state = State { connect_failed: true, ..State::default() };
    for end in [T::Rejected, T::Disconnected] {
        assert_eq!(reported(&mut state, end, 28), None);
    }
    assert_eq!(reported(&mut state, T::TimewaitExit, 0), Some((T::TimewaitExit, 0)));
}

#[test]
fn response_without_queue_pair_brings_ece() {
    let mut state = State::default();
    reported(&mut state, EventType::ConnectResponse, 0);
    assert_eq!((state.remote_ece.vendor_id, state.remote_ece.options), (7, 9));
}

#[test]
fn services_are_read_only_if_asked_for() {
    use EventType as T;
    let mut state = State::default();
    assert_eq!(reported(&mut state, T::AddrinfoResolved, 3), Some((T::AddrinfoResolved, 0)));
    state.resolution = Resolution::Pending;
    let resolved = plan(&mut state, &event(T::AddrinfoResolved, 0));
    assert!(matches!(resolved, Plan::ReadServices), "{resolved:?}");
    reported(&mut state, T::AddrinfoError, -110);
    assert!(matches!(state.resolution, Resolution::None));
}

fn qp(qp_follows_connection: bool) -> OwnQp {
    let capabilities = Capabilities { qp_follows_connection, ..Capabilities::default() };
    let driver = AnyDriver::External(External::new(Forged::new(capabilities)));
    let context = Context::on_null(driver);
    let pd = ProtectionDomain::new(&context).expect("the protection domain should be created");
    let cq =
        CompletionQueue::new(&context, 1, None).expect("the completion queue should be created");
    let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq));
    OwnQp::Queues(qp.expect("the queue pair should be created"))
}

/// Returns the event after the flush that `event_type` causes, or `None` if there is no flush.
fn flushed(state: &mut State, event_type: EventType) -> Option<Option<Reported>> {
    match plan(state, &event(event_type, 0)) {
        Plan::Flush(_, reported) => Some(reported),
        _ => None,
    }
}

/// Checks that an end flushes a queue pair that the kernel moves to ERR with its connection.
#[test]
fn end_flushes_queue_pair_that_follows_connection() {
    use EventType as T;
    for follows in [true, false] {
        let qp = qp(follows);
        let new_state = || State { qp: Some(qp.clone()), ..State::default() };
        for end in
            [T::Unreachable, T::ConnectError, T::TimewaitExit, T::DeviceRemoval, T::Disconnected]
        {
            let expected = follows.then_some(Some((end, 0)));
            assert_eq!(flushed(&mut new_state(), end), expected, "{end}");
        }
        for other in [T::Established, T::AddrChange] {
            assert_eq!(flushed(&mut new_state(), other), None, "{other}");
        }
    }
}

#[test]
fn rejection_flushes_any_queue_pair() {
    for follows in [true, false] {
        let mut state = State { qp: Some(qp(follows)), ..State::default() };
        let rejected = EventType::Rejected;
        assert_eq!(flushed(&mut state, rejected), Some(Some((rejected, 0))));
        // The caller already got the event that connecting has failed.
        state.connect_failed = true;
        assert_eq!(flushed(&mut state, rejected), follows.then_some(None));
    }
}
