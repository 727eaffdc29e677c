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
    AccessFlags, BindRequest, Completion, CompletionChannel, CompletionQueue, Context,
    MemoryRegion, MemoryWindow, MemoryWindowType, Payload, ProtectionDomain, QpState, QpType,
    QueuePair, QueuePairAttributes, QueuePairInit, ReceiveRequest, SendFlags, SendOperation,
    SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes, WcOpcode, XrcDomain, XrcTarget,
};
use rdmacm::verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route, ib_uverbs_query_port_flags};

use super::TIMEOUT;
use super::report::{Checks, Problem, ensure};
use crate::link;

/// Length of a message.
const LENGTH: usize = 2000;
/// The parts of the memory that are sent and received.
const SOURCE: Range<usize> = 0..LENGTH;
const TARGET: Range<usize> = LENGTH..2 * LENGTH;

/// Identifiers of the requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const BIND: u64 = 3;

/// The access rights of the memory.
const RIGHTS: AccessFlags =
    AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE.union(AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE);

const IMM_DATA: u32 = 0x89ab_cdef;

/// Runs the checks of data that need no peer.
pub(super) fn check(context: &Context, checks: &mut Checks<'_>) {
    checks.optional("write with immediate data", || write_with_imm(context));
    checks.optional("shared receives", || shared_receives(context));
    checks.optional("unreliable connection", || unreliable_connection(context));
    checks.optional("write through a type 1 window", || write_through_window(context));
    checks.optional("XRC message", || xrc_message(context));
}

fn write_with_imm(context: &Context) -> Result<String, Problem> {
    let mut pair = Pair::new(context, Kind::Reliable)?;
    let rkey = pair.memory.rkey();
    pair.write(rkey)?;
    Ok(format!("{LENGTH} bytes"))
}

fn shared_receives(context: &Context) -> Result<String, Problem> {
    let mut pair = Pair::new(context, Kind::Shared)?;
    let received = pair.transfer(SendOperation::Send)?;
    let (number, wanted) = (received.qp_num(), pair.receiver.number());
    let text = format!("the receive names the queue pair {number} and not {wanted}");
    ensure(number == wanted, text)?;
    Ok(format!("{LENGTH} bytes"))
}

fn unreliable_connection(context: &Context) -> Result<String, Problem> {
    Pair::new(context, Kind::Unreliable)?.transfer(SendOperation::Send)?;
    Ok(format!("{LENGTH} bytes"))
}

/// Binds a window to the target, and writes with its key.
fn write_through_window(context: &Context) -> Result<String, Problem> {
    let mut pair = Pair::new(context, Kind::Window)?;
    let window = MemoryWindow::new(pair.sender.pd(), MemoryWindowType::IB_MW_TYPE_1)?;
    pair.bind(&window, TARGET)?;
    pair.write(window.rkey())?;
    // A bind to no bytes unbinds the window, which the check covers too.
    pair.bind(&window, TARGET.start..TARGET.start)?;
    window.destroy().map_err(rdmacm::Error::from)?;
    Ok(format!("{LENGTH} bytes"))
}

/// Sends a message to a shared receive queue, which is named by its number.
fn xrc_message(context: &Context) -> Result<String, Problem> {
    let mut pair = Pair::new(context, Kind::Xrc)?;
    let number = pair.srq.as_ref().and_then(SharedReceiveQueue::number);
    let srq_number = number.ok_or_else(|| Problem::Wrong("the queue has no number".into()))?;
    pair.transfer(SendOperation::AtSharedQueue { srq_number, operation: &SendOperation::Send })?;
    Ok(format!("{LENGTH} bytes"))
}

/// The kind of two connected queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reliable,
    /// A reliable connection to a queue pair with a shared receive queue.
    Shared,
    Unreliable,
    /// A reliable connection, with memory to which windows can be bound.
    Window,
    Xrc,
}

/// The receiving queue pair.
enum Receiver {
    QueuePair(QueuePair),
    Xrc(XrcTarget),
}

impl Receiver {
    fn number(&self) -> u32 {
        match self {
            Self::QueuePair(qp) => qp.number(),
            Self::Xrc(target) => target.number(),
        }
    }

    fn modify(&self, attributes: &QueuePairAttributes) -> rdmacm::Result<()> {
        match self {
            Self::QueuePair(qp) => qp.modify(attributes),
            Self::Xrc(target) => target.modify(attributes),
        }
    }
}

/// Two connected queue pairs, and the memory of their messages.
struct Pair {
    // Declared before the receive queue and the memory: fields drop in this order.
    sender: QueuePair,
    receiver: Receiver,
    srq: Option<SharedReceiveQueue>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Pair {
    fn new(context: &Context, kind: Kind) -> Result<Self, Problem> {
        if context.transport() != Transport::InfiniBand {
            let why = "iWARP connects queue pairs only by the connection manager";
            return Err(Problem::Missing(why.into()));
        }
        let address = address(context)?;
        let pd = ProtectionDomain::new(context)?;
        let channel = CompletionChannel::new(context)?;
        let cq = CompletionQueue::new(context, 16, Some(&channel))?;
        let mut access = RIGHTS;
        if kind == Kind::Window {
            access |= AccessFlags::IB_UVERBS_ACCESS_MW_BIND;
        }
        let memory = MemoryRegion::alloc(&pd, TARGET.end, access)?;
        let attributes = SharedReceiveQueueAttributes::default();
        let of_type = |qp_type, srq: Option<&SharedReceiveQueue>| {
            QueuePair::with_type(&pd, qp_type, &QueuePairInit { srq, ..QueuePairInit::new(&cq) })
        };
        let (srq, receiver, qp_type) = match kind {
            Kind::Xrc => {
                let domain = XrcDomain::new(context)?;
                let srq = SharedReceiveQueue::with_xrc_domain(&domain, &pd, &cq, attributes)?;
                let target = Receiver::Xrc(XrcTarget::new(&domain)?);
                (Some(srq), target, QpType::IB_UVERBS_QPT_XRC_INI)
            }
            _ => {
                let srq = (kind == Kind::Shared)
                    .then(|| SharedReceiveQueue::new(&pd, attributes))
                    .transpose()?;
                let qp_type = match kind {
                    Kind::Unreliable => QpType::IB_UVERBS_QPT_UC,
                    _ => QpType::IB_UVERBS_QPT_RC,
                };
                let receiver = Receiver::QueuePair(of_type(qp_type, srq.as_ref())?);
                (srq, receiver, qp_type)
            }
        };
        let sender = of_type(qp_type, None)?;
        let pair = Self { sender, receiver, srq, cq, memory };
        pair.connect(address, qp_type)?;
        Ok(pair)
    }

    /// Connects the queue pairs: the sender reaches RTS, and the receiver at least RTR.
    fn connect(&self, address: ib_uverbs_ah_attr, qp_type: QpType) -> Result<(), Problem> {
        let mtu = self.sender.pd().context().query_port(1)?.active_mtu;
        let init = QueuePairAttributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1);
        let init = init.access(AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE);
        let to_receive = |peer| {
            let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR).address(address);
            receive.path_mtu(mtu).dest_qp_num(peer).rq_psn(0)
        };
        let to_respond = |peer| to_receive(peer).max_dest_rd_atomic(1).min_rnr_timer(12);
        let to_send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(0);
        let to_request = to_send.timeout(14).retry_cnt(7).rnr_retry(7).max_rd_atomic(1);
        let (sender, receiver) = (&self.sender, &self.receiver);
        sender.modify(&init)?;
        receiver.modify(&init)?;
        match qp_type {
            QpType::IB_UVERBS_QPT_UC => {
                receiver.modify(&to_receive(sender.number()))?;
                sender.modify(&to_receive(receiver.number()))?;
                sender.modify(&to_send)?;
            }
            QpType::IB_UVERBS_QPT_XRC_INI => {
                receiver.modify(&to_respond(sender.number()))?;
                sender.modify(&to_receive(receiver.number()))?;
                sender.modify(&to_request)?;
            }
            _ => {
                receiver.modify(&to_respond(sender.number()))?;
                // The receiver also posts requests: it binds windows.
                receiver.modify(&to_request)?;
                sender.modify(&to_respond(receiver.number()))?;
                sender.modify(&to_request)?;
            }
        }
        Ok(())
    }

    /// Binds `window` to a part of the memory, as the side whose peer will use it.
    fn bind(&self, window: &MemoryWindow, part: Range<usize>) -> Result<(), Problem> {
        let Receiver::QueuePair(receiver) = &self.receiver else {
            return Err(Problem::Wrong("an XRC target cannot bind a memory window".into()));
        };
        let request = BindRequest {
            wr_id: BIND,
            window,
            region: &self.memory,
            offset: part.start,
            length: part.len(),
            access: AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE,
            flags: SendFlags::SIGNALED,
        };
        // SAFETY: the region is dropped after the queue pairs. The program only copies to and from its memory, as the access
        // rights of its registration require. The queue pair belongs to no `BufferedQueuePair`.
        unsafe { receiver.bind_window(&request) }?;
        self.completed(&[BIND]).map(drop)
    }

    /// Writes to the target with immediate data.
    fn write(&mut self, rkey: u32) -> Result<(), Problem> {
        let remote_addr = self.memory.addr() + TARGET.start as u64;
        let received =
            self.transfer(SendOperation::WriteWithImm { remote_addr, rkey, imm_data: IMM_DATA })?;
        let (opcode, imm_data) = (received.opcode(), received.imm_data());
        ensure(
            opcode == WcOpcode::IB_WC_RECV_RDMA_WITH_IMM,
            format!("the receive has the opcode {opcode:?}"),
        )?;
        ensure(imm_data == Some(IMM_DATA), format!("{IMM_DATA:#x} arrived as {imm_data:x?}"))
    }

    /// Posts a receive and a request that fills the target, and checks the bytes.
    ///
    /// Returns the completion of the receive.
    fn transfer(&mut self, operation: SendOperation<'_>) -> Result<Completion, Problem> {
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at * 7).to_le_bytes()[0]).collect();
        self.memory.write(SOURCE.start, &bytes)?;
        let scatter = [self.memory.sge(TARGET)?];
        let receive = ReceiveRequest { wr_id: RECEIVE, scatter: &scatter };
        match (&self.srq, &self.receiver) {
            // SAFETY: the memory is dropped after the queues, and is accessed by copying only.
            (Some(srq), _) => unsafe { srq.post_recv(&receive) }?,
            // SAFETY: as above.
            (None, Receiver::QueuePair(receiver)) => unsafe { receiver.post_recv(&receive) }?,
            (None, Receiver::Xrc(_)) => {}
        }
        let gather = [self.memory.sge(SOURCE)?];
        let (payload, flags) = (Payload::Gather(&gather), SendFlags::SIGNALED);
        // SAFETY: as above.
        unsafe { self.sender.post_send(&SendRequest { wr_id: SEND, operation, payload, flags }) }?;
        let received = self.completed(&[RECEIVE, SEND])?;
        let mut arrived = vec![0; LENGTH];
        self.memory.read(TARGET.start, &mut arrived)?;
        ensure(arrived == bytes, format!("{LENGTH} bytes arrived changed"))?;
        let length = received.byte_len();
        let text = format!("the receive reports {length} bytes and not {LENGTH}");
        ensure(usize::try_from(length) == Ok(LENGTH), text)?;
        Ok(received)
    }

    /// Waits for the requests with these identifiers. Returns the completion of the first one.
    fn completed(&self, requests: &[u64]) -> Result<Completion, Problem> {
        let name = |wr_id: u64| match wr_id {
            RECEIVE => "receive",
            SEND => "send",
            _ => "binding",
        };
        let mut found: Vec<Completion> = Vec::new();
        loop {
            let of = |wr_id: &u64| found.iter().find(|done| done.wr_id() == *wr_id);
            let Some(missing) = requests.iter().find(|wr_id| of(wr_id).is_none()) else {
                return Ok(*of(&requests[0]).expect("the completion should be there"));
            };
            let mut done = [Completion::default()];
            let count = self.cq.wait_timeout(&mut done, TIMEOUT)?;
            let text = format!("the {} did not complete in {TIMEOUT:?}", name(*missing));
            ensure(count == 1, text)?;
            let [done] = done;
            let text = format!("the {} ended with {}", name(done.wr_id()), done.status());
            ensure(done.is_success(), text)?;
            found.push(done);
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
        ensure_lid(port.lid)?;
        // A virtual function needs a global route also on InfiniBand.
        let needs_route = ib_uverbs_query_port_flags::IB_UVERBS_QPF_GRH_REQUIRED;
        if !port.flags.contains(needs_route) {
            return Ok(address);
        }
        let gids = context.gids(1)?;
        let gid = gids.first().ok_or_else(|| Problem::Missing("port 1 has no GID".into()))?;
        let grh = ib_uverbs_global_route { dgid: gid.gid.0, ..Default::default() };
        return Ok(ib_uverbs_ah_attr { grh, is_global: 1, ..address });
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

fn ensure_lid(lid: u16) -> Result<(), Problem> {
    if lid == 0 { Err(Problem::Missing("port 1 has no LID".into())) } else { Ok(()) }
}

/// Orders GIDs: those of RoCE v2 are first, and of these, those of IPv4 addresses.
fn rank(entry: &GidEntry) -> (bool, bool) {
    let is_ipv4 = std::net::Ipv6Addr::from(entry.gid).to_ipv4_mapped().is_some();
    (entry.gid_type != Some(GidType::RoceV2), !is_ipv4)
}
