//! Draining: waiting for the last completion of a queue pair.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::attributes::QueuePairAttributes;
use super::completion::CompletionQueue;
use super::queue_pair::QueuePair;
use super::{Completion, QpState, ReceiveQueueGuard, SendQueueGuard};
use crate::driver::{PostError, Posted};
use crate::engine::{DrainMarker, QueueSide};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::CommandError;

const DRAIN: &str = "drain";

/// A queue that is drained, its completion queue, and its marker if the marker was posted.
struct Draining<'a> {
    qp: &'a QueuePair,
    side: QueueSide,
    cq: &'a CompletionQueue,
    marker: Option<DrainMarker>,
}

impl Draining<'_> {
    fn is_done(&self) -> bool {
        self.marker.as_ref().is_some_and(DrainMarker::has_completed)
    }

    /// Posts the marker with `post_marker` unless it is posted, and returns `true` if this call posted
    /// it.
    ///
    /// Does nothing if `lock` returns `None` because another thread holds the queue, or if the
    /// queue has no room.
    fn post<Q>(
        &mut self,
        lock: impl FnOnce() -> Option<Q>,
        post_marker: impl FnOnce(&mut Q, u64) -> Posted,
    ) -> Posted<bool> {
        if self.marker.is_some() {
            return Ok(false);
        }
        let Some(mut queue) = lock() else { return Ok(false) };
        let marker = DrainMarker::new(self.qp.number(), self.side, &self.qp.inner.life);
        // Registered before the post: another thread may poll the completion at once.
        self.cq.engine().expect_marker(marker.clone());
        let outcome = post_marker(&mut queue, marker.wr_id());
        match outcome {
            // If the doorbell was refused, the request is in the queue nevertheless.
            Ok(()) | Err(PostError::Command(_)) => self.marker = Some(marker),
            Err(_) => self.cq.engine().forget_marker(&marker),
        }
        match outcome {
            Ok(()) => Ok(true),
            Err(PostError::PartiallyPosted {
                refused: CommandError::Os(Errno::ENOMEM), ..
            }) => Ok(false),
            Err(PostError::Full(most)) if most > 0 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl QueuePair {
    /// Changes the state to ERR and passes completions to `each` until both queues are drained.
    ///
    /// Afterwards, the device no longer accesses memory on behalf of this queue pair, and no more
    /// of its completions arrive. The library posts a request of its own after all others in each
    /// queue, and hides its completion.
    ///
    /// All completions of the completion queues are polled, including those of other queue pairs.
    /// Another thread may poll the queues as well, and keeps the completions that it takes. No
    /// thread may post to the queue pair in the meantime. In the state RESET nothing is posted, and
    /// only existing completions are polled.
    ///
    /// Existing completions are polled first. Then the completion queues need room for all
    /// outstanding requests, and for one more completion of each of the two queues.
    ///
    /// A [shared receive queue](Self::srq) is not drained, because its requests serve other queue
    /// pairs too. Requests that this queue pair has consumed complete, but possibly after this call
    /// returns. `IB_EVENT_QP_LAST_WQE_REACHED`, an [asynchronous event](super::AsyncEventChannel)
    /// of the queue pair, reports that the last of them is in the completion queue.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`modify`](Self::modify), of [`CompletionQueue::poll`] and of
    /// posting:
    /// - [`ErrorKind::TimedOut`] if the last completion does not arrive within `timeout`. A
    ///   completion queue has overrun, or another thread holds one of the queues. The completions
    ///   passed so far are not passed again, and another call continues.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread holds the send queue, the receive queue
    ///   or a poller. Nothing is changed.
    /// - [`ErrorKind::InvalidInput`] if a [`BufferedQueuePair`](super::BufferedQueuePair) owns the
    ///   queues.
    /// - [`ErrorKind::Unsupported`] for datagram queue pairs if the driver keeps its queues in the
    ///   kernel, because the command needs an address handle. The queue pair is then already in
    ///   ERR.
    ///
    /// # Driver notes
    ///
    /// - rxe raises `IB_EVENT_QP_LAST_WQE_REACHED` on Linux 6.12 and not on 6.1. siw never raises
    ///   it.
    /// - With rxe on Linux 6.12, a request of a shared receive queue may never complete. This
    ///   happens to a request that was consumed by a message of several packets if some packets
    ///   were still missing. The event is raised nevertheless, and destroying the queue pair frees
    ///   the memory of the request.
    /// - With rxe on Linux 6.12, a kernel thread completes the requests. The completion queues may
    ///   then need room for all posted requests.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_MODIFY_QP`.
    #[doc(alias = "ib_drain_qp")]
    pub fn drain(&self, timeout: Duration, mut each: impl FnMut(Completion)) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        self.context().check_process(DRAIN, || self.subject())?;
        let (send_cq, recv_cq) = (self.send_cq(), self.recv_cq());
        if self.holds_a_queue() || send_cq.is_polled_here() || recv_cq.is_polled_here() {
            let kind = ErrorKind::WouldDeadlock(
                "this thread holds the guard of a queue or a poller; drop the guard or the poller first",
            );
            return Err(Error::new(DRAIN, self.subject(), kind));
        }
        self.check_has_rings(DRAIN)?;
        let mut forward_completions = || -> Result<usize> {
            Ok(forward_completions(send_cq, &mut each)? + forward_completions(recv_cq, &mut each)?)
        };
        if self.state() == QpState::IB_QPS_RESET {
            return forward_completions().map(|_| ());
        }
        self.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR))?;
        let caps = self.caps();
        let sides = [
            (QueueSide::Send, send_cq, caps.max_send_wr),
            (QueueSide::Receive, recv_cq, caps.max_recv_wr),
        ];
        let mut queues = sides.map(|(side, cq, most)| {
            (most > 0).then_some(Draining { qp: self, side, cq, marker: None })
        });
        let refused = |error| self.context().not_posted(DRAIN, self.subject(), error);
        let mut idle = 0_u32;
        // Existing completions first, which makes room for the markers.
        forward_completions()?;
        loop {
            let [sends, receives] = &mut queues;
            if let Some(sends) = sends {
                sends
                    .post(|| self.free_send_queue(), SendQueueGuard::post_marker)
                    .map_err(refused)?;
            }
            if let Some(receives) = receives {
                let posted =
                    receives.post(|| self.free_receive_queue(), ReceiveQueueGuard::post_marker);
                if posted.map_err(refused)? {
                    self.flush_if_error().map_err(refused)?;
                }
            }
            let polled = forward_completions()?;
            // A thread that has polled a marker has also polled all earlier completions.
            let mut left = queues.iter().flatten().filter(|queue| !queue.is_done());
            if left.next().is_none() {
                return Ok(());
            }
            // Checked even if each poll returns completions, because they may belong to other queue
            // pairs.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::new(DRAIN, self.subject(), ErrorKind::TimedOut));
            }
            if polled > 0 {
                idle = 0;
                continue;
            }
            // The kernel usually finishes at once.
            idle = idle.saturating_add(1);
            match idle {
                0..100 => thread::yield_now(),
                _ => thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

/// Passes the completions of `cq` to `each`, unless another thread polls it.
///
/// Returns their number.
fn forward_completions(cq: &CompletionQueue, each: &mut impl FnMut(Completion)) -> Result<usize> {
    let mut some = [Completion::default(); 16];
    let mut polled = 0;
    loop {
        // The poller is not held while the program processes completions.
        let Some(mut poller) = cq.free_poller() else { return Ok(polled) };
        let count = poller.take(&mut some)?;
        drop(poller);
        some[..count].iter().copied().for_each(&mut *each);
        polled += count;
        // Other queue pairs may fill the queue again each time, after the completions that were
        // there at first.
        if count < some.len() || polled >= cq.capacity() as usize {
            return Ok(polled);
        }
    }
}
