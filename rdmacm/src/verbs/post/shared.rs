//! Posting to shared receive queues.

#[cfg(doc)]
use super::SendQueue;
use super::refusal::POST_RECV;
use crate::concurrent::HandoffGuard;
use crate::driver::PostError;
use crate::drivers::any::AnyRecvRing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::srq::SharedReceiveQueue;
use crate::work::ReceiveRequest;

/// A shared receive queue, for one thread until it is dropped: as [`SendQueue`].
///
/// Of [`SharedReceiveQueue::receive_queue`]. The device may fill what is pushed at once, for any of
/// the queue pairs; [`ring`](Self::ring) is for drivers that keep their queues in the kernel.
///
/// Dropping it rings for what was pushed, where an error would be lost.
#[derive(Debug)]
pub struct SharedReceives<'a> {
    srq: &'a SharedReceiveQueue,
    ring: HandoffGuard<'a, AnyRecvRing>,
}

impl SharedReceiveQueue {
    /// The queue, for this thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where this thread has it already; [`ErrorKind::DeviceGone`];
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn receive_queue(&self) -> Result<SharedReceives<'_>> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        Ok(SharedReceives { srq: self, ring: self.lock(POST_RECV)? })
    }

    /// Posts a receive request: [`SharedReceives::post`] on a [`receive_queue`](Self::receive_queue)
    /// of its own.
    ///
    /// # Safety
    ///
    /// That of [`SharedReceives::push`].
    ///
    /// # Errors
    ///
    /// The errors of [`receive_queue`](Self::receive_queue), [`SharedReceives::push`] and
    /// [`SharedReceives::ring`].
    #[doc(alias = "ibv_post_srq_recv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        if let Some(mut ring) = self.try_lock() {
            let device = self.context().engine();
            // SAFETY: the contract of this function is that of the callee; the ring is that of this queue.
            if unsafe { self.engine().try_store(device, &mut ring, request) } {
                return Ok(());
            }
        }
        // SAFETY: as above.
        unsafe { self.post_recv_with_care(request) }
    }

    /// Posts a request of any kind, waiting for a thread that holds the queue.
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

    #[cold]
    fn refused(&self, error: PostError) -> Error {
        self.context().not_posted(POST_RECV, self.subject(), error)
    }
}

impl SharedReceives<'_> {
    /// Puts a receive request into the queue. A completion follows with the message that it
    /// receives, on the completion queue of the queue pair that took it.
    ///
    /// Stores the request in the ring that the kernel shares; no system call.
    ///
    /// # Safety
    ///
    /// Until the request has completed, or the shared receive queue is destroyed, the memory that it
    /// names by its addresses and keys
    /// - stays allocated and registered;
    /// - is neither written nor read, except in ways that cope with a device writing to it.
    ///
    /// The request's identifier is not one that [`BufferQueues`](crate::verbs::BufferQueues) of a queue pair
    /// that receives from here have given a request of theirs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue does not hold; [`ErrorKind::WrongProcess`] after a fork. This request is not posted
    /// then; those pushed before it are.
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let device = self.srq.context().engine();
        // SAFETY: the contract of this function is that of the callee; the ring is that of the queue.
        if unsafe { self.srq.engine().try_store(device, &mut self.ring, request) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.push_with_care(request) }
    }

    /// [`push`](Self::push) of a request of any kind.
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    #[inline(never)]
    unsafe fn push_with_care(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        self.srq.context().check_usable(POST_RECV, || self.srq.subject())?;
        // SAFETY: the contract of this function is that of the callee.
        let stored = unsafe { self.srq.engine().store(&mut self.ring, request) };
        stored.map_err(|error| self.srq.refused(error))
    }

    /// Has the driver post what was pushed since the last time, where it keeps its queues in the
    /// kernel: `IB_USER_VERBS_CMD_POST_SRQ_RECV`. No system call where it does not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unposted`] where the driver keeps its queues in the kernel, for whatever reason the
    /// command fails: with ENOMEM for a full queue, with EIO where the device is gone. [`ErrorKind::DeviceGone`];
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn ring(&mut self) -> Result<()> {
        self.srq.context().check_process(POST_RECV, || self.srq.subject())?;
        self.settle()?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        let rung = self.srq.engine().ring(self.srq.context().engine(), &mut self.ring);
        rung.map_err(|error| self.srq.refused(error))
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
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.push(request) }?;
        self.settle()?;
        self.ring.yield_to_waiter();
        Ok(())
    }
}

impl Drop for SharedReceives<'_> {
    fn drop(&mut self) {
        if self.srq.belongs_here() {
            let _ = self.settle();
        }
    }
}
