//! An id with its queue pair, and the memory of its messages.
//!
//! # Safety
//!
//! Posting passes memory to the device. The memory is in the region that the [`Endpoint`] owns; the region is dropped
//! after the id and the queue pair, and the program does not access its bytes.
#![expect(unsafe_code, reason = "posts work requests")]

use rdmacm::cm::CmId;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, QueuePair, ReceiveRequest,
    SendFlags, SendOperation, SendRequest,
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
        self.post(Payload::Gather(&gather))
    }

    /// Posts a send of `bytes` as inline data.
    pub(crate) fn send_inline(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.post(Payload::Inline(bytes))
    }

    fn post(&self, payload: Payload<'_>) -> Result<(), Failure> {
        let (operation, flags) = (SendOperation::Send, SendFlags::empty());
        let request = SendRequest { wr_id: 0, operation, payload, flags };
        // SAFETY: inline data is copied; the region is allocated and registered until it is dropped, which is after the
        // queue pair is destroyed, and the program does not access its bytes.
        unsafe { self.qp.post_send(&request) }?;
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
            Err(Failure::new(format!("cannot complete a work request: {}", done.status())))
        }
    }
}
