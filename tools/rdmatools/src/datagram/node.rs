//! An id that sends and receives datagrams.
//!
//! # Safety
//!
//! Posting gives memory to the device. It is memory of the region that the [`Io`] owns and drops
//! after its queue pair, and that is reached by copying only, which copes with a device that writes
//! meanwhile.
#![expect(unsafe_code, reason = "posts work requests")]

use std::io::Write;

use rdmacm::cm::{CmId, DatagramParam};
use rdmacm::verbs::{
    AccessFlags, AddressHandle, Completion, CompletionChannel, CompletionQueue, Destination,
    GRH_LENGTH, MemoryRegion, Payload, ProtectionDomain, QpCreateFlags, QueuePair, QueuePairCaps,
    QueuePairInit, ReceiveRequest, SendFlags, SendOperation, SendRequest,
};

use super::Plan;
use crate::failure::{Failure, waited};
use crate::stopped::Stopped;

/// What the C programs return where a message is too long.
const EINVAL: i32 = -22;

/// An id, and from the moment that it has a device what it takes to move data.
pub(crate) struct Node {
    // Before the id's own hold on the queue pair goes, see `drop`.
    io: Option<Io>,
    peer: Option<Peer>,
    pub(crate) id: CmId,
}

/// Queue pair and memory.
struct Io {
    // Before the memory: fields are dropped in this order.
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    port: u8,
    plan: Plan,
}

/// Where the messages go.
struct Peer {
    address: AddressHandle,
    qp_num: u32,
    qkey: u32,
}

impl Node {
    pub(crate) fn new(id: CmId) -> Self {
        Self { io: None, peer: None, id }
    }

    /// Makes the queue pair of the id, which has a device, and the room for its messages.
    pub(crate) fn prepare(
        &mut self,
        plan: Plan,
        create_flags: QpCreateFlags,
        program: &str,
        out: &mut dyn Write,
    ) -> Result<(), Stopped> {
        let context = self.id.context()?;
        let port = self.id.route()?.port_num;
        let mtu = context.query_port(port)?.active_mtu.bytes().unwrap_or(u32::MAX);
        if plan.count > 0 && u32::try_from(plan.size).is_ok_and(|size| size > mtu) {
            let Plan { size, .. } = plan;
            writeln!(out, "{program}: message_size {size} is larger than active mtu {mtu}")?;
            let message = format!("a message of {size} bytes where the port's MTU is {mtu}");
            return Err(Stopped { status: EINVAL, failure: Failure::because(message) });
        }
        let pd = ProtectionDomain::new(&context)?;
        let channel = CompletionChannel::new(&context)?;
        let room = plan.count.max(1);
        let cq = CompletionQueue::new(&context, room.saturating_mul(2), Some(&channel))?;
        let caps =
            QueuePairCaps { max_send_wr: room, max_recv_wr: room, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, create_flags, ..QueuePairInit::new(&cq) };
        let qp = self.id.create_qp(&pd, &init)?;
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let memory = MemoryRegion::alloc(&pd, plan.size + GRH_LENGTH, access)?;
        self.io = Some(Io { qp, cq, memory, port, plan });
        Ok(())
    }

    /// Returns `true` if it knows where to send.
    pub(crate) fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Sends to what an event says from now on.
    pub(crate) fn send_to(&mut self, peer: &DatagramParam) -> Result<(), Failure> {
        let address = AddressHandle::new(self.io().qp.pd(), &peer.ah_attr)?;
        self.peer = Some(Peer { address, qp_num: peer.qp_num, qkey: peer.qkey });
        Ok(())
    }

    /// Sends back to where `received` came from: the immediate data is the number of the queue pair
    /// there.
    pub(crate) fn reply_to(&mut self, received: &Completion) -> Result<(), Failure> {
        let io = self.io();
        let mut header = [0; GRH_LENGTH];
        io.memory.read(0, &mut header)?;
        let address = AddressHandle::for_reply(io.qp.pd(), received, &header, io.port)?;
        let qp_num = received.imm_data().unwrap_or_else(|| received.src_qp());
        let qkey = io.qp.query()?.qkey;
        self.peer = Some(Peer { address, qp_num, qkey });
        Ok(())
    }

    /// Posts a receive for every message.
    pub(crate) fn post_receives(&self) -> Result<(), Failure> {
        let io = self.io();
        let scatter = [io.memory.sge(..)?];
        for wr_id in 0..u64::from(io.plan.count) {
            let request = ReceiveRequest { wr_id, scatter: &scatter };
            // SAFETY: the memory is dropped, and with that deregistered and freed, after the queue
            // pair was destroyed, see `drop`; and it is read by copying only.
            unsafe { io.qp.post_recv(&request) }?;
        }
        Ok(())
    }

    /// Sends every message, with the number of the queue pair as immediate data; the last
    /// `signaled` of them make completions.
    pub(crate) fn post_sends(&self, signaled: u32) -> Result<(), Failure> {
        let Io { qp, memory, plan, .. } = self.io();
        let Some(peer) = &self.peer else { return Ok(()) };
        let destination =
            Destination { address: &peer.address, qp_num: peer.qp_num, qkey: peer.qkey };
        let operation = SendOperation::SendTo { destination, imm_data: Some(qp.number()) };
        let gather = [memory.sge(..plan.size)?];
        for number in 0..plan.count {
            let last = plan.count - number <= signaled;
            let flags = if last { SendFlags::SIGNALED } else { SendFlags::empty() };
            let payload = Payload::Gather(&gather);
            let request = SendRequest { wr_id: number.into(), operation, payload, flags };
            // SAFETY: as for receives; and nobody writes to the memory but devices.
            unsafe { qp.post_send(&request) }?;
        }
        Ok(())
    }

    /// Sleeps until `count` messages are sent or received; the first completion.
    pub(crate) fn complete(&self, count: u32) -> Result<Option<Completion>, Failure> {
        let mut first = None;
        let mut completions = [Completion::default()];
        for _ in 0..count {
            waited(|| self.io().cq.wait(&mut completions))?;
            let [completion] = completions;
            if !completion.is_success() {
                return Err(Failure::because(format!("a message failed: {}", completion.status())));
            }
            first.get_or_insert(completion);
        }
        Ok(first)
    }

    fn io(&self) -> &Io {
        self.io.as_ref().expect("messages come after preparing for them")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The id lets go of the queue pair first, so that it is destroyed when the field is dropped.
        self.id.destroy_qp();
    }
}
