//! Posting to the receive queues of queue pairs.

use std::mem;

#[cfg(doc)]
use super::SendQueue;
use super::refusal::POST_RECV;
use crate::concurrent::{HandoffGuard, HeldByThisThread};
use crate::driver::Posted;
use crate::drivers::any::AnyRecvRing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
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
    /// The errors of [`send_queue`](Self::send_queue).
    pub fn receive_queue(&self) -> Result<ReceiveQueue<'_>> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        match self.inner.receive.lock() {
            // A guard would keep the owner of the ring from putting it back.
            Ok(ring) => match *ring {
                AnyRecvRing::Absent(why) => Err(Error::invalid(POST_RECV, self.subject(), why)),
                _ => Ok(ReceiveQueue { qp: self, ring, pushed: false }),
            },
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
    /// The errors of [`receive_queue`](Self::receive_queue), [`ReceiveQueue::push`] and
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

    /// Posts the request if nothing but the request has to be looked at, and no thread holds the queue. Posts nothing if this
    /// is `None`.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`post_recv`](Self::post_recv).
    #[inline(always)]
    unsafe fn try_post_recv(&self, request: &ReceiveRequest<'_>) -> Option<Result<()>> {
        let mut ring = self.inner.receive.try_lock()?;
        let device = self.context().engine();
        // SAFETY: the contract of this function is that of the callee; the ring is the receive queue of this queue pair.
        unsafe { self.engine().try_store_recv(device, &mut ring, request) }
            .then(|| self.settle_posted())
    }

    /// Posts a request of any kind, in any state, waiting for a thread that holds the queue.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`post_recv`](Self::post_recv).
    #[inline(never)]
    unsafe fn post_recv_with_care(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        let mut queue = self.receive_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.push_with_care(request) }?;
        queue.ring()
    }

    /// Stores a request of any kind in `ring`, the receive queue of this queue pair.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`ReceiveQueue::push`].
    #[inline(never)]
    pub(in crate::verbs) unsafe fn store_recv(
        &self,
        ring: &mut AnyRecvRing,
        request: &ReceiveRequest<'_>,
    ) -> Result<()> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        // SAFETY: the contract of this function is that of the callee; the ring is the receive queue of this queue pair.
        let stored = unsafe { self.engine().store_recv(ring, &*self.inner, request) };
        stored.map_err(|error| self.refused(POST_RECV, error))
    }

    /// Rings the doorbell for the requests that were stored in `ring`, the receive queue of this queue pair.
    pub(in crate::verbs) fn ring_recv(&self, ring: &mut AnyRecvRing) -> Result<()> {
        let rung = self.engine().ring_recv(self.context().engine(), ring, &*self.inner);
        rung.map_err(|error| self.refused(POST_RECV, error))
    }

    /// Makes requests that were just stored, and need no doorbell, complete if the queue pair is in ERR.
    #[inline(always)]
    pub(in crate::verbs) fn settle_posted(&self) -> Result<()> {
        self.flush_if_error().map_err(|error| self.refused(POST_RECV, error))
    }

    /// Makes the requests complete that were just stored, if the queue pair is in ERR.
    #[inline]
    pub(in crate::verbs) fn flush_if_error(&self) -> Posted {
        self.engine().flush_if_error(self.context().engine(), &*self.inner)
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
        let device = self.qp.context().engine();
        // SAFETY: the contract of this function is that of the callee; the ring is that of the queue pair.
        if unsafe { self.qp.engine().try_store_recv(device, &mut self.ring, request) } {
            self.pushed = true;
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.push_with_care(request) }
    }

    /// [`push`](Self::push) of a request of any kind, in any state.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`push`](Self::push).
    unsafe fn push_with_care(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.qp.store_recv(&mut self.ring, request) }?;
        self.pushed = true;
        Ok(())
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
        self.qp.ring_recv(&mut self.ring)
    }

    /// Posts a receive request: [`push`](Self::push) and [`ring`](Self::ring).
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// The errors of [`push`](Self::push) and [`ring`](Self::ring).
    pub unsafe fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let device = self.qp.context().engine();
        // The doorbell is due for requests that were pushed before.
        let is_stored = !self.pushed && {
            // SAFETY: the contract of this function is that of the callee; the ring is that of the queue pair.
            unsafe { self.qp.engine().try_store_recv(device, &mut self.ring, request) }
        };
        if is_stored {
            self.qp.settle_posted()?;
        } else {
            // SAFETY: as above.
            unsafe { self.push_with_care(request) }?;
            self.settle()?;
        }
        self.ring.yield_to_waiter();
        Ok(())
    }

    /// Posts a drain marker to a queue pair in ERR. The caller calls [`QueuePair::flush_if_error`] after it.
    pub(in crate::verbs) fn mark(&mut self, wr_id: u64) -> Posted {
        self.qp.engine().mark_recv(self.qp.context().engine(), &mut self.ring, wr_id)
    }
}

impl Drop for ReceiveQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.settle();
        }
    }
}
