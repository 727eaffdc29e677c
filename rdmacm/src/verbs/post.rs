//! Work requests, and posting them.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device, hence `unsafe`, with the contract at the
//! methods. Nothing else here is.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use bitflags::bitflags;
pub use verbs_abi::ib_uverbs_sge as Sge;

use super::address_handle::Destination;
use super::completion::CompletionQueue;
use super::exclusive::{Held, HeldHere};
use super::queue_pair::QueuePair;
use super::srq::SharedReceiveQueue;
use super::{QpState, QpType};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;
use crate::provider::{PostError, ReceiveRing, SendRing};

/// A request to a send queue.
#[doc(alias = "ibv_send_wr")]
#[derive(Debug, Clone, Copy)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub operation: SendOperation<'a>,
    /// With which local memory.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
}

/// What a send request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOperation<'a> {
    /// Sends a message into the peer's next receive.
    Send,
    /// Sends a datagram: the one operation of queue pairs for datagrams, and of no others. Its
    /// payload fits into the MTU of the path.
    SendTo {
        /// To whom.
        destination: Destination<'a>,
        /// A number that comes with the peer's completion.
        #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
        imm_data: Option<u32>,
    },
    /// Writes to the peer's memory.
    Write {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Reads from the peer's memory.
    Read {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
}

/// The local memory of a request.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Registered memory, gathered (or, reading, scattered) in this order. The device uses it until
    /// the request completes.
    Gather(&'a [Sge]),
    /// Bytes that are copied into the request: free for use as soon as the post returns. Not for
    /// reads.
    #[doc(alias = "IBV_SEND_INLINE")]
    Inline(&'a [u8]),
}

/// A request to a receive queue.
#[doc(alias = "ibv_recv_wr")]
#[derive(Debug, Clone, Copy)]
pub struct ReceiveRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Registered memory that the message is scattered to, in this order.
    pub scatter: &'a [Sge],
}

bitflags! {
    /// How to carry out a send request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Not before the reads and atomics ahead of it are done.
        #[doc(alias = "IBV_SEND_FENCE")]
        const FENCE = 1;
        /// Success makes a completion too; without it only failure does.
        #[doc(alias = "IBV_SEND_SIGNALED")]
        const SIGNALED = 1 << 1;
        /// The peer's completion is one that its arming for solicited ones sees.
        #[doc(alias = "IBV_SEND_SOLICITED")]
        const SOLICITED = 1 << 2;
    }
}

/// The send queue of a queue pair, for one thread until it is dropped: for many posts with one lock,
/// and for lists of them with one doorbell.
///
/// Of [`QueuePair::send_queue`]. Threads that post to the same queue meanwhile wait for it, and have
/// their turn whenever this one rings. Nothing else waits: the state of the queue pair can be
/// changed and its completions polled. It cannot leave the thread that took it.
///
/// Dropping it rings for what was pushed, where an error would be lost.
#[derive(Debug)]
pub struct SendQueue<'a> {
    qp: &'a QueuePair,
    ring: Held<'a, SendRing>,
}

/// The receive queue of a queue pair, for one thread until it is dropped: as [`SendQueue`].
///
/// Of [`QueuePair::receive_queue`]. The device may fill what is pushed at once;
/// [`ring`](Self::ring) is for a queue pair that went to ERR meanwhile.
#[derive(Debug)]
pub struct ReceiveQueue<'a> {
    qp: &'a QueuePair,
    ring: Held<'a, ReceiveRing>,
    /// Something was pushed since it was last rung for.
    pushed: bool,
}

const POST_SEND: &str = "post a send to";
const POST_RECV: &str = "post a receive to";

impl QueuePair {
    /// The send queue, for this thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where this thread has it already; [`ErrorKind::WrongProcess`]
    /// after a fork.
    pub fn send_queue(&self) -> Result<SendQueue<'_>> {
        self.context().check_process(POST_SEND, || self.subject())?;
        match self.inner.send.hold() {
            Ok(ring) => Ok(SendQueue { qp: self, ring }),
            Err(HeldHere) => Err(self.held(POST_SEND, "it has the send queue; drop that first")),
        }
    }

    /// The receive queue, for this thread.
    ///
    /// # Errors
    ///
    /// Those of [`send_queue`](Self::send_queue).
    pub fn receive_queue(&self) -> Result<ReceiveQueue<'_>> {
        self.context().check_process(POST_RECV, || self.subject())?;
        match self.inner.receive.hold() {
            Ok(ring) => Ok(ReceiveQueue { qp: self, ring, pushed: false }),
            Err(HeldHere) => Err(self.held(POST_RECV, "it has the receive queue; drop that first")),
        }
    }

    /// Posts a send request: [`SendQueue::post`] on a [`send_queue`](Self::send_queue) of its own.
    ///
    /// # Safety
    ///
    /// That of [`SendQueue::push`].
    ///
    /// # Errors
    ///
    /// Those of [`send_queue`](Self::send_queue), [`SendQueue::push`] and [`SendQueue::ring`].
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "rdma_post_send")]
    #[doc(alias = "rdma_post_sendv")]
    #[doc(alias = "rdma_post_ud_send")]
    #[doc(alias = "rdma_post_read")]
    #[doc(alias = "rdma_post_readv")]
    #[doc(alias = "rdma_post_write")]
    #[doc(alias = "rdma_post_writev")]
    pub unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<()> {
        let mut queue = self.send_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.post(request) }
    }

    /// Posts a receive request to the queue pair's own receive queue: [`ReceiveQueue::post`] on a
    /// [`receive_queue`](Self::receive_queue) of its own. What is for a [shared](QueuePair::srq) one
    /// is [posted to that](SharedReceiveQueue::post_recv).
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
        let mut queue = self.receive_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.post(request) }
    }

    /// That the queue pair is one for `operation`: the kernel finds out only when it carries the
    /// request out, and ends the queue pair.
    #[inline]
    fn check_operation(&self, operation: SendOperation<'_>) -> Result<(), &'static str> {
        let datagrams = self.qp_type() == QpType::IB_UVERBS_QPT_UD;
        match operation {
            SendOperation::SendTo { .. } if !datagrams => {
                Err("it is connected, and sends to its peer only")
            }
            SendOperation::SendTo { destination, .. } if destination.address.pd() != self.pd() => {
                Err("the address handle is of another protection domain")
            }
            SendOperation::SendTo { .. } => Ok(()),
            _ if datagrams => Err("it is for datagrams, which need a destination"),
            _ => Ok(()),
        }
    }

    /// That a request to a queue pair in `state` finds a place among those that the library
    /// completes on `cq`, if it is to be one of them.
    #[inline]
    fn check_leftovers(&self, state: QpState, cq: &CompletionQueue) -> Result<(), PostError> {
        let left = state == QpState::IB_QPS_ERR && self.inner.send_leftovers.is_some();
        match left && !cq.may_flush() {
            true => Err(PostError::Unpolled),
            false => Ok(()),
        }
    }

    #[cold]
    fn held(&self, operation: &'static str, how: &'static str) -> Error {
        Error::new(operation, self.subject(), ErrorKind::WouldDeadlock(how))
    }

    #[cold]
    fn refused(&self, operation: &'static str, error: PostError) -> Error {
        error.during(self.context(), operation, self.subject())
    }
}

impl SharedReceiveQueue {
    /// Posts a receive request.
    ///
    /// Stores the request in the ring that the kernel shares; no system call. A completion follows
    /// with the message that it receives, on the completion queue of the queue pair that took it.
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
    /// the queue does not hold; [`ErrorKind::WrongProcess`] after a fork. Nothing is posted then.
    #[doc(alias = "ibv_post_srq_recv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        const OPERATION: &str = "post a receive to";
        self.context().check_process(OPERATION, || self.subject())?;
        // SAFETY: the contract of this function is that of the callee.
        let posted = unsafe { unpoisoned(self.inner.receive.lock()).store(request) };
        posted.map_err(|error| error.during(self.context(), OPERATION, self.subject()))
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
    /// A [`Payload::Inline`] asks for nothing. Memory of peers is what the rights that they granted
    /// protect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold or has no way to carry out, or in a state before RTS;
    /// [`ErrorKind::WrongProcess`] after a fork. This request is not posted then; those pushed
    /// before it are.
    #[inline]
    pub unsafe fn push(&mut self, request: &SendRequest<'_>) -> Result<()> {
        let QueuePair { inner } = self.qp;
        self.qp.context().check_process(POST_SEND, || self.qp.subject())?;
        let state = self.qp.state();
        let stored = self
            .qp
            .check_operation(request.operation)
            .map_err(|reason| PostError::Invalid(reason.into()))
            .and_then(|()| self.qp.check_leftovers(state, &inner.send_cq))
            .and_then(|()| {
                // SAFETY: the contract of this function is that of the callee.
                unsafe { self.ring.get().store(self.qp.doorbell(), state, request) }
            });
        stored.map_err(|error| self.qp.refused(POST_SEND, error))
    }

    /// Has the device look at what was pushed since the last time.
    ///
    /// `IB_USER_VERBS_CMD_POST_SEND` as a doorbell; on siw not where the kernel is on its way.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`] after a fork. On siw [`ErrorKind::Invalid`] for a read on a
    /// connection that was made without, which only the doorbell tells: it and those pushed behind
    /// it, of which the error says the number, are not posted. Any other error is that of the
    /// doorbell (ENOMEM from the kernel, [`ErrorKind::DeviceGone`]): what was pushed stands in the
    /// queue and may be carried out with what comes next, so that the obligations of
    /// [`push`](Self::push) hold.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_SEND, || self.qp.subject())?;
        self.send_off()?;
        self.ring.give_way();
        Ok(())
    }

    #[inline]
    fn send_off(&mut self) -> Result<()> {
        let QueuePair { inner } = self.qp;
        let rung = self.ring.get().ring(self.qp.doorbell());
        rung.map_err(|error| self.qp.refused(POST_SEND, error))?;
        // The doorbell flushes where the driver does.
        if inner.send_leftovers.is_some() { self.qp.settle() } else { Ok(()) }
    }

    /// Posts a send request: [`push`](Self::push) and [`ring`](Self::ring).
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// Those of [`push`](Self::push) and [`ring`](Self::ring).
    #[inline]
    pub unsafe fn post(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.push(request) }?;
        self.ring()
    }
}

impl Drop for SendQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.send_off();
        }
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
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold; [`ErrorKind::WrongProcess`] after a fork. This request is not
    /// posted then; those pushed before it are.
    #[inline]
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        self.qp.context().check_process(POST_RECV, || self.qp.subject())?;
        let state = self.qp.state();
        let ring = self.ring.get();
        let stored = ring
            .check(state)
            .and_then(|()| self.qp.check_leftovers(state, &self.qp.inner.recv_cq))
            .and_then(|()| {
                // SAFETY: the contract of this function is that of the callee.
                unsafe { ring.store(request) }
            });
        stored.map_err(|error| self.qp.refused(POST_RECV, error))?;
        self.pushed = true;
        Ok(())
    }

    /// Sees to what was pushed since the last time.
    ///
    /// No system call while receives are to be had. Of a request to a queue pair that is in ERR rxe
    /// must be told (`IB_USER_VERBS_CMD_MODIFY_QP`) for it to come back, and on siw the library
    /// completes it; of one that failed by itself the library knows only after a
    /// [`disconnect`](crate::cm::CmId::disconnect) or [`modify`](QueuePair::modify), and on siw after
    /// the event that tells of the end of the connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`] after a fork. Any other error is that of telling rxe
    /// ([`ErrorKind::DeviceGone`]): the requests stand in the queue, so that the obligations of
    /// [`push`](Self::push) hold.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_RECV, || self.qp.subject())?;
        self.settle()?;
        self.ring.give_way();
        Ok(())
    }

    #[inline]
    fn settle(&mut self) -> Result<()> {
        if std::mem::take(&mut self.pushed) { self.qp.settle() } else { Ok(()) }
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
    #[inline]
    pub unsafe fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.push(request) }?;
        self.ring()
    }
}

impl Drop for ReceiveQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.settle();
        }
    }
}
