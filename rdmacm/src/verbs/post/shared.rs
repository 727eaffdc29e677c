//! Posting to shared receive queues ([`SharedReceiveQueueGuard`]).

#[cfg(doc)]
use super::SendQueueGuard;
use super::refusal::POST_RECV;
use crate::driver::PostError;
use crate::drivers::any::AnyRecvRing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::sync::HandoffGuard;
use crate::verbs::srq::SharedReceiveQueue;
use crate::work::ReceiveRequest;

/// Exclusive access to a shared receive queue.
///
/// Created by [`SharedReceiveQueue::lock_receive_queue`], and released when dropped. The device may
/// fill a pushed request at once, for any of the queue pairs.
/// [`ring_doorbell`](Self::ring_doorbell) is needed for drivers that keep their queues in the
/// kernel. Dropping the guard rings the doorbell for pushed requests and discards an error.
///
/// See [`SendQueueGuard`] for locking and lock order.
#[derive(Debug)]
pub struct SharedReceiveQueueGuard<'a> {
    srq: &'a SharedReceiveQueue,
    ring: HandoffGuard<'a, AnyRecvRing>,
}

impl SharedReceiveQueue {
    /// Locks the queue for the calling thread.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread already holds the queue.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    pub fn lock_receive_queue(&self) -> Result<SharedReceiveQueueGuard<'_>> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        Ok(SharedReceiveQueueGuard { srq: self, ring: self.lock(POST_RECV)? })
    }

    /// Posts a receive request.
    ///
    /// Locks the [receive queue](Self::lock_receive_queue) for one call of
    /// [`SharedReceiveQueueGuard::post`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_receive_queue`](Self::lock_receive_queue),
    /// [`SharedReceiveQueueGuard::push`] and [`SharedReceiveQueueGuard::ring_doorbell`].
    ///
    /// # Safety
    ///
    /// The contract of [`SharedReceiveQueueGuard::push`].
    #[doc(alias = "ibv_post_srq_recv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        if let Some(mut ring) = self.try_lock() {
            let device = self.context().engine();
            // SAFETY: the contract of this function is the contract of the callee; the ring belongs
            // to this queue.
            if unsafe { self.engine().try_store(device, &mut ring, request) } {
                return Ok(());
            }
        }
        // SAFETY: as above.
        unsafe { self.post_recv_slow(request) }
    }

    /// Posts a request of any kind, waiting for a thread that holds the queue.
    ///
    /// # Safety
    ///
    /// The contract of [`post_recv`](Self::post_recv).
    #[inline(never)]
    unsafe fn post_recv_slow(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        let mut queue = self.lock_receive_queue()?;
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { queue.push_slow(request) }?;
        queue.ring_doorbell()
    }

    #[cold]
    fn refused(&self, error: PostError) -> Error {
        self.context().not_posted(POST_RECV, self.subject(), error)
    }
}

impl SharedReceiveQueueGuard<'_> {
    /// Stores a receive request in the queue.
    ///
    /// A completion follows when the request receives a message, on the completion queue of the
    /// queue pair that consumed the request. The request is stored in the ring that the kernel
    /// shares, without a system call.
    ///
    /// # Errors
    ///
    /// On error, this request is not posted, but requests pushed earlier are.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    /// - [`ErrorKind::InvalidInput`] with EINVAL if the request exceeds the capacities of the
    ///   queue.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Safety
    ///
    /// The caller must ensure the following until the request has completed, or until the shared
    /// receive queue is destroyed.
    /// - The memory that the request names by addresses and keys stays allocated and registered.
    /// - The memory is neither written nor read, except by accesses that tolerate concurrent writes
    ///   by a device.
    ///
    /// The request's identifier must differ from those that the
    /// [`BufferedQueuePair`](crate::verbs::BufferedQueuePair) of a queue pair that receives from
    /// this queue has given to its requests.
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let device = self.srq.context().engine();
        // SAFETY: the contract of this function is the contract of the callee; the ring belongs to
        // this queue.
        if unsafe { self.srq.engine().try_store(device, &mut self.ring, request) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.push_slow(request) }
    }

    /// Pushes on the slow path of [`push`](Self::push), for a request of any kind.
    #[inline(never)]
    unsafe fn push_slow(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        self.srq.context().check_usable(POST_RECV, || self.srq.subject())?;
        // SAFETY: the contract of this function is the contract of the callee.
        let stored = unsafe { self.srq.engine().store(&mut self.ring, request) };
        stored.map_err(|error| self.srq.refused(error))
    }

    /// Posts the pushed requests on drivers that keep their queues in the kernel.
    ///
    /// Other drivers need no doorbell, and the call makes no system call.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::PartiallyPosted`] if the driver keeps its queues in the kernel and the
    ///   command fails for any reason. The errno is ENOMEM if the queue is full, and EIO if the
    ///   device was removed.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_POST_SRQ_RECV`, on drivers that keep their queues in the
    /// kernel.
    pub fn ring_doorbell(&mut self) -> Result<()> {
        self.srq.context().check_process(POST_RECV, || self.srq.subject())?;
        self.ring_pushed()?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    fn ring_pushed(&mut self) -> Result<()> {
        let rung = self.srq.engine().ring(self.srq.context().engine(), &mut self.ring);
        rung.map_err(|error| self.srq.refused(error))
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
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.push(request) }?;
        self.ring_pushed()?;
        self.ring.yield_to_waiter();
        Ok(())
    }
}

impl Drop for SharedReceiveQueueGuard<'_> {
    fn drop(&mut self) {
        if self.srq.is_owner() {
            let _ = self.ring_pushed();
        }
    }
}
