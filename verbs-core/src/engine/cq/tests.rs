use std::sync::atomic::AtomicUsize;

use super::*;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::engine::drain_marker::QueueSide;
use crate::sys::uverbs::UverbsFile;

const QP_NUM: u32 = 3;
const FLUSHED: u64 = 5;
const WAKEUP: u64 = 7;

/// An armed completion queue.
#[derive(Debug)]
struct Queue {
    device: DeviceContext,
    cq: Cq,
    ring: Mutex<AnyCqRing>,
}

impl Queue {
    fn new() -> Self {
        let device = DeviceContext::new(UverbsFile::silent(), AnyDriver::Null(Null::default()));
        let request = ib_uverbs_create_cq { cqe: 4, ..ib_uverbs_create_cq::default() };
        let NewCq { cq, ring, .. } = Cq::create(&device, request).expect("a queue");
        let queue = Self { device, cq, ring: Mutex::new(ring) };
        queue.arm();
        queue
    }

    fn arm(&self) {
        self.cq.arm(&self.device, false, &AtomicU32::new(0)).expect("arm");
    }

    /// Injects a completion whose event `wakeup` raises.
    fn inject(&self, wr_id: u64, wakeup: impl FnOnce() -> Option<Arc<dyn WakeupRequest>>) {
        self.cq.inject_flushed(QP_NUM, WcOpcode::IB_WC_RECV, &[wr_id], wakeup);
    }

    /// Polls the queue, and returns the identifiers of the completions.
    fn polled(&self) -> Vec<u64> {
        let mut polled = [Completion::default(); 4];
        let mut ring = ignore_poison(self.ring.lock());
        let count = self.cq.poll(&self.device, &mut ring, &mut polled).expect("poll");
        polled[..count].iter().map(Completion::wr_id).collect()
    }

    /// Returns `true` if another thread could poll, which takes the lock of the injected completions.
    fn can_be_polled(&self) -> bool {
        self.cq.injected.try_lock().is_ok()
    }
}

/// The numbers of wakeup requests that were destroyed and dropped.
#[derive(Debug, Default)]
struct Counts {
    destroyed: AtomicUsize,
    dropped: AtomicUsize,
}

impl Counts {
    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }

    fn destroyed(&self) -> usize {
        self.destroyed.load(Ordering::Relaxed)
    }
}

/// A wakeup request that counts how often it was destroyed and dropped.
#[derive(Debug)]
struct CountedWakeup(Arc<Counts>);

impl CountedWakeup {
    fn counted_by(counts: &Arc<Counts>) -> Arc<dyn WakeupRequest> {
        Arc::new(Self(Arc::clone(counts)))
    }
}

impl WakeupRequest for CountedWakeup {
    fn completes_with(&self, completion: &Completion) -> bool {
        completion.wr_id() == WAKEUP
    }

    fn raise_event(&self) {}

    fn destroy_qp(&self) {
        self.0.destroyed.fetch_add(1, Ordering::Relaxed);
    }

    fn is_destroyed(&self) -> bool {
        false
    }
}

impl Drop for CountedWakeup {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The poll that finds the completion of a wakeup request destroys its queue pair.
///
/// If commands are deferred, the next arming does.
#[test]
fn polled_wakeup_is_destroyed() {
    for is_deferred in [false, true] {
        let (queue, counts) = (Queue::new(), Arc::default());
        if is_deferred {
            queue.cq.defer_commands();
        }
        queue.inject(FLUSHED, || Some(CountedWakeup::counted_by(&counts)));
        queue.inject(WAKEUP, || None);
        assert_eq!(queue.polled(), [FLUSHED], "the completion of the wakeup request is hidden");
        assert_eq!(counts.dropped(), usize::from(!is_deferred));
        assert_eq!(queue.polled(), []);
        queue.arm();
        assert_eq!(counts.dropped(), 1);
    }
}

/// The queue pair of a polled wakeup request exists until the queue is armed, if commands are deferred.
#[test]
fn every_wakeup_is_destroyed_with_queue() {
    let (queue, counts) = (Queue::new(), Arc::default());
    queue.cq.defer_commands();
    queue.inject(FLUSHED, || Some(CountedWakeup::counted_by(&counts)));
    queue.cq.destroy_wakeups();
    assert_eq!(counts.destroyed(), 1, "its completion was not polled");
    queue.inject(WAKEUP, || None);
    assert_eq!(queue.polled(), [FLUSHED]);
    queue.cq.destroy_wakeups();
    assert_eq!((counts.destroyed(), counts.dropped()), (2, 0), "its completion was polled");
}

/// A wakeup request that completes within `raise_event`.
///
/// The request polls there in place of the thread that the event wakes.
#[derive(Debug)]
struct ImmediateWakeup {
    queue: Arc<Queue>,
    polled: Mutex<Vec<u64>>,
}

impl WakeupRequest for ImmediateWakeup {
    fn completes_with(&self, completion: &Completion) -> bool {
        completion.wr_id() == WAKEUP
    }

    fn raise_event(&self) {
        assert!(self.queue.can_be_polled(), "no lock should be held while the event is raised");
        self.queue.inject(WAKEUP, || None);
        ignore_poison(self.polled.lock()).extend(self.queue.polled());
    }

    fn destroy_qp(&self) {}

    fn is_destroyed(&self) -> bool {
        false
    }
}

/// The thread that the event wakes may poll before [`WakeupRequest::raise_event`] returns.
#[test]
fn wakeup_is_hidden_while_raising_event() {
    let queue = Arc::new(Queue::new());
    let wakeup = Arc::new(ImmediateWakeup { queue: Arc::clone(&queue), polled: Mutex::default() });
    queue.inject(FLUSHED, || {
        assert!(queue.can_be_polled(), "no lock should be held while the request is created");
        Some(Arc::clone(&wakeup) as Arc<dyn WakeupRequest>)
    });
    assert_eq!(*ignore_poison(wakeup.polled.lock()), [FLUSHED]);
}

/// The keys of two windows differ in more than the low 8 bits, which each binding changes.
#[test]
fn bound_keys_are_known_until_invalidated() {
    let queue = Queue::new();
    let cq = &queue.cq;
    assert!(!cq.unbind_key(0x105), "no window is bound");
    [0x105, 0x205, 0x105].into_iter().for_each(|rkey| cq.bind_key(rkey));
    assert!(cq.unbind_key(0x105));
    assert!(!cq.unbind_key(0x105), "the key was bound to one window");
    cq.bind_key(0x106);
    cq.forget_window(0x1ff);
    assert!(!cq.unbind_key(0x106), "the window was destroyed");
    assert!(cq.unbind_key(0x205));
}

#[test]
fn expected_markers_are_hidden() {
    let queue = Queue::new();
    let life = Arc::default();
    let [expected, forgotten] =
        [(); 2].map(|()| DrainMarker::new(QP_NUM, QueueSide::Receive, &life));
    for marker in [&expected, &forgotten] {
        queue.cq.expect_marker(marker.clone());
    }
    assert!(expected.precedes(&forgotten) && !forgotten.precedes(&expected));
    assert!(!expected.precedes(&expected));
    queue.cq.forget_marker(&forgotten);
    assert!(!expected.has_completed());
    for marker in [&expected, &forgotten] {
        queue.inject(marker.wr_id(), || None);
    }
    assert_eq!(queue.polled(), [forgotten.wr_id()], "no marker is expected for this completion");
    assert!(expected.has_completed() && !forgotten.has_completed());
}

#[test]
fn injected_completion_names_its_queue_pair() {
    let queue = Queue::new();
    queue.inject(FLUSHED, || None);
    let mut polled = [Completion::default()];
    let mut ring = ignore_poison(queue.ring.lock());
    assert_eq!(queue.cq.poll(&queue.device, &mut ring, &mut polled).expect("poll"), 1);
    let [completion] = polled;
    assert_eq!((completion.qp_num(), completion.opcode()), (QP_NUM, WcOpcode::IB_WC_RECV));
    assert_eq!(completion.status(), WcStatus::IB_WC_WR_FLUSH_ERR);
}

#[test]
fn injected_completions_are_bounded() {
    let queue = Queue::new();
    for wr_id in 0..queue.cq.capacity() {
        assert!(queue.cq.can_inject(), "{wr_id}");
        queue.inject(wr_id.into(), || None);
    }
    assert!(!queue.cq.can_inject());
    queue.polled();
    assert!(queue.cq.can_inject());
}

#[test]
fn removed_device_is_not_usable() {
    let Queue { device, .. } = Queue::new();
    assert!(!device.is_removed() && device.is_usable_fast());
    device.set_removed();
    assert!(device.is_removed() && !device.is_usable_fast());
}
