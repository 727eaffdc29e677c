//! Queues that a script keeps locked for many posts and polls, like a thread that alone uses its queues.
//!
//! # Safety
//!
//! A guard refers to a handle of its queue. The handle is in an allocation that is freed after the guard.
#![expect(unsafe_code, reason = "keeps guards beside the handles to which they refer")]

use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;

use rdmacm::verbs::{
    CompletionQueue, Poller, QueuePair, ReceiveQueueGuard, SendQueueGuard, SharedReceiveQueue,
    SharedReceiveQueueGuard,
};
use rdmacm::{Error, ErrorKind, Result};

/// A guard, and the handle to which the guard refers. Fields are dropped in order.
struct Kept<H, G> {
    guard: G,
    handle: Rc<H>,
}

/// The queues that a script keeps, by their numbers in the script.
#[derive(Default)]
pub(super) struct KeptQueues {
    sends: BTreeMap<usize, Kept<QueuePair, SendQueueGuard<'static>>>,
    receives: BTreeMap<usize, Kept<QueuePair, ReceiveQueueGuard<'static>>>,
    shared: BTreeMap<usize, Kept<SharedReceiveQueue, SharedReceiveQueueGuard<'static>>>,
    pollers: BTreeMap<usize, Kept<CompletionQueue, Poller<'static>>>,
}

impl KeptQueues {
    pub(super) fn send_queue(
        &mut self,
        number: usize,
        qp: &QueuePair,
    ) -> &mut SendQueueGuard<'static> {
        keep(&mut self.sends, number, qp, QueuePair::lock_send_queue)
    }

    pub(super) fn receive_queue(
        &mut self,
        number: usize,
        qp: &QueuePair,
    ) -> &mut ReceiveQueueGuard<'static> {
        keep(&mut self.receives, number, qp, QueuePair::lock_receive_queue)
    }

    pub(super) fn shared_queue(
        &mut self,
        number: usize,
        srq: &SharedReceiveQueue,
    ) -> &mut SharedReceiveQueueGuard<'static> {
        keep(&mut self.shared, number, srq, SharedReceiveQueue::lock_receive_queue)
    }

    pub(super) fn poller(&mut self, number: usize, cq: &CompletionQueue) -> &mut Poller<'static> {
        keep(&mut self.pollers, number, cq, CompletionQueue::lock_poller)
    }

    /// Checks that the queues are locked, and unlocks them. Returns `true` if there is a queue.
    pub(super) fn release(&mut self) -> bool {
        let has_poller = self.release_pollers();
        let Self { sends, receives, shared, pollers: _ } = mem::take(self);
        assert_locked(&sends, |qp| qp.lock_send_queue().err());
        assert_locked(&receives, |qp| qp.lock_receive_queue().err());
        assert_locked(&shared, |srq| srq.lock_receive_queue().err());
        has_poller || [sends.len(), receives.len(), shared.len()] != [0; 3]
    }

    /// Unlocks the pollers like [`release`](Self::release). Returns `true` if there is a poller.
    pub(super) fn release_pollers(&mut self) -> bool {
        let pollers = mem::take(&mut self.pollers);
        assert_locked(&pollers, |cq| cq.lock_poller().err());
        !pollers.is_empty()
    }
}

/// Checks that another lock of each queue would wait for its own thread.
fn assert_locked<H, G>(kept: &BTreeMap<usize, Kept<H, G>>, lock: impl Fn(&H) -> Option<Error>) {
    for (number, Kept { handle, .. }) in kept {
        let error = lock(handle).unwrap_or_else(|| panic!("queue {number} is not locked"));
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    }
}

/// Returns the guard of a queue. `lock` locks the queue if the script does not keep it yet.
fn keep<'a, H: Clone + 'static, G>(
    kept: &'a mut BTreeMap<usize, Kept<H, G>>,
    number: usize,
    handle: &H,
    lock: impl FnOnce(&'static H) -> Result<G>,
) -> &'a mut G {
    let kept = kept.entry(number).or_insert_with(|| {
        let handle = Rc::new(handle.clone());
        // SAFETY: the handle is neither moved nor changed while the `Rc` exists. Only the guard has the reference, and the
        // guard is dropped before the `Rc`.
        let referenced: &'static H = unsafe { &*Rc::as_ptr(&handle) };
        Kept { guard: lock(referenced).expect("queue should be free"), handle }
    });
    &mut kept.guard
}
