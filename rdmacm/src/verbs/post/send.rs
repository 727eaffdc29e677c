//! Posting to send queues.

use crate::concurrent::{HandoffGuard, HeldByThisThread};
use crate::driver::{PostError, Posted};
use crate::drivers::any::AnySendRing;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::memory_window::{BindRequest, Invalidation};
use crate::verbs::queue_pair::QueuePair;
use crate::work::{Payload, SendOperation, SendRequest};

pub(super) const POST_SEND: &str = "post a send to";

/// The send queue of a queue pair, for one thread until it is dropped: for many posts with one lock,
/// and for lists of them with one doorbell.
///
/// Of [`QueuePair::send_queue`]. Threads that post to the same queue meanwhile wait for it, and have
/// their turn whenever this one rings. Nothing else waits: the state of the queue pair can be
/// changed and its completions polled. It cannot leave the thread that took it.
///
/// # Several at a time
///
/// A thread may have several of these: send and receive queues, those of other queue pairs,
/// [`Poller`](crate::verbs::Poller)s. Posting and polling take one too, for as long as they last. As with
/// locks, all threads are to take those that they have together in one order: where one posts while it
/// has the poller, and another polls while it has the send queue, both may wait for ever. Only waiting
/// for what the same thread has is told, as [`ErrorKind::WouldDeadlock`].
///
/// Dropping it rings for what was pushed, where an error would be lost.
#[derive(Debug)]
pub struct SendQueue<'a> {
    qp: &'a QueuePair,
    ring: HandoffGuard<'a, AnySendRing>,
}

impl QueuePair {
    /// The send queue, for this thread.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldDeadlock`] if this thread has the queue already.
    /// - [`ErrorKind::Invalid`] if the queue pair has no such queue, or a [`BufferQueues`](crate::verbs::BufferQueues) has it.
    /// - [`ErrorKind::DeviceGone`] if the device was removed.
    /// - [`ErrorKind::WrongProcess`] after a fork.
    #[doc(alias = "ibv_qp_to_qp_ex")]
    #[doc(alias = "ibv_wr_start")]
    pub fn send_queue(&self) -> Result<SendQueue<'_>> {
        self.context().check_usable(POST_SEND, || self.subject())?;
        match self.inner.send.lock() {
            // A guard would keep the owner of the ring from putting it back.
            Ok(ring) => match *ring {
                AnySendRing::Absent(why) => Err(Error::invalid(POST_SEND, self.subject(), why)),
                _ => Ok(SendQueue { qp: self, ring }),
            },
            Err(HeldByThisThread) => {
                Err(self.held(POST_SEND, "it has the send queue; drop that first"))
            }
        }
    }

    /// The send queue, if no thread has it.
    pub(in crate::verbs) fn free_send_queue(&self) -> Option<SendQueue<'_>> {
        self.inner.send.try_lock().map(|ring| SendQueue { qp: self, ring })
    }

    /// Posts a send request: [`SendQueue::post`] on a [`send_queue`](Self::send_queue) of its own.
    ///
    /// # Safety
    ///
    /// That of [`SendQueue::push`].
    ///
    /// # Errors
    ///
    /// The errors of [`send_queue`](Self::send_queue), [`SendQueue::push`] and [`SendQueue::ring`].
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "rdma_post_send")]
    #[doc(alias = "rdma_post_sendv")]
    #[doc(alias = "rdma_post_ud_send")]
    #[doc(alias = "rdma_post_read")]
    #[doc(alias = "rdma_post_readv")]
    #[doc(alias = "rdma_post_write")]
    #[doc(alias = "rdma_post_writev")]
    pub unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of both callees.
        match unsafe { self.try_post_send(request) } {
            Some(rung) => rung,
            // SAFETY: as above.
            None => unsafe { self.post_send_with_care(request) },
        }
    }

    /// Posts the request if nothing but the request has to be looked at, and no thread holds the queue. Posts nothing if this
    /// is `None`.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`post_send`](Self::post_send).
    #[inline(always)]
    unsafe fn try_post_send(&self, request: &SendRequest<'_>) -> Option<Result<()>> {
        let mut ring = self.inner.send.try_lock()?;
        let device = self.context().engine();
        // SAFETY: the contract of this function is that of the callee; the ring is the send queue of this queue pair.
        unsafe { self.engine().try_store_send(device, &mut ring, request) }
            .then(|| self.ring_send(&mut ring))
    }

    /// Posts a request that binds a memory window: [`SendQueue::bind_window`] and
    /// [`SendQueue::ring`] on a [`send_queue`](Self::send_queue) of its own.
    ///
    /// # Safety
    ///
    /// That of [`SendQueue::bind_window`].
    ///
    /// # Errors
    ///
    /// The errors of [`send_queue`](Self::send_queue), [`SendQueue::bind_window`] and [`SendQueue::ring`].
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "IBV_WR_BIND_MW")]
    #[doc(alias = "ibv_wr_bind_mw")]
    pub unsafe fn bind_window(&self, request: &BindRequest<'_>) -> Result<()> {
        let mut queue = self.send_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.bind_window(request) }?;
        queue.ring()
    }

    /// Posts a request of any kind, in any state, waiting for a thread that holds the queue.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`post_send`](Self::post_send).
    #[inline(never)]
    unsafe fn post_send_with_care(&self, request: &SendRequest<'_>) -> Result<()> {
        let mut queue = self.send_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.push_with_care(request) }?;
        queue.ring()
    }

    /// Stores a request of any kind in `ring`, the send queue of this queue pair.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendQueue::push`].
    #[inline(never)]
    pub(in crate::verbs) unsafe fn store_send(
        &self,
        ring: &mut AnySendRing,
        request: &SendRequest<'_>,
    ) -> Result<()> {
        let mut store = || -> Posted {
            let state = self.engine().check_send(&*self.inner, request)?;
            let invalidation = Invalidation::of(self, &request.operation)?;
            let device = self.context().engine();
            // SAFETY: the contract of this function is that of the callee.
            unsafe { self.engine().store_send(device, ring, state, request) }?;
            if let Some(invalidation) = invalidation {
                invalidation.posted();
            }
            Ok(())
        };
        self.context().check_usable(POST_SEND, || self.subject())?;
        store().map_err(|error| self.refused(POST_SEND, error))
    }

    /// Stores a bind of a memory window in `ring`, the send queue of this queue pair.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendQueue::bind_window`].
    pub(in crate::verbs) unsafe fn store_bind(
        &self,
        ring: &mut AnySendRing,
        request: &BindRequest<'_>,
    ) -> Result<()> {
        let mut store = || -> Posted {
            request.check(self).map_err(PostError::Invalid)?;
            let state = self.engine().check_send_state(&*self.inner)?;
            let change = request.begin();
            let send = SendRequest {
                wr_id: request.wr_id,
                operation: SendOperation::BindWindow(change.binding()),
                payload: Payload::Gather(&[]),
                flags: request.flags,
            };
            let device = self.context().engine();
            // SAFETY: the request has no payload; for the region the caller answers.
            unsafe { self.engine().store_send(device, ring, state, &send) }?;
            change.posted(self);
            Ok(())
        };
        self.context().check_usable(POST_SEND, || self.subject())?;
        store().map_err(|error| self.refused(POST_SEND, error))
    }

    /// Rings the doorbell for the requests that were stored in `ring`, the send queue of this queue pair.
    #[inline(always)]
    pub(in crate::verbs) fn ring_send(&self, ring: &mut AnySendRing) -> Result<()> {
        let rung = self.engine().ring_send(self.context().engine(), ring, &*self.inner);
        rung.map_err(|error| self.refused(POST_SEND, error))
    }
}

impl SendQueue<'_> {
    /// Puts a send request into the queue. The device may look at it at once, and does after
    /// [`ring`](Self::ring). A completion follows if the request is signalled or fails.
    ///
    /// Stores the request in the ring that the kernel shares.
    ///
    /// On siw it may take a while where the kernel has moved the queue pair to ERR by itself, as it
    /// does when the peer ends the connection: it takes the doorbell and does nothing, as it does
    /// while it is busy, and the library cannot tell which. The request comes back when the event
    /// that tells of the end of the connection is read from the id's channel, and one that is posted
    /// later comes back at once. So while a thread waits for a completion, another one reads the
    /// channel; of a synchronous id, whose events nobody reads, the request comes back with
    /// [`disconnect`](crate::cm::CmId::disconnect), and of a queue pair that is no id's own with a
    /// [`modify`](QueuePair::modify) to ERR.
    ///
    /// # Safety
    ///
    /// Until the request has completed (an unsignalled one: until a later one of the queue has), or
    /// the queue pair is destroyed, the memory that a [`Payload::Gather`] names by its addresses and
    /// keys
    /// - stays allocated and registered;
    /// - is not written, and for a read neither written nor read, except in ways that cope with a
    ///   device doing the same.
    ///
    /// The request's identifier is not one that [`BufferQueues`](crate::verbs::BufferQueues) of the same
    /// queue pair have given a request of theirs.
    ///
    /// A [`Payload::Inline`] asks for nothing. Memory of peers is what the rights that they granted
    /// protect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold or has no way to carry out, or in a state before RTS;
    /// [`ErrorKind::Unposted`] where the kernel refuses what it is asked before: whether it knows the
    /// operation (rxe), whether the queue pair is connected (siw);
    /// [`ErrorKind::WrongProcess`] after a fork. This request is not posted then; those pushed
    /// before it are.
    pub unsafe fn push(&mut self, request: &SendRequest<'_>) -> Result<()> {
        let device = self.qp.context().engine();
        // SAFETY: the contract of this function is that of the callee; the ring is that of the queue pair.
        if unsafe { self.qp.engine().try_store_send(device, &mut self.ring, request) } {
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
    unsafe fn push_with_care(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.qp.store_send(&mut self.ring, request) }
    }

    /// Puts a request into the queue that binds a memory window to a part of a region. Otherwise
    /// as [`push`](Self::push).
    ///
    /// The window [has](crate::verbs::MemoryWindow::rkey) its new key when this returns.
    ///
    /// # Safety
    ///
    /// The region stays registered until the request has completed. The access that the bind grants
    /// is as if the region had been [registered](crate::verbs::MemoryRegion::register) with it, until
    /// the window is bound again, invalidated or destroyed.
    ///
    /// The request's identifier is not one that [`BufferQueues`](crate::verbs::BufferQueues) of the
    /// same queue pair have given a request of theirs.
    ///
    /// # Errors
    ///
    /// In addition to those of [`push`](Self::push): [`ErrorKind::Invalid`] if the window or the
    /// region belongs to another protection domain, if the part exceeds the region, if the queue
    /// pair has datagrams, if a window of type 2 is to be bound to no bytes or is too old for the
    /// queue pair (rxe); [`ErrorKind::Unsupported`] if the driver has no windows.
    pub unsafe fn bind_window(&mut self, request: &BindRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.qp.store_bind(&mut self.ring, request) }
    }

    /// Has the device look at what was pushed since the last time.
    ///
    /// `IB_USER_VERBS_CMD_POST_SEND` as a doorbell; on siw not where the kernel is on its way. Where
    /// the driver keeps its queues in the kernel, the command posts what was pushed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unposted`] where the driver keeps its queues in the kernel, for whatever reason the
    /// command fails: with ENOMEM for a full queue, with EIO where the device is gone.
    /// [`ErrorKind::WrongProcess`] after a fork. On siw [`ErrorKind::Invalid`] for a read on a
    /// connection that was made without, which only the doorbell tells: it and those pushed behind
    /// it, of which the error says the number, are not posted. Any other error is that of the
    /// doorbell (ENOMEM from the kernel, [`ErrorKind::DeviceGone`]): what was pushed stands in the
    /// queue and may be carried out with what comes next, so that the obligations of
    /// [`push`](Self::push) hold.
    #[doc(alias = "ibv_wr_complete")]
    pub fn ring(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_SEND, || self.qp.subject())?;
        self.ring_here()
    }

    /// The same in this process.
    #[inline(never)]
    fn ring_here(&mut self) -> Result<()> {
        self.qp.ring_send(&mut self.ring)?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    /// Posts a send request: [`push`](Self::push) and [`ring`](Self::ring).
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// The errors of [`push`](Self::push) and [`ring`](Self::ring).
    pub unsafe fn post(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.push(request) }?;
        self.ring_here()
    }

    /// Posts a drain marker to a queue pair in ERR.
    pub(in crate::verbs) fn mark(&mut self, wr_id: u64) -> Posted {
        self.qp.engine().mark_send(self.qp.context().engine(), &mut self.ring, wr_id)
    }
}

impl Drop for SendQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.qp.ring_send(&mut self.ring);
        }
    }
}
