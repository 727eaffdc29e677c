//! An id with its queue pair, and the memory of its messages.
//!
//! # Safety
//!
//! Posting passes memory to the device. The memory is in the region that the [`Endpoint`] or [`SharedEndpoint`] owns; the
//! region is dropped after the id and the queue to which it is posted, and the program does not access its bytes.
#![expect(unsafe_code, reason = "posts work requests")]

use rdmacm::ErrorKind;
use rdmacm::cm::CmId;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, QueuePair, ReceiveRequest,
    SendFlags, SendOperation, SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes,
};

use crate::failure::{Failure, retry_interrupted};

pub(crate) struct Endpoint {
    // Fields drop in this order: the id releases the queue pair, which then has no other owner.
    pub(crate) id: CmId,
    qp: QueuePair,
    memory: Option<MemoryRegion>,
}

impl Endpoint {
    /// Creates an endpoint of an id and its queue pair, for messages of `size` bytes.
    pub(crate) fn new(id: CmId, qp: QueuePair, size: usize) -> Result<Self, Failure> {
        let local = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let alloc = |size| MemoryRegion::alloc(qp.pd(), size, local);
        let memory = (size > 0).then(|| alloc(size)).transpose()?;
        Ok(Self { id, qp, memory })
    }

    pub(crate) fn send_cq(&self) -> &CompletionQueue {
        self.qp.send_cq()
    }

    pub(crate) fn recv_cq(&self) -> &CompletionQueue {
        self.qp.recv_cq()
    }

    /// Returns `true` if the queue pair supports `bytes` of inline data.
    pub(crate) fn has_inline(&self, bytes: u32) -> bool {
        self.qp.caps().max_inline_data >= bytes
    }

    /// Posts a receive.
    pub(crate) fn receive(&self) -> Result<(), Failure> {
        let scatter: Vec<_> =
            self.memory.iter().map(|memory| memory.sge(..)).collect::<Result<_, _>>()?;
        // SAFETY: the region is allocated and registered until it is dropped, which is after the queue pair is
        // destroyed; the program does not access its bytes.
        unsafe { self.qp.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        Ok(())
    }

    /// Posts a send.
    pub(crate) fn send(&self) -> Result<(), Failure> {
        let gather: Vec<_> =
            self.memory.iter().map(|memory| memory.sge(..)).collect::<Result<_, _>>()?;
        self.post(SendOperation::Send, Payload::Gather(&gather))
    }

    /// Posts a send of `bytes` as inline data.
    pub(crate) fn send_inline(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.post(SendOperation::Send, Payload::Inline(bytes))
    }

    /// Posts a send of `bytes` to the peer's shared receive queue of that number (XRC).
    ///
    /// The bytes are inline data. Only mlx5 sends to such queues, and it always supports inline data.
    pub(crate) fn send_inline_to(&self, srq_number: u32, bytes: &[u8]) -> Result<(), Failure> {
        let operation = &SendOperation::Send;
        self.post(SendOperation::AtSharedQueue { srq_number, operation }, Payload::Inline(bytes))
    }

    fn post(&self, operation: SendOperation<'_>, payload: Payload<'_>) -> Result<(), Failure> {
        let request = SendRequest { wr_id: 0, operation, payload, flags: SendFlags::empty() };
        // SAFETY: inline data is copied; the region is allocated and registered until it is dropped, which is after the
        // queue pair is destroyed, and the program does not access its bytes.
        unsafe { self.qp.post_send(&request) }?;
        Ok(())
    }
}

/// An id with an XRC target and a shared receive queue, which holds one receive.
pub(crate) struct SharedEndpoint {
    // Fields drop in this order: the id releases the queue, which then has no other owner.
    pub(crate) id: CmId,
    srq: SharedReceiveQueue,
    memory: MemoryRegion,
}

impl SharedEndpoint {
    /// Creates the shared receive queue of an id, for messages of `size` bytes.
    pub(crate) fn new(id: CmId, size: usize) -> Result<Self, Failure> {
        let one = SharedReceiveQueueAttributes { max_wr: 1, ..Default::default() };
        let srq = id.create_xrc_srq(None, None, None, one)?;
        let local = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let memory = MemoryRegion::alloc(srq.pd(), size, local)?;
        Ok(Self { id, srq, memory })
    }

    /// Returns the number by which the peer names the queue.
    pub(crate) fn srq_number(&self) -> u32 {
        self.srq.number().expect("a queue in an XRC domain should have a number")
    }

    pub(crate) fn recv_cq(&self) -> &CompletionQueue {
        self.srq.cq().expect("a queue in an XRC domain should have a completion queue")
    }

    /// Posts a receive.
    pub(crate) fn receive(&self) -> Result<(), Failure> {
        let scatter = [self.memory.sge(..)?];
        // SAFETY: the region is allocated and registered until it is dropped, which is after the queue is destroyed; the
        // program does not access its bytes.
        unsafe { self.srq.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        Ok(())
    }
}

/// Waits for a completion.
pub(crate) fn wait(cq: &CompletionQueue) -> Result<(), Failure> {
    let mut done = [Completion::default()];
    retry_interrupted(|| cq.wait(&mut done))?;
    check_status(&done)
}

/// Polls once. Returns the number of completions.
pub(crate) fn poll(cq: &CompletionQueue) -> Result<usize, Failure> {
    let mut done = [Completion::default(); 8];
    let polled = cq.poll(&mut done)?;
    check_status(&done[..polled])?;
    Ok(polled)
}

/// Returns an error if one of the completions has failed.
#[inline]
pub(crate) fn check_status(done: &[Completion]) -> Result<(), Failure> {
    match done.iter().find(|done| !done.is_success()) {
        None => Ok(()),
        Some(done) => {
            let kind = ErrorKind::WorkRequestFailed(done.status());
            Err(Failure::new(format!("cannot exchange data: {kind}")))
        }
    }
}
