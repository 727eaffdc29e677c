//! Tests of poll groups without a kernel: what an event loop misses if a call of its own frees a place or a buffer.

use super::forged::{ESTABLISHED, ForgedGroup};
use super::{Event, Member, PollGroupConfig};
use crate::driver::Capabilities;
use crate::error::ErrorKind;

/// Returns a group with two send buffers, as many for each member, and two established members.
fn group_with_two_members() -> (ForgedGroup, [Member; 2]) {
    let config = PollGroupConfig::new().receives(4).sends(2).sends_per_member(2);
    let mut forged = ForgedGroup::new(Capabilities::default(), &config);
    let members = [1, 2].map(|number| {
        let member = forged.accept(number, false, false).expect("a member");
        forged.deliver(member, ESTABLISHED, 0).expect("an event");
        member
    });
    let events = polled(&mut forged);
    assert!(matches!(events[..], [Event::Established(_), Event::Established(_)]), "{events:?}");
    (forged, members)
}

/// Polls until the descriptor is not readable, as an event loop does.
fn polled(forged: &mut ForgedGroup) -> Vec<Event> {
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
fn would_block(forged: &mut ForgedGroup, member: Member) {
    let error = forged.group.acquire_buffer(member).expect_err("there is none");
    assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
}

#[track_caller]
fn becomes_writable(forged: &mut ForgedGroup, member: Member) {
    assert!(forged.is_readable(), "an event loop does not poll");
    let events = polled(forged);
    assert!(matches!(events[..], [Event::Writable(found)] if found == member), "{events:?}");
}

#[test]
fn refused_send_frees_place_of_waiting_member() {
    let (mut forged, [member, _]) = group_with_two_members();
    let [first, _second] = [(); 2].map(|()| forged.group.acquire_buffer(member).expect("a place"));
    would_block(&mut forged, member);
    assert_eq!(polled(&mut forged).len(), 0);
    forged.device.device().refuses = 1;
    forged.group.post_send(first).expect_err("the device refuses it");
    becomes_writable(&mut forged, member);
}

#[test]
fn refused_send_frees_buffer_for_other_member() {
    let (mut forged, [holder, waiter]) = group_with_two_members();
    let [first, _second] = [(); 2].map(|()| forged.group.acquire_buffer(holder).expect("a place"));
    would_block(&mut forged, waiter);
    assert_eq!(polled(&mut forged).len(), 0);
    forged.device.device().refuses = 1;
    forged.group.post_send(first).expect_err("the device refuses it");
    becomes_writable(&mut forged, waiter);
}

#[test]
fn buffer_dropped_after_would_block_wakes_group() {
    let (mut forged, [holder, waiter]) = group_with_two_members();
    let [first, second] = [(); 2].map(|()| forged.group.acquire_buffer(holder).expect("a place"));
    // The group has been polled for the last time before a member lacks a buffer.
    assert_eq!(polled(&mut forged).len(), 0);
    would_block(&mut forged, waiter);
    assert!(!forged.is_readable());
    drop(first);
    becomes_writable(&mut forged, waiter);
    // One that was returned before the call counts too.
    let third = forged.group.acquire_buffer(waiter).expect("a buffer");
    assert_eq!(polled(&mut forged).len(), 0);
    drop(second);
    would_block(&mut forged, waiter);
    becomes_writable(&mut forged, waiter);
    drop(third);
}
