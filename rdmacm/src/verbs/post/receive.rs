//! Posting to the receive queues of queue pairs.

#[cfg(doc)]
use super::SendQueue;
use std::mem;

use super::POST_RECV;
use crate::concurrent::{HandoffGuard, HeldByThisThread};
use crate::driver::{Posted, RecvOps as _};
use crate::drivers::any::AnyRecvRing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::verbs::QpState;
use crate::verbs::queue_pair::QueuePair;
use crate::work::ReceiveRequest;

/// The receive queue of a queue pair, for one thread until it is dropped: as [`SendQueue`].
///
/// Of [`QueuePair::receive_queue`]. The device may fill what is pushed at once;
/// [`ring`](Self::ring) is for a queue pair that went to ERR meanwhile.
#[derive(Debug)]
pub struct ReceiveQueue<'a> {
    qp: &'a QueuePair,
    ring: HandoffGuard<'a, AnyRecvRing>,
    /// Something was pushed since it was last rung for.
    pushed: bool,
}

impl QueuePair {
    /// The receive queue, for this thread.
    ///
    /// # Errors
    ///
    /// Those of [`send_queue`](Self::send_queue).
    pub fn receive_queue(&self) -> Result<ReceiveQueue<'_>> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        match self.inner.receive.lock() {
            Ok(ring) => Ok(ReceiveQueue { qp: self, ring, pushed: false }),
            Err(HeldByThisThread) => {
                Err(self.held(POST_RECV, "it has the receive queue; drop that first"))
            }
        }
    }

    /// The receive queue, if no thread has it.
    pub(in crate::verbs) fn free_receive_queue(&self) -> Option<ReceiveQueue<'_>> {
        let ring = self.inner.receive.try_lock();
        ring.map(|ring| ReceiveQueue { qp: self, ring, pushed: false })
    }

    /// Posts a receive request to the queue pair's own receive queue: [`ReceiveQueue::post`] on a
    /// [`receive_queue`](Self::receive_queue) of its own. What is for a [shared](QueuePair::srq) one
    /// is [posted to that](crate::verbs::SharedReceiveQueue::post_recv).
    ///
    /// # Safety
    ///
    /// That of [`ReceiveQueue::push`].
    ///
    /// # Errors
    ///
    /// Those of [`receive_queue`](Self::receive_queue), [`ReceiveQueue::push`] and
    /// [`ReceiveQueue::ring`].
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_post_recvv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of both callees.
        match unsafe { self.try_post_recv(request) } {
            Some(settled) => settled,
            // SAFETY: as above.
            None => unsafe { self.post_recv_with_care(request) },
        }
    }

    /// Posts the request if there is nothing to see to but it: what [`ReceiveQueue::ring`] would say
    /// then. Nothing is posted where this is `None`.
    ///
    /// # Safety
    ///
    /// That of [`post_recv`](Self::post_recv).
    #[inline(always)]
    pub(in crate::verbs) unsafe fn try_post_recv(
        &self,
        request: &ReceiveRequest<'_>,
    ) -> Option<Result<()>> {
        if !self.takes_receives() {
            return None;
        }
        let mut ring = self.inner.receive.try_lock()?;
        // SAFETY: the contract of this function is that of the callee.
        if !unsafe { ring.try_store_request(request) } {
            return None;
        }
        let settled = self.settle();
        Some(settled)
    }

    /// The same of whatever request, wherever the queue pair is, and whoever has the queue.
    ///
    /// # Safety
    ///
    /// That of [`post_recv`](Self::post_recv).
    #[inline(never)]
    unsafe fn post_recv_with_care(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        let mut queue = self.receive_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.push_with_care(request) }?;
        queue.ring()
    }

    /// Whether there is nothing to see to but the request, when one is posted.
    #[inline(always)]
    fn takes_receives(&self) -> bool {
        let rest = matches!(self.state(), QpState::IB_QPS_RESET | QpState::IB_QPS_ERR);
        self.context().is_surely_usable() && !rest
    }
}

impl ReceiveQueue<'_> {
    /// Puts a receive request into the queue. The device may take it for the next message at once.
    /// A completion follows with the message that the request receives, or when the queue pair goes
    /// to ERR.
    ///
    /// Stores the request in the ring that the kernel shares; no system call.
    ///
    /// # Safety
    ///
    /// Until the request has completed, or the queue pair is destroyed, the memory that it names by
    /// its addresses and keys
    /// - stays allocated and registered;
    /// - is neither written nor read, except in ways that cope with a device writing to it.
    ///
    /// The request's identifier is not one that [`BufferQueues`](crate::verbs::BufferQueues) of the same
    /// queue pair have given a request of theirs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold; [`ErrorKind::WrongProcess`] after a fork. This request is not
    /// posted then; those pushed before it are.
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        if self.qp.takes_receives() && unsafe { self.ring.try_store_request(request) } {
            self.pushed = true;
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.push_with_care(request) }
    }

    /// The same of whatever request, and wherever the queue pair is.
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    #[inline(never)]
    unsafe fn push_with_care(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        self.qp.context().check_usable(POST_RECV, || self.qp.subject())?;
        let stored = self.check(self.qp.state()).and_then(|()| {
            // SAFETY: the contract of this function is that of the callee.
            unsafe { self.ring.store(request) }
        });
        stored.map_err(|error| self.qp.refused(POST_RECV, error))?;
        self.pushed = true;
        Ok(())
    }

    /// That something comes of a request to the queue pair in `state`.
    fn check(&mut self, state: QpState) -> Posted {
        self.ring.check(state)?;
        match state {
            QpState::IB_QPS_ERR => self.qp.check_orphans(self.qp.recv_cq()),
            _ => Ok(()),
        }
    }

    /// Sees to what was pushed since the last time.
    ///
    /// No system call while receives are to be had, but where the driver keeps its queues in the
    /// kernel: there `IB_USER_VERBS_CMD_POST_RECV` posts what was pushed. Of a request to a queue pair that is in ERR rxe
    /// must be told (`IB_USER_VERBS_CMD_MODIFY_QP`) for it to come back, and on siw the library
    /// completes it; of one that failed by itself the library knows only after a
    /// [`disconnect`](crate::cm::CmId::disconnect) or [`modify`](QueuePair::modify), and on siw after
    /// the event that tells of the end of the connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unposted`] where the driver keeps its queues in the kernel, for whatever reason the
    /// command fails: with ENOMEM for a full queue, with EIO where the device is gone.
    /// [`ErrorKind::WrongProcess`] after a fork. Any other error is that of telling rxe
    /// ([`ErrorKind::DeviceGone`]): the requests stand in the queue, so that the obligations of
    /// [`push`](Self::push) hold.
    pub fn ring(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_RECV, || self.qp.subject())?;
        self.settle()?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        if !mem::take(&mut self.pushed) {
            return Ok(());
        }
        let rung = self.ring.ring(self.qp.context().file(), self.qp.inner.object.handle());
        rung.map_err(|error| self.qp.refused(POST_RECV, error))?;
        self.qp.settle()
    }

    /// Posts a receive request: [`push`](Self::push) and [`ring`](Self::ring).
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// Those of [`push`](Self::push) and [`ring`](Self::ring).
    pub unsafe fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let is_plain = !self.pushed && self.qp.takes_receives();
        // SAFETY: the contract of this function is that of the callee.
        if is_plain && unsafe { self.ring.try_store_request(request) } {
            self.qp.settle()?;
        } else {
            // SAFETY: as above.
            unsafe { self.push_with_care(request) }?;
            self.settle()?;
        }
        self.ring.yield_to_waiter();
        Ok(())
    }

    /// Posts a request without memory to a queue pair in ERR, which is to [settle](QueuePair::settle)
    /// then.
    pub(in crate::verbs) fn mark(&mut self, wr_id: u64) -> Posted {
        let ring = &mut *self.ring;
        ring.store_nothing(wr_id)?;
        ring.ring(self.qp.context().file(), self.qp.inner.object.handle())
    }
}

impl Drop for ReceiveQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.settle();
        }
    }
}
