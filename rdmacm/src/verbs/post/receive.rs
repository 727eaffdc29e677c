//! Posting to the receive queues of queue pairs ([`ReceiveQueueGuard`]).

use std::mem;

#[cfg(doc)]
use super::SendQueueGuard;
use super::refusal::POST_RECV;
use crate::driver::{PostError, Posted};
use crate::drivers::any::AnyRecvRing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::sync::{HandoffGuard, HeldByThisThread};
use crate::verbs::queue_pair::QueuePair;
use crate::work::ReceiveRequest;

/// Exclusive access to the receive queue of a queue pair.
///
/// Created by [`QueuePair::lock_receive_queue`], and released when dropped. The device may fill a
/// pushed request at once. [`ring_doorbell`](Self::ring_doorbell) is needed for a queue pair that
/// moved to ERR in the meantime.
///
/// See [`SendQueueGuard`] for locking and lock order.
#[derive(Debug)]
pub struct ReceiveQueueGuard<'a> {
    qp: &'a QueuePair,
    ring: HandoffGuard<'a, AnyRecvRing>,
    /// `true` if a request was pushed since the last doorbell.
    pushed: bool,
}

impl QueuePair {
    /// Locks the receive queue for the calling thread.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_send_queue`](Self::lock_send_queue).
    pub fn lock_receive_queue(&self) -> Result<ReceiveQueueGuard<'_>> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        match self.inner.receive.lock() {
            // A guard would keep the owner of the ring from returning it.
            Ok(ring) => match *ring {
                AnyRecvRing::Absent(reason) => {
                    Err(Error::invalid(POST_RECV, self.subject(), reason))
                }
                _ => Ok(ReceiveQueueGuard { qp: self, ring, pushed: false }),
            },
            Err(HeldByThisThread) => Err(self.deadlock_error(
                POST_RECV,
                "this thread holds the guard of the receive queue; drop the guard first",
            )),
        }
    }

    /// Returns the receive queue if no thread holds it.
    pub(in crate::verbs) fn free_receive_queue(&self) -> Option<ReceiveQueueGuard<'_>> {
        let ring = self.inner.receive.try_lock();
        ring.map(|ring| ReceiveQueueGuard { qp: self, ring, pushed: false })
    }

    /// Posts a receive request to the queue pair's own receive queue.
    ///
    /// Locks the [receive queue](Self::lock_receive_queue) for one call of
    /// [`ReceiveQueueGuard::post`]. For a [shared receive queue](QueuePair::srq), use
    /// [`SharedReceiveQueue::post_recv`](crate::verbs::SharedReceiveQueue::post_recv).
    ///
    /// # Errors
    ///
    /// The errors of [`lock_receive_queue`](Self::lock_receive_queue), [`ReceiveQueueGuard::push`]
    /// and [`ReceiveQueueGuard::ring_doorbell`].
    ///
    /// # Safety
    ///
    /// The contract of [`ReceiveQueueGuard::push`].
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_post_recvv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of both callees.
        match unsafe { self.try_post_recv(request) } {
            Some(posted) => posted,
            // SAFETY: as above.
            None => unsafe { self.post_recv_slow(request) },
        }
    }

    /// Posts the request on the fast path, or returns `None` without posting it.
    ///
    /// The fast path requires that only the request has to be checked, and that no thread holds the
    /// queue.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`post_recv`](Self::post_recv).
    #[inline(always)]
    unsafe fn try_post_recv(&self, request: &ReceiveRequest<'_>) -> Option<Result<()>> {
        let mut ring = self.inner.receive.try_lock()?;
        let device = self.context().engine();
        // SAFETY: the contract of this function is the contract of the callee; the ring is the
        // receive queue of this queue pair.
        unsafe { self.engine().try_store_recv(device, &mut ring, request) }
            .then(|| self.flush_posted())
    }

    /// Posts a request of any kind in any state, waiting for a thread that holds the queue.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`post_recv`](Self::post_recv).
    #[inline(never)]
    unsafe fn post_recv_slow(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        let mut queue = self.lock_receive_queue()?;
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { queue.push_slow(request) }?;
        queue.ring_doorbell()
    }

    /// Stores a request of any kind in `ring`, the receive queue of this queue pair.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`ReceiveQueueGuard::push`].
    #[inline(never)]
    pub(in crate::verbs) unsafe fn store_recv(
        &self,
        ring: &mut AnyRecvRing,
        request: &ReceiveRequest<'_>,
    ) -> Result<()> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        // SAFETY: the contract of this function is the contract of the callee; the ring is the
        // receive queue of this queue pair.
        let stored = unsafe { self.engine().store_recv(ring, &*self.inner, request) };
        stored.map_err(|error| self.refused(POST_RECV, error))
    }

    /// Rings the doorbell for requests that were stored in `ring`, the receive queue of this queue
    /// pair.
    pub(in crate::verbs) fn ring_recv(&self, ring: &mut AnyRecvRing) -> Result<()> {
        let rung = self.engine().ring_recv(self.context().engine(), ring, &*self.inner);
        rung.map_err(|error| self.refused(POST_RECV, error))
    }

    /// Completes stored requests, which need no doorbell, if the queue pair is in ERR.
    #[inline(always)]
    pub(in crate::verbs) fn flush_posted(&self) -> Result<()> {
        self.flush_if_error().map_err(|error| self.refused(POST_RECV, error))
    }

    /// Completes the requests that were just stored if the queue pair is in ERR.
    #[inline]
    pub(in crate::verbs) fn flush_if_error(&self) -> Posted {
        self.engine().flush_if_error(self.context().engine(), &*self.inner)
    }

    /// Completes the requests that were posted in ERR to queues that defer commands.
    pub(crate) fn flush_deferred(&self) -> Result<()> {
        let flushed = self.engine().flush_deferred(self.context().engine(), &*self.inner);
        flushed.map_err(|refused| self.refused("flush", PostError::Command(refused)))
    }
}

impl ReceiveQueueGuard<'_> {
    /// Stores a receive request in the queue.
    ///
    /// The device may use the request for the next message at once. A completion follows when the
    /// request receives a message, or when the queue pair moves to ERR. The request is stored in the
    /// ring that the kernel shares, without a system call.
    ///
    /// # Errors
    ///
    /// On error, this request is not posted, but requests pushed earlier are.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    /// - [`ErrorKind::InvalidInput`] with EINVAL if the request exceeds the capacities of the queue
    ///   pair.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Safety
    ///
    /// The caller must ensure the following until the request has completed, or until the queue
    /// pair is destroyed.
    /// - The memory that the request names by addresses and keys stays allocated and registered.
    /// - The memory is neither written nor read, except by accesses that tolerate concurrent writes
    ///   by a device.
    ///
    /// The request's identifier must differ from those that a
    /// [`BufferedQueuePair`](crate::verbs::BufferedQueuePair) of the same queue pair has given to
    /// its requests.
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let device = self.qp.context().engine();
        // SAFETY: the contract of this function is the contract of the callee; the ring belongs to
        // the queue pair.
        if unsafe { self.qp.engine().try_store_recv(device, &mut self.ring, request) } {
            self.pushed = true;
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.push_slow(request) }
    }

    /// Pushes on the slow path of [`push`](Self::push), for a request of any kind in any state.
    unsafe fn push_slow(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.qp.store_recv(&mut self.ring, request) }?;
        self.pushed = true;
        Ok(())
    }

    /// Completes the posting of the requests that were pushed since the last call.
    ///
    /// On drivers that keep their queues in the kernel, a command posts the pushed requests. Other
    /// drivers make no system call while the queue pair can receive.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::PartiallyPosted`] if the driver keeps its queues in the kernel and the
    ///   command fails for any reason. The errno is ENOMEM if the queue is full, and EIO if the
    ///   device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    /// - [`ErrorKind::DeviceRemoved`] and others from the command that notifies rxe. The requests
    ///   then stay in the queue, so the obligations of [`push`](Self::push) hold.
    ///
    /// # Driver notes
    ///
    /// - On rxe, a request to a queue pair in ERR completes only after
    ///   `IB_USER_VERBS_CMD_MODIFY_QP`, which this function issues.
    /// - On siw, the library completes requests to a queue pair in ERR.
    /// - If a queue pair failed by itself, the library learns of it only in
    ///   [`disconnect`](crate::cm::CmId::disconnect) or [`modify`](QueuePair::modify). On siw, it
    ///   also learns of it from the event about the end of the connection.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_POST_RECV`, on drivers that keep their queues in the
    /// kernel.
    pub fn ring_doorbell(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_RECV, || self.qp.subject())?;
        self.ring_pushed()?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    fn ring_pushed(&mut self) -> Result<()> {
        if !mem::take(&mut self.pushed) {
            return Ok(());
        }
        self.qp.ring_recv(&mut self.ring)
    }

    /// Posts a receive request: [`push`](Self::push) followed by
    /// [`ring_doorbell`](Self::ring_doorbell).
    ///
    /// # Errors
    ///
    /// The errors of [`push`](Self::push) and [`ring_doorbell`](Self::ring_doorbell).
    ///
    /// # Safety
    ///
    /// The contract of [`push`](Self::push).
    pub unsafe fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let device = self.qp.context().engine();
        // Requests that were pushed earlier still need the doorbell.
        let is_stored = !self.pushed && {
            // SAFETY: the contract of this function is the contract of the callee; the ring belongs
            // to the queue pair.
            unsafe { self.qp.engine().try_store_recv(device, &mut self.ring, request) }
        };
        if is_stored {
            self.qp.flush_posted()?;
        } else {
            // SAFETY: as above.
            unsafe { self.push_slow(request) }?;
            self.ring_pushed()?;
        }
        self.ring.yield_to_waiter();
        Ok(())
    }

    /// Posts a drain marker to a queue pair in ERR.
    ///
    /// The caller calls [`QueuePair::flush_if_error`] afterwards.
    pub(in crate::verbs) fn post_marker(&mut self, wr_id: u64) -> Posted {
        self.qp.engine().mark_recv(self.qp.context().engine(), &mut self.ring, wr_id)
    }
}

impl Drop for ReceiveQueueGuard<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.is_owner() {
            let _ = self.ring_pushed();
        }
    }
}
