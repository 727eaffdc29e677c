//! Rings with contents that no correct kernel writes.
//!
//! The library reports such contents, does not use them, and loses no request when the ring is correct again.
//!
//! The test changes memory that the kernel shares with the program through the program's own `/proc/self/mem`. rxe's
//! driver has its own copy of its index and takes the program's index modulo the size of the ring, so that the kernel
//! does not crash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::verbs::{
    Completion, CompletionQueue, Context, ProtectionDomain, QpState, QueuePair,
    QueuePairAttributes, QueuePairCaps, QueuePairInit, SendFlags, SendOperation,
    SharedReceiveQueue, SharedReceiveQueueAttributes, WcStatus,
};
use verbs_abi::rxe::rxe_queue_buf;
use verbs_abi::siw::{siw_cqe, siw_rqe, siw_sqe};

use crate::fixtures::{Connection, LONG, assert_invalid, device, roce_name};
use crate::io::{Shape, post_nothing, receive_nothing};
use crate::manual_qp::connect;
use crate::shared;
use crate::siw::{connected, send_empty};

/// A ring that is mapped.
#[derive(Debug)]
struct Ring {
    memory: File,
    start: u64,
    length: usize,
}

/// Returns the mapped rings: the address of each, and its bytes.
fn rings() -> BTreeMap<u64, usize> {
    let maps = fs::read_to_string("/proc/self/maps").expect("list the mappings");
    let rings = maps.lines().filter(|line| line.contains("infiniband")).map(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (start, end) = range.expect("a range");
        let [start, end] =
            [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
        (start, usize::try_from(end - start).expect("an address"))
    });
    rings.collect()
}

/// Returns the result of `make`, and the rings that it maps.
fn with_rings<T>(make: impl FnOnce() -> T) -> (T, Vec<Ring>) {
    let before = rings();
    let made = make();
    let new = rings().into_iter().filter(|(start, _)| !before.contains_key(start));
    let open = || File::options().read(true).write(true).open("/proc/self/mem").expect("open");
    (made, new.map(|(start, length)| Ring { memory: open(), start, length }).collect())
}

impl Ring {
    fn read(&self, offset: usize) -> u32 {
        let mut word = [0; 4];
        self.memory.read_exact_at(&mut word, self.start + offset as u64).expect("read");
        u32::from_ne_bytes(word)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.write_all_at(bytes, self.start + offset as u64).expect("write");
    }
}

const PRODUCER: usize = offset_of!(rxe_queue_buf, producer_index);
const CONSUMER: usize = offset_of!(rxe_queue_buf, consumer_index);
const MASK: usize = offset_of!(rxe_queue_buf, index_mask);
const LOG2_ELEMENT: usize = offset_of!(rxe_queue_buf, log2_elem_size);

/// Asserts that `work` fails while one of the `indices` of `ring` is out of range.
#[track_caller]
fn corruption_is_reported(
    ring: &Ring,
    indices: &[usize],
    what: &str,
    work: impl Fn() -> rdmacm::Result<()>,
) {
    let mask = ring.read(MASK);
    for offset in indices.iter().copied() {
        let right = ring.read(offset);
        for wrong in [mask + 1, right | 1 << 31, u32::MAX] {
            ring.write(offset, &wrong.to_ne_bytes());
            let error = work().expect_err("the index should be out of range");
            assert!(matches!(error.kind(), ErrorKind::MalformedResponse(_)), "{error}");
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(ring.read(offset), wrong, "nothing should be stored");
        }
        ring.write(offset, &right.to_ne_bytes());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn out_of_range_index_is_reported_on_each_ring() {
    let context = Context::open(&device(roce_name())).expect("open");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let (cq, completions) =
        with_rings(|| CompletionQueue::new(&context, 16, None).expect("completion queue"));
    let (srq, shared) = with_rings(|| {
        let attributes = SharedReceiveQueueAttributes::default();
        SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue")
    });
    let init = QueuePairInit::new(&cq);
    let (qp, work) = with_rings(|| QueuePair::new(&pd, &init).expect("queue pair"));
    assert_eq!([completions.len(), shared.len(), work.len()], [1, 1, 2]);
    connect(&qp, &qp);
    receive_nothing(&qp, 1).expect("post a receive");
    let (receives, sends): (Vec<Ring>, _) =
        work.into_iter().partition(|ring| ring.read(PRODUCER) == 1);
    let [sends, receives] = [sends, receives].map(|rings| {
        let [ring] = <[Ring; 1]>::try_from(rings).expect("the call should map one ring");
        ring
    });
    let send = |wr_id| post_nothing(&qp, wr_id, SendOperation::Send);
    corruption_is_reported(&sends, &[PRODUCER, CONSUMER], "queue pair", || send(9));
    corruption_is_reported(&receives, &[PRODUCER, CONSUMER], "queue pair", || {
        receive_nothing(&qp, 9)
    });
    corruption_is_reported(&shared[0], &[PRODUCER, CONSUMER], "shared receive queue", || {
        shared::receive_nothing(&srq, 9)
    });
    let poll = |done: &mut [Completion]| cq.poll(done);
    corruption_is_reported(&completions[0], &[PRODUCER], "completion queue", || {
        poll(&mut [Completion::default(); 4]).map(drop)
    });
    corruption_is_reported(&completions[0], &[PRODUCER], "completion queue", || {
        cq.lock_poller()?.poll(&mut [Completion::default(); 4]).map(drop)
    });
    // The index of the next completion is the library's own: the word in the ring only informs the kernel.
    let right = completions[0].read(CONSUMER);
    completions[0].write(CONSUMER, &u32::MAX.to_ne_bytes());
    assert_eq!(poll(&mut [Completion::default(); 4]).expect("poll"), 0);
    completions[0].write(CONSUMER, &right.to_ne_bytes());
    // The layout of a ring was read when it was mapped.
    for ring in [&sends, &receives, &shared[0], &completions[0]] {
        ring.write(MASK, &u32::MAX.to_ne_bytes());
        ring.write(LOG2_ELEMENT, &40_u32.to_ne_bytes());
    }
    // Refused requests are not posted.
    receive_nothing(&qp, 2).expect("post a receive");
    shared::receive_nothing(&srq, 3).expect("post a receive");
    send(4).expect("post a send");
    let mut done = Vec::new();
    while done.len() < 2 {
        let mut some = [Completion::default(); 4];
        let count = poll(&mut some).expect("poll");
        done.extend(some[..count].iter().map(|done| (done.wr_id(), done.is_success())));
    }
    done.sort_unstable();
    assert_eq!(done, [(1, true), (4, true)]);
    // The kernel flushes the receive in the background and stores the index of its completion. That
    // store must not replace the wrong index below.
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR)).expect("move to ERR");
    let mut flushed = [Completion::default(); 4];
    while poll(&mut flushed).expect("poll") == 0 {
        thread::yield_now();
    }
    assert_eq!(flushed[0].wr_id(), 2);
    // Draining does not wait for a ring to which it cannot post, or which it cannot poll.
    let mut drained = Vec::new();
    for (ring, index) in [(&sends, CONSUMER), (&completions[0], PRODUCER)] {
        let right = ring.read(index);
        ring.write(index, &u32::MAX.to_ne_bytes());
        let error = qp
            .drain(LONG, |done| drained.push(done.wr_id()))
            .expect_err("the corrupt ring should be reported");
        assert!(matches!(error.kind(), ErrorKind::MalformedResponse(_)), "{error}");
        ring.write(index, &right.to_ne_bytes());
    }
    qp.drain(LONG, |done| drained.push(done.wr_id())).expect("drain");
    assert!(drained.is_empty(), "{drained:?}");
    qp.destroy().expect("destroy");
    srq.destroy().expect("destroy");
    cq.destroy().expect("destroy");
}

/// Forges the flags of ring elements, which state the side that owns an element.
///
/// siw has no indices in its rings, because each side counts separately.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forged_flags_are_ignored_on_siw0() {
    let caps = QueuePairCaps { max_send_wr: 16, max_recv_wr: 64, ..QueuePairCaps::default() };
    let shape = Shape { caps, completions: 512, ..Shape::default() };
    let (connection, rings) = with_rings(|| connected(shape));
    let Connection { client, server, .. } = &connection;
    let capacity = client.io.cq().capacity() as usize;
    // The rings of both sides, which differ in length.
    let of = |length: usize| -> Vec<&Ring> {
        rings.iter().filter(|ring| ring.length == length.next_multiple_of(4096)).collect()
    };
    let sends = of(client.io.qp().caps().max_send_wr as usize * size_of::<siw_sqe>());
    let receives = of(client.io.qp().caps().max_recv_wr as usize * size_of::<siw_rqe>());
    let completions = of(capacity * size_of::<siw_cqe>() + 8);
    assert_eq!([sends.len(), receives.len(), completions.len(), rings.len()], [2, 2, 2, 6]);
    let mark = |rings: &[&Ring], size, flags: u16| {
        let flags = flags.to_ne_bytes();
        let mark = |ring: &&Ring| (0..8).for_each(|slot| ring.write(slot * size + FLAGS, &flags));
        rings.iter().for_each(mark);
    };
    // From now on, no doorbell is rung before a request is posted.
    send_empty(client, server);
    let post = |wr_id| client.io.post(wr_id, SendOperation::Send, 0..8, SendFlags::SIGNALED);
    for flags in [1, 0x8001, u16::MAX] {
        // The element looks as if the kernel had not processed it yet.
        mark(&sends, size_of::<siw_sqe>(), flags);
        mark(&receives, size_of::<siw_rqe>(), flags);
        assert_invalid(
            &post(1).expect_err("the ring should have no free place"),
            &["the queue is full"],
        );
        let refused = server.io.receive(1, 0..8).expect_err("the ring should have no free place");
        assert_invalid(&refused, &["the queue is full"]);
    }
    mark(&sends, size_of::<siw_sqe>(), 0);
    mark(&receives, size_of::<siw_rqe>(), 0);
    // The element looks as if the kernel had completed a request that was never posted.
    completions.iter().for_each(|ring| ring.write(0, &vec![0xff; capacity * size_of::<siw_cqe>()]));
    for io in [&client.io, &server.io] {
        let mut done = vec![Completion::default(); 2 * capacity];
        assert_eq!(
            io.cq().poll(&mut done).expect("poll"),
            capacity,
            "each completion should arrive once"
        );
        assert!(done[..capacity].iter().all(|done| done.status() == WcStatus::IB_WC_GENERAL_ERR));
        assert_eq!(io.cq().wait_timeout(&mut done, Duration::ZERO).expect("wait"), 0);
    }
    send_empty(client, server);
    connection.close();
}

/// Offset of the flags in an element.
const FLAGS: usize = offset_of!(siw_sqe, flags);
