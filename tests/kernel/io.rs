//! Queue pair, completion queue and memory of one side, and the posting of requests over that memory.
//!
//! # Safety
//!
//! Requests name memory of [`Io`]'s own region only, by checked ranges. The region is destroyed only after the queue
//! pair. If another owner still holds the queue pair, the region is leaked. Its bytes are accessed by the region's
//! copying, which tolerates concurrent access by a device.
#![expect(unsafe_code, reason = "posts requests over memory that outlives their queue pair")]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice;

use rdmacm::Result;
use rdmacm::cm::CmId;
use rdmacm::verbs::{
    AccessFlags, BindRequest, Completion, CompletionChannel, CompletionQueue, MemoryRegion,
    Payload, ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit, ReceiveQueueGuard,
    ReceiveRequest, SendFlags, SendOperation, SendQueueGuard, SendRequest, Sge, WcStatus,
};

use crate::fixtures::LONG;

/// Contents of an [`Io`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) caps: QueuePairCaps,
    pub(crate) completions: u32,
    pub(crate) memory: usize,
    pub(crate) signal_all: bool,
    /// Access that the memory allows.
    pub(crate) access: AccessFlags,
}

impl Default for Shape {
    fn default() -> Self {
        let caps = QueuePairCaps { max_inline_data: 64, ..QueuePairCaps::default() };
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE
            | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE
            | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
        Self { caps, completions: 64, memory: 4096, signal_all: false, access }
    }
}

/// Objects for moving data.
#[derive(Debug)]
pub(crate) struct Io {
    qp: ManuallyDrop<QueuePair>,
    memory: ManuallyDrop<MemoryRegion>,
    cq: CompletionQueue,
    channel: CompletionChannel,
}

impl Io {
    /// Creates a queue pair of `id`, which must have a device.
    pub(crate) fn new(id: &CmId, shape: Shape) -> Self {
        Self::try_new(id, shape).expect("queue pair")
    }

    /// Creates a queue pair of `id`, unless its connection has ended.
    pub(crate) fn try_new(id: &CmId, shape: Shape) -> Result<Self> {
        Self::try_with(id, shape, |pd, init| id.create_qp(pd, init))
    }

    /// Creates the objects for moving data on the device of `id`, with a queue pair that `make` creates.
    pub(crate) fn with(
        id: &CmId,
        shape: Shape,
        make: impl FnOnce(&ProtectionDomain, &QueuePairInit<'_>) -> Result<QueuePair>,
    ) -> Self {
        Self::try_with(id, shape, make).expect("queue pair")
    }

    fn try_with(
        id: &CmId,
        shape: Shape,
        make: impl FnOnce(&ProtectionDomain, &QueuePairInit<'_>) -> Result<QueuePair>,
    ) -> Result<Self> {
        let context = id.context().expect("the id should have a device");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let channel = CompletionChannel::new(&context).expect("completion channel");
        let cq = CompletionQueue::new(&context, shape.completions, Some(&channel))
            .expect("completion queue");
        let Shape { caps, signal_all, .. } = shape;
        let init = QueuePairInit { caps, signal_all, ..QueuePairInit::new(&cq) };
        let qp = make(&pd, &init)?;
        let memory = MemoryRegion::alloc(&pd, shape.memory, shape.access).expect("memory region");
        let (qp, memory) = (ManuallyDrop::new(qp), ManuallyDrop::new(memory));
        Ok(Self { qp, memory, cq, channel })
    }

    pub(crate) fn qp(&self) -> &QueuePair {
        &self.qp
    }

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    pub(crate) fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    pub(crate) fn memory(&self) -> &MemoryRegion {
        &self.memory
    }

    /// Stores bytes in the memory.
    pub(crate) fn fill(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes).expect("the range should be within the memory");
    }

    /// Returns a part of the memory.
    pub(crate) fn bytes(&self, part: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; part.len()];
        self.memory.read(part.start, &mut bytes).expect("the range should be within the memory");
        bytes
    }

    /// Returns a write to the memory at `offset`, for the peer.
    pub(crate) fn written_at(&self, offset: u64) -> SendOperation<'static> {
        let remote_addr = self.memory.addr() + offset;
        SendOperation::Write { remote_addr, rkey: self.memory.rkey() }
    }

    /// Returns a read of the memory at `offset`, for the peer.
    pub(crate) fn read_at(&self, offset: u64) -> SendOperation<'static> {
        let remote_addr = self.memory.addr() + offset;
        SendOperation::Read { remote_addr, rkey: self.memory.rkey() }
    }

    /// Posts a receive into a part of the memory.
    pub(crate) fn receive(&self, wr_id: u64, part: Range<usize>) -> Result<()> {
        self.receive_into(wr_id, slice::from_ref(&part))
    }

    /// Posts a receive into parts of the memory.
    pub(crate) fn receive_into(&self, wr_id: u64, parts: &[Range<usize>]) -> Result<()> {
        // SAFETY: the request is over the memory, which lives until the queue pair is destroyed and is reached by copying only.
        self.with_receive(wr_id, parts, |request| unsafe { self.qp.post_recv(request) })
    }

    /// Posts a request over a part of the memory.
    pub(crate) fn post(
        &self,
        wr_id: u64,
        operation: SendOperation<'_>,
        part: Range<usize>,
        flags: SendFlags,
    ) -> Result<()> {
        self.post_parts(wr_id, operation, slice::from_ref(&part), flags)
    }

    /// Posts a request over parts of the memory.
    pub(crate) fn post_parts(
        &self,
        wr_id: u64,
        operation: SendOperation<'_>,
        parts: &[Range<usize>],
        flags: SendFlags,
    ) -> Result<()> {
        // SAFETY: as in `receive_into`.
        let post = |request: &SendRequest<'_>| unsafe { self.qp.post_send(request) };
        self.with_send(wr_id, operation, parts, flags, post)
    }

    /// Posts a send of scatter/gather entries with these lengths, which exceed the memory.
    pub(crate) fn post_too_much(&self, wr_id: u64, lengths: &[u32]) -> Result<()> {
        let sges = self.too_much(lengths);
        let (operation, flags) = (SendOperation::Send, SendFlags::SIGNALED);
        let payload = Payload::Gather(&sges);
        // SAFETY: as in `receive_into`; the device refuses memory that is not registered.
        unsafe { self.qp.post_send(&SendRequest { wr_id, operation, payload, flags }) }
    }

    /// Posts a receive into scatter/gather entries with these lengths, which exceed the memory.
    pub(crate) fn receive_too_much(&self, wr_id: u64, lengths: &[u32]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.qp.post_recv(&ReceiveRequest { wr_id, scatter: &self.too_much(lengths) }) }
    }

    fn too_much(&self, lengths: &[u32]) -> Vec<Sge> {
        let all =
            self.memory.sge(0..self.memory.len()).expect("the range should be within the memory");
        lengths.iter().map(|length| Sge { length: *length, ..all }).collect()
    }

    /// Posts a request that has no payload.
    pub(crate) fn post_bare(&self, wr_id: u64, operation: SendOperation<'_>) -> Result<()> {
        self.post_parts(wr_id, operation, &[], SendFlags::SIGNALED)
    }

    /// Posts a request that carries its bytes.
    pub(crate) fn post_inline(
        &self,
        wr_id: u64,
        operation: SendOperation<'_>,
        bytes: &[u8],
        flags: SendFlags,
    ) -> Result<()> {
        // SAFETY: the request names no memory.
        unsafe { self.qp.post_send(&inline(wr_id, operation, bytes, flags)) }
    }

    /// Pushes a request over parts of the memory.
    pub(crate) fn push_parts(
        &self,
        queue: &mut SendQueueGuard<'_>,
        wr_id: u64,
        operation: SendOperation<'_>,
        parts: &[Range<usize>],
        flags: SendFlags,
    ) -> Result<()> {
        // SAFETY: as in `receive_into`.
        let push = |request: &SendRequest<'_>| unsafe { queue.push(request) };
        self.with_send(wr_id, operation, parts, flags, push)
    }

    /// Pushes a receive into a part of the memory.
    pub(crate) fn push_receive(
        &self,
        queue: &mut ReceiveQueueGuard<'_>,
        wr_id: u64,
        part: Range<usize>,
    ) -> Result<()> {
        // SAFETY: as in `receive_into`.
        self.with_receive(wr_id, &[part], |request| unsafe { queue.push(request) })
    }

    /// Gives `post` a request over parts of the memory.
    fn with_send(
        &self,
        wr_id: u64,
        operation: SendOperation<'_>,
        parts: &[Range<usize>],
        flags: SendFlags,
        post: impl FnOnce(&SendRequest<'_>) -> Result<()>,
    ) -> Result<()> {
        let sges = self.sges(parts);
        post(&SendRequest { wr_id, operation, payload: Payload::Gather(&sges), flags })
    }

    /// Gives `post` a receive into parts of the memory.
    fn with_receive(
        &self,
        wr_id: u64,
        parts: &[Range<usize>],
        post: impl FnOnce(&ReceiveRequest<'_>) -> Result<()>,
    ) -> Result<()> {
        post(&ReceiveRequest { wr_id, scatter: &self.sges(parts) })
    }

    fn sges(&self, parts: &[Range<usize>]) -> Vec<Sge> {
        let sge = |part: &Range<usize>| {
            self.memory.sge(part.clone()).expect("the range should be within the memory")
        };
        parts.iter().map(sge).collect()
    }

    /// Waits for the next completion, and returns it.
    pub(crate) fn next(&self) -> Completion {
        let mut completion = [Completion::default()];
        let came = self.cq.wait_timeout(&mut completion, LONG).expect("wait for a completion");
        assert_eq!(came, 1, "a completion within {LONG:?}");
        completion[0]
    }

    /// Returns the next completion, which must be the success of `wr_id`.
    #[track_caller]
    pub(crate) fn done(&self, wr_id: u64) -> Completion {
        let completion = self.next();
        assert_eq!(completion.status(), WcStatus::IB_WC_SUCCESS, "{completion:?}");
        assert_eq!(completion.wr_id(), wr_id);
        completion
    }

    /// Polls once. Returns a completion, if there is one.
    pub(crate) fn polled(&self) -> Option<Completion> {
        let mut completion = [Completion::default()];
        match self.cq.poll(&mut completion).expect("poll") {
            0 => None,
            _ => Some(completion[0]),
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        // SAFETY: the field is taken once, here, and the object is not used after it.
        let qp = unsafe { ManuallyDrop::take(&mut self.qp) };
        if qp.destroy().is_ok() {
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Pushes a request that carries its bytes.
pub(crate) fn push_inline(
    queue: &mut SendQueueGuard<'_>,
    wr_id: u64,
    operation: SendOperation<'_>,
    bytes: &[u8],
    flags: SendFlags,
) -> Result<()> {
    // SAFETY: the request names no memory.
    unsafe { queue.push(&inline(wr_id, operation, bytes, flags)) }
}

/// Returns a request that carries its bytes.
fn inline<'a>(
    wr_id: u64,
    operation: SendOperation<'a>,
    bytes: &'a [u8],
    flags: SendFlags,
) -> SendRequest<'a> {
    SendRequest { wr_id, operation, payload: Payload::Inline(bytes), flags }
}

/// Posts a request that has no payload to a queue pair without [`Io`].
pub(crate) fn post_nothing(qp: &QueuePair, wr_id: u64, operation: SendOperation<'_>) -> Result<()> {
    let (payload, flags) = (Payload::Gather(&[]), SendFlags::SIGNALED);
    // SAFETY: the request has no payload.
    unsafe { qp.post_send(&SendRequest { wr_id, operation, payload, flags }) }
}

/// Posts a request that binds a window, to a queue pair without [`Io`].
pub(crate) fn post_bind(qp: &QueuePair, request: &BindRequest<'_>) -> Result<()> {
    // SAFETY: the region owns its memory, and stays registered while the window may be bound to it.
    unsafe { qp.bind_window(request) }
}

/// Posts a receive without memory.
pub(crate) fn receive_nothing(qp: &QueuePair, wr_id: u64) -> Result<()> {
    // SAFETY: the request names no memory.
    unsafe { qp.post_recv(&ReceiveRequest { wr_id, scatter: &[] }) }
}
