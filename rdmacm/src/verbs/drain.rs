//! Waiting for the last completion of a queue pair.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::attributes::QueuePairAttributes;
use super::completion::CompletionQueue;
use super::queue_pair::QueuePair;
use super::{Completion, QpState, ReceiveQueue, SendQueue};
use crate::driver::{PostError, Posted};
use crate::engine::{DrainMarker, QueueSide};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::Refused;

const DRAIN: &str = "drain";

/// A queue that is drained, where its requests complete, and its marker once that is posted.
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

    /// Posts the marker by `mark`, unless it is posted; not while somebody has the queue, where `hold`
    /// is `None`, or there is no room. Whether it has posted one.
    fn post<Q>(
        &mut self,
        hold: impl FnOnce() -> Option<Q>,
        mark: impl FnOnce(&mut Q, u64) -> Posted,
    ) -> Posted<bool> {
        if self.marker.is_some() {
            return Ok(false);
        }
        let Some(mut queue) = hold() else { return Ok(false) };
        let marker = DrainMarker::new(self.qp.number(), self.side, &self.qp.inner.life);
        // Before it is posted: another thread may poll its completion at once.
        self.cq.engine().expect_marker(marker.clone());
        let outcome = mark(&mut queue, marker.wr_id());
        match outcome {
            // Where the doorbell was refused, the request stands in the queue.
            Ok(()) | Err(PostError::Refused(_)) => self.marker = Some(marker),
            Err(_) => self.cq.engine().forget_marker(&marker),
        }
        match outcome {
            Ok(()) => Ok(true),
            Err(PostError::Unposted { refused: Refused::Os(Errno::ENOMEM), .. }) => Ok(false),
            Err(PostError::Full(most)) if most > 0 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl QueuePair {
    /// Changes the state to ERR, and hands completions to `each` until the last one of both queues has
    /// been polled: after that no memory is the device's any more on behalf of this queue pair, and
    /// none of its completions comes.
    ///
    /// `IB_USER_VERBS_CMD_MODIFY_QP`, and a request of the library's own behind all others in each
    /// queue, whose completion is hidden. Of the completion queues everything is polled, also what is
    /// of other queue pairs. Another thread may poll them as well; what it takes it has. Nobody must
    /// post to the queue pair meanwhile.
    ///
    /// Of a [shared](Self::srq) receive queue nothing is drained: what is posted there is for others too.
    /// What of its requests this queue pair has taken completes, but not for certain before this
    /// returns: `IB_EVENT_QP_LAST_WQE_REACHED`, an [asynchronous event](super::AsyncEventChannel) of the
    /// queue pair, tells when it has, and the last one is on the completion queue then. rxe raises that on
    /// Linux 6.12 and not on 6.1, siw never. With rxe on Linux 6.12 a request that was taken for a
    /// message of several packets, of which some had yet to come, does not complete at all, and the event
    /// comes all the same: destroying the queue pair frees its memory.
    ///
    /// In the state RESET nothing is posted, and only what has completed is polled.
    ///
    /// What has completed before is polled first. From then on the completion queues need room for what
    /// is outstanding still, and for one more completion of each of the two queues. With rxe on Linux
    /// 6.12 that may be all that is posted: there a thread of the kernel's completes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] where the last completion has not come within `timeout`, because a
    /// completion queue has overrun or another thread keeps one of the queues; what was handed over
    /// is, and draining again goes on. [`ErrorKind::WouldDeadlock`], before anything is changed, where
    /// this thread has the send queue, the receive queue or a poller; and [`ErrorKind::Invalid`] while the queues belong to a
    /// [`BufferQueues`](super::BufferQueues).
    /// [`ErrorKind::Unsupported`], in ERR already, for datagrams where the driver keeps its queues in
    /// the kernel: the command needs an address handle. Those of
    /// [`modify`](Self::modify), [`CompletionQueue::poll`] and of posting.
    #[doc(alias = "ib_drain_qp")]
    pub fn drain(&self, timeout: Duration, mut each: impl FnMut(Completion)) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        self.context().check_process(DRAIN, || self.subject())?;
        let (send_cq, recv_cq) = (self.send_cq(), self.recv_cq());
        if self.holds_a_queue() || send_cq.is_polled_here() || recv_cq.is_polled_here() {
            let kind = ErrorKind::WouldDeadlock("it has a queue or a poller; drop that first");
            return Err(Error::new(DRAIN, self.subject(), kind));
        }
        self.check_has_rings(DRAIN)?;
        let mut hand_over = || -> Result<usize> {
            Ok(hand_over(send_cq, &mut each)? + hand_over(recv_cq, &mut each)?)
        };
        if self.state() == QpState::IB_QPS_RESET {
            return hand_over().map(|_| ());
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
        // First what has completed, which leaves room for the markers.
        hand_over()?;
        loop {
            let [sends, receives] = &mut queues;
            if let Some(sends) = sends {
                sends.post(|| self.free_send_queue(), SendQueue::mark).map_err(refused)?;
            }
            if let Some(receives) = receives {
                let posted = receives.post(|| self.free_receive_queue(), ReceiveQueue::mark);
                if posted.map_err(refused)? {
                    self.flush_if_error().map_err(refused)?;
                }
            }
            let polled = hand_over()?;
            // Who has polled a marker has polled what was before it.
            let mut left = queues.iter().flatten().filter(|queue| !queue.is_done());
            if left.next().is_none() {
                return Ok(());
            }
            // Also while there is something each time, of other queue pairs.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::new(DRAIN, self.subject(), ErrorKind::TimedOut));
            }
            if polled > 0 {
                idle = 0;
                continue;
            }
            // The kernel is mostly done at once.
            idle = idle.saturating_add(1);
            match idle {
                0..100 => thread::yield_now(),
                _ => thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

/// Hands over what is on `cq`, unless somebody polls it; how many.
fn hand_over(cq: &CompletionQueue, each: &mut impl FnMut(Completion)) -> Result<usize> {
    let mut some = [Completion::default(); 16];
    let mut polled = 0;
    loop {
        // Not held while the program looks at them.
        let Some(mut poller) = cq.free_poller() else { return Ok(polled) };
        let count = poller.take(&mut some)?;
        drop(poller);
        some[..count].iter().copied().for_each(&mut *each);
        polled += count;
        // Others may fill it up again each time, behind what was there at first.
        if count < some.len() || polled >= cq.capacity() as usize {
            return Ok(polled);
        }
    }
}
