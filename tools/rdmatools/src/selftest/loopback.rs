//! Checks of data between two queue pairs of this program, which are connected without the connection manager.
//!
//! # Safety
//!
//! Requests name memory of the [`Pair`]'s region only. The region is dropped after the queue pairs and the shared receive queue,
//! and the program accesses its memory by copying only.
#![expect(unsafe_code, reason = "posts work requests")]

use std::ops::Range;

use rdmacm::device::{GidEntry, GidType, LinkLayer, PortState, Transport};
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, Context, MemoryRegion, Payload,
    ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, QueuePairInit,
    ReceiveRequest, SendFlags, SendOperation, SendRequest, SharedReceiveQueue,
    SharedReceiveQueueAttributes, WcOpcode,
};
use rdmacm::verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route};

use super::TIMEOUT;
use super::report::{Check, Problem, ensure};
use crate::link;

/// Length of a message.
const LENGTH: usize = 2000;
/// The parts of the memory that are sent and received.
const SOURCE: Range<usize> = 0..LENGTH;
const TARGET: Range<usize> = LENGTH..2 * LENGTH;

/// Identifiers of the two requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

const IMM_DATA: u32 = 0x89ab_cdef;

/// Adds the checks of data that need no peer.
pub(super) fn checks(context: &Context, add: &mut impl FnMut(Check)) {
    add(Check::optional("write with immediate data", || write_with_imm(context)));
    add(Check::optional("shared receives", || shared_receives(context)));
    add(Check::optional("unreliable connection", || unreliable_connection(context)));
}

fn write_with_imm(context: &Context) -> Result<String, Problem> {
    let mut pair = Pair::new(context, QpType::IB_UVERBS_QPT_RC, false)?;
    let remote_addr = pair.memory.addr() + TARGET.start as u64;
    let rkey = pair.memory.rkey();
    let received =
        pair.transfer(SendOperation::WriteWithImm { remote_addr, rkey, imm_data: IMM_DATA })?;
    let (opcode, imm_data) = (received.opcode(), received.imm_data());
    ensure(
        opcode == WcOpcode::IB_WC_RECV_RDMA_WITH_IMM,
        format!("the receive has the opcode {opcode:?}"),
    )?;
    ensure(imm_data == Some(IMM_DATA), format!("{IMM_DATA:#x} arrived as {imm_data:x?}"))?;
    Ok(format!("{LENGTH} bytes"))
}

fn shared_receives(context: &Context) -> Result<String, Problem> {
    let mut pair = Pair::new(context, QpType::IB_UVERBS_QPT_RC, true)?;
    let received = pair.transfer(SendOperation::Send)?;
    let (number, wanted) = (received.qp_num(), pair.receiver.number());
    let text = format!("the receive names the queue pair {number} and not {wanted}");
    ensure(number == wanted, text)?;
    Ok(format!("{LENGTH} bytes"))
}

fn unreliable_connection(context: &Context) -> Result<String, Problem> {
    Pair::new(context, QpType::IB_UVERBS_QPT_UC, false)?.transfer(SendOperation::Send)?;
    Ok(format!("{LENGTH} bytes"))
}

/// Two connected queue pairs, and the memory of their messages.
struct Pair {
    // Declared before the receive queue and the memory: fields drop in this order.
    sender: QueuePair,
    receiver: QueuePair,
    srq: Option<SharedReceiveQueue>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Pair {
    fn new(context: &Context, qp_type: QpType, is_shared: bool) -> Result<Self, Problem> {
        if context.transport() != Transport::InfiniBand {
            let why = "iWARP connects queue pairs only by the connection manager";
            return Err(Problem::Missing(why.into()));
        }
        let address = address(context)?;
        let pd = ProtectionDomain::new(context)?;
        let channel = CompletionChannel::new(context)?;
        let cq = CompletionQueue::new(context, 16, Some(&channel))?;
        let access =
            AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
        let memory = MemoryRegion::alloc(&pd, TARGET.end, access)?;
        let attributes = SharedReceiveQueueAttributes::default();
        let srq = is_shared.then(|| SharedReceiveQueue::new(&pd, attributes)).transpose()?;
        let init = QueuePairInit { srq: srq.as_ref(), ..QueuePairInit::new(&cq) };
        let receiver = QueuePair::with_type(&pd, qp_type, &init)?;
        let sender = QueuePair::with_type(&pd, qp_type, &QueuePairInit::new(&cq))?;
        connect(&sender, &receiver, address)?;
        connect(&receiver, &sender, address)?;
        Ok(Self { sender, receiver, srq, cq, memory })
    }

    /// Posts a receive and a request that fills the target, and checks the bytes. Returns the completion of the receive.
    fn transfer(&mut self, operation: SendOperation<'_>) -> Result<Completion, Problem> {
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at * 7).to_le_bytes()[0]).collect();
        self.memory.write(SOURCE.start, &bytes)?;
        let scatter = [self.memory.sge(TARGET)?];
        let receive = ReceiveRequest { wr_id: RECEIVE, scatter: &scatter };
        match &self.srq {
            // SAFETY: the memory is dropped after the queues, and is accessed by copying only.
            Some(srq) => unsafe { srq.post_recv(&receive) }?,
            // SAFETY: as above.
            None => unsafe { self.receiver.post_recv(&receive) }?,
        }
        let gather = [self.memory.sge(SOURCE)?];
        let (payload, flags) = (Payload::Gather(&gather), SendFlags::SIGNALED);
        // SAFETY: as above.
        unsafe { self.sender.post_send(&SendRequest { wr_id: SEND, operation, payload, flags }) }?;
        let received = self.completed()?;
        let mut arrived = vec![0; LENGTH];
        self.memory.read(TARGET.start, &mut arrived)?;
        ensure(arrived == bytes, format!("{LENGTH} bytes arrived changed"))?;
        let length = received.byte_len();
        let text = format!("the receive reports {length} bytes and not {LENGTH}");
        ensure(usize::try_from(length) == Ok(LENGTH), text)?;
        Ok(received)
    }

    /// Waits for both requests. Returns the completion of the receive.
    fn completed(&self) -> Result<Completion, Problem> {
        let (mut received, mut is_sent) = (None, false);
        loop {
            if let (Some(received), true) = (received, is_sent) {
                return Ok(received);
            }
            let mut done = [Completion::default()];
            let count = self.cq.wait_timeout(&mut done, TIMEOUT)?;
            let [done] = done;
            let missing = if is_sent { "receive" } else { "send" };
            ensure(count == 1, format!("the {missing} did not complete in {TIMEOUT:?}"))?;
            let name = if done.wr_id() == SEND { "send" } else { "receive" };
            ensure(done.is_success(), format!("the {name} ended with {}", done.status()))?;
            match done.wr_id() {
                SEND => is_sent = true,
                _ => received = Some(done),
            }
        }
    }
}

/// Returns the address of the first port.
fn address(context: &Context) -> Result<ib_uverbs_ah_attr, Problem> {
    let port = context.query_port(1)?;
    if port.state != PortState::IB_PORT_ACTIVE {
        return Err(Problem::Missing(format!("port 1 is {}", link::state(port.state))));
    }
    let address = ib_uverbs_ah_attr { port_num: 1, dlid: port.lid, ..Default::default() };
    if port.link_layer != LinkLayer::IB_LINK_LAYER_ETHERNET {
        let is_usable = port.lid != 0;
        return match is_usable {
            true => Ok(address),
            false => Err(Problem::Missing("port 1 has no LID".into())),
        };
    }
    let gids = context.gids(1)?;
    let gid = gids.iter().filter(|entry| !entry.gid.is_zero()).min_by_key(|entry| rank(entry));
    let gid = gid.ok_or_else(|| Problem::Missing("port 1 has no GID".into()))?;
    let sgid_index = u8::try_from(gid.index)
        .map_err(|_| Problem::Missing(format!("the first address has the index {}", gid.index)))?;
    let dgid = gid.gid.0;
    let grh = ib_uverbs_global_route { dgid, sgid_index, hop_limit: 64, ..Default::default() };
    Ok(ib_uverbs_ah_attr { grh, is_global: 1, ..address })
}

/// Orders GIDs: those of RoCE v2 are first, and of these, those of IPv4 addresses.
fn rank(entry: &GidEntry) -> (bool, bool) {
    let is_ipv4 = std::net::Ipv6Addr::from(entry.gid).to_ipv4_mapped().is_some();
    (entry.gid_type != Some(GidType::RoceV2), !is_ipv4)
}

/// Moves `qp` to a state in which it can send to `peer`.
fn connect(qp: &QueuePair, peer: &QueuePair, address: ib_uverbs_ah_attr) -> Result<(), Problem> {
    let mtu = qp.pd().context().query_port(1)?.active_mtu;
    let init = QueuePairAttributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1);
    qp.modify(&init.access(AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE))?;
    let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR).address(address).path_mtu(mtu);
    let receive = receive.dest_qp_num(peer.number()).rq_psn(0);
    let send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(0);
    if qp.qp_type() == QpType::IB_UVERBS_QPT_UC {
        qp.modify(&receive)?;
        return Ok(qp.modify(&send)?);
    }
    qp.modify(&receive.max_dest_rd_atomic(1).min_rnr_timer(12))?;
    Ok(qp.modify(&send.timeout(14).retry_cnt(7).rnr_retry(7).max_rd_atomic(1))?)
}
