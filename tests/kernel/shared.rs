//! A shared receive queue with the memory that is posted to it, and connections that receive from it.
//!
//! # Safety
//!
//! Requests name memory of [`Shared`]'s own region only, by checked ranges. The region is destroyed only after the
//! queue. If another owner still holds the queue, the region is leaked. Its bytes are accessed by the region's copying,
//! which tolerates concurrent access by a device.
#![expect(unsafe_code, reason = "posts requests over memory that outlives their queue")]

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ops::Range;

use rdmacm::Result;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType};
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, Context, MemoryRegion,
    ProtectionDomain, QueuePairInit, ReceiveRequest, Sge, SharedReceiveQueue,
    SharedReceiveQueueAttributes, WcStatus, XrcDomain,
};

use crate::fixtures::{Side, listen, request, resolve};
use crate::io::{Io, Shape};
use crate::manual_qp::ACCESS;

/// A shared receive queue, its memory, and a completion queue for the queue pairs that receive from it.
#[derive(Debug)]
pub(crate) struct Shared {
    queue: ManuallyDrop<SharedReceiveQueue>,
    memory: ManuallyDrop<MemoryRegion>,
    pub(crate) cq: CompletionQueue,
}

impl Shared {
    /// Creates the objects on the device of `id`, in a separate protection domain.
    pub(crate) fn new(id: &CmId, max_wr: u32) -> Self {
        let context = id.context().expect("the id should have a device");
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let attributes = SharedReceiveQueueAttributes { max_wr, max_sge: 2, ..Default::default() };
        Self::with(&context, access, |pd, _| SharedReceiveQueue::new(pd, attributes))
    }

    /// Creates the objects in an XRC domain. Peers may access the memory.
    pub(crate) fn in_domain(domain: &XrcDomain, max_wr: u32) -> Self {
        let access = ACCESS | AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let attributes = SharedReceiveQueueAttributes { max_wr, max_sge: 2, ..Default::default() };
        Self::with(domain.context(), access, |pd, cq| {
            SharedReceiveQueue::with_xrc_domain(domain, pd, cq, attributes)
        })
    }

    /// Creates the objects for an id whose queue pair is an XRC target. Peers may access the memory.
    pub(crate) fn of_target_id(id: &CmId, max_wr: u32) -> Self {
        let context = id.context().expect("the id should have a device");
        let access = ACCESS | AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let attributes = SharedReceiveQueueAttributes { max_wr, max_sge: 2, ..Default::default() };
        Self::with(&context, access, |pd, cq| {
            id.create_xrc_srq(None, Some(pd), Some(cq), attributes)
        })
    }

    fn with(
        context: &Context,
        access: AccessFlags,
        make: impl FnOnce(&ProtectionDomain, &CompletionQueue) -> Result<SharedReceiveQueue>,
    ) -> Self {
        let pd = ProtectionDomain::new(context).expect("protection domain");
        let channel = CompletionChannel::new(context).expect("completion channel");
        let cq = CompletionQueue::new(context, 64, Some(&channel)).expect("completion queue");
        let queue = make(&pd, &cq).expect("shared receive queue");
        let memory = MemoryRegion::alloc(&pd, 4096, access).expect("memory region");
        Self { queue: ManuallyDrop::new(queue), memory: ManuallyDrop::new(memory), cq }
    }

    pub(crate) fn memory(&self) -> &MemoryRegion {
        &self.memory
    }

    pub(crate) fn queue(&self) -> &SharedReceiveQueue {
        &self.queue
    }

    /// Posts a receive into a part of the memory.
    pub(crate) fn receive(&self, wr_id: u64, part: Range<usize>) -> Result<()> {
        let scatter = [self.memory.sge(part).expect("the range should be within the memory")];
        // SAFETY: the entry refers to the memory, which lives until the queue is destroyed and is reached by copying only.
        unsafe { self.queue.post_recv(&ReceiveRequest { wr_id, scatter: &scatter }) }
    }

    /// Posts receives into parts of the memory as one list. Returns the number of posted receives, and the result.
    pub(crate) fn receive_list(&self, list: &[(u64, Range<usize>)]) -> (usize, Result<()>) {
        let mut queue = match self.queue.lock_receive_queue() {
            Ok(queue) => queue,
            Err(error) => return (0, Err(error)),
        };
        for (count, (wr_id, part)) in list.iter().enumerate() {
            let scatter =
                [self.memory.sge(part.clone()).expect("the range should be within the memory")];
            // SAFETY: as in `receive`.
            let pushed =
                unsafe { queue.push(&ReceiveRequest { wr_id: *wr_id, scatter: &scatter }) };
            if pushed.is_err() {
                return (count, pushed);
            }
        }
        (list.len(), queue.ring_doorbell())
    }

    /// Returns a part of the memory.
    pub(crate) fn bytes(&self, part: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; part.len()];
        self.memory.read(part.start, &mut bytes).expect("the range should be within the memory");
        bytes
    }

    /// Waits for the next completion, which must be successful, and returns it.
    #[track_caller]
    pub(crate) fn done(&self) -> Completion {
        let mut done = [Completion::default()];
        assert_eq!(self.cq.wait(&mut done).expect("wait for a completion"), 1);
        assert_eq!(done[0].status(), WcStatus::IB_WC_SUCCESS, "{:?}", done[0]);
        done[0]
    }

    /// Creates a queue pair of `id` that receives from the queue and has its own send queue.
    pub(crate) fn side(&self, id: CmId) -> Side {
        let io = Io::with(&id, Shape::default(), |_, init| {
            let init = QueuePairInit { recv_cq: &self.cq, srq: Some(&self.queue), ..*init };
            id.create_qp(self.queue.pd(), &init)
        });
        Side { id, io }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the field is taken once, here, and the object is not used after it.
        let queue = unsafe { ManuallyDrop::take(&mut self.queue) };
        if queue.destroy().is_ok() {
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Posts a receive without memory.
pub(crate) fn receive_nothing(queue: &SharedReceiveQueue, wr_id: u64) -> Result<()> {
    // SAFETY: the request names no memory.
    unsafe { queue.post_recv(&ReceiveRequest { wr_id, scatter: &[] }) }
}

/// Tries to post a receive of more scatter/gather entries than the queue takes.
pub(crate) fn receive_too_much(queue: &SharedReceiveQueue, sges: usize) -> Result<()> {
    let scatter = vec![Sge { addr: 0.into(), length: 0, lkey: 0 }; sges];
    // SAFETY: the entries are empty, and the queue refuses their number.
    unsafe { queue.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }
}

/// Two sides of a connection.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
}

/// Servers that receive from one queue, and their clients.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) shared: Shared,
    ours: EventChannel,
    theirs: EventChannel,
}

impl Servers {
    /// Makes `count` connections to `address`, whose servers share a queue of `max_wr` requests.
    pub(crate) fn new(address: SocketAddr, count: usize, max_wr: u32, param: &ConnParam) -> Self {
        let (ours, theirs) = (crate::fixtures::channel(), crate::fixtures::channel());
        let (listener, address) = listen(&theirs, address);
        let shared = Shared::new(&resolve(&ours, address), max_wr);
        let connect = || {
            let client = Side::new(resolve(&ours, address), Shape::default());
            client.id.connect(param).expect("connect");
            let server = shared.side(request(&theirs));
            server.id.accept(param).expect("accept");
            ours.expect_event(EventType::Established).expect("the client should be connected");
            theirs.expect_event(EventType::Established).expect("the server should be connected");
            Pair { client, server }
        };
        let pairs = (0..count).map(|_| connect()).collect();
        listener.destroy().expect("destroy the listener");
        Self { pairs, shared, ours, theirs }
    }

    /// Ends all connections.
    pub(crate) fn close(self) {
        for Pair { client, server } in self.pairs {
            client.id.disconnect().expect("disconnect");
            self.theirs.expect_event(EventType::Disconnected).expect("server should get the event");
            server.id.disconnect().expect("disconnect");
            self.ours.expect_event(EventType::Disconnected).expect("client should get the event");
            client.id.destroy().expect("destroy");
            server.id.destroy().expect("destroy");
        }
    }
}
