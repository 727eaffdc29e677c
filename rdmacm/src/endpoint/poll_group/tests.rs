//! Tests of poll groups without a kernel.
//!
//! Calls of an event loop that free a place or a buffer wake the loop.

use std::future::Future;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use verbs_abi::ib_wc_flags;

use super::forged::{ADDR_CHANGE, DEVICE_REMOVAL, DISCONNECTED, ESTABLISHED, ForgedGroup};
use super::{Event, Member, MemberEnd, PollGroupConfig, SendBuffer};
use crate::driver::Capabilities;
use crate::endpoint::task;
use crate::endpoint::task::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};
use crate::error::ErrorKind;
use crate::verbs::{SendOperation, WcOpcode, WcStatus};

const LONG: Duration = Duration::from_secs(60);

/// Returns a group with `N` established members and as many send buffers. A member may use two of them.
fn group_with_members<const N: usize>() -> (ForgedGroup, [Member; N]) {
    let sends = u32::try_from(N).expect("the number of members should fit");
    let config =
        PollGroupConfig::new().receive_buffers(4).send_buffers(sends).send_buffers_per_member(2);
    group_with_config(&config)
}

/// Returns a group with `N` established members, whose queue pairs have the numbers from 1 on.
fn group_with_config<const N: usize>(config: &PollGroupConfig) -> (ForgedGroup, [Member; N]) {
    with_members(ForgedGroup::new(Capabilities::default(), config))
}

/// Adds `N` established members to an empty group, whose queue pairs have the numbers from 1 on.
fn with_members<const N: usize>(mut forged: ForgedGroup) -> (ForgedGroup, [Member; N]) {
    let members = std::array::from_fn(|place| {
        let number = u32::try_from(place).expect("the number of members should fit") + 1;
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

#[test]
fn buffer_dropped_after_later_poll_wakes_group() {
    let (mut forged, [holder, waiter]) = group_with_members();
    let [first, _second] = acquire_two(&mut forged, holder);
    assert_would_block(&mut forged, waiter);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    drop(first);
    assert_becomes_writable(&mut forged, waiter);
}

/// Polls once. Returns the events.
fn poll(forged: &mut ForgedGroup) -> Vec<Event> {
    let mut events = Vec::new();
    forged.group.poll(&mut events).expect("poll");
    events
}

/// Polls once, and returns the error.
fn poll_error(forged: &mut ForgedGroup) -> ErrorKind {
    let mut events = Vec::new();
    let error = forged.group.poll(&mut events).expect_err("the poll should fail");
    assert!(events.is_empty(), "{events:?}");
    error.kind().clone()
}

/// Checks a malformed completion, whose member the group cannot determine.
#[test]
fn malformed_completion_ends_all_members() {
    let (mut forged, members) = group_with_members::<2>();
    forged.group.post_bytes(members[0], b"lost").expect("post");
    forged.device.device().requests.retain(|request| request.qp_num.is_none());
    forged.device.device().is_malformed = true;
    let events = poll(&mut forged);
    let is_malformed = |event: &Event| {
        matches!(event, Event::Ended(_, MemberEnd::Failed(error))
            if matches!(error.kind(), ErrorKind::MalformedResponse(_)))
    };
    assert!(events.len() == 2 && events.iter().all(is_malformed), "{events:?}");
    // The events come first.
    assert!(forged.is_readable(), "an event loop should poll again");
    assert!(matches!(poll_error(&mut forged), ErrorKind::MalformedResponse(_)));
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
}

/// Checks that no end is lost if a queue fails: the kernel reports the end of a connection once.
#[test]
fn disconnected_member_ends_although_queue_fails() {
    for queue in [0, 1] {
        let (mut forged, [member]) = group_with_members();
        forged.device.device().failing_queue = Some(queue);
        forged.deliver(member, DISCONNECTED, 0).expect_err("the completion queue should fail");
        let events = poll(&mut forged);
        assert!(matches!(events[..], [Event::Ended(_, MemberEnd::Peer)]), "{events:?}");
        assert_eq!(poll_error(&mut forged), ErrorKind::Os(libc::ENOMEM));
        assert!(forged.is_readable(), "an event loop should poll again");
    }
}

/// Checks that a program that makes a call with an event between all polls gets the error.
#[test]
fn deferred_error_is_returned_once() {
    let (mut forged, [ends, idle]) = group_with_members();
    forged.break_commands();
    forged.complete_receive(1, WcStatus::IB_WC_WR_FLUSH_ERR);
    let events = poll(&mut forged);
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == ends), "{events:?}");
    forged.group.flush(idle).expect("flush");
    assert_eq!(poll_error(&mut forged), ErrorKind::Os(libc::EPIPE));
    let events = poll(&mut forged);
    assert!(matches!(events[..], [Event::Sent(found)] if found == idle), "{events:?}");
}

/// Checks that the removal is returned after the last event of the kernel has ended the members.
#[test]
fn removal_is_returned_after_last_end() {
    let (mut forged, [member]) = group_with_members();
    forged.deliver(member, DEVICE_REMOVAL, 0).expect("deliver");
    let events = poll(&mut forged);
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == member), "{events:?}");
    assert!(forged.is_readable(), "an event loop should poll again");
    assert_eq!(poll_error(&mut forged), ErrorKind::DeviceRemoved(libc::ENODEV));
}

#[test]
fn removal_during_attempt_concerns_group() {
    let mut forged = ForgedGroup::new(Capabilities::default(), &PollGroupConfig::new());
    let member = forged.accept(1, false, false).expect("accept");
    forged.deliver(member, DEVICE_REMOVAL, 0).expect("deliver");
    let events = poll(&mut forged);
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == member), "{events:?}");
    assert_eq!(poll_error(&mut forged), ErrorKind::DeviceRemoved(libc::ENODEV));
}

#[track_caller]
fn assert_message_precedes_failure(events: &[Event]) {
    assert!(
        matches!(events, [Event::Message(..), Event::Ended(_, MemberEnd::Failed(_))]),
        "{events:?}"
    );
}

/// Checks a message that the group polls after another call has detected the removal.
#[test]
fn message_before_removal_is_delivered() {
    for is_reported_to_group in [false, true] {
        let (mut forged, [member]) = group_with_members();
        forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
        // The group cannot post the buffer of this message again.
        drop(poll(&mut forged));
        forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
        if is_reported_to_group {
            forged.deliver(member, DEVICE_REMOVAL, 0).expect("deliver");
        } else {
            forged.group.resources.pd.context().mark_removed();
        }
        let events = poll(&mut forged);
        assert_message_precedes_failure(&events);
    }
}

/// Checks a message that arrives between the poll of the receives and the poll of the sends.
#[test]
fn message_before_failed_send_is_delivered() {
    let (mut forged, [member]) = group_with_members();
    forged.group.post_bytes(member, b"lost").expect("post");
    forged.complete_receive_meanwhile(1);
    forged.complete_sends(1, WcStatus::IB_WC_RETRY_EXC_ERR);
    let events = poll(&mut forged);
    assert_message_precedes_failure(&events);
}

/// Checks ends after which no event of the kernel follows, if an event loop has polled before.
#[test]
fn ends_during_refused_addition_wake_group() {
    let (mut forged, [ended, left]) = group_with_members();
    forged.group.abort(ended).expect("abort");
    assert_eq!(poll_until_idle(&mut forged).len(), 1);
    forged.device.device().is_malformed = true;
    let error = forged.accept(3, false, false).expect_err("the addition should fail");
    assert!(matches!(error.kind(), ErrorKind::MalformedResponse(_)), "{error}");
    assert!(forged.is_readable(), "an event loop should poll");
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == left), "{events:?}");
}

/// Checks a dropped message whose buffer the group has not taken back.
#[test]
fn dropped_message_is_not_held_when_member_is_added() {
    let config = PollGroupConfig::new().receive_buffers(4).max_held(1);
    let (mut forged, [receiver, other]) = group_with_config(&config);
    forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
    assert!(matches!(poll(&mut forged)[..], [Event::Message(..)]));
    forged.group.abort(other).expect("abort");
    forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
    forged.accept(3, false, false).expect("accept");
    let events = poll_until_idle(&mut forged);
    let is_expected = |event: &Event| match event {
        Event::Message(member, _) => *member == receiver,
        Event::Ended(member, MemberEnd::Local) => *member == other,
        _ => false,
    };
    assert!(events.len() == 2 && events.iter().all(is_expected), "{events:?}");
}

#[test]
fn free_buffer_is_offered_once() {
    let (mut forged, [holder, first, second]) = group_with_members();
    let [one, _two] = acquire_two(&mut forged, holder);
    let _three = forged.group.acquire_buffer(first).expect("a buffer should be free");
    assert_would_block(&mut forged, first);
    assert_would_block(&mut forged, second);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    drop(one);
    let events = poll(&mut forged);
    assert!(matches!(events[..], [Event::Writable(member)] if member == first), "{events:?}");
}

/// Checks that the completion queue has room for the completions of ended members.
///
/// A queue that overflows is lost for all members.
#[test]
fn completions_of_ended_members_fit() {
    let config = PollGroupConfig::new().send_buffers(2).send_buffers_per_member(2);
    let (mut forged, members) = group_with_config::<6>(&config.initial_members(3));
    for (number, member) in (1..).zip(members) {
        (0..2).for_each(|_| forged.group.post_bytes(member, b"full").expect("post"));
        forged.complete_sends(number, WcStatus::IB_WC_SUCCESS);
        let waiting = forged.device.device().completions[1].len();
        let capacity = forged.group.resources.send_cq.capacity();
        assert!(waiting <= capacity as usize, "{waiting} completions in a queue for {capacity}");
        forged.group.abort(member).expect("abort");
    }
}

#[test]
fn message_after_flush_is_included() {
    let (mut forged, [member]) = group_with_members();
    forged.group.flush(member).expect("flush");
    forged.group.post_bytes(member, b"later").expect("post");
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    forged.complete_sends(1, WcStatus::IB_WC_SUCCESS);
    let events = poll(&mut forged);
    assert!(matches!(events[..], [Event::Sent(found)] if found == member), "{events:?}");
}

/// A runtime whose descriptors are readable at any time, as the contract of a runtime permits.
///
/// It counts the polls of tasks.
#[derive(Debug, Default)]
struct AlwaysReadable(Arc<AtomicU32>);

impl Runtime for AlwaysReadable {
    fn register(&self, _: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }

    fn sleep_until(&self, _: Instant) -> io::Result<Sleep> {
        unreachable!("no task sleeps")
    }

    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        Err(work)
    }
}

impl RegisteredFd for AlwaysReadable {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polls = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(polls < 10_000, "the task should let others run");
        Poll::Ready(Ok(()))
    }
}

#[test]
fn task_without_events_lets_others_run() {
    let (forged, [_]) = group_with_members();
    let (group, _kernel) = forged.into_parts();
    let runtime = Arc::new(AlwaysReadable::default());
    let mut group = task::PollGroup::from_blocking_with(group, runtime).expect("watch");
    let mut events = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(group.wait(&mut events)).as_mut().poll(&mut context).is_pending());
}

/// Checks an attempt that no event will end.
#[test]
fn attempt_times_out_although_events_cannot_be_read() {
    let config = PollGroupConfig::new();
    let mut forged = ForgedGroup::new(Capabilities::default(), &config);
    let member = forged.accept(1, false, true).expect("accept");
    forged.break_commands();
    let (mut events, begin) = (Vec::new(), Instant::now());
    while events.is_empty() {
        assert!(begin.elapsed() < LONG, "the attempt should time out");
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

/// Checks a member that takes its last place while it waits for a buffer.
///
/// The member cannot use the next free buffer.
#[test]
fn member_without_place_is_passed_over() {
    let (mut forged, [holder, first, second]) = group_with_members();
    let [to_first, to_second] = acquire_two(&mut forged, holder);
    let _one = forged.group.acquire_buffer(first).expect("a buffer should be free");
    assert_would_block(&mut forged, first);
    assert_would_block(&mut forged, second);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    refuse_send(&mut forged, to_first);
    let _last = forged.group.acquire_buffer(first).expect("a buffer should be free");
    refuse_send(&mut forged, to_second);
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Writable(member)] if member == second), "{events:?}");
}

#[test]
fn send_buffer_implements_write() {
    let (mut forged, [member]) = group_with_members();
    let mut buffer = forged.group.acquire_buffer(member).expect("a buffer should be free");
    let capacity = buffer.capacity();
    buffer.set_len(0).expect("an empty message should fit");
    write!(buffer, "number {}", 7).expect("the text should fit");
    assert_eq!(buffer.as_ref(), b"number 7");
    let error = buffer.write_all(&vec![0; capacity - 7]).expect_err("the buffer should be full");
    assert_eq!((error.kind(), buffer.len()), (io::ErrorKind::WriteZero, capacity));
}

#[test]
fn message_has_length_and_immediate_data() {
    let (mut forged, [member]) = group_with_members();
    forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
    {
        let mut device = forged.device.device();
        let completion =
            &mut device.completions[0].back_mut().expect("a completion should be queued").0;
        completion.opcode = WcOpcode::IB_WC_RECV;
        completion.wc_flags = ib_wc_flags::IB_WC_WITH_IMM;
        completion.ex = 9_u32.to_be_bytes();
        completion.byte_len = 3;
    }
    let mut events = poll(&mut forged);
    let Some(Event::Message(from, message)) = events.pop() else { panic!("no message") };
    assert_eq!((from, message.member(), message.imm_data()), (member, member, Some(9)));
    assert_eq!((&message[..], message.as_ref()), (&[0; 3][..], &[0; 3][..]));
    #[cfg(feature = "bytes")]
    assert_eq!(bytes::Bytes::from(message), [0; 3][..]);
}

#[test]
fn send_buffer_takes_bytes_and_immediate_data() {
    let (mut forged, [member]) = group_with_members();
    let mut buffer = forged.group.acquire_buffer(member).expect("a buffer should be free");
    assert_eq!((buffer.len(), buffer.operation()), (buffer.capacity(), SendOperation::Send));
    buffer.copy_from(b"number").expect("the bytes should fit");
    buffer.as_mut()[0] = b'N';
    assert_eq!(&buffer[..], b"Number");
    buffer.set_imm_data(Some(7));
    assert_eq!(buffer.operation(), SendOperation::SendWithImm { imm_data: 7 });
    buffer.set_imm_data(None);
    assert_eq!(buffer.operation(), SendOperation::Send);
    let capacity = buffer.capacity();
    buffer.set_len(capacity).expect("a full buffer should fit");
    let error = buffer.set_len(capacity + 1).expect_err("a longer message should not fit");
    assert_eq!((error.errno(), buffer.len()), (libc::EMSGSIZE, capacity));
}

#[test]
fn member_becomes_writable_when_established() {
    let config = PollGroupConfig::new();
    let mut forged = ForgedGroup::new(Capabilities::default(), &config);
    let member = forged.accept(1, false, false).expect("accept");
    // The member is offered a buffer once, however often it has asked.
    for _ in 0..2 {
        assert_would_block(&mut forged, member);
    }
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
    forged.deliver(member, ESTABLISHED, 0).expect("deliver");
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Established(_), Event::Writable(_)]), "{events:?}");
    forged.group.acquire_buffer(member).expect("a buffer should be free");
}

#[test]
fn queue_pair_has_room_for_sends_of_member() {
    let config = PollGroupConfig::new().send_buffers(8).send_buffers_per_member(5);
    let forged = ForgedGroup::new(Capabilities::default(), &config);
    let caps = forged.group.qp_init().caps;
    // One entry is for a request without a buffer.
    assert_eq!((caps.max_send_wr, caps.max_recv_wr), (6, 0));
}

/// Checks an event that reports the cause of an end after the group has polled a flushed receive.
#[test]
fn later_event_determines_cause_of_end() {
    let (mut forged, [first, second]) = group_with_members();
    forged.complete_receive(1, WcStatus::IB_WC_WR_FLUSH_ERR);
    // The group polls the completion of the first member here.
    forged.deliver(second, DISCONNECTED, 0).expect("deliver");
    forged.deliver(first, DISCONNECTED, 0).expect("deliver");
    let events = poll(&mut forged);
    let is_by_peer = |event: &Event| matches!(event, Event::Ended(_, MemberEnd::Peer));
    assert!(events.len() == 2 && events.iter().all(is_by_peer), "{events:?}");
}

#[test]
fn group_has_one_descriptor() {
    let forged = ForgedGroup::new(Capabilities::default(), &PollGroupConfig::new());
    assert_eq!(forged.group.as_raw_fd(), forged.group.as_fd().as_raw_fd());
}

/// Checks a completion of an ended member whose place another member has taken.
#[test]
fn late_message_is_not_of_next_member() {
    let (mut forged, [_, ended]) = group_with_members();
    forged.group.abort(ended).expect("abort");
    assert_eq!(poll_until_idle(&mut forged).len(), 1);
    let next = forged.accept(3, false, false).expect("accept");
    assert_eq!(next.index(), ended.index());
    forged.deliver(next, ESTABLISHED, 0).expect("deliver");
    assert_eq!(poll_until_idle(&mut forged).len(), 1);
    forged.complete_receive(2, WcStatus::IB_WC_SUCCESS);
    assert_eq!(poll_until_idle(&mut forged).len(), 0);
}

#[test]
fn changed_address_ends_no_attempt() {
    let mut forged = ForgedGroup::new(Capabilities::default(), &PollGroupConfig::new());
    let member = forged.accept(1, false, false).expect("accept");
    forged.deliver(member, ADDR_CHANGE, 0).expect("deliver");
    forged.deliver(member, ESTABLISHED, 0).expect("deliver");
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Established(found)] if found == member), "{events:?}");
}

/// Checks an attempt whose id is over another device, as long as the member has no queue pair.
#[test]
fn removal_of_other_device_ends_attempt_only() {
    let (mut forged, [other]) = group_with_members();
    let member = forged.accept(2, false, false).expect("accept");
    forged.group.members.get_mut(member).expect("the member should exist").sends = None;
    forged.deliver(member, DEVICE_REMOVAL, 0).expect("deliver");
    let events = poll_until_idle(&mut forged);
    assert!(matches!(events[..], [Event::Ended(found, _)] if found == member), "{events:?}");
    forged.group.post_bytes(other, b"next").expect("the group should continue");
}

/// Checks ends without a reported cause, after a poll in which the shared receive queue may have been empty.
#[test]
fn iwarp_end_after_empty_queue_is_overrun() {
    let capabilities = Capabilities { qp_follows_connection: true, ..Capabilities::default() };
    let config = PollGroupConfig::new().receive_buffers(2);
    let (mut forged, [busy, silent]) = with_members(ForgedGroup::new(capabilities, &config));
    let receives = config.posted_receives(true);
    for _ in 0..receives {
        forged.complete_receive(1, WcStatus::IB_WC_SUCCESS);
    }
    let messages = poll(&mut forged);
    assert_eq!(messages.len(), receives as usize);
    let later = forged.accept(3, false, false).expect("accept");
    forged.deliver(later, ESTABLISHED, 0).expect("deliver");
    for member in [busy, silent, later] {
        forged.deliver(member, DISCONNECTED, 0).expect("deliver");
    }
    let events = poll(&mut forged);
    let is_overrun = |event: &Event| {
        matches!(event, Event::Ended(found, MemberEnd::Failed(error))
            if *found == silent && *error.kind() == ErrorKind::ReceiveOverrun)
    };
    assert!(events.iter().any(is_overrun), "{events:?}");
    let is_later_end =
        |event: &Event| matches!(event, Event::Ended(found, MemberEnd::Peer) if *found == later);
    assert!(events.iter().any(is_later_end), "{events:?}");
}

#[test]
fn refused_send_names_connection() {
    let (mut forged, [member]) = group_with_members();
    assert!(!forged.group.is_empty());
    forged.device.device().refuses = 1;
    let posted = forged.group.post_bytes(member, b"refused");
    let error = posted.expect_err("the device should refuse the send");
    let link = forged.group.members.get(member).expect("the member should continue");
    assert_eq!(error.subject(), format!("the connection of id {}", link.id.token()));
}

#[test]
fn descriptor_is_readable_after_abort() {
    let (mut forged, [member]) = group_with_members();
    assert!(!forged.is_readable());
    forged.group.abort(member).expect("abort");
    assert!(forged.is_readable(), "an event loop should poll");
    let events = poll(&mut forged);
    assert!(
        matches!(events[..], [Event::Ended(found, MemberEnd::Local)] if found == member),
        "{events:?}"
    );
    assert!(forged.group.is_empty());
}
