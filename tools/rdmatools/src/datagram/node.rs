//! An id that exchanges datagrams.
//!
//! # Safety
//!
//! Posting passes memory to the device. The memory is in the region that the [`Io`] owns and drops after its queue
//! pair. The program accesses it only by copying, which is sound while a device writes.
#![expect(unsafe_code, reason = "posts work requests")]

use std::io::Write;

use rdmacm::cm::{CmId, DatagramParam};
use rdmacm::verbs::{
    AccessFlags, AddressHandle, Completion, CompletionChannel, CompletionQueue, Destination,
    GRH_LENGTH, MemoryRegion, Payload, ProtectionDomain, QpCreateFlags, QueuePair, QueuePairCaps,
    QueuePairInit, ReceiveRequest, SendFlags, SendOperation, SendRequest,
};

use super::Plan;
use crate::early_exit::EarlyExit;
use crate::failure::{Failure, retry_interrupted};

/// Status of the C programs if a message is too long.
const EINVAL: i32 = -22;

/// An id and, after it has a device, the resources for its messages.
pub(crate) struct Node {
    // Released before the id's own reference to the queue pair, see `drop`.
    io: Option<Io>,
    peer: Option<Peer>,
    pub(crate) id: CmId,
}

/// A queue pair and its memory.
struct Io {
    // Declared before the memory: fields drop in this order.
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    port: u8,
    plan: Plan,
}

/// The destination of the messages.
struct Peer {
    address: AddressHandle,
    qp_num: u32,
    qkey: u32,
}

impl Node {
    pub(crate) fn new(id: CmId) -> Self {
        Self { io: None, peer: None, id }
    }

    /// Creates the queue pair of the id, which has a device, and the memory for its messages.
    pub(crate) fn prepare(
        &mut self,
        plan: Plan,
        create_flags: QpCreateFlags,
        program: &str,
        out: &mut dyn Write,
    ) -> Result<(), EarlyExit> {
        let context = self.id.context()?;
        let port = self.id.route()?.port_num;
        let mtu = context.query_port(port)?.active_mtu.bytes().unwrap_or(u32::MAX);
        if plan.count > 0 && u32::try_from(plan.size).is_ok_and(|size| size > mtu) {
            let Plan { size, .. } = plan;
            writeln!(out, "{program}: message_size {size} is larger than active mtu {mtu}")?;
            let message = format!("cannot send messages of {size} bytes: the port's MTU is {mtu}");
            return Err(EarlyExit { status: EINVAL, failure: Failure::new(message) });
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

    /// Returns `true` if the destination is known.
    pub(crate) fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Sets the destination to that of an event.
    pub(crate) fn send_to(&mut self, peer: &DatagramParam) -> Result<(), Failure> {
        let address = AddressHandle::new(self.io().qp.pd(), &peer.ah_attr)?;
        self.peer = Some(Peer { address, qp_num: peer.qp_num, qkey: peer.qkey });
        Ok(())
    }

    /// Sets the destination to the sender of `received`.
    ///
    /// The immediate data contains the number of the sender's queue pair.
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
            // SAFETY: the memory is dropped, and thereby deregistered and freed, after the queue pair is destroyed, see
            // `drop`; the program reads it only by copying.
            unsafe { io.qp.post_recv(&request) }?;
        }
        Ok(())
    }

    /// Posts the send of every message, with the number of the queue pair as immediate data.
    ///
    /// The last `signaled` sends generate completions.
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
            // SAFETY: as for receives; only devices write to the memory.
            unsafe { qp.post_send(&request) }?;
        }
        Ok(())
    }

    /// Waits until `count` messages are sent or received. Returns the first completion.
    pub(crate) fn complete(&self, count: u32) -> Result<Option<Completion>, Failure> {
        let mut first = None;
        let mut completions = [Completion::default()];
        for _ in 0..count {
            retry_interrupted(|| self.io().cq.wait(&mut completions))?;
            let [completion] = completions;
            if !completion.is_success() {
                return Err(Failure::new(format!(
                    "cannot complete a message: {}",
                    completion.status()
                )));
            }
            first.get_or_insert(completion);
        }
        Ok(first)
    }

    fn io(&self) -> &Io {
        self.io.as_ref().expect("the node should be prepared")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The id releases the queue pair first, so that dropping the field destroys it.
        self.id.destroy_qp();
    }
}
