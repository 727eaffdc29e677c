//! Tests of poll groups without a kernel: calls of an event loop that free a place or a buffer wake the loop.

use super::forged::{DISCONNECTED, ESTABLISHED, ForgedGroup};
use super::{Event, Member, MemberEnd, PollGroupConfig, SendBuffer};
use crate::driver::Capabilities;
use crate::error::ErrorKind;
use crate::verbs::WcStatus;

/// Returns a group with `N` established members and as many send buffers, two of which one member may use.
fn group_with_members<const N: usize>() -> (ForgedGroup, [Member; N]) {
    let sends = u32::try_from(N).expect("few members");
    let config =
        PollGroupConfig::new().receive_buffers(4).send_buffers(sends).send_buffers_per_member(2);
    let mut forged = ForgedGroup::new(Capabilities::default(), &config);
    let members = std::array::from_fn(|place| {
        let number = u32::try_from(place).expect("few members") + 1;
        let member = forged.accept(number, false, false).expect("accept");
        forged.deliver(member, ESTABLISHED, 0).expect("deliver");
        member
    });
    let events = poll_until_idle(&mut forged);
    let are_established = events.iter().all(|event| matches!(event, Event::Established(_)));
    assert!(are_established && events.len() == N, "{events:?}");
    (forged, members)
}

/// Takes both buffers that the member may use.
fn acquire_two(forged: &mut ForgedGroup, member: Member) -> [SendBuffer; 2] {
    [(); 2].map(|()| forged.group.acquire_buffer(member).expect("a place should be free"))
}

/// Posts the buffer, which the device refuses.
fn refuse_send(forged: &mut ForgedGroup, buffer: SendBuffer) {
    forged.device.device().refuses = 1;
    forged.group.post_send(buffer).expect_err("the device should refuse the send");
}

/// Polls until the descriptor is not readable, as an event loop does.
fn poll_until_idle(forged: &mut ForgedGroup) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        forged.group.poll(&mut events).expect("poll");
        forged.receive_commands();
        if !forged.is_readable() {
            return events;
        }
    }
}

#[track_caller]
fn assert_would_block(forged: &mut ForgedGroup, member: Member) {
    let error = forged.group.acquire_buffer(member).expect_err("no buffer should be free");
    assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
}

#[track_caller]
fn assert_becomes_writable(forged: &mut ForgedGroup, member: Member) {
    assert!(forged.is_readable(), "an event loop should poll");
    let events = poll_until_idle(forged);
    assert!(matches!(events[..], [Event::Writable(found)] if found == member), "{events:?}");
}

#[test]
fn refused_send_frees_place_of_waiting_member() {
    let (mut forged, [member, _]) = group_with_members();
    let [first, _second] = acquire_two(&mut forged, member);
    assert_would_block(&mut forged, member);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    refuse_send(&mut forged, first);
    assert_becomes_writable(&mut forged, member);
}

#[test]
fn refused_send_frees_buffer_for_other_member() {
    let (mut forged, [holder, waiter]) = group_with_members();
    let [first, _second] = acquire_two(&mut forged, holder);
    assert_would_block(&mut forged, waiter);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    refuse_send(&mut forged, first);
    assert_becomes_writable(&mut forged, waiter);
}

#[test]
fn buffer_dropped_after_would_block_wakes_group() {
    let (mut forged, [holder, waiter]) = group_with_members();
    let [first, second] = acquire_two(&mut forged, holder);
    // The last poll of the group is before a member lacks a buffer.
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    assert_would_block(&mut forged, waiter);
    assert!(!forged.is_readable());
    drop(first);
    assert_becomes_writable(&mut forged, waiter);
    // A buffer that was returned before the call wakes the group, too.
    let third = forged.group.acquire_buffer(waiter).expect("a buffer should be free");
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    drop(second);
    assert_would_block(&mut forged, waiter);
    assert_becomes_writable(&mut forged, waiter);
    drop(third);
}

/// The kernel reports the end of a connection once.
#[test]
fn disconnected_member_ends_although_poll_fails() {
    let (mut forged, [member]) = group_with_members();
    forged.device.device().is_malformed = true;
    forged.deliver(member, DISCONNECTED, 0).expect_err("the completion queue is malformed");
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == member), "{events:?}");
}

#[test]
fn message_after_malformed_completion_precedes_end() {
    let (mut forged, [member]) = group_with_members();
    forged.device.device().is_malformed = true;
    forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
    forged.deliver(member, DISCONNECTED, 0).expect_err("the completion queue is malformed");
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Message(..), Event::Ended(..)]), "{events:?}");
}

/// The descriptor does not report an event again that was read before the failure.
#[test]
fn descriptor_is_readable_after_failed_poll() {
    let (mut forged, [_]) = group_with_members();
    assert!(!forged.is_readable());
    forged.device.device().is_malformed = true;
    let mut events = Vec::new();
    forged.group.poll(&mut events).expect_err("the completion queue is malformed");
    assert!(forged.is_readable(), "an event loop should poll again");
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
}

/// A request was flushed, and an event that cannot be read may have the cause.
#[test]
fn member_ends_although_events_cannot_be_read() {
    let (mut forged, [member]) = group_with_members();
    forged.break_commands();
    forged.complete_receive(1, WcStatus::IB_WC_WR_FLUSH_ERR);
    let mut events = Vec::new();
    forged.group.poll(&mut events).expect("poll");
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == member), "{events:?}");
    // The events come first.
    assert!(forged.is_readable(), "an event loop should poll again");
    let error = forged.group.poll(&mut events).expect_err("no event can be read");
    assert_eq!(*error.kind(), ErrorKind::Os(libc::EPIPE), "{error}");
}

/// No event will end the attempt.
#[test]
fn attempt_times_out_although_events_cannot_be_read() {
    let config = PollGroupConfig::new();
    let mut forged = ForgedGroup::new(Capabilities::default(), &config);
    let member = forged.accept(1, false, true).expect("accept");
    forged.break_commands();
    let mut events = Vec::new();
    while events.is_empty() {
        // The broken channel makes the descriptor readable at any time.
        assert!(forged.is_readable());
        let polled = forged.group.poll(&mut events);
        assert_eq!(polled.is_ok(), !events.is_empty(), "{polled:?}");
    }
    let [Event::Ended(found, MemberEnd::Failed(error))] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((*found, error.kind()), (member, &ErrorKind::TimedOut), "{error}");
}

/// The first member takes its last place while it waits for a buffer, so it cannot use the next free one.
#[test]
fn member_without_place_is_passed_over() {
    let (mut forged, [holder, first, second]) = group_with_members();
    let [to_first, to_second] = acquire_two(&mut forged, holder);
    let _one = forged.group.acquire_buffer(first).expect("a buffer");
    assert_would_block(&mut forged, first);
    assert_would_block(&mut forged, second);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    refuse_send(&mut forged, to_first);
    let _last = forged.group.acquire_buffer(first).expect("the free buffer");
    refuse_send(&mut forged, to_second);
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Writable(member)] if member == second), "{events:?}");
}
