//! Tests of the verbs on the null driver: without a kernel, through trait objects of external
//! drivers.
//!
//! # Safety
//!
//! The requests that these tests post name no memory.
#![expect(unsafe_code, reason = "posts requests without memory")]

mod buffers;
#[cfg(all(feature = "null", not(loom)))]
mod events;
mod memory;
mod queues;
mod windows;

use super::*;
use crate::driver::External;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::error::ErrorKind;
use crate::lock::ignore_poison;

pub(super) fn context() -> Context {
    context_on(Null::default())
}

fn context_on(driver: impl crate::driver::Driver) -> Context {
    Context::on_null(AnyDriver::External(External::new(driver)))
}

struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Side {
    fn new() -> Self {
        Self::on(&context())
    }

    fn on(context: &Context) -> Self {
        let pd = ProtectionDomain::new(context).expect("protection domain");
        let cq = CompletionQueue::new(context, 16, None).expect("completion queue");
        Self { pd, cq }
    }

    fn qp(&self, qp_type: QpType) -> QueuePair {
        let init = QueuePairInit::new(&self.cq);
        let qp = QueuePair::with_type(&self.pd, qp_type, &init).expect("queue pair");
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS)).expect("modify");
        qp
    }

    fn polled(&self) -> Vec<(u64, u32, bool)> {
        let mut done = [Completion::default(); 16];
        let count = self.cq.poll(&mut done).expect("poll");
        done[..count].iter().map(|wc| (wc.wr_id(), wc.qp_num(), wc.is_receive())).collect()
    }
}

fn send(wr_id: u64, operation: SendOperation<'_>) -> SendRequest<'_> {
    let payload = Payload::Inline(&[]);
    SendRequest { wr_id, operation, payload, flags: SendFlags::SIGNALED }
}

fn post(qp: &QueuePair, wr_id: u64) {
    // SAFETY: the request names no memory.
    unsafe { qp.post_send(&send(wr_id, SendOperation::Send)) }.expect("post a send");
}

fn receive(qp: &QueuePair, wr_id: u64) {
    // SAFETY: the request names no memory.
    unsafe { qp.post_recv(&ReceiveRequest { wr_id, scatter: &[] }) }.expect("post a receive");
}

#[test]
fn completions_find_their_queue_pair_by_number() {
    let side = Side::new();
    let qps = [side.qp(QpType::IB_UVERBS_QPT_RC), side.qp(QpType::IB_UVERBS_QPT_RC)];
    for (wr_id, qp) in [(10, &qps[0]), (20, &qps[1])] {
        receive(qp, wr_id + 1);
        post(qp, wr_id);
        post(qp, wr_id + 2);
    }
    let [first, second] = [qps[0].number(), qps[1].number()];
    let expected = [
        (10, first, false),
        (11, first, true),
        (12, first, false),
        (20, second, false),
        (21, second, true),
        (22, second, false),
    ];
    assert_eq!(side.polled(), expected);
    assert_eq!(side.polled(), []);
}

#[test]
fn ece_options_are_requested_by_next_change() {
    let side = Side::new();
    let qp = side.qp(QpType::IB_UVERBS_QPT_RC);
    let options = || qp.ece().expect("the null device has options").options;
    assert_eq!(options(), 0b11);
    let ece = Ece { vendor_id: 7, options: 0b110 };
    qp.set_ece(ece).expect("set");
    assert_eq!(options(), 0, "the options should be used after the next change");
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS)).expect("modify");
    assert_eq!(options(), 0b10, "only one option is known to the device");
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("modify");
    assert_eq!(options(), 0b10, "options should be requested once");
    let error = qp.set_ece(Ece { vendor_id: 8, ..ece }).expect_err("another vendor");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    assert_eq!(options(), 0b10);
}

#[test]
fn doorbell_is_rung_once_per_list() {
    let driver = Null::default();
    let doorbells = driver.doorbells();
    let rung = || *ignore_poison(doorbells.lock());
    let side = Side::on(&context_on(driver));
    let qp = side.qp(QpType::IB_UVERBS_QPT_RC);
    let mut queue = qp.lock_send_queue().expect("send queue");
    for wr_id in 0..3 {
        // SAFETY: the request names no memory.
        unsafe { queue.push(&send(wr_id, SendOperation::Send)) }.expect("push");
    }
    assert_eq!((side.polled(), rung()), (vec![], 0));
    queue.ring_doorbell().expect("ring");
    assert_eq!((side.polled().len(), rung()), (3, 1));
}

#[test]
fn full_send_queue_refuses_request() {
    let side = Side::new();
    let qp = side.qp(QpType::IB_UVERBS_QPT_RC);
    let most = qp.caps().max_send_wr;
    let mut queue = qp.lock_send_queue().expect("send queue");
    for wr_id in 0..u64::from(most) {
        // SAFETY: the request names no memory.
        unsafe { queue.push(&send(wr_id, SendOperation::Send)) }.expect("push");
    }
    // SAFETY: as above.
    let error =
        unsafe { queue.push(&send(99, SendOperation::Send)) }.expect_err("the send queue is full");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { errno: libc::ENOMEM, .. }), "{error}");
}

#[test]
fn reset_removes_completions_of_queue_pair() {
    let side = Side::new();
    let (reset, other) = (side.qp(QpType::IB_UVERBS_QPT_RC), side.qp(QpType::IB_UVERBS_QPT_RC));
    post(&reset, 1);
    post(&other, 2);
    reset.modify(&QueuePairAttributes::to(QpState::IB_QPS_RESET)).expect("modify");
    assert_eq!(side.polled(), [(2, other.number(), false)]);
}

#[test]
fn destroyed_queue_pair_completes_nothing() {
    let side = Side::new();
    let (destroyed, dropped) =
        (side.qp(QpType::IB_UVERBS_QPT_RC), side.qp(QpType::IB_UVERBS_QPT_RC));
    let other = side.qp(QpType::IB_UVERBS_QPT_RC);
    for (wr_id, qp) in [(1, &destroyed), (2, &dropped), (3, &other)] {
        post(qp, wr_id);
    }
    destroyed.destroy().expect("destroy");
    drop(dropped);
    assert_eq!(side.polled(), [(3, other.number(), false)]);
}

#[test]
fn datagram_address_is_structure() {
    let side = Side::new();
    let qp = side.qp(QpType::IB_UVERBS_QPT_UD);
    let mut attributes = verbs_abi::ib_uverbs_ah_attr::default();
    for (dgid, is_known) in [([7; 16], true), ([0; 16], false)] {
        attributes.grh.dgid = dgid;
        let address = &AddressHandle::new(&side.pd, &attributes).expect("address handle");
        let destination = Destination { address, qp_num: 1, qkey: 1 };
        let operation = SendOperation::SendTo { destination, imm_data: None };
        // SAFETY: the request names no memory.
        let posted = unsafe { qp.post_send(&send(5, operation)) };
        assert_eq!(posted.is_ok(), is_known, "{posted:?}");
    }
}

#[test]
fn address_of_another_domain_is_refused() {
    let (side, other) = (Side::new(), Side::new());
    let qp = side.qp(QpType::IB_UVERBS_QPT_UD);
    let mut attributes = verbs_abi::ib_uverbs_ah_attr::default();
    attributes.grh.dgid = [7; 16];
    // The kernel's handle of both domains is 0.
    let address = &AddressHandle::new(&other.pd, &attributes).expect("address handle");
    let destination = Destination { address, qp_num: 1, qkey: 1 };
    let operation = SendOperation::SendTo { destination, imm_data: None };
    // SAFETY: the request names no memory.
    let error = unsafe { qp.post_send(&send(5, operation)) }.expect_err("another domain");
    assert!(error.to_string().contains("another protection domain"), "{error}");
}

#[test]
fn missing_operations_are_unsupported() {
    let side = Side::new();
    let attributes = SharedReceiveQueueAttributes::default();
    let error =
        SharedReceiveQueue::new(&side.pd, attributes).expect_err("no such queues should exist");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    let qp = side.qp(QpType::IB_UVERBS_QPT_RC);
    let write = SendOperation::Write { remote_addr: 0, rkey: 0 };
    // SAFETY: the request names no memory.
    let error = unsafe { qp.post_send(&send(1, write)) }
        .expect_err("the null driver should support only sends");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

/// Even if another queue pair has the same number by then, the identifier of the request decides.
#[test]
fn owned_sends_take_only_their_completions() {
    let side = Side::new();
    let [mut one, mut other] = [(); 2].map(|()| OwnedSends::new(side.qp(QpType::IB_UVERBS_QPT_RC)));
    one.post(7, None, 0, SendOperation::Send).expect("post");
    let mut batch = Batch::default();
    batch.poll(&side.cq).expect("poll");
    assert!((batch.len(), batch.has_room()) == (1, true));
    let polled = batch.iter().next().expect("a completion");
    assert!(other.take(&polled).is_none());
    assert_eq!(one.posted(), 1);
    assert_eq!(one.take(&polled).map(|(number, _)| number), Some(7));
    assert!(one.take(&polled).is_none() && one.posted() == 0);
}

#[test]
fn owned_sends_refuse_unfit_requests() {
    let side = Side::new();
    let mut sends = OwnedSends::new(side.qp(QpType::IB_UVERBS_QPT_RC));
    let swap = SendOperation::CompareSwap { remote_addr: 0, rkey: 0, compare: 0, swap: 0 };
    for (length, operation) in [(1, SendOperation::Send), (0, swap)] {
        let refused = sends.post(1, None, length, operation).expect_err("the request does not fit");
        assert!(matches!(refused.buffer, Some(None)), "the request is not posted");
        assert!(
            matches!(refused.error.kind(), ErrorKind::InvalidInput { .. }),
            "{}",
            refused.error
        );
    }
    let most = sends.qp().caps().max_send_wr;
    (0..most).for_each(|number| {
        sends.post(number, None, 0, SendOperation::Send).expect("post");
    });
    let refused = sends.post(most, None, 0, SendOperation::Send).expect_err("the queue is full");
    assert!(matches!(refused.buffer, Some(None)), "the request is not posted");
    assert_eq!(refused.error.errno(), libc::ENOMEM, "{}", refused.error);
}
