//! An id with its queue pair, and the memory that messages are sent from and received in.
//!
//! # Safety
//!
//! Posting gives memory to the device. It is memory of the region that the [`Endpoint`] owns, which goes
//! after id and queue pair are gone, and whose bytes nobody looks at.
#![expect(unsafe_code, reason = "posts work requests")]

use rdmacm::cm::CmId;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, QueuePair, ReceiveRequest,
    SendFlags, SendOperation, SendRequest,
};

use crate::failure::{Failure, waited};

pub(crate) struct Endpoint {
    // Fields are dropped in this order: the id lets go of the queue pair, which then has no other owner.
    pub(crate) id: CmId,
    qp: QueuePair,
    memory: Option<MemoryRegion>,
}

impl Endpoint {
    /// Takes an id and its queue pair, for messages of `size` bytes.
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

    /// Returns `true` if the queue pair carries `bytes` in a request.
    pub(crate) fn has_inline(&self, bytes: u32) -> bool {
        self.qp.caps().max_inline_data >= bytes
    }

    /// Posts a receive.
    pub(crate) fn receive(&self) -> Result<(), Failure> {
        let scatter: Vec<_> =
            self.memory.iter().map(|memory| memory.sge(..)).collect::<Result<_, _>>()?;
        // SAFETY: the region is allocated and registered until it is dropped, which is after the queue pair is destroyed;
        // nothing reads or writes its bytes.
        unsafe { self.qp.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        Ok(())
    }

    /// Posts a send.
    pub(crate) fn send(&self) -> Result<(), Failure> {
        let gather: Vec<_> =
            self.memory.iter().map(|memory| memory.sge(..)).collect::<Result<_, _>>()?;
        self.post(Payload::Gather(&gather))
    }

    /// Posts a send of `bytes`, which are in the request.
    pub(crate) fn send_inline(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.post(Payload::Inline(bytes))
    }

    fn post(&self, payload: Payload<'_>) -> Result<(), Failure> {
        let (operation, flags) = (SendOperation::Send, SendFlags::empty());
        let request = SendRequest { wr_id: 0, operation, payload, flags };
        // SAFETY: bytes in the request are copied; the region is allocated and registered until it is dropped, which is after
        // the queue pair is destroyed, and nothing reads or writes its bytes.
        unsafe { self.qp.post_send(&request) }?;
        Ok(())
    }
}

/// Sleeps until a completion is there.
pub(crate) fn wait(cq: &CompletionQueue) -> Result<(), Failure> {
    let mut done = [Completion::default()];
    waited(|| cq.wait(&mut done))?;
    check(&done)
}

/// Polls once: the number of completions that were there.
pub(crate) fn polled(cq: &CompletionQueue) -> Result<usize, Failure> {
    let mut done = [Completion::default(); 8];
    let polled = cq.poll(&mut done)?;
    check(&done[..polled])?;
    Ok(polled)
}

/// That all of them went well.
#[inline]
pub(crate) fn check(done: &[Completion]) -> Result<(), Failure> {
    match done.iter().find(|done| !done.is_success()) {
        None => Ok(()),
        Some(done) => Err(Failure::because(format!("a request failed: {}", done.status()))),
    }
}
