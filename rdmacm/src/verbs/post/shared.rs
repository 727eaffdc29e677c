//! Posting to shared receive queues.

#[cfg(doc)]
use super::SendQueue;
use super::{POST_RECV, ReceiveRequest};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::provider::ReceiveRing;
use crate::verbs::exclusive::Held;
use crate::verbs::srq::SharedReceiveQueue;

/// A shared receive queue, for one thread until it is dropped: as [`SendQueue`].
///
/// Of [`SharedReceiveQueue::receive_queue`]. The device may fill what is pushed at once, for any of
/// the queue pairs.
#[derive(Debug)]
pub struct SharedReceives<'a> {
    srq: &'a SharedReceiveQueue,
    ring: Held<'a, ReceiveRing>,
}

impl SharedReceiveQueue {
    /// The queue, for this thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where this thread has it already; [`ErrorKind::WrongProcess`]
    /// after a fork.
    pub fn receive_queue(&self) -> Result<SharedReceives<'_>> {
        self.context().check_process(POST_RECV, || self.subject())?;
        Ok(SharedReceives { srq: self, ring: self.hold(POST_RECV)? })
    }

    /// Posts a receive request: [`SharedReceives::push`] on a [`receive_queue`](Self::receive_queue)
    /// of its own.
    ///
    /// # Safety
    ///
    /// That of [`SharedReceives::push`].
    ///
    /// # Errors
    ///
    /// Those of [`receive_queue`](Self::receive_queue) and [`SharedReceives::push`].
    #[doc(alias = "ibv_post_srq_recv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        let mut queue = self.receive_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.push(request) }
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
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue does not hold; [`ErrorKind::WrongProcess`] after a fork. This request is not posted
    /// then; those pushed before it are.
    #[inline]
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        let context = self.srq.context();
        context.check_process(POST_RECV, || self.srq.subject())?;
        // SAFETY: the contract of this function is that of the callee.
        let stored = unsafe { self.ring.get().store(request) };
        stored.map_err(|error| error.during(context, POST_RECV, self.srq.subject()))
    }

    /// Lets another thread in that waits for the queue.
    #[inline]
    pub fn give_way(&mut self) {
        self.ring.give_way();
    }
}
