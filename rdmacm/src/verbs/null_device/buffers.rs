//! Tests of buffers in a buffered queue pair: posted, completed, refused.

use super::*;

const LENGTH: usize = 32;

/// Queues with room for four sends and four receives, and a buffer for each.
struct Pair {
    queues: BufferedQueuePair,
    buffers: Vec<RegisteredBuffer>,
}

impl Pair {
    /// Creates queues with one completion queue for sends and receives, or with one for each if
    /// `has_two`.
    fn new(has_two: bool) -> Self {
        let pd = ProtectionDomain::new(&context()).expect("protection domain");
        let cq = || CompletionQueue::new(pd.context(), 32, None).expect("completion queue");
        let (recv_cq, other) = (cq(), cq());
        let send_cq = if has_two { &other } else { &recv_cq };
        let caps = QueuePairCaps { max_send_wr: 4, max_recv_wr: 4, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, send_cq, ..QueuePairInit::new(&recv_cq) };
        let qp = QueuePair::new(&pd, &init).expect("queue pair");
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS)).expect("modify");
        let buffers = RegisteredBuffer::alloc(&pd, 16, LENGTH).expect("buffers");
        Self { queues: BufferedQueuePair::new(qp).expect("queues"), buffers }
    }

    fn buffer(&mut self) -> RegisteredBuffer {
        self.buffers.remove(0)
    }

    fn receive(&mut self) {
        let buffer = self.buffer();
        self.queues.post_recv(buffer).expect("post a receive");
    }

    fn send(&mut self, length: usize) -> Result<(), PostBufferError> {
        let buffer = self.buffer();
        self.queues.post_send(buffer, length, SendOperation::Send)
    }
}

/// Returns a closure that appends each polled completion to `polled`.
///
/// An entry consists of the index of the buffer, `true` for a receive, and the number of bytes.
fn onto(polled: &mut Vec<(usize, bool, u32)>) -> impl FnMut(RegisteredBuffer, &Completion) {
    |buffer, wc| polled.push((buffer.index(), wc.is_receive(), wc.byte_len()))
}

#[test]
fn buffers_come_back_with_their_completions() {
    for has_two in [false, true] {
        let mut pair = Pair::new(has_two);
        pair.queues.reserve(8);
        (0..3).for_each(|_| pair.receive());
        pair.send(5).expect("post a send");
        pair.send(LENGTH).expect("post a send");
        assert_eq!(pair.queues.outstanding(), 5);
        let mut polled = Vec::new();
        assert_eq!(pair.queues.poll(onto(&mut polled)).expect("poll"), 4, "{has_two}");
        polled.sort_unstable();
        assert_eq!(polled, [(0, true, 5), (1, true, 32), (3, false, 5), (4, false, 32)]);
        assert_eq!(pair.queues.outstanding(), 1);
        assert_eq!(pair.queues.poll(onto(&mut polled)).expect("poll"), 0);
    }
}

#[test]
fn each_completion_queue_is_polled_alone() {
    let mut pair = Pair::new(true);
    (0..4).for_each(|_| pair.receive());
    (0..4).for_each(|_| pair.send(1).expect("post a send"));
    let mut polled = Vec::new();
    assert_eq!(pair.queues.poll_send(onto(&mut polled)).expect("poll"), 4);
    assert!(polled.iter().map(|(index, ..)| *index).eq(4..8) && polled.iter().all(|wc| !wc.1));
    polled.clear();
    assert_eq!(pair.queues.poll_recv(onto(&mut polled)).expect("poll"), 4);
    assert!(polled.iter().map(|(index, ..)| *index).eq(0..4) && polled.iter().all(|wc| wc.1));
    let mut shared = Pair::new(false);
    shared.send(1).expect("post a send");
    assert_eq!(
        shared.queues.poll_send(|_, _| ()).expect("poll"),
        0,
        "the other call should poll the completion"
    );
    assert_eq!(shared.queues.poll_recv(|_, _| ()).expect("poll"), 1);
}

/// There are more completions than one poll of the ring returns, and again after a wrap of the ring.
#[test]
fn long_queues_are_polled_to_end() {
    let mut pair = Pair::new(false);
    for _ in 0..20 {
        (0..4).for_each(|_| pair.receive());
        (0..4).for_each(|_| pair.send(LENGTH).expect("post a send"));
        let Pair { queues, buffers } = &mut pair;
        assert_eq!(queues.poll(|buffer, _| buffers.push(buffer)).expect("poll"), 8);
        assert_eq!((queues.outstanding(), buffers.len()), (0, 16));
    }
    let mut indexes: Vec<usize> = pair.buffers.iter().map(RegisteredBuffer::index).collect();
    indexes.sort_unstable();
    assert!(indexes.into_iter().eq(0..16), "each buffer is there once");
}

#[test]
fn full_queue_returns_buffer() {
    let mut pair = Pair::new(false);
    let most = pair.queues.qp().caps();
    (0..most.max_recv_wr).for_each(|_| pair.receive());
    let buffer = pair.buffer();
    let index = buffer.index();
    let refused = pair.queues.post_recv(buffer).expect_err("the receive queue is full");
    assert_eq!(refused.error.errno(), libc::ENOMEM, "{}", refused.error);
    assert_eq!(refused.buffer.map(|buffer| buffer.index()), Some(index));
    assert_eq!(pair.queues.outstanding(), usize::try_from(most.max_recv_wr).expect("few"));
}

#[test]
fn unfit_request_returns_buffer() {
    let mut pair = Pair::new(false);
    let refused = pair.send(LENGTH + 1).expect_err("more bytes than the buffer has");
    assert!(refused.error.to_string().contains("exceeds the"), "{}", refused.error);
    assert_eq!(refused.buffer.map(|buffer| buffer.index()), Some(0));
    let buffer = pair.buffer();
    let invalidate = SendOperation::LocalInvalidate { rkey: 1 };
    let refused = pair
        .queues
        .post_send(buffer, 0, invalidate)
        .expect_err("an invalidation should not take a buffer");
    assert!(refused.error.to_string().contains("`FetchAdd` use a buffer"), "{}", refused.error);
    assert!(refused.buffer.is_some());
    // The driver refuses operations that it does not support.
    let write = SendOperation::Write { remote_addr: 0, rkey: 0 };
    let buffer = pair.buffer();
    let refused =
        pair.queues.post_send(buffer, 1, write).expect_err("the driver should support only sends");
    assert!(matches!(refused.error.kind(), ErrorKind::Unsupported(_)), "{}", refused.error);
    assert_eq!((refused.buffer.is_some(), pair.queues.outstanding()), (true, 0));
}

#[test]
fn buffer_of_another_domain_is_refused() {
    let (mut one, mut other) = (Pair::new(false), Pair::new(false));
    let refused = one.queues.post_recv(other.buffer()).expect_err("another protection domain");
    assert!(refused.error.to_string().contains("another protection domain"), "{}", refused.error);
    assert!(refused.buffer.is_some());
    assert_eq!(one.queues.outstanding(), 0);
}

/// Completions of other queue pairs on the same completion queue stay with their owners.
#[test]
fn completion_of_another_queue_pair_is_left_out() {
    let side = Side::new();
    let other = side.qp(QpType::IB_UVERBS_QPT_RC);
    let qp = side.qp(QpType::IB_UVERBS_QPT_RC);
    post(&other, 1);
    let mut queues = BufferedQueuePair::new(qp).expect("queues");
    let buffer = RegisteredBuffer::alloc(&side.pd, 1, LENGTH).expect("buffers").remove(0);
    queues.post_send(buffer, 1, SendOperation::Send).expect("post a send");
    let mut polled = Vec::new();
    assert_eq!(queues.poll(onto(&mut polled)).expect("poll"), 1);
    assert_eq!(polled, [(0, false, 1)]);
}

#[test]
fn rings_return_when_queues_are_dropped() {
    let side = Side::new();
    let qp = side.qp(QpType::IB_UVERBS_QPT_RC);
    let queues = BufferedQueuePair::new(qp.clone()).expect("queues");
    // SAFETY: the request names no memory.
    let error = unsafe { qp.post_send(&send(1, SendOperation::Send)) }.expect_err("taken");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    BufferedQueuePair::new(qp.clone()).expect_err("the queues should already be taken");
    // No guard of a taken ring is returned: with such a guard, the ring could not be returned.
    let guards = (qp.lock_send_queue(), qp.lock_receive_queue(), side.cq.lock_poller());
    assert!(matches!(guards, (Err(_), Err(_), Err(_))), "{guards:?}");
    drop(queues);
    drop(guards);
    drop(BufferedQueuePair::new(qp).expect("queues again"));
}

/// The null device takes an entry of length 0 for one of 2 GiB, as some hardware does.
#[test]
fn empty_message_has_no_entry() {
    let mut pair = Pair::new(false);
    pair.receive();
    pair.send(0).expect("post a send");
    let mut polled = Vec::new();
    assert_eq!(pair.queues.poll(onto(&mut polled)).expect("poll"), 2);
    polled.sort_unstable();
    assert_eq!(polled, [(0, true, 0), (1, false, 0)]);
    let side = Side::new();
    let mut sends = OwnedSends::new(side.qp(QpType::IB_UVERBS_QPT_RC));
    for length in [0, 8] {
        let buffer = RegisteredBuffer::alloc(&side.pd, 1, 8).expect("buffers").remove(0);
        sends.post(1, Some(buffer), length, SendOperation::Send).expect("post");
        let mut batch = Batch::default();
        batch.poll(&side.cq).expect("poll");
        let polled = batch.iter().next().expect("a completion");
        assert_eq!(usize::try_from(polled.completion().byte_len()), Ok(length));
        assert!(sends.take(&polled).is_some());
    }
}

#[test]
fn full_batch_has_no_room() {
    let side = Side::new();
    let mut senders = [(); 2].map(|()| OwnedSends::new(side.qp(QpType::IB_UVERBS_QPT_RC)));
    for sends in &mut senders {
        for _ in 0..16 {
            sends.post(1, None, 0, SendOperation::Send).expect("post");
        }
    }
    let mut batch = Batch::default();
    let mut polled = || {
        batch.poll(&side.cq).expect("poll");
        (batch.len(), batch.has_room())
    };
    assert_eq!([polled(), polled()], [(32, false), (0, true)]);
}
