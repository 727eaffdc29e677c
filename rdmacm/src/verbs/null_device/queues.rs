//! Tests of guards of queues, of queue pairs without their queues, and of refused queue pairs.

use std::time::Duration;

use verbs_abi::{
    IB_USER_VERBS_CMD_CLOSE_XRCD, IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_MODIFY_QP,
    IB_USER_VERBS_CMD_OPEN_XRCD, IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
};

use super::memory::{count, recorded, recorded_on};
use super::*;
use crate::driver::{Capabilities, FlushMode};
use crate::drivers::forged::Forged;
use crate::engine::WakeupRequest as _;
use crate::sys::process::in_child;
use crate::verbs::wakeup_qp::WakeupQp;

const RC: QpType = QpType::IB_UVERBS_QPT_RC;

#[test]
fn dropped_guard_rings_doorbell() {
    let driver = Null::default();
    let doorbells = driver.doorbells();
    let rung = || *ignore_poison(doorbells.lock());
    let side = Side::on(&context_on(driver));
    let qp = side.qp(RC);
    let mut queue = qp.lock_send_queue().expect("send queue");
    // SAFETY: the request names no memory.
    unsafe { queue.push(&send(1, SendOperation::Send)) }.expect("push");
    assert_eq!(rung(), 0);
    drop(queue);
    assert_eq!((rung(), side.polled().len()), (1, 1));
}

/// On rxe, a command flushes the receives that are posted in ERR.
#[test]
fn receive_in_error_is_flushed_by_command() {
    let (pd, recorder) = recorded_on(Null::with_flush(FlushMode::OnRequest));
    let side = Side::on(pd.context());
    let qp = side.qp(RC);
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("modify");
    let request = ReceiveRequest { wr_id: 1, scatter: &[] };
    let commands = || count(&recorder, IB_USER_VERBS_CMD_MODIFY_QP);
    let before = commands();
    receive(&qp, 1);
    assert_eq!(commands(), before + 1);
    let mut queue = qp.lock_receive_queue().expect("receive queue");
    // SAFETY: the request names no memory.
    unsafe { queue.push(&request) }.expect("push");
    assert_eq!(commands(), before + 1);
    queue.ring_doorbell().expect("ring");
    queue.ring_doorbell().expect("ring for nothing");
    assert_eq!(commands(), before + 2);
    // SAFETY: the request names no memory.
    unsafe { queue.post(&request) }.expect("post");
    assert_eq!(commands(), before + 3);
    // SAFETY: the request names no memory.
    unsafe { queue.push(&request) }.expect("push");
    drop(queue);
    assert_eq!(commands(), before + 4);
}

#[test]
fn queues_are_taken_once() {
    let side = Side::new();
    let [first, second] = [(); 2].map(|()| side.qp(RC));
    let first = BufferedQueuePair::new(first).expect("queues");
    let error = BufferedQueuePair::new(second).expect_err("the completion queue is taken");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    let error = first.qp().drain(Duration::ZERO, |_| ()).expect_err("the queues are taken");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    assert_eq!(first.qp().engine().state(), QpState::IB_QPS_RTS, "the state is not changed");
    drop(first);
    BufferedQueuePair::new(side.qp(RC)).expect("the completion queue was given back");
}

#[test]
fn xrc_needs_other_functions() {
    let context = context_on(Forged::new(Capabilities::default()));
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let attributes = SharedReceiveQueueAttributes { max_wr: 4, ..Default::default() };
    let srq = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    let init = QueuePairInit::new(&cq);
    let with_srq = QueuePairInit { srq: Some(&srq), ..init };
    for (qp_type, init, reason) in [
        (QpType::IB_UVERBS_QPT_XRC_TGT, &init, "`XrcTarget::new`"),
        (QpType::IB_UVERBS_QPT_XRC_INI, &with_srq, "an XRC initiator only sends"),
    ] {
        let error = QueuePair::with_type(&pd, qp_type, init).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
    QueuePair::with_type(&pd, RC, &with_srq).expect("a shared receive queue is no error");
}

/// The limit of a shared receive queue is at most its size.
#[test]
fn limit_of_shared_queue_is_checked() {
    let context = context_on(Forged::new(Capabilities::default()));
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    for (limit, is_possible) in [(0, true), (4, true), (5, false)] {
        let attributes = SharedReceiveQueueAttributes { max_wr: 4, limit, ..Default::default() };
        assert_eq!(SharedReceiveQueue::new(&pd, attributes).is_ok(), is_possible, "{limit}");
    }
}

#[test]
fn unfit_buffer_of_owned_send_is_named() {
    let (side, other) = (Side::new(), Side::new());
    let mut sends = OwnedSends::new(side.qp(RC));
    for (pd, length, reason) in [
        (&side.pd, 9, "length 9 exceeds the 8 bytes of the buffer"),
        (&other.pd, 8, "the buffer belongs to another protection domain"),
    ] {
        let buffer = RegisteredBuffer::alloc(pd, 1, 8).expect("buffers").remove(0);
        let refused = sends.post(1, Some(buffer), length, SendOperation::Send);
        let error = refused.expect_err(reason).error;
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[cfg(all(feature = "null", not(loom)))]
#[test]
fn queue_returns_its_channel() {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    let context = context();
    let (channel, _device) = CompletionChannel::on_socket(&context);
    let cq = CompletionQueue::new(&context, 4, Some(&channel)).expect("completion queue");
    assert_eq!(cq.channel(), Some(&channel));
    let fd = channel.as_fd().as_raw_fd();
    assert!(channel.as_raw_fd() == fd && fd > 2);
    assert_eq!(Side::new().cq.channel(), None);
}

#[test]
fn forked_child_polls_no_buffers() {
    let side = Side::new();
    let mut queues = BufferedQueuePair::new(side.qp(RC)).expect("queues");
    assert!(in_child(|| {
        let error = queues.poll(|_, _| ()).expect_err("the queues are the parent's");
        matches!(error.kind(), ErrorKind::NotOwner(_))
    }));
    queues.poll(|_, _| ()).expect("poll");
}

#[test]
fn extended_query_is_command() {
    let (pd, recorder) = recorded();
    pd.context().query_device_extended().expect("recorded");
    assert_eq!(count(&recorder, IB_USER_VERBS_EX_CMD_QUERY_DEVICE), 1);
}

#[test]
fn depths_are_those_of_last_change() {
    let qp = Side::new().qp(RC);
    let attributes = || QueuePairAttributes::to(QpState::IB_QPS_RTS);
    for (attributes, depths) in
        [(attributes().max_rd_atomic(3), [3, 0]), (attributes().max_dest_rd_atomic(4), [3, 4])]
    {
        qp.modify(&attributes).expect("modify");
        assert_eq!(qp.depths(), depths);
    }
}

/// On iWARP, a queue pair in ERR has ended with its connection.
#[test]
fn queue_pair_that_follows_connection_ends() {
    for qp_follows_connection in [false, true] {
        let driver = Forged::new(Capabilities { qp_follows_connection, ..Default::default() });
        let side = Side::on(&context_on(driver));
        let qp = side.qp(RC);
        assert!(!qp.has_ended());
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("modify");
        assert_eq!(qp.has_ended(), qp_follows_connection);
    }
}

/// The ids of a process share a domain for each context, as long as one of them uses it.
#[test]
fn contexts_have_shared_xrc_domains() {
    let ((own, recorder), (other, _)) = (recorded(), recorded());
    let shared = |pd: &ProtectionDomain| XrcDomain::shared(pd.context()).expect("a domain");
    let opened = || count(&recorder, IB_USER_VERBS_CMD_OPEN_XRCD);
    let domains = [shared(&own), shared(&own)];
    assert!(domains[0] == domains[1] && domains[0] != shared(&other));
    assert_eq!(opened(), 1);
    drop(domains);
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_CLOSE_XRCD), 1);
    shared(&own);
    assert_eq!(opened(), 2);
}

#[test]
fn wakeup_queue_pair_is_destroyed_once() {
    let (pd, recorder) = recorded();
    let cq = CompletionQueue::new(pd.context(), 4, None).expect("completion queue");
    let wakeup = WakeupQp::new(&pd, cq.engine()).expect("queue pair");
    assert!(!wakeup.is_destroyed());
    wakeup.destroy_qp();
    assert!(wakeup.is_destroyed());
    drop(wakeup);
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DESTROY_QP), 1);
}

#[test]
fn poll_beside_own_poller_names_queue() {
    let side = Side::new();
    let _poller = side.cq.lock_poller().expect("poller");
    let error = side.cq.poll(&mut [Completion::default()]).expect_err("this thread polls");
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    assert!(error.to_string().contains("completion queue"), "{error}");
}
