//! The results that callers find, and the facts that decide whether a caller must act.

use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

use super::endpoint_in_memory::{Endpoint, FLUSH, NO_ACK, RECEIVES, SENDS, SUCCESS};
use super::*;
use crate::endpoint::core::operation::{Interest, Operation};
use crate::error::hint;
use crate::verbs::{Completion, GRH_LENGTH, WcOpcode};

#[test]
fn readiness_depends_on_operation() {
    let mut endpoint = Endpoint::roce();
    let ready = |endpoint: &Endpoint| {
        let operations = [
            Operation::Receive,
            Operation::AcquireBuffer,
            Operation::Flush,
            Operation::Close,
            Operation::Write,
        ];
        operations.map(|operation| endpoint.core.is_ready(operation))
    };
    let [yes, no] = [Some(true), Some(false)];
    assert_eq!(ready(&endpoint), [no, yes, yes, yes, None]);
    for _ in 0..SENDS {
        endpoint.post(false).expect("a buffer should be free");
    }
    assert_eq!(ready(&endpoint), [no, no, no, no, None]);
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    assert_eq!(ready(&endpoint), [yes, no, no, no, None]);
    endpoint.core.set_end(EndReason::Local);
    assert_eq!(ready(&endpoint), [yes, yes, yes, no, yes], "closing waits for the peer");
    endpoint.disconnect();
    assert_eq!(ready(&endpoint), [yes; 5]);
}

#[test]
fn end_has_effect_until_taken() {
    let mut endpoint = Endpoint::roce();
    assert!(!endpoint.core.has_effects());
    endpoint.core.set_end(EndReason::Remote);
    assert!(endpoint.core.has_effects());
    assert_eq!(endpoint.core.take_effects(), Effects::REPORT_END);
    assert!(!endpoint.core.has_effects());
}

/// A request of a connection fails with the reason of the end, which may be better than its status.
#[test]
fn request_fails_with_reason_of_end() {
    let mut endpoint = Endpoint::roce();
    let slot = endpoint.post(true).expect("a buffer should be free");
    endpoint.queues.send(FLUSH);
    endpoint.poll();
    assert_eq!(endpoint.core.completed_send(slot), Some(Err(EndReason::Unreported)));
}

#[test]
fn caller_is_needed_for_unarmed_queue() {
    let mut endpoint = Endpoint::roce();
    let needs =
        |endpoint: &Endpoint, interest| endpoint.core.needs_caller(&endpoint.queues, interest);
    assert!(!needs(&endpoint, Interest::Messages), "receives are armed");
    assert!(needs(&endpoint, Interest::Sends), "sends are not armed");
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    assert!(!needs(&endpoint, Interest::Messages), "the event of the message wakes a caller");
}

/// Without posted receives, only sends show that the queue pair has failed.
///
/// After the end, all requests complete.
#[test]
fn both_queues_are_polled_if_one_shows_no_failure() {
    let mut endpoint = Endpoint::roce();
    let polled = |endpoint: &Endpoint| {
        let core = &endpoint.core;
        (core.polls_sends(Interest::Messages), core.polls_receives(Interest::Sends))
    };
    assert_eq!(polled(&endpoint), (false, true), "no send is posted");
    endpoint.post(false).expect("a buffer should be free");
    assert_eq!(polled(&endpoint), (false, false));
    (0..RECEIVES).for_each(|_| assert!(endpoint.queues.receive(SUCCESS, 1, None)));
    endpoint.poll();
    assert_eq!(polled(&endpoint), (true, false), "no receive is posted");
    let mut ended = Endpoint::roce();
    ended.post(false).expect("a buffer should be free");
    ended.core.set_end(EndReason::Remote);
    assert_eq!(polled(&ended), (true, true));
}

#[test]
fn datagram_without_header_is_no_message() {
    for (length, sender, message) in [
        (GRH_LENGTH - 1, Some(1), None),
        (GRH_LENGTH, None, None),
        (GRH_LENGTH, Some(1), Some(0)),
        (GRH_LENGTH + 1, Some(1), Some(1)),
    ] {
        let mut endpoint = Endpoint::datagrams();
        endpoint.queues.receive(SUCCESS, length, sender);
        endpoint.poll();
        let received = endpoint.core.next_message().map(|message| message.length);
        assert_eq!(received, message, "{length} bytes from {sender:?}");
    }
}

#[test]
fn failure_is_counted_unless_flushed() {
    for Endpoint { mut core, mut queues } in [Endpoint::roce(), Endpoint::datagrams()] {
        for (status, failures) in [(FLUSH, 0), (NO_ACK, 1)] {
            queues.receive(status, 0, None);
            core.poll(&mut queues, Interest::All).expect("test queues do not fail");
            assert_eq!(core.stats().failures, failures, "{status:?}");
        }
    }
}

/// Messages before the last poll do not count.
#[test]
fn single_messages_suspect_no_overrun() {
    let mut endpoint = Endpoint::iwarp();
    for _ in 0..4 {
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.poll();
        let message = endpoint.core.next_message().expect("a message should have arrived");
        endpoint.core.repost(&mut endpoint.queues, message.buffer);
        endpoint.poll();
    }
    endpoint.disconnect();
    assert_eq!(endpoint.core.end(), Some(EndReason::Remote));
}

#[test]
fn iwarp_receives_are_polled_while_one_is_missing() {
    let mut endpoint = Endpoint::iwarp();
    (0..RECEIVES).for_each(|_| assert!(endpoint.queues.receive(SUCCESS, 1, None)));
    endpoint.poll();
    let polls = [(); RECEIVES].map(|()| {
        let message = endpoint.core.next_message().expect("a message should have arrived");
        endpoint.core.repost(&mut endpoint.queues, message.buffer)
    });
    assert_eq!(polls, [true, false], "the last receive was posted again");
}

#[test]
fn abort_is_change_after_end() {
    let mut endpoint = Endpoint::roce();
    // An abort does not replace this reason.
    endpoint.core.set_end(EndReason::Failed(NO_ACK));
    endpoint.core.forget_changes();
    endpoint.core.abort();
    assert!(endpoint.core.forget_changes().contains(Changes::END));
}

/// Only the few writes of a new connection end with its first message.
#[test]
fn message_ends_first_writes_only() {
    for is_new in [false, true] {
        let mut endpoint = Endpoint::kept_alive();
        if is_new {
            endpoint.core.end_keep_alive_soon();
        }
        endpoint.queues.receive(SUCCESS, 1, None);
        endpoint.poll();
        assert_eq!(endpoint.core.take_effects().contains(Effects::STOP_TIMER), is_new);
    }
}

#[test]
fn recovery_waits_for_outstanding_requests() {
    let mut endpoint = Endpoint::datagrams();
    endpoint.post(false).expect("a buffer should be free");
    endpoint.queues.send(NO_ACK);
    let Endpoint { core, queues } = &mut endpoint;
    core.poll(queues, Interest::All).expect("test queues do not fail");
    assert_eq!(core.pending_recovery(queues), Some(RecoveryAction::SetToError));
    core.on_recovered(RecoveryAction::SetToError, true);
    assert_eq!(core.pending_recovery(queues), None, "receives are posted");
    queues.flush();
    core.poll(queues, Interest::All).expect("test queues do not fail");
    assert_eq!(core.pending_recovery(queues), Some(RecoveryAction::ResetToRts));
    core.set_end(EndReason::Local);
    assert_eq!(core.pending_recovery(queues), None, "the socket has ended");
}

/// Completes the oldest receive with `completion`, and polls it.
fn receive(endpoint: &mut Endpoint, completion: ib_uverbs_wc) {
    let buffer = endpoint.queues.receives.pop_front().expect("a receive should be posted");
    endpoint.queues.completed[0].push_back((buffer, None, Completion(completion)));
    endpoint.poll();
}

#[test]
fn message_takes_watched_key_back() {
    let mut endpoint = Endpoint::roce();
    let keys = |endpoint: &mut Endpoint| {
        let keys = endpoint.core.watched_keys().expect("connections watch keys");
        [7, 8].map(|key| keys.is_invalidated(key))
    };
    endpoint.core.watched_keys().expect("connections watch keys").watch(7);
    assert_eq!(keys(&mut endpoint), [false, false]);
    let completion = ib_uverbs_wc {
        opcode: WcOpcode::IB_WC_RECV,
        ex: 7_u32.to_ne_bytes(),
        wc_flags: ib_wc_flags::IB_WC_WITH_INVALIDATE,
        ..ib_uverbs_wc::default()
    };
    receive(&mut endpoint, completion);
    assert_eq!(keys(&mut endpoint), [true, false]);
    let message = endpoint.core.next_message().expect("a message should have arrived");
    assert_eq!(message.invalidated_key, Some(7));
    assert!(Endpoint::datagrams().core.watched_keys().is_none());
}

/// The peer has written the bytes to exported memory.
#[test]
fn write_with_immediate_data_has_no_bytes() {
    let mut endpoint = Endpoint::roce();
    let opcode = WcOpcode::IB_WC_RECV_RDMA_WITH_IMM;
    receive(&mut endpoint, ib_uverbs_wc { opcode, byte_len: 5, ..ib_uverbs_wc::default() });
    let message = endpoint.core.next_message().expect("a message should have arrived");
    assert_eq!(message.length, 0);
}

#[test]
fn changes_are_recorded_until_taken() {
    let mut endpoint = Endpoint::roce();
    endpoint.post(true).expect("a buffer should be free");
    endpoint.queues.send(SUCCESS);
    endpoint.poll();
    endpoint.core.on_cm_answer();
    endpoint.core.set_end(EndReason::Remote);
    let changes = endpoint.core.forget_changes();
    assert!(changes.contains(Changes::COMPLETED | Changes::ANSWER | Changes::END), "{changes:?}");
    assert!(endpoint.core.forget_changes().is_empty());
}

#[test]
fn abort_returns_keep_alive_buffer() {
    let (_, _, _, kept) = Endpoint::kept_alive().core.abort();
    assert!(kept.is_some());
}

#[test]
fn hint_names_side_that_ended_endpoint() {
    assert_eq!(EndReason::Local.hint(), Some(hint::ENDED_LOCALLY));
    assert_eq!(EndReason::Remote.hint(), Some(hint::ENDED_BY_PEER));
    assert_eq!(EndReason::Failed(NO_ACK).hint(), None);
}

#[test]
fn posted_operations_are_counted() {
    let mut stats = EndpointStats::default();
    for (operation, length) in [
        (Operation::Send, 2),
        (Operation::Send, 3),
        (Operation::Write, 5),
        (Operation::Write, 6),
        (Operation::Read, 7),
        (Operation::Read, 8),
        (Operation::Atomic, 8),
        (Operation::Atomic, 8),
    ] {
        stats.posted(operation, length);
    }
    assert_eq!((stats.messages_sent, stats.bytes_sent), (2, 5));
    assert_eq!((stats.writes, stats.bytes_written), (2, 11));
    assert_eq!((stats.reads, stats.bytes_read), (2, 15));
    assert_eq!(stats.atomics, 2);
}
