//! The core with queues in memory, for every order of inputs that ends an endpoint or loses a message.

pub(super) mod endpoint_in_memory;
mod results;
#[cfg(not(loom))]
mod wake_orders;

use self::endpoint_in_memory::{
    BYTES, CUT_OFF, Endpoint, FLUSH, NO_ACK, RECEIVES, SENDS, SUCCESS, TestBuffer,
};
use super::operation::Interest;
use super::*;
use crate::error::ErrorKind;
use crate::verbs::{AsyncEventType, GRH_LENGTH};

#[test]
fn first_end_with_reason_counts() {
    use EndReason::{DeviceRemoved, Failed, Local, Overrun, Remote, Unreported};
    for (ends, counts) in [
        ([Remote, Failed(NO_ACK)], Remote),
        ([Failed(NO_ACK), Remote], Failed(NO_ACK)),
        ([Unreported, Remote], Remote),
        ([Unreported, Failed(NO_ACK)], Failed(NO_ACK)),
        ([Failed(NO_ACK), Unreported], Failed(NO_ACK)),
        ([Remote, Unreported], Remote),
        ([Unreported, Local], Local),
        ([Remote, Local], Local),
        ([Local, Remote], Local),
        ([Failed(NO_ACK), Local], Failed(NO_ACK)),
        ([DeviceRemoved, Remote], DeviceRemoved),
        ([Overrun, Local], Overrun),
    ] {
        let mut endpoint = Endpoint::roce();
        ends.iter().for_each(|end| endpoint.core.set_end(*end));
        assert_eq!(endpoint.core.end(), Some(counts), "the end after {ends:?}");
    }
}

#[test]
fn flush_ends_unless_event_follows() {
    for (mut endpoint, end) in
        [(Endpoint::roce(), Some(EndReason::Unreported)), (Endpoint::iwarp(), None)]
    {
        endpoint.queues.receive(FLUSH, 0, None);
        assert!(endpoint.poll());
        assert_eq!(endpoint.core.end(), end);
        endpoint.queues.receive(NO_ACK, 0, None);
        endpoint.poll();
        assert_eq!(endpoint.core.end(), Some(EndReason::Failed(NO_ACK)));
    }
}

/// Checks that a flushed request is never the reported cause, in any order of completions and reports.
#[test]
fn flush_is_never_reported_as_cause() {
    let orders = ["receive", "send receive", "receive cause", "cause receive send"];
    let events = ["", "disconnect"];
    for (order, first, last) in orders
        .iter()
        .flat_map(|order| events.map(|event| (*order, event, "")))
        .chain(orders.iter().map(|order| (*order, "", "disconnect")))
    {
        let mut endpoint = Endpoint::roce();
        for _ in 0..2 {
            endpoint.post(false).expect("a buffer should be free");
        }
        let inputs = [first, order, last].join(" ");
        for input in inputs.split_whitespace() {
            match input {
                "receive" => drop(endpoint.queues.receive(FLUSH, 0, None)),
                "send" => drop(endpoint.queues.send(FLUSH)),
                "cause" => drop(endpoint.queues.send(NO_ACK)),
                _ => endpoint.disconnect(),
            }
            endpoint.poll();
        }
        let expected = match (first, order.contains("cause"), last) {
            ("", true, _) => ErrorKind::WorkRequestFailed(NO_ACK),
            ("", false, "") => ErrorKind::UnreportedCause,
            _ => ErrorKind::Disconnected,
        };
        assert_eq!(endpoint.core.end().map(EndReason::kind), Some(expected), "{inputs}");
    }
}

/// Checks the order of reasons: no reason, a suspicion, the event, a failed request.
#[test]
fn failed_request_of_peer_is_named() {
    const REFUSED: AsyncEventType = AsyncEventType::IB_EVENT_QP_ACCESS_ERR;
    for (status, expected) in [
        (FLUSH, EndReason::PeerRequestFailed(REFUSED)),
        (NO_ACK, EndReason::Failed(NO_ACK)),
        (SUCCESS, EndReason::PeerRequestFailed(REFUSED)),
    ] {
        for mut endpoint in [Endpoint::roce(), Endpoint::iwarp()] {
            while endpoint.queues.receive(status, 0, None) {}
            let queues = Some(&mut endpoint.queues);
            endpoint.core.on_disconnected(queues, Some(REFUSED)).expect("the call should succeed");
            assert_eq!(endpoint.core.end(), Some(expected), "{status:?}");
            assert!(endpoint.core.has_no_more_events());
        }
    }
}

#[test]
fn send_cut_off_by_end_is_no_failure() {
    let mut endpoint = Endpoint::iwarp();
    endpoint.post(false).expect("a buffer should be free");
    endpoint.queues.send(CUT_OFF);
    endpoint.poll();
    assert_eq!((endpoint.core.end(), endpoint.core.stats().failures), (None, 0));
    assert!(!endpoint.core.has_free_buffer(), "a message would be lost");
    assert!(endpoint.core.flushed().is_none(), "the end gives the reason");
    endpoint.disconnect();
    assert_eq!(endpoint.core.end(), Some(EndReason::Remote));
    assert_eq!(endpoint.core.flushed(), Some(Err(EndReason::Remote)));
}

/// Checks that the poll that finds a failed send takes the messages before it.
///
/// Callers that find the end poll no more.
#[test]
fn message_before_failed_send_is_received() {
    let mut endpoint = Endpoint::roce();
    endpoint.post(false).expect("a buffer should be free");
    endpoint.queues.receive(SUCCESS, 5, None);
    endpoint.queues.send(NO_ACK);
    let polled = endpoint.core.poll(&mut endpoint.queues, Interest::Sends);
    assert!(polled.expect("the call should succeed"));
    assert_eq!(endpoint.core.end(), Some(EndReason::Failed(NO_ACK)));
    assert_eq!(endpoint.core.next_message().map(|message| message.length), Some(5));
}

/// Checks that a failure is reported once: to the caller that waits, or else by the next flush.
#[test]
fn failure_of_dropped_operation_is_reported_by_flush() {
    for is_reported in [false, true] {
        let mut endpoint = Endpoint::datagrams();
        let slot = endpoint.post(true).expect("a buffer should be free");
        endpoint.queues.send(NO_ACK);
        endpoint.poll();
        if is_reported {
            let completed =
                endpoint.core.completed_send(slot).expect("the request should have completed");
            assert_eq!(completed.err(), Some(EndReason::Failed(NO_ACK)));
        }
        endpoint.core.detach_send(slot).expect("the buffer should be returned");
        let expected = if is_reported { Ok(()) } else { Err(EndReason::Failed(NO_ACK)) };
        assert_eq!(endpoint.core.flushed(), Some(expected));
    }
}

#[test]
fn messages_come_before_end() {
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(SUCCESS, 5, None);
    endpoint.queues.flush();
    endpoint.disconnect();
    assert_eq!(endpoint.core.end(), Some(EndReason::Remote), "the flush should be no failure");
    assert_eq!(endpoint.core.next_message().expect("a message should have arrived").length, 5);
    assert!(endpoint.core.next_message().is_none());
    assert!(endpoint.core.has_no_more_events());
}

#[test]
fn iwarp_message_for_last_receive_suspects_overrun() {
    for (messages, end) in [(RECEIVES - 1, EndReason::Remote), (RECEIVES, EndReason::Overrun)] {
        let mut endpoint = Endpoint::iwarp();
        (0..messages).for_each(|_| assert!(endpoint.queues.receive(SUCCESS, 1, None)));
        endpoint.disconnect();
        assert_eq!(endpoint.core.end(), Some(end), "after {messages}");
    }
}

#[test]
fn oversize_message_has_one_status() {
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(CUT_OFF, 0, None);
    endpoint.poll();
    assert_eq!(endpoint.core.end(), Some(EndReason::Failed(WcStatus::IB_WC_LOC_LEN_ERR)));
}

#[test]
fn length_beyond_buffer_is_cut() {
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(SUCCESS, usize::try_from(u32::MAX).expect("u32 fits into usize"), None);
    endpoint.poll();
    assert_eq!(endpoint.core.next_message().expect("a message should have arrived").length, BYTES);
}

#[test]
fn completions_in_wrong_queue_change_no_counts() {
    for receives_first in [false, true] {
        let mut endpoint = Endpoint::kept_alive();
        endpoint.post(false).expect("a buffer should be free");
        endpoint.core.on_timer(&mut endpoint.queues).expect("test queues do not fail");
        endpoint.queues.receive(SUCCESS, 3, None);
        while endpoint.queues.send(SUCCESS) {}
        endpoint.queues.completed.swap(0, 1);
        if receives_first {
            endpoint
                .core
                .poll(&mut endpoint.queues, Interest::Messages)
                .expect("test queues do not fail");
        }
        endpoint.poll();
        assert_eq!(endpoint.core.next_message().expect("a message should have arrived").length, 3);
        assert!(endpoint.core.has_sent_all());
        assert_eq!(endpoint.core.end(), None);
    }
}

#[test]
fn awaited_buffer_goes_to_its_caller() {
    let mut endpoint = Endpoint::roce();
    let slot = endpoint.post(true).expect("a buffer should be free");
    assert!(endpoint.core.completed_send(slot).is_none());
    assert!(!endpoint.core.has_outcome(slot));
    endpoint.queues.send(SUCCESS);
    endpoint.poll();
    assert!(endpoint.core.has_outcome(slot));
    let buffer = endpoint.core.completed_send(slot).expect("the send should have completed");
    assert_eq!(buffer.expect("the request should have succeeded").index(), slot);
    assert!(!endpoint.core.has_outcome(slot));
    // A caller that stops waiting leaves the buffer to the endpoint.
    let buffer = TestBuffer::new(slot);
    endpoint.core.return_buffer(buffer);
    let slot = endpoint.post(true).expect("a buffer should be free");
    assert!(endpoint.core.detach_send(slot).is_none(), "the send should be in flight");
    endpoint.queues.send(SUCCESS);
    endpoint.poll();
    assert_eq!(endpoint.buffers(), SENDS + RECEIVES);
}

#[test]
fn connection_end_explains_failed_send() {
    let mut endpoint = Endpoint::roce();
    let slot = endpoint.post(true).expect("a buffer should be free");
    endpoint.queues.send(NO_ACK);
    endpoint.poll();
    let failed = EndReason::Failed(NO_ACK);
    assert_eq!(endpoint.core.completed_send(slot).expect("an end"), Err(failed));
    assert_eq!(endpoint.core.acquire_buffer().expect("an end"), Err(failed));
    assert_eq!(endpoint.core.flushed(), Some(Err(failed)));
    assert!(endpoint.core.has_no_more_events());
}

#[test]
fn malformed_completion_ends_endpoint() {
    for mut endpoint in [Endpoint::roce(), Endpoint::datagrams()] {
        let slot = endpoint.post(true).expect("a buffer should be free");
        endpoint.queues.has_malformed_completion = true;
        endpoint
            .core
            .poll(&mut endpoint.queues, Interest::Messages)
            .expect_err("poll should report the malformed completion");
        // The caller that waits for the request is another one, and the completion is reported once.
        endpoint.queues.has_malformed_completion = false;
        endpoint.poll();
        let malformed = EndReason::MalformedCompletion;
        assert_eq!(
            endpoint.core.completed_send(slot).expect("send should have ended"),
            Err(malformed)
        );
        assert_eq!(endpoint.core.flushed(), Some(Err(malformed)));
    }
}

#[test]
fn failed_datagram_fails_alone() {
    let mut endpoint = Endpoint::datagrams();
    let awaited = endpoint.post(true).expect("a buffer should be free");
    endpoint.post(false).expect("a buffer should be free");
    endpoint.queues.send(NO_ACK);
    assert!(endpoint.poll());
    assert_eq!((endpoint.queues.resets, endpoint.core.qp_failed()), (1, false));
    assert_eq!(endpoint.queues.receives.len(), RECEIVES, "receives are posted again");
    assert_eq!(
        endpoint.core.completed_send(awaited).expect("the request should have completed"),
        Err(EndReason::Failed(NO_ACK))
    );
    assert_eq!(
        endpoint.core.flushed(),
        Some(Err(EndReason::Failed(FLUSH))),
        "the flush should report the datagram without a waiter"
    );
    assert_eq!(endpoint.core.flushed(), Some(Ok(())), "the failure should be reported once");
    assert_eq!(endpoint.core.end(), None);
    assert_eq!(endpoint.buffers(), SENDS + RECEIVES);
}

#[test]
fn datagram_without_sender_is_dropped() {
    let mut endpoint = Endpoint::datagrams();
    endpoint.queues.receive(SUCCESS, GRH_LENGTH + 3, None);
    endpoint.queues.receive(SUCCESS, GRH_LENGTH + 4, Some(7));
    endpoint.poll();
    let datagram = endpoint.core.next_message().expect("a datagram should have arrived");
    assert_eq!((datagram.start, datagram.length, datagram.sender), (GRH_LENGTH, 4, Some(7)));
    assert!(endpoint.core.next_message().is_none());
    assert_eq!(endpoint.queues.receives.len(), 1, "the buffer should be posted again");
}

#[test]
fn refused_repost_is_repeated_by_next_poll() {
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    let message = endpoint.core.next_message().expect("a message should have arrived");
    endpoint.queues.refuses = true;
    assert!(endpoint.core.repost(&mut endpoint.queues, message.buffer), "the caller polls");
    let refused = endpoint.core.poll(&mut endpoint.queues, Interest::All);
    assert_eq!(refused.expect_err("the post should be refused").errno(), libc::ENOMEM);
    assert!(endpoint.core.must_post_receives());
    assert_eq!(endpoint.core.stats().receives_reposted, 0);
    endpoint.queues.refuses = false;
    endpoint.poll();
    assert!(!endpoint.core.must_post_receives());
    assert_eq!(endpoint.queues.receives.len(), RECEIVES);
    assert_eq!(endpoint.core.stats().receives_reposted, 1);
}

#[test]
fn keep_alive_has_one_write_in_flight() {
    let mut endpoint = Endpoint::kept_alive();
    for _ in 0..3 {
        endpoint.core.on_timer(&mut endpoint.queues).expect("test queues do not fail");
        assert_eq!(endpoint.queues.sends.len(), 1);
    }
    assert!(endpoint.core.has_sent_all(), "a keep-alive probe is no message");
    endpoint.queues.send(NO_ACK);
    endpoint.poll();
    assert_eq!(endpoint.core.end(), Some(EndReason::Failed(NO_ACK)));
    assert_eq!(endpoint.core.take_effects(), Effects::REPORT_END | Effects::STOP_TIMER);
    endpoint.core.on_timer(&mut endpoint.queues).expect("test queues do not fail");
    assert!(endpoint.queues.sends.is_empty());
}

#[test]
fn first_message_ends_first_keep_alive() {
    for message_comes in [false, true] {
        let mut endpoint = Endpoint::kept_alive();
        endpoint.core.end_keep_alive_soon();
        let mut writes = 0;
        while !endpoint.core.take_effects().contains(Effects::STOP_TIMER) {
            endpoint.core.on_timer(&mut endpoint.queues).expect("test queues do not fail");
            writes += 1;
            assert!(endpoint.queues.send(SUCCESS));
            if message_comes {
                endpoint.queues.receive(SUCCESS, 1, None);
                endpoint.poll();
            }
        }
        assert_eq!(writes, if message_comes { 1 } else { 8 });
    }
}

#[test]
fn interest_in_one_queue_leaves_other() {
    let mut endpoint = Endpoint::roce();
    endpoint.post(false).expect("a buffer should be free");
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.queues.send(SUCCESS);
    let mut poll = |interest| endpoint.core.poll(&mut endpoint.queues, interest);
    assert!(poll(Interest::Sends).expect("test queues do not fail"));
    assert!(
        !endpoint.core.has_message(),
        "the message should not be polled for a caller that waits for sends"
    );
    // With nothing in flight, only a receive would show that the queue pair has failed.
    let mut poll = |interest| endpoint.core.poll(&mut endpoint.queues, interest);
    assert!(poll(Interest::Sends).expect("test queues do not fail"));
    assert!(endpoint.core.has_message());
}

#[test]
fn empty_event_forces_rearm() {
    // The kernel puts a completion into the queue. It is polled, and the queue is armed again. Then the kernel checks
    // the queue and raises the event of the first completion: nothing will report the second one.
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    assert!(endpoint.core.has_unread_event() && endpoint.core.may_be_unarmed(Interest::Messages));
    assert!(endpoint.arm(Interest::Messages, false));
    assert!(!endpoint.core.may_be_unarmed(Interest::Messages));
    endpoint.core.on_completion_event();
    assert!(
        endpoint.core.may_be_unarmed(Interest::Messages),
        "the state of the queue should be unknown"
    );
    assert!(!endpoint.poll());
    assert!(endpoint.arm(Interest::Messages, false), "the queue should be armed again");
    assert_eq!(endpoint.queues.armed, [Queue::Receive; 2]);
}

#[test]
fn stale_events_are_discarded_by_awake_thread() {
    let mut endpoint = Endpoint::roce();
    for _ in 0..STALE_EVENTS {
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.poll();
        let message = endpoint.core.next_message().expect("a message should have arrived");
        endpoint.core.repost(&mut endpoint.queues, message.buffer);
        let has_epoll_waiter = true;
        endpoint.arm(Interest::Messages, has_epoll_waiter);
    }
    assert_eq!(endpoint.queues.discarded, 0);
    assert!(endpoint.arm(Interest::Messages, false));
    assert_eq!(endpoint.queues.discarded, STALE_EVENTS);
    let is_unarmed = endpoint.core.may_be_unarmed(Interest::Messages);
    assert!(is_unarmed, "the event of a later completion may have been discarded");
}

/// Checks arming on a device that raises one event for each event that was read.
///
/// Such a device would ignore the second arming.
#[test]
fn stale_event_is_read_before_arming_if_device_counts() {
    let mut endpoint = Endpoint::roce();
    endpoint.core.read_events_first(true);
    for number in 1..4 {
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.core.on_completion_event();
        endpoint.poll();
        let message = endpoint.core.next_message().expect("a message should have arrived");
        endpoint.core.repost(&mut endpoint.queues, message.buffer);
        assert!(
            endpoint.arm(Interest::Messages, true),
            "the event is read, also beside an epoll waiter"
        );
        assert_eq!(endpoint.queues.discarded, number * STALE_EVENTS);
        assert!(endpoint.core.may_be_unarmed(Interest::Messages), "reading arms nothing");
        assert!(endpoint.arm(Interest::Messages, true));
        assert!(!endpoint.core.may_be_unarmed(Interest::Messages));
        assert_eq!(endpoint.queues.discarded, number * STALE_EVENTS, "there is no other event");
    }
}

/// Checks a caller that relies on a queue which another caller is about to arm.
///
/// The other one polls after the command, so that no earlier completion is lost. If the command fails, the queue is
/// armed again.
#[test]
fn queue_is_armed_by_single_caller() {
    for succeeds in [true, false] {
        let mut endpoint = Endpoint::roce();
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.poll();
        let arms =
            |endpoint: &mut Endpoint| endpoint.core.next_arm_action(Interest::Messages, true);
        let action = arms(&mut endpoint).expect("the queue should not be armed");
        assert_eq!(action, ArmAction::Arm { receives: true, sends: false });
        assert_eq!(arms(&mut endpoint), None, "another caller sleeps");
        // This completion arrives before the command, and raises no event.
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.core.on_arm_action(action, succeeds);
        assert_eq!(endpoint.core.may_be_unarmed(Interest::Messages), !succeeds);
        assert!(endpoint.poll(), "the caller that has armed polls");
        // The next command arms the queue whose completion was polled, regardless of the first one.
        assert!(arms(&mut endpoint).is_some());
    }
}

/// Checks a completion that is polled while another caller is about to arm its queue.
///
/// It may have raised no event. If the command fails, no caller relies on that event.
#[test]
fn failed_arming_promises_no_event() {
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    let action = endpoint
        .core
        .next_arm_action(Interest::Messages, true)
        .expect("the queue should need arming");
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    assert!(endpoint.core.has_unread_event());
    endpoint.core.on_arm_action(action, false);
    assert!(!endpoint.core.has_unread_event() && endpoint.core.may_be_unarmed(Interest::Messages));
}

/// Checks a discard of events that may include the event of a queue that was armed meanwhile.
#[test]
fn discarding_events_forgets_queues_armed_meanwhile() {
    let mut endpoint = Endpoint::roce();
    for _ in 0..STALE_EVENTS {
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.poll();
        let message = endpoint.core.next_message().expect("a message should have arrived");
        endpoint.core.repost(&mut endpoint.queues, message.buffer);
        endpoint.arm(Interest::Messages, true);
    }
    let discards = endpoint.core.next_arm_action(Interest::Messages, false);
    assert_eq!(discards, Some(ArmAction::DiscardEvents));
    assert!(endpoint.arm(Interest::Sends, false), "another caller arms meanwhile");
    assert!(!endpoint.core.may_be_unarmed(Interest::Sends));
    endpoint.core.on_arm_action(ArmAction::DiscardEvents, true);
    assert!(endpoint.core.may_be_unarmed(Interest::Sends));
}

/// Checks that the next caller repeats a refused step, and that no datagram is posted meanwhile.
#[test]
fn refused_recovery_is_repeated() {
    let mut endpoint = Endpoint::datagrams();
    endpoint.post(false).expect("a buffer should be free");
    endpoint.queues.send(NO_ACK);
    endpoint.core.poll(&mut endpoint.queues, Interest::All).expect("test queues do not fail");
    for step in [RecoveryAction::SetToError, RecoveryAction::ResetToRts] {
        for is_done in [false, true] {
            assert_eq!(endpoint.core.next_recovery(&endpoint.queues), Some(step));
            assert_eq!(endpoint.core.pending_recovery(&endpoint.queues), None);
            assert!(endpoint.post(false).is_none(), "the datagram would be lost");
            endpoint.core.on_recovered(step, is_done);
        }
        endpoint.queues.flush();
        endpoint.queues.is_error = false;
        endpoint.core.poll(&mut endpoint.queues, Interest::All).expect("test queues do not fail");
    }
    assert!(!endpoint.core.qp_failed());
    endpoint.post(false).expect("a buffer should be free");
    assert_eq!(endpoint.buffers(), SENDS + RECEIVES);
}

/// An input of the exhaustive test.
#[derive(Debug, Clone, Copy)]
enum Input {
    Message,
    FailedReceive(WcStatus),
    Post,
    PostAwaited,
    Sent,
    FailedSend(WcStatus),
    Disconnected,
    DeviceRemoved,
    Take,
    Flush,
}

/// Applies every sequence of inputs of this length to every kind of endpoint.
#[test]
fn no_order_of_inputs_loses_buffer_or_changes_end() {
    const INPUTS: [Input; 12] = [
        Input::Message,
        Input::FailedReceive(FLUSH),
        Input::FailedReceive(NO_ACK),
        Input::Post,
        Input::PostAwaited,
        Input::Sent,
        Input::FailedSend(FLUSH),
        Input::FailedSend(NO_ACK),
        Input::Disconnected,
        Input::DeviceRemoved,
        Input::Take,
        Input::Flush,
    ];
    const LENGTH: u32 = 4;
    for kind in [Endpoint::roce, Endpoint::iwarp, Endpoint::datagrams] {
        for order in 0..INPUTS.len().pow(LENGTH) {
            let inputs =
                (0..LENGTH).map(|place| INPUTS[order / INPUTS.len().pow(place) % INPUTS.len()]);
            let mut endpoint = kind();
            // Buffers of failed receives of a connection are dropped with the connection.
            let mut dropped = 0;
            for input in inputs.clone() {
                let end = endpoint.core.end();
                match input {
                    Input::Message => {
                        endpoint.queues.receive(SUCCESS, GRH_LENGTH + 1, Some(1));
                    }
                    Input::FailedReceive(status) => {
                        let failed = endpoint.queues.receive(status, 0, None);
                        dropped += usize::from(failed && !endpoint.core.is_datagrams());
                    }
                    Input::Post => drop(endpoint.post(false)),
                    Input::PostAwaited => drop(endpoint.post(true)),
                    Input::Sent => drop(endpoint.queues.send(SUCCESS)),
                    Input::FailedSend(status) => drop(endpoint.queues.send(status)),
                    Input::Disconnected if endpoint.core.is_datagrams() => {}
                    Input::Disconnected => endpoint.disconnect(),
                    Input::DeviceRemoved => endpoint.core.on_device_removed(),
                    Input::Take => {
                        if let Some(message) = endpoint.core.next_message() {
                            endpoint.core.repost(&mut endpoint.queues, message.buffer);
                        }
                    }
                    Input::Flush => drop(endpoint.core.flushed()),
                }
                endpoint.poll();
                endpoint.poll();
                if end.is_some_and(|end| end != EndReason::Unreported) {
                    assert_eq!(endpoint.core.end(), end, "{inputs:?}");
                }
            }
            assert_eq!(endpoint.buffers() + dropped, SENDS + RECEIVES, "{inputs:?}");
        }
    }
}
