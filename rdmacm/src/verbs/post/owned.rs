//! The rings of a queue pair as values, for an owner that needs no lock around them.

use std::mem;

use super::refusal::POST_RECV;
use super::send::{POST_SEND, TryPost};
use crate::drivers::any::{AnyCqRing, AnyRecvRing, AnySendRing};
use crate::engine::Cq;
use crate::error::{Error, Result};
use crate::sync::HeldByThisThread;
use crate::verbs::Completion;
use crate::verbs::completion::CompletionQueue;
use crate::verbs::memory_window::BindRequest;
use crate::verbs::queue_pair::QueuePair;
use crate::work::{ReceiveRequest, SendRequest};

/// Reason in errors about a queue pair whose rings were taken.
const QUEUES_TAKEN: &str = "the queues belong to a `BufferedQueuePair`";

/// The rings of a queue pair and of its completion queues.
///
/// While the value exists, all other posts to the queue pair and all other polls of its completion
/// queues fail.
#[derive(Debug)]
pub(in crate::verbs) struct OwnedRings {
    qp: QueuePair,
    send: AnySendRing,
    recv: AnyRecvRing,
    recv_cq: AnyCqRing,
    /// `None` if all requests complete on one queue.
    send_cq: Option<AnyCqRing>,
}

impl OwnedRings {
    /// Takes the rings of `qp`, which are returned when the value is dropped.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a ring was taken before.
    /// - [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) if the calling thread holds
    ///   one of the queues.
    /// - [`ErrorKind::NotOwner`](crate::ErrorKind::NotOwner) if the process forked or changed its
    ///   credentials.
    pub(in crate::verbs) fn take(qp: QueuePair) -> Result<Self> {
        qp.context().check_process(TAKE_QUEUES, || qp.subject())?;
        let recv_cq = qp.recv_cq().take_ring()?;
        let send_cq = match qp.send_cq() != qp.recv_cq() {
            true => qp.send_cq().take_ring().map(Some),
            false => Ok(None),
        };
        let taken = send_cq.and_then(|send_cq| match qp.take_work_rings() {
            Ok((send, recv)) => Ok((send, recv, send_cq)),
            Err(error) => {
                send_cq.into_iter().for_each(|ring| qp.send_cq().return_ring(ring));
                Err(error)
            }
        });
        match taken {
            Ok((send, recv, send_cq)) => Ok(Self { qp, send, recv, recv_cq, send_cq }),
            Err(error) => {
                qp.recv_cq().return_ring(recv_cq);
                Err(error)
            }
        }
    }

    #[inline(always)]
    pub(in crate::verbs) fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// Posts the request and rings the doorbell on the fast path, or returns `None` without posting
    /// it.
    ///
    /// The fast path requires that only the request has to be checked.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`SendQueueGuard::push`](super::SendQueueGuard::push).
    #[inline(always)]
    pub(in crate::verbs) unsafe fn try_post_send(
        &mut self,
        request: &SendRequest<'_>,
    ) -> Option<Result<()>> {
        let Self { qp, send, .. } = self;
        // SAFETY: the contract of this function is the contract of the callee; the ring is the send
        // queue of the queue pair.
        send.dispatch(unsafe { TryPost::new(qp, request) })
    }

    /// Stores a request of any kind in any state.
    ///
    /// [`ring_send`](Self::ring_send) posts the request.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of [`SendQueueGuard::push`](super::SendQueueGuard::push).
    #[cold]
    pub(in crate::verbs) unsafe fn store_send(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.qp.store_send(&mut self.send, request) }
    }

    /// Stores a bind of a memory window.
    ///
    /// [`ring_send`](Self::ring_send) posts the request.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of
    /// [`SendQueueGuard::bind_window`](super::SendQueueGuard::bind_window).
    pub(in crate::verbs) unsafe fn store_bind(&mut self, request: &BindRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.qp.store_bind(&mut self.send, request) }
    }

    /// Rings the doorbell for the requests that were stored.
    pub(in crate::verbs) fn ring_send(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_SEND, || self.qp.subject())?;
        self.qp.ring_send(&mut self.send)
    }

    /// Posts the request on the fast path, or returns `None` without posting it.
    ///
    /// The fast path requires that only the request has to be checked.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of
    /// [`ReceiveQueueGuard::push`](super::ReceiveQueueGuard::push).
    #[inline(always)]
    pub(in crate::verbs) unsafe fn try_post_recv(
        &mut self,
        request: &ReceiveRequest<'_>,
    ) -> Option<Result<()>> {
        let Self { qp, recv, .. } = self;
        // SAFETY: the contract of this function is the contract of the callee; the ring is the
        // receive queue of the queue pair.
        unsafe { qp.engine().try_store_recv(qp.context().engine(), recv, request) }
            .then(|| qp.flush_posted())
    }

    /// Stores a request of any kind in any state.
    ///
    /// [`ring_recv`](Self::ring_recv) posts the request.
    ///
    /// # Safety
    ///
    /// The caller fulfills the contract of
    /// [`ReceiveQueueGuard::push`](super::ReceiveQueueGuard::push).
    #[cold]
    pub(in crate::verbs) unsafe fn store_recv(
        &mut self,
        request: &ReceiveRequest<'_>,
    ) -> Result<()> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { self.qp.store_recv(&mut self.recv, request) }
    }

    /// Rings the doorbell for the requests that were stored.
    pub(in crate::verbs) fn ring_recv(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_RECV, || self.qp.subject())?;
        self.qp.ring_recv(&mut self.recv)
    }

    /// Takes completions of receives, and of sends if all requests complete on one queue.
    #[inline(always)]
    pub(in crate::verbs) fn poll_recv(&mut self, into: &mut [Completion]) -> Result<usize> {
        let cq = self.qp.recv_cq();
        poll(cq, cq.engine(), &mut self.recv_cq, into)
    }

    /// Takes completions of sends, or returns `None` if [`poll_recv`](Self::poll_recv) takes them.
    #[inline(always)]
    pub(in crate::verbs) fn poll_send(&mut self, into: &mut [Completion]) -> Option<Result<usize>> {
        let cq = self.qp.send_cq();
        self.send_cq.as_mut().map(|ring| poll(cq, cq.engine(), ring, into))
    }
}

const TAKE_QUEUES: &str = "take the queues of";

#[inline(always)]
fn poll(
    queue: &CompletionQueue,
    cq: &Cq,
    ring: &mut AnyCqRing,
    into: &mut [Completion],
) -> Result<usize> {
    let device = queue.context().engine();
    if !device.file().is_owner_fast() {
        queue.check_process()?;
    }
    cq.poll(device, ring, into).map_err(|error| queue.poll_error(error))
}

impl QueuePair {
    /// Takes the rings of the work queues.
    fn take_work_rings(&self) -> Result<(AnySendRing, AnyRecvRing)> {
        let deadlock_error = |HeldByThisThread| {
            self.deadlock_error(
                TAKE_QUEUES,
                "this thread holds the guard of a queue; drop the guard first",
            )
        };
        let mut send = self.inner.send.lock().map_err(deadlock_error)?;
        let mut recv = self.inner.receive.lock().map_err(deadlock_error)?;
        if let AnySendRing::Absent(reason) = &*send {
            return Err(Error::invalid(TAKE_QUEUES, self.subject(), *reason));
        }
        let send = mem::replace(&mut *send, AnySendRing::Absent(QUEUES_TAKEN));
        Ok((send, mem::replace(&mut *recv, AnyRecvRing::Absent(QUEUES_TAKEN))))
    }

    /// Returns an error of `operation` if the rings were taken.
    pub(in crate::verbs) fn check_has_rings(&self, operation: &'static str) -> Result<()> {
        match self.inner.send.try_lock().as_deref() {
            Some(AnySendRing::Absent(reason)) => {
                Err(Error::invalid(operation, self.subject(), *reason))
            }
            // Another thread is posting, so the rings were not taken.
            _ => Ok(()),
        }
    }
}

impl Drop for OwnedRings {
    fn drop(&mut self) {
        let Self { qp, send, recv, recv_cq, send_cq } = self;
        // In a forked child, a lock may never be released.
        if !qp.inner.object.is_owner() {
            return;
        }
        // No thread holds the lock of a taken ring for long. This thread does not hold it, because
        // it has no guard here.
        if let Ok(mut absent) = qp.inner.send.lock() {
            mem::swap(&mut *absent, send);
        }
        if let Ok(mut absent) = qp.inner.receive.lock() {
            mem::swap(&mut *absent, recv);
        }
        qp.recv_cq().return_ring(mem::replace(recv_cq, AnyCqRing::Absent(QUEUES_TAKEN)));
        if let Some(ring) = send_cq.take() {
            qp.send_cq().return_ring(ring);
        }
    }
}
