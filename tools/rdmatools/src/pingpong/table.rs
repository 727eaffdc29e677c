//! Queue pairs, and the memory that the ball is in.
//!
//! # Safety
//!
//! Posting gives memory to the device. It is memory of the region that the [`Table`] owns and drops
//! after its queue pairs and their shared receive queue, and that is reached by copying only, which
//! copes with a device that writes meanwhile.
#![expect(unsafe_code, reason = "posts work requests")]

use std::hash::{BuildHasher, RandomState};

use rdmacm::device::{Device, Gid, LinkLayer};
use rdmacm::verbs::{
    AccessFlags, AddressHandle, Completion, CompletionChannel, CompletionQueue, Context,
    Destination, GRH_LENGTH, MemoryRegion, Payload, ProtectionDomain, QpState, QpType, QueuePair,
    QueuePairAttributes, QueuePairCaps, QueuePairInit, ReceiveQueue, ReceiveRequest, SendFlags,
    SendOperation, SendQueue, SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes,
};
use rdmacm::verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route};

use super::Game;
use super::exchange::Address;
use crate::failure::Failure;

const QKEY: u32 = 0x1111_1111;
/// What the memory is full of, and what the client writes at the beginning of each page.
const FILL: u8 = 0x7b;
const MARK: u8 = 0;
const PAGE: usize = 4096;

/// What is posted; also a bit in what a queue pair waits for, and the request's `wr_id`.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

pub(super) struct Table<'a> {
    game: &'a Game<'a>,
    // Before the queue that they receive from and before the memory: fields are dropped in this order.
    players: Vec<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    peers: Vec<Peer>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    memory: MemoryRegion,
    pd: ProtectionDomain,
}

/// Where a queue pair for datagrams sends.
struct Peer {
    address: AddressHandle,
    qp_num: u32,
}

/// Where receives are posted.
enum Receiver<'a> {
    Own(ReceiveQueue<'a>),
    Shared(&'a SharedReceiveQueue),
}

impl<'a> Table<'a> {
    /// Makes the queue pairs, in the state INIT, on the device.
    pub(super) fn new(device: &Device, game: &'a Game<'a>) -> Result<Self, Failure> {
        let context = Context::open(device)?;
        let Game { options, size, .. } = *game;
        if game.is_for_datagrams() {
            let mtu = context.query_port(options.ib_port)?.active_mtu.bytes().unwrap_or(0);
            if size > mtu {
                let message = format!("{size} bytes are more than the port's MTU of {mtu}");
                return Err(Failure::because(message));
            }
        }
        let channel = options.events.then(|| CompletionChannel::new(&context)).transpose()?;
        let pd = ProtectionDomain::new(&context)?;
        let mut access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        access.set(AccessFlags::IB_UVERBS_ACCESS_ON_DEMAND, game.on_demand);
        let mut memory = MemoryRegion::alloc(&pd, game.header() + game.length(), access)?;
        memory.write(0, &vec![FILL; memory.len()])?;
        let players = u32::try_from(game.players).expect("less than 256");
        let completions = options.rx_depth.saturating_add(players);
        let cq = CompletionQueue::new(&context, completions, channel.as_ref())?;
        let attributes =
            SharedReceiveQueueAttributes { max_wr: options.rx_depth, ..Default::default() };
        let srq = game.shared.then(|| SharedReceiveQueue::new(&pd, attributes)).transpose()?;
        let mut table =
            Self { game, players: Vec::new(), srq, peers: Vec::new(), cq, channel, memory, pd };
        for _ in 0..game.players {
            table.add_player()?;
        }
        Ok(table)
    }

    fn add_player(&mut self) -> Result<(), Failure> {
        let Game { options, qp_type, .. } = *self.game;
        let caps = QueuePairCaps {
            max_send_wr: 1,
            max_recv_wr: options.rx_depth,
            ..QueuePairCaps::default()
        };
        let init = QueuePairInit { srq: self.srq.as_ref(), caps, ..QueuePairInit::new(&self.cq) };
        let player = QueuePair::with_type(&self.pd, qp_type, &init)?;
        let init = QueuePairAttributes::to(QpState::IB_QPS_INIT);
        let init = init.pkey_index(0).port(options.ib_port);
        let init = match self.game.is_for_datagrams() {
            true => init.qkey(QKEY),
            false => init.access(AccessFlags::empty()),
        };
        player.modify(&init)?;
        self.players.push(player);
        Ok(())
    }

    /// Where the queue pairs are.
    pub(super) fn addresses(&self) -> Result<Vec<Address>, Failure> {
        let options = self.game.options;
        let context = self.pd.context();
        let port = context.query_port(options.ib_port)?;
        let is_ethernet = port.link_layer == LinkLayer::IB_LINK_LAYER_ETHERNET;
        if !is_ethernet && port.lid == 0 {
            return Err(Failure::because("the port has no LID"));
        }
        let gid = match options.gid_index {
            None if is_ethernet => {
                let reason =
                    "on RoCE the GID is to be chosen: -g INDEX, of those that devinfo -v shows";
                return Err(Failure::because(reason));
            }
            None => Gid::default(),
            Some(index) => {
                let mut gids = context.device().port(options.ib_port.into())?.gids()?;
                let entry = gids.find(|entry| entry.index == u32::from(index));
                let missing = || Failure::because(format!("the port has no GID at index {index}"));
                entry.ok_or_else(missing)?.gid
            }
        };
        let random = RandomState::new();
        let address = |player: &QueuePair| {
            let qp_num = player.number();
            let [_, a, b, c, ..] = random.hash_one(qp_num).to_ne_bytes();
            Address { lid: port.lid, qp_num, psn: u32::from_be_bytes([0, a, b, c]), gid }
        };
        Ok(self.players.iter().map(address).collect())
    }

    /// Brings the queue pairs, which are at `ours`, to where they send to those at `theirs`.
    pub(super) fn connect(&mut self, ours: &[Address], theirs: &[Address]) -> Result<(), Failure> {
        let Game { mtu, .. } = *self.game;
        for ((player, ours), theirs) in self.players.iter().zip(ours).zip(theirs) {
            let receive = QueuePairAttributes::to(QpState::IB_QPS_RTR);
            let send = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(ours.psn);
            if self.game.is_for_datagrams() {
                player.modify(&receive)?;
                player.modify(&send)?;
                let address = AddressHandle::new(&self.pd, &self.route(theirs, 64))?;
                self.peers.push(Peer { address, qp_num: theirs.qp_num });
                continue;
            }
            let receive = receive.address(self.route(theirs, 1)).path_mtu(mtu);
            let receive = receive.dest_qp_num(theirs.qp_num).rq_psn(theirs.psn);
            if self.game.qp_type == QpType::IB_UVERBS_QPT_UC {
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

    /// The way to `peer`.
    fn route(&self, peer: &Address, hop_limit: u8) -> ib_uverbs_ah_attr {
        let options = self.game.options;
        let route = ib_uverbs_ah_attr {
            dlid: peer.lid,
            sl: options.service_level,
            port_num: options.ib_port,
            ..ib_uverbs_ah_attr::default()
        };
        // As the C programs: what tells is the second half of a GID.
        if peer.gid.0[8..] == [0; 8] {
            return route;
        }
        let sgid_index = options.gid_index.unwrap_or(0);
        let dgid = peer.gid.0;
        let grh = ib_uverbs_global_route { dgid, sgid_index, hop_limit, ..Default::default() };
        ib_uverbs_ah_attr { grh, is_global: 1, ..route }
    }

    /// Writes what the server looks for at the end.
    pub(super) fn mark(&mut self) -> Result<(), Failure> {
        for page in self.pages() {
            self.memory.write(page, &[MARK])?;
        }
        Ok(())
    }

    /// The numbers of the pages that are not as the client has marked them.
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

    /// Where the pages of a message begin.
    fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        (self.game.header()..self.memory.len()).step_by(PAGE)
    }

    /// Posts all receives, and asks for the first event.
    pub(super) fn prepare(&self) -> Result<(), Failure> {
        self.receive(&mut self.receiver()?, self.game.options.rx_depth)?;
        if self.channel.is_some() {
            self.cq.request_notify(false)?;
        }
        Ok(())
    }

    /// Sends, and answers what was sent with the next, until both sides have sent and received as
    /// often as they were asked to.
    pub(super) fn play(&self, begin: bool) -> Result<(), Failure> {
        let iterations = self.game.options.iterations;
        let few = u32::try_from(self.game.players).expect("less than 256");
        let mut senders: Vec<_> =
            self.players.iter().map(QueuePair::send_queue).collect::<Result<_, _>>()?;
        let mut receiver = self.receiver()?;
        let mut poller = self.cq.poller()?;
        let mut waiting = vec![RECEIVE; senders.len()];
        if begin {
            for (place, sender) in senders.iter_mut().enumerate() {
                self.send(place, sender)?;
                waiting[place] |= SEND;
            }
        }
        let (mut sent, mut received, mut posted) = (0, 0, self.game.options.rx_depth);
        let mut done = [Completion::default(); 16];
        while sent < iterations || received < iterations {
            if let Some(channel) = &self.channel {
                channel.get_event()?;
                self.cq.request_notify(false)?;
            }
            // After an event all that is there, or else as much as there is now.
            loop {
                let count = poller.poll(&mut done)?;
                for done in &done[..count] {
                    if !done.is_success() {
                        let what = if done.wr_id() == SEND { "send" } else { "receive" };
                        let message = format!("a {what} failed: {}", done.status());
                        return Err(Failure::because(message));
                    }
                    let player = |player: &QueuePair| player.number() == done.qp_num();
                    let place = self.players.iter().position(player);
                    let place = place.ok_or_else(|| {
                        let number = done.qp_num();
                        Failure::because(format!("a completion is of queue pair {number:06x}"))
                    })?;
                    if done.wr_id() == SEND {
                        sent += 1;
                    } else {
                        received += 1;
                        posted -= 1;
                        if posted <= few {
                            let missing = self.game.options.rx_depth - posted;
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
            None => Ok(Receiver::Own(self.players[0].receive_queue()?)),
        }
    }

    fn receive(&self, receiver: &mut Receiver<'_>, count: u32) -> Result<(), Failure> {
        let scatter = [self.memory.sge(..)?];
        let request = ReceiveRequest { wr_id: RECEIVE, scatter: &scatter };
        for _ in 0..count {
            match receiver {
                // SAFETY: the memory is dropped, and with that deregistered and freed, after the queue
                // pair was destroyed; and it is read and written by copying only.
                Receiver::Own(queue) => unsafe { queue.push(&request) }?,
                // SAFETY: the same of the shared receive queue.
                Receiver::Shared(queue) => unsafe { queue.post_recv(&request) }?,
            }
        }
        if let Receiver::Own(queue) = receiver {
            queue.ring()?;
        }
        Ok(())
    }

    fn send(&self, place: usize, sender: &mut SendQueue<'_>) -> Result<(), Failure> {
        let operation = match self.peers.get(place) {
            None => SendOperation::Send,
            Some(Peer { address, qp_num }) => {
                let destination = Destination { address, qp_num: *qp_num, qkey: QKEY };
                SendOperation::SendTo { destination, imm_data: None }
            }
        };
        let header = self.game.header();
        let fits = self.players[place].caps().max_inline_data >= self.game.size;
        let (mut bytes, gather);
        let payload = if fits {
            bytes = vec![0; self.game.length()];
            self.memory.read(header, &mut bytes)?;
            Payload::Inline(&bytes)
        } else {
            gather = [self.memory.sge(header..)?];
            Payload::Gather(&gather)
        };
        let request = SendRequest { wr_id: SEND, operation, payload, flags: SendFlags::SIGNALED };
        // SAFETY: as for receives; and what is received next, into the same memory, comes after the
        // message was sent, whose answer it is.
        unsafe { sender.post(&request) }?;
        Ok(())
    }
}

impl Game<'_> {
    /// What stands before a message in the memory that it is received in.
    fn header(&self) -> usize {
        if self.is_for_datagrams() { GRH_LENGTH } else { 0 }
    }

    fn length(&self) -> usize {
        usize::try_from(self.size).expect("32 bits fit")
    }
}
