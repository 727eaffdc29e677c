//! The queue pairs of a test, and the memory of its messages.
//!
//! # Safety
//!
//! Posting passes memory to the device. The memory is in the region that the [`QueuePairSet`] owns and drops after its queue
//! pairs and their shared receive queue. The program accesses it only by copying, which is sound while a device writes.
#![expect(unsafe_code, reason = "posts work requests")]

use std::hash::{BuildHasher, RandomState};

use rdmacm::ErrorKind;
use rdmacm::device::{Device, Gid, LinkLayer};
use rdmacm::verbs::{
    AccessFlags, AddressHandle, Completion, CompletionChannel, CompletionQueue, Context,
    Destination, GRH_LENGTH, MemoryRegion, Payload, ProtectionDomain, QpState, QpType, QueuePair,
    QueuePairAttributes, QueuePairCaps, QueuePairInit, ReceiveQueueGuard, ReceiveRequest,
    SendFlags, SendOperation, SendQueueGuard, SendRequest, SharedReceiveQueue,
    SharedReceiveQueueAttributes,
};
use rdmacm::verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route};

use super::TestConfig;
use super::exchange::Address;
use crate::failure::Failure;

const QKEY: u32 = 0x1111_1111;
/// Initial value of the memory, and below it the client's mark at the start of each page.
const FILL: u8 = 0x7b;
const MARK: u8 = 0;
const PAGE: usize = 4096;

/// Kinds of requests: the `wr_id` of a request, and a bit in the set that a queue pair waits for.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

pub(super) struct QueuePairSet<'a> {
    config: &'a TestConfig<'a>,
    // Declared before their receive queue and the memory: fields drop in this order.
    queue_pairs: Vec<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    peers: Vec<Peer>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    memory: MemoryRegion,
    pd: ProtectionDomain,
}

/// The destination of a datagram queue pair.
struct Peer {
    address: AddressHandle,
    qp_num: u32,
}

/// The queue that receives are posted to.
enum Receiver<'a> {
    Own(ReceiveQueueGuard<'a>),
    Shared(&'a SharedReceiveQueue),
}

impl<'a> QueuePairSet<'a> {
    /// Creates the queue pairs on the device, in the state INIT.
    pub(super) fn new(device: &Device, config: &'a TestConfig<'a>) -> Result<Self, Failure> {
        let context = Context::open(device)?;
        let TestConfig { options, size, .. } = *config;
        if config.is_for_datagrams() {
            let mtu = context.query_port(options.ib_port)?.active_mtu.bytes().unwrap_or(0);
            if size > mtu {
                let message =
                    format!("cannot send messages of {size} bytes: the port's MTU is {mtu}");
                return Err(Failure::new(message));
            }
        }
        let channel = options.events.then(|| CompletionChannel::new(&context)).transpose()?;
        let pd = ProtectionDomain::new(&context)?;
        let mut access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        access.set(AccessFlags::IB_UVERBS_ACCESS_ON_DEMAND, config.on_demand);
        let mut memory = MemoryRegion::alloc(&pd, config.header() + config.length(), access)?;
        memory.write(0, &vec![FILL; memory.len()])?;
        let queue_pairs =
            u32::try_from(config.queue_pairs).expect("the number should be below 256");
        let completions = options.rx_depth.saturating_add(queue_pairs);
        let cq = CompletionQueue::new(&context, completions, channel.as_ref())?;
        let attributes =
            SharedReceiveQueueAttributes { max_wr: options.rx_depth, ..Default::default() };
        let srq = config.shared.then(|| SharedReceiveQueue::new(&pd, attributes)).transpose()?;
        let mut table = Self {
            config,
            queue_pairs: Vec::new(),
            srq,
            peers: Vec::new(),
            cq,
            channel,
            memory,
            pd,
        };
        for _ in 0..config.queue_pairs {
            table.add_queue_pair()?;
        }
        Ok(table)
    }

    fn add_queue_pair(&mut self) -> Result<(), Failure> {
        let TestConfig { options, qp_type, .. } = *self.config;
        let caps = QueuePairCaps {
            max_send_wr: 1,
            max_recv_wr: options.rx_depth,
            ..QueuePairCaps::default()
        };
        let init = QueuePairInit { srq: self.srq.as_ref(), caps, ..QueuePairInit::new(&self.cq) };
        let player = QueuePair::with_type(&self.pd, qp_type, &init)?;
        let init = QueuePairAttributes::to(QpState::IB_QPS_INIT);
        let init = init.pkey_index(0).port(options.ib_port);
        let init = match self.config.is_for_datagrams() {
            true => init.qkey(QKEY),
            false => init.access(AccessFlags::empty()),
        };
        player.modify(&init)?;
        self.queue_pairs.push(player);
        Ok(())
    }

    /// Returns the addresses of the queue pairs.
    pub(super) fn addresses(&self) -> Result<Vec<Address>, Failure> {
        let options = self.config.options;
        let context = self.pd.context();
        let port = context.query_port(options.ib_port)?;
        let is_ethernet = port.link_layer == LinkLayer::IB_LINK_LAYER_ETHERNET;
        if !is_ethernet && port.lid == 0 {
            return Err(Failure::new("cannot use the port: the port has no LID"));
        }
        let gid = match options.gid_index {
            None if is_ethernet => {
                let reason = "RoCE needs a GID: choose one of devinfo -v with -g INDEX";
                return Err(Failure::new(reason));
            }
            None => Gid::default(),
            Some(index) => {
                let mut gids = context.device().port(options.ib_port.into())?.gids()?;
                let entry = gids.find(|entry| entry.index == u32::from(index));
                let missing = || {
                    Failure::new(format!(
                        "cannot use GID {index}: the port has no GID at this index"
                    ))
                };
                entry.ok_or_else(missing)?.gid
            }
        };
        let random = RandomState::new();
        let address = |player: &QueuePair| {
            let qp_num = player.number();
            let [_, a, b, c, ..] = random.hash_one(qp_num).to_ne_bytes();
            Address { lid: port.lid, qp_num, psn: u32::from_be_bytes([0, a, b, c]), gid }
        };
        Ok(self.queue_pairs.iter().map(address).collect())
    }

    /// Moves the queue pairs to a state in which they can send.
    ///
    /// Their addresses are `ours`, those of their peers `theirs`.
    pub(super) fn connect(&mut self, ours: &[Address], theirs: &[Address]) -> Result<(), Failure> {
        let TestConfig { mtu, .. } = *self.config;
        for ((player, ours), theirs) in self.queue_pairs.iter().zip(ours).zip(theirs) {
            let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR);
            let send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(ours.psn);
            if self.config.is_for_datagrams() {
                player.modify(&receive)?;
                player.modify(&send)?;
                let address = AddressHandle::new(&self.pd, &self.route(theirs, 64))?;
                self.peers.push(Peer { address, qp_num: theirs.qp_num });
                continue;
            }
            let receive = receive.address(self.route(theirs, 1)).path_mtu(mtu);
            let receive = receive.dest_qp_num(theirs.qp_num).rq_psn(theirs.psn);
            if self.config.qp_type == QpType::IB_UVERBS_QPT_UC {
                player.modify(&receive)?;
                player.modify(&send)?;
            } else {
                player.modify(&receive.max_dest_rd_atomic(1).min_rnr_timer(12))?;
                let send = send.timeout(14).retry_cnt(7).rnr_retry(7);
                player.modify(&send.max_rd_atomic(1))?;
            }
        }
        Ok(())
    }

    /// Returns the address vector for `peer`.
    fn route(&self, peer: &Address, hop_limit: u8) -> ib_uverbs_ah_attr {
        let options = self.config.options;
        let route = ib_uverbs_ah_attr {
            dlid: peer.lid,
            sl: options.service_level,
            port_num: options.ib_port,
            ..ib_uverbs_ah_attr::default()
        };
        // As in the C programs, only the second half of a GID is checked.
        if peer.gid.0[8..] == [0; 8] {
            return route;
        }
        let sgid_index = options.gid_index.unwrap_or(0);
        let dgid = peer.gid.0;
        let grh = ib_uverbs_global_route { dgid, sgid_index, hop_limit, ..Default::default() };
        ib_uverbs_ah_attr { grh, is_global: 1, ..route }
    }

    /// Writes the marks that the server checks at the end.
    pub(super) fn mark(&mut self) -> Result<(), Failure> {
        for page in self.pages() {
            self.memory.write(page, &[MARK])?;
        }
        Ok(())
    }

    /// Returns the numbers of the pages that lack the client's mark.
    pub(super) fn unmarked(&self) -> Result<Vec<usize>, Failure> {
        let mut unmarked = Vec::new();
        for (number, page) in self.pages().enumerate() {
            let mut byte = [0];
            self.memory.read(page, &mut byte)?;
            if byte != [MARK] {
                unmarked.push(number);
            }
        }
        Ok(unmarked)
    }

    /// Returns the offsets of the pages of a message.
    fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        (self.config.header()..self.memory.len()).step_by(PAGE)
    }

    /// Posts all receives, and requests the first event.
    pub(super) fn prepare(&self) -> Result<(), Failure> {
        self.receive(&mut self.receiver()?, self.config.options.rx_depth)?;
        if self.channel.is_some() {
            self.cq.request_notify(false)?;
        }
        Ok(())
    }

    /// Exchanges messages until both sides have sent and received the requested number of messages.
    ///
    /// Each answer is followed by the next message.
    pub(super) fn run_exchange(&self, begin: bool) -> Result<(), Failure> {
        let iterations = self.config.options.iterations;
        let few = u32::try_from(self.config.queue_pairs).expect("the number should be below 256");
        let mut senders: Vec<_> =
            self.queue_pairs.iter().map(QueuePair::lock_send_queue).collect::<Result<_, _>>()?;
        let mut receiver = self.receiver()?;
        let mut poller = self.cq.lock_poller()?;
        let mut waiting = vec![RECEIVE; senders.len()];
        if begin {
            for (place, sender) in senders.iter_mut().enumerate() {
                self.send(place, sender)?;
                waiting[place] |= SEND;
            }
        }
        let (mut sent, mut received, mut posted) = (0, 0, self.config.options.rx_depth);
        let mut done = [Completion::default(); 16];
        while sent < iterations || received < iterations {
            if let Some(channel) = &self.channel {
                channel.get_event()?;
                self.cq.request_notify(false)?;
            }
            // After an event all completions are polled, otherwise one batch of them.
            loop {
                let count = poller.poll(&mut done)?;
                for done in &done[..count] {
                    if !done.is_success() {
                        let what = if done.wr_id() == SEND { "send" } else { "receive" };
                        let kind = ErrorKind::WorkRequestFailed(done.status());
                        return Err(Failure::new(format!("cannot complete a {what}: {kind}")));
                    }
                    let player = |player: &QueuePair| player.number() == done.qp_num();
                    let place = self.queue_pairs.iter().position(player);
                    let place = place.ok_or_else(|| {
                        let number = done.qp_num();
                        Failure::new(format!(
                            "cannot assign a completion: unknown queue pair {number:06x}"
                        ))
                    })?;
                    if done.wr_id() == SEND {
                        sent += 1;
                    } else {
                        received += 1;
                        posted -= 1;
                        if posted <= few {
                            let missing = self.config.options.rx_depth - posted;
                            self.receive(&mut receiver, missing)?;
                            posted += missing;
                        }
                    }
                    waiting[place] &= !done.wr_id();
                    if sent < iterations && waiting[place] == 0 {
                        self.send(place, &mut senders[place])?;
                        waiting[place] = RECEIVE | SEND;
                    }
                }
                if count == 0 || self.channel.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn receiver(&self) -> Result<Receiver<'_>, Failure> {
        match &self.srq {
            Some(srq) => Ok(Receiver::Shared(srq)),
            None => Ok(Receiver::Own(self.queue_pairs[0].lock_receive_queue()?)),
        }
    }

    fn receive(&self, receiver: &mut Receiver<'_>, count: u32) -> Result<(), Failure> {
        let scatter = [self.memory.sge(..)?];
        let request = ReceiveRequest { wr_id: RECEIVE, scatter: &scatter };
        for _ in 0..count {
            match receiver {
                // SAFETY: the memory is dropped, and thereby deregistered and freed, after the queue pair is destroyed;
                // the program reads and writes it only by copying.
                Receiver::Own(queue) => unsafe { queue.push(&request) }?,
                // SAFETY: as above, for the shared receive queue.
                Receiver::Shared(queue) => unsafe { queue.post_recv(&request) }?,
            }
        }
        if let Receiver::Own(queue) = receiver {
            queue.ring_doorbell()?;
        }
        Ok(())
    }

    fn send(&self, place: usize, sender: &mut SendQueueGuard<'_>) -> Result<(), Failure> {
        let operation = match self.peers.get(place) {
            None => SendOperation::Send,
            Some(Peer { address, qp_num }) => {
                let destination = Destination { address, qp_num: *qp_num, qkey: QKEY };
                SendOperation::SendTo { destination, imm_data: None }
            }
        };
        let header = self.config.header();
        let fits = self.queue_pairs[place].caps().max_inline_data >= self.config.size;
        let (mut bytes, gather);
        let payload = if fits {
            bytes = vec![0; self.config.length()];
            self.memory.read(header, &mut bytes)?;
            Payload::Inline(&bytes)
        } else {
            gather = [self.memory.sge(header..)?];
            Payload::Gather(&gather)
        };
        let request = SendRequest { wr_id: SEND, operation, payload, flags: SendFlags::SIGNALED };
        // SAFETY: as for receives; the next message that is received into this memory answers the sent one, so it
        // arrives after the send.
        unsafe { sender.post(&request) }?;
        Ok(())
    }
}

impl TestConfig<'_> {
    /// Returns the length of the header before a message in receive memory.
    fn header(&self) -> usize {
        if self.is_for_datagrams() { GRH_LENGTH } else { 0 }
    }

    fn length(&self) -> usize {
        usize::try_from(self.size).expect("32 bits should fit")
    }
}
