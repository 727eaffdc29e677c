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
use super::queue_pair::QueuePair;
use super::srq::SharedReceiveQueue;
use super::{QpState, QpType};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::lock::unpoisoned;
use crate::provider::PostError;
use crate::transition;

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

impl QueuePair {
    /// Posts a send request.
    ///
    /// Stores the request in the ring that the kernel shares; `IB_USER_VERBS_CMD_POST_SEND` as a
    /// doorbell. A completion follows if the request is signalled or fails.
    ///
    /// On siw it may take a while where the kernel has moved the queue pair to ERR by itself, as it
    /// does when the peer ends the connection: it takes the doorbell and does nothing, as it does
    /// while it is busy, and the library cannot tell which. The request comes back when the event
    /// that tells of the end of the connection is read from the id's channel, and one that is posted
    /// later comes back at once. So while a thread waits for a completion, another one reads the
    /// channel; of a synchronous id, whose events nobody reads, the request comes back with
    /// [`disconnect`](crate::cm::CmId::disconnect), and of a queue pair that is no id's own with a
    /// [`modify`](Self::modify) to ERR.
    ///
    /// # Safety
    ///
    /// Until the request has completed (an unsignalled one: until a later one of the queue has), or
    /// the queue pair is destroyed, the memory that a
    /// [`Payload::Gather`](super::Payload::Gather) names by its addresses and keys
    /// - stays allocated and registered;
    /// - is not written, and for a read neither written nor read, except in ways that cope with a
    ///   device doing the same.
    ///
    /// A [`Payload::Inline`](super::Payload::Inline) asks for nothing. Memory of peers is what the
    /// rights that they granted protect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold or has no way to carry out, or in a state before RTS; [`ErrorKind::WrongProcess`] after a
    /// fork. Nothing is posted then. Any other error is that of the doorbell (ENOMEM from the
    /// kernel, [`ErrorKind::DeviceGone`]): the request stands in the queue and may be carried out
    /// with the next one, so that the obligations above hold.
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "rdma_post_send")]
    #[doc(alias = "rdma_post_sendv")]
    #[doc(alias = "rdma_post_ud_send")]
    #[doc(alias = "rdma_post_read")]
    #[doc(alias = "rdma_post_readv")]
    #[doc(alias = "rdma_post_write")]
    #[doc(alias = "rdma_post_writev")]
    pub unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<()> {
        const OPERATION: &str = "post a send to";
        self.context().check_process(OPERATION, || self.subject())?;
        self.check_operation(request.operation)
            .map_err(|reason| self.refused(OPERATION, PostError::Invalid(reason.into())))?;
        let mut ring = unpoisoned(self.inner.send.lock());
        let (context, handle, state) = (self.context(), self.inner.object.handle(), self.state());
        // SAFETY: the contract of this function is that of the callee.
        let posted = unsafe { ring.post(context, handle, state, request) };
        self.posted(posted, &self.inner.send_cq, request.wr_id)
            .map_err(|error| self.refused(OPERATION, error))
    }

    /// Posts a receive request to the queue pair's own receive queue; what is for a
    /// [shared](QueuePair::srq) one is [posted to that](SharedReceiveQueue::post_recv).
    ///
    /// Stores the request in the ring that the kernel shares; no system call. A completion follows
    /// with the message that the request receives, or when the queue pair goes to ERR. Of a request
    /// to one that is in ERR already rxe must be told (`IB_USER_VERBS_CMD_MODIFY_QP`) for it to come
    /// back, and on siw the library completes it; of one that failed by itself the library knows
    /// only after a [`disconnect`](crate::cm::CmId::disconnect) or [`modify`](Self::modify), and on
    /// siw after the event that tells of the end of the connection.
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
    /// the queue pair does not hold, and where it has no receive queue of its own;
    /// [`ErrorKind::WrongProcess`] after a fork. Nothing is posted then. Any other error is that of telling rxe ([`ErrorKind::DeviceGone`]): the request stands
    /// in the queue, so that the obligations above hold.
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_post_recvv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        const OPERATION: &str = "post a receive to";
        self.context().check_process(OPERATION, || self.subject())?;
        let mut ring = unpoisoned(self.inner.receive.lock());
        let state = self.state();
        let posted = ring.check(state).and_then(|()| {
            // SAFETY: the contract of this function is that of the callee.
            unsafe { ring.post(request) }
        });
        let unseen = state == QpState::IB_QPS_ERR && ring.flushes_on_modify_only();
        drop(ring);
        self.posted(posted, &self.inner.recv_cq, request.wr_id)
            .map_err(|error| self.refused(OPERATION, error))?;
        if unseen {
            self.modify(&transition::state_only(state))?;
        }
        Ok(())
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

    /// Completes what the driver does not.
    #[inline]
    fn posted(
        &self,
        posted: Result<(), PostError>,
        cq: &CompletionQueue,
        wr_id: u64,
    ) -> Result<(), PostError> {
        match posted {
            Err(PostError::Flushed) if cq.may_flush() => {
                cq.flush(self.pd(), self.inner.number, &[wr_id]);
                Ok(())
            }
            posted => posted,
        }
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
        let posted = unsafe { unpoisoned(self.inner.receive.lock()).post(request) };
        posted.map_err(|error| error.during(self.context(), OPERATION, self.subject()))
    }
}
