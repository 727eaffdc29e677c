//! Posting to send queues ([`SendQueueGuard`]).

use crate::driver::{PostError, Posted, SendOps};
use crate::drivers::any::{AnySendRing, SendRingCall};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::sync::{HandoffGuard, HeldByThisThread};
use crate::verbs::memory_window::{BindRequest, Invalidation};
use crate::verbs::queue_pair::QueuePair;
use crate::work::{Payload, SendOperation, SendRequest};

pub(super) const POST_SEND: &str = "post a send to";

/// Exclusive access to the send queue of a queue pair.
///
/// It serves many posts under one lock, and lists of requests with one doorbell. Created by
/// [`QueuePair::lock_send_queue`], and released when dropped. Dropping rings the doorbell for
/// pushed requests and discards an error.
///
/// Other threads that post to the queue block on the lock. They get access whenever this thread
/// rings the doorbell. No other operation blocks: another thread can change the state of the queue
/// pair or poll its completions. The guard cannot move to another thread.
///
/// # Several guards in one thread
///
/// A thread may hold several guards: send and receive queues, also of other queue pairs, and
/// [`Poller`](crate::verbs::Poller)s. Posting and polling take such a lock too, for the duration of
/// the call.
///
/// As with locks, all threads must take the guards that they hold together in one order. Otherwise
/// they can deadlock: for example, if one thread posts while it holds the poller, and another polls
/// while it holds the send queue. Only waiting for a lock of the same thread is detected and
/// reported, as [`ErrorKind::WouldDeadlock`].
#[derive(Debug)]
pub struct SendQueueGuard<'a> {
    qp: &'a QueuePair,
    ring: HandoffGuard<'a, AnySendRing>,
}

impl QueuePair {
    /// Locks the send queue for the calling thread.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread already holds the queue.
    /// - [`ErrorKind::InvalidInput`] if the queue pair has no such queue, or if a
    ///   [`BufferedQueuePair`](crate::verbs::BufferedQueuePair) owns it.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    #[doc(alias = "ibv_qp_to_qp_ex")]
    #[doc(alias = "ibv_wr_start")]
    pub fn lock_send_queue(&self) -> Result<SendQueueGuard<'_>> {
        self.context().check_usable(POST_SEND, || self.subject())?;
        match self.inner.send.lock() {
            // A guard would keep the owner of the ring from returning it.
            Ok(ring) => match *ring {
                AnySendRing::Absent(reason) => {
                    Err(Error::invalid(POST_SEND, self.subject(), reason))
                }
                _ => Ok(SendQueueGuard { qp: self, ring }),
            },
            Err(HeldByThisThread) => Err(self.deadlock_error(
                POST_SEND,
                "this thread holds the guard of the send queue; drop the guard first",
            )),
        }
    }

    /// Returns the send queue if no thread holds it.
    pub(in crate::verbs) fn free_send_queue(&self) -> Option<SendQueueGuard<'_>> {
        self.inner.send.try_lock().map(|ring| SendQueueGuard { qp: self, ring })
    }

    /// Posts a send request.
    ///
    /// Locks the [send queue](Self::lock_send_queue) for one call of [`SendQueueGuard::post`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_send_queue`](Self::lock_send_queue), [`SendQueueGuard::push`] and
    /// [`SendQueueGuard::ring_doorbell`].
    ///
    /// # Safety
    ///
    /// The contract of [`SendQueueGuard::push`].
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "rdma_post_send")]
    #[doc(alias = "rdma_post_sendv")]
    #[doc(alias = "rdma_post_ud_send")]
    #[doc(alias = "rdma_post_read")]
    #[doc(alias = "rdma_post_readv")]
    #[doc(alias = "rdma_post_write")]
    #[doc(alias = "rdma_post_writev")]
    pub unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<()> {
        let Some(mut ring) = self.inner.send.try_lock() else {
            // SAFETY: the contract of this function is the contract of the callee.
            return unsafe { self.post_send_later(request) };
        };
        // SAFETY: the contract of this function is the contract of the callee; the ring is the send
        // queue of this queue pair.
        ring.dispatch(unsafe { Post::new(self, request) })
    }

    /// Posts a request that binds a memory window.
    ///
    /// Locks the [send queue](Self::lock_send_queue) for [`SendQueueGuard::bind_window`] and
    /// [`SendQueueGuard::ring_doorbell`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_send_queue`](Self::lock_send_queue), [`SendQueueGuard::bind_window`]
    /// and [`SendQueueGuard::ring_doorbell`].
    ///
    /// # Safety
    ///
    /// The contract of [`SendQueueGuard::bind_window`].
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "IBV_WR_BIND_MW")]
    #[doc(alias = "ibv_wr_bind_mw")]
    pub unsafe fn bind_window(&self, request: &BindRequest<'_>) -> Result<()> {
        let mut queue = self.lock_send_queue()?;
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { queue.bind_window(request) }?;
        queue.ring_doorbell()
    }

    /// Posts a request after waiting for the thread that holds the queue.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`post_send`](Self::post_send).
    #[cold]
    unsafe fn post_send_later(&self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.lock_send_queue()?.post(request) }
    }

    /// Posts a request of any kind in any state to `ring`, the send queue of this queue pair.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`SendQueueGuard::push`].
    #[inline(never)]
    unsafe fn post_slow(&self, ring: &mut dyn SendOps, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.store_send(ring, request) }?;
        self.ring_send(ring)
    }

    /// Stores a request of any kind in `ring`, the send queue of this queue pair.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`SendQueueGuard::push`].
    #[inline(never)]
    pub(in crate::verbs) unsafe fn store_send(
        &self,
        ring: &mut dyn SendOps,
        request: &SendRequest<'_>,
    ) -> Result<()> {
        let mut store = || -> Posted {
            let state = self.engine().check_send(&*self.inner, request)?;
            let invalidation = Invalidation::of(self, &request.operation)?;
            let device = self.context().engine();
            // SAFETY: the contract of this function is the contract of the callee.
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
    /// The caller fulfills the contract of [`SendQueueGuard::bind_window`].
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
            // SAFETY: the request has no payload; the caller guarantees that the region stays
            // registered.
            unsafe { self.engine().store_send(device, ring, state, &send) }?;
            change.posted(self);
            Ok(())
        };
        self.context().check_usable(POST_SEND, || self.subject())?;
        store().map_err(|error| self.refused(POST_SEND, error))
    }

    /// Rings the doorbell for requests that were stored in `ring`, the send queue of this queue
    /// pair.
    #[inline(always)]
    pub(in crate::verbs) fn ring_send(&self, ring: &mut (impl SendOps + ?Sized)) -> Result<()> {
        let rung = self.engine().ring_send(self.context().engine(), ring, &*self.inner);
        rung.map_err(|error| self.refused(POST_SEND, error))
    }
}

impl SendQueueGuard<'_> {
    /// Stores a send request in the queue, without ringing the doorbell.
    ///
    /// The device may process the request at once, and does so after
    /// [`ring_doorbell`](Self::ring_doorbell). A completion follows if the request is signaled or
    /// fails. The request is stored in the ring that the kernel shares.
    ///
    /// # Errors
    ///
    /// On error, this request is not posted, but requests pushed earlier are.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    /// - [`ErrorKind::InvalidInput`] with EINVAL if the request exceeds the capacities of the queue
    ///   pair, or if its state is before RTS.
    /// - [`ErrorKind::InvalidInput`] with EINVAL if the queue pair does not support the operation.
    /// - [`ErrorKind::Unsupported`] if the device, its driver or the kernel lacks the operation.
    /// - [`ErrorKind::MalformedResponse`] if the ring that the kernel shares is inconsistent.
    /// - [`ErrorKind::PartiallyPosted`] if the kernel refuses a check that precedes the post. It
    ///   checks whether it knows the operation (rxe), or whether the queue pair is connected (siw).
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Safety
    ///
    /// The caller must ensure the following until the request has completed, or until the queue
    /// pair is destroyed. An unsignaled request has completed when a later request of the queue
    /// has.
    /// - The memory that a [`Payload::Gather`] names by addresses and keys stays allocated and
    ///   registered.
    /// - The memory is not written. For a read request, it is neither written nor read. Accesses
    ///   by [`DmaMemory`](crate::verbs::DmaMemory) are allowed.
    ///
    /// The request's identifier must differ from those that a
    /// [`BufferedQueuePair`](crate::verbs::BufferedQueuePair) of the same queue pair has given to
    /// its requests.
    ///
    /// A [`Payload::Inline`] requires nothing. Memory of peers is protected by the access rights
    /// that the peers granted.
    ///
    /// # Driver notes
    ///
    /// On siw, a request may complete late if the kernel has moved the queue pair to ERR by itself.
    /// The kernel does so when the peer ends the connection. The kernel then accepts the doorbell
    /// and does nothing. A busy kernel also accepts the doorbell and does nothing, and the library
    /// cannot distinguish the two cases.
    ///
    /// The request completes when the event about the end of the connection is read from the id's
    /// channel. A request that is posted later completes at once. While a thread waits for a
    /// completion, another one must therefore read the channel.
    /// - The events of a synchronous id are not read. There,
    ///   [`disconnect`](crate::cm::CmId::disconnect) completes the request.
    /// - A queue pair that belongs to no id needs a [`modify`](QueuePair::modify) to ERR.
    pub unsafe fn push(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee; the ring belongs to
        // the queue pair.
        self.ring.dispatch(unsafe { Push::new(self.qp, request) })
    }

    /// Stores a request that binds a memory window to a part of a region.
    ///
    /// The window [has](crate::verbs::MemoryWindow::rkey) its new key when this function returns.
    /// See [`push`](Self::push) for details.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`push`](Self::push):
    /// - [`ErrorKind::InvalidInput`] if the window or the region belongs to another protection
    ///   domain.
    /// - [`ErrorKind::InvalidInput`] if the part exceeds the region.
    /// - [`ErrorKind::InvalidInput`] if the queue pair is a datagram queue pair.
    /// - [`ErrorKind::InvalidInput`] if the window is of type 2 and is bound to no bytes, or is too
    ///   old for the queue pair (rxe).
    /// - [`ErrorKind::Unsupported`] if the driver has no memory windows.
    ///
    /// # Safety
    ///
    /// - The region stays registered until the request has completed.
    /// - Until the window is bound again, invalidated or destroyed, the caller fulfills the
    ///   contract of [`register`](crate::verbs::MemoryRegion::register) for the access rights that
    ///   the bind grants.
    /// - The request's identifier differs from those that a
    ///   [`BufferedQueuePair`](crate::verbs::BufferedQueuePair) of the same queue pair has given to
    ///   its requests.
    pub unsafe fn bind_window(&mut self, request: &BindRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.qp.store_bind(&mut self.ring, request) }
    }

    /// Rings the doorbell: the device processes the requests that were pushed since the last call.
    ///
    /// If the driver keeps its queues in the kernel, the command posts the pushed requests.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::PartiallyPosted`] if the driver keeps its queues in the kernel and the
    ///   command fails for any reason. The errno is ENOMEM if the queue is full, and EIO if the
    ///   device was removed.
    /// - [`ErrorKind::InvalidInput`] on siw for a read on a connection that does not permit reads,
    ///   which only the doorbell reports. The read and the requests pushed after it are not posted;
    ///   the error contains their number.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    /// - ENOMEM from the kernel, or [`ErrorKind::DeviceRemoved`], if the doorbell itself fails. The
    ///   pushed requests then stay in the queue and may be processed together with later ones, so
    ///   the obligations of [`push`](Self::push) hold.
    ///
    /// # Driver notes
    ///
    /// On siw, there is no system call if the kernel is already processing the queue.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_POST_SEND`.
    #[doc(alias = "ibv_wr_complete")]
    pub fn ring_doorbell(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_SEND, || self.qp.subject())?;
        self.qp.ring_send(&mut *self.ring)?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    /// Posts a send request: [`push`](Self::push) followed by
    /// [`ring_doorbell`](Self::ring_doorbell).
    ///
    /// # Errors
    ///
    /// The errors of [`push`](Self::push) and [`ring_doorbell`](Self::ring_doorbell).
    ///
    /// # Safety
    ///
    /// The contract of [`push`](Self::push).
    pub unsafe fn post(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee; the ring belongs to
        // the queue pair.
        self.ring.dispatch(unsafe { Post::new(self.qp, request) })?;
        self.ring.yield_to_waiter();
        Ok(())
    }

    /// Posts a drain marker to a queue pair in ERR.
    pub(in crate::verbs) fn post_marker(&mut self, wr_id: u64) -> Posted {
        self.qp.engine().mark_send(self.qp.context().engine(), &mut self.ring, wr_id)
    }
}

/// A push to the send queue of `qp`.
struct Push<'a> {
    qp: &'a QueuePair,
    request: &'a SendRequest<'a>,
}

impl<'a> Push<'a> {
    /// Creates a call for the ring of `qp`.
    ///
    /// # Safety
    ///
    /// The caller makes the call with the send queue of `qp`, and fulfills the contract of
    /// [`SendQueueGuard::push`].
    #[inline(always)]
    unsafe fn new(qp: &'a QueuePair, request: &'a SendRequest<'a>) -> Self {
        Self { qp, request }
    }

    /// Stores the request on the fast path. Returns `false`, and stores nothing, if it needs the
    /// slow path.
    #[inline(always)]
    fn try_store(&self, ring: &mut impl SendOps) -> bool {
        let (qp, device) = (self.qp.engine(), self.qp.context().engine());
        // SAFETY: the creator of the call fulfills the contract of the callee.
        unsafe { qp.try_store_send(device, ring, self.request) }
    }
}

impl SendRingCall for Push<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn on(self, ring: &mut impl SendOps) -> Result<()> {
        match self.try_store(ring) {
            true => Ok(()),
            // SAFETY: the creator of the call fulfills the contract of the callee.
            false => unsafe { self.qp.store_send(ring, self.request) },
        }
    }
}

/// A [`Push`] on its fast path that is followed by the doorbell.
///
/// The result is `None`, and nothing is posted, if the request needs the slow path.
pub(super) struct TryPost<'a>(Push<'a>);

impl<'a> TryPost<'a> {
    /// Creates a call for the ring of `qp`.
    ///
    /// # Safety
    ///
    /// The contract of [`Push::new`].
    #[inline(always)]
    pub(super) unsafe fn new(qp: &'a QueuePair, request: &'a SendRequest<'a>) -> Self {
        // SAFETY: the contract of this function is the contract of the callee.
        Self(unsafe { Push::new(qp, request) })
    }
}

impl SendRingCall for TryPost<'_> {
    type Output = Option<Result<()>>;

    #[inline(always)]
    fn on(self, ring: &mut impl SendOps) -> Option<Result<()>> {
        let Self(push) = self;
        push.try_store(ring).then(|| push.qp.ring_send(ring))
    }
}

/// A [`Push`] that is followed by the doorbell.
struct Post<'a>(Push<'a>);

impl<'a> Post<'a> {
    /// Creates a call for the ring of `qp`.
    ///
    /// # Safety
    ///
    /// The contract of [`Push::new`].
    #[inline(always)]
    unsafe fn new(qp: &'a QueuePair, request: &'a SendRequest<'a>) -> Self {
        // SAFETY: the contract of this function is the contract of the callee.
        Self(unsafe { Push::new(qp, request) })
    }
}

impl SendRingCall for Post<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn on(self, ring: &mut impl SendOps) -> Result<()> {
        let Self(push) = self;
        match push.try_store(ring) {
            true => push.qp.ring_send(ring),
            // SAFETY: the creator of the call fulfills the contract of the callee.
            false => unsafe { push.qp.post_slow(ring, push.request) },
        }
    }
}

impl Drop for SendQueueGuard<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.is_owner() {
            let _ = self.qp.ring_send(&mut *self.ring);
        }
    }
}
