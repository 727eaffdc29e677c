//! Every operation that moves bytes, on every transport.
//!
//! The messages have every length, one to the maximum number of scatter/gather entries, and inline data or not. Queues
//! are filled to the last place, with only some requests signaled.
//!
//! The test compares the complete memory of both sides with the expected bytes, and thus also the bytes around buffers.

use std::iter;
use std::ops::Range;

use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, AddressHandle, Completion, Destination, GRH_LENGTH, MemoryRegion, MemoryWindow,
    MemoryWindowType, QpType, QueuePairCaps, SendFlags, SendOperation, SendQueueGuard,
};

use crate::fixtures::{
    Connection, LONG, assert_invalid, device, is_card, promised, roce_name, siw,
};
use crate::io::{Io, Shape, post_bind, push_inline};
use crate::manual_qp::{self, QKEY};
use crate::transfer::pattern;
use crate::window::binding;

/// The lengths around each limit: zero, word, inline data, packet, page, largest message.
const LENGTHS: [usize; 17] =
    [0, 1, 2, 3, 4, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 65_535, 65_536, LARGEST];
const LARGEST: usize = 1 << 20;

/// Bytes before the first scatter/gather entry of a request, with room for the header of a datagram.
const FRONT: usize = GRH_LENGTH + 8;
const GAP: usize = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Reliable,
    Unreliable,
    Datagrams,
    Iwarp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Movement {
    Send,
    SendWithImm,
    SendWithInvalidate,
    SendTo,
    Write,
    WriteWithImm,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
}

use Movement as M;

impl Transport {
    fn movements(self) -> Vec<Movement> {
        let mut movements = match self {
            Self::Reliable | Self::Iwarp => vec![M::Send, M::SendWithInvalidate, M::Write, M::Read],
            Self::Unreliable => vec![M::Send, M::SendWithImm, M::Write, M::WriteWithImm],
            Self::Datagrams => vec![M::SendTo],
        };
        if self == Self::Reliable {
            movements.extend([M::SendWithImm, M::WriteWithImm, M::CompareSwap, M::FetchAdd]);
            if !is_card() && promised("RDMACM_TEST_KERNEL") != "6.1" {
                movements.push(M::AtomicWrite);
            }
        }
        movements
    }

    /// Returns the number of bytes of the longest message.
    fn longest(self) -> usize {
        match self {
            Self::Datagrams => 1024,
            Self::Reliable | Self::Unreliable | Self::Iwarp => LARGEST,
        }
    }
}

impl Movement {
    /// Returns `true` if the operation completes a receive of the peer.
    fn completes_receive(self) -> bool {
        self.is_received() || self == Self::WriteWithImm
    }

    /// Returns `true` if the operation stores into the memory of a receive.
    fn is_received(self) -> bool {
        matches!(self, Self::Send | Self::SendWithImm | Self::SendWithInvalidate | Self::SendTo)
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd | Self::AtomicWrite)
    }

    fn is_inline(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendWithImm | Self::SendTo | Self::Write | Self::WriteWithImm
        )
    }
}

/// A list of requests that is posted at once.
#[derive(Debug, Clone, Copy)]
struct Round {
    movement: Movement,
    count: usize,
    length: usize,
    sges: usize,
    /// The number of requests for each signaled one. The last request is signaled, too.
    every: usize,
    inline: bool,
}

impl Round {
    /// Returns the number of bytes of memory for one request.
    fn slot(&self) -> usize {
        (FRONT + self.length + (self.sges + 1) * GAP).next_multiple_of(8)
    }

    fn apart(&self, number: usize) -> Vec<Range<usize>> {
        let first = number * self.slot() + FRONT;
        let cut = |sge| self.length * sge / self.sges;
        let sge = |sge| first + sge * GAP + cut(sge)..first + sge * GAP + cut(sge + 1);
        (0..self.sges).map(sge).collect()
    }

    /// Returns the local memory ranges of a request.
    fn here(&self, number: usize) -> Vec<Range<usize>> {
        if self.movement == M::AtomicWrite { vec![] } else { self.apart(number) }
    }

    /// Returns the destination ranges of the bytes, or the source ranges for a read.
    fn there(&self, number: usize) -> Vec<Range<usize>> {
        let together = |more| {
            let start = number * self.slot() + FRONT + more;
            iter::once(start..start + self.length).collect()
        };
        match self.movement {
            M::SendTo => self.apart(number),
            _ if self.movement.is_received() => self.apart(number).into_iter().rev().collect(),
            _ if self.movement.is_atomic() => together(0),
            _ => together(3),
        }
    }

    /// Returns the memory ranges of the receive, with additional room at the end.
    fn receive(&self, number: usize) -> Vec<Range<usize>> {
        let mut sges = if self.movement.is_received() { self.there(number) } else { vec![] };
        if let Some(last) = sges.last_mut() {
            last.end += GAP / 2;
        }
        if self.movement == M::SendTo {
            sges[0].start -= GRH_LENGTH;
        }
        sges
    }

    fn is_signaled(&self, number: usize) -> bool {
        (number + 1) % self.every == 0 || number + 1 == self.count
    }
}

fn gather(memory: &[u8], sges: &[Range<usize>]) -> Vec<u8> {
    sges.iter().map(|sge| &memory[sge.clone()]).collect::<Vec<_>>().concat()
}

fn scatter(memory: &mut [u8], sges: &[Range<usize>], mut bytes: &[u8]) {
    for sge in sges {
        let (now, later) = bytes.split_at(sge.len());
        memory[sge.clone()].copy_from_slice(now);
        bytes = later;
    }
    assert!(bytes.is_empty());
}

fn number_at(memory: &[u8], sges: &[Range<usize>]) -> u64 {
    u64::from_ne_bytes(gather(memory, sges).try_into().expect("the slice should have 8 bytes"))
}

/// The owner of a key that the peer invalidates.
#[derive(Debug)]
enum Key {
    Window(MemoryWindow),
    Region(MemoryRegion),
}

impl Key {
    fn rkey(&self) -> u32 {
        match self {
            Self::Window(window) => window.rkey(),
            Self::Region(region) => region.rkey(),
        }
    }
}

/// Two connected sides. One of them posts.
struct Link<'a> {
    transport: Transport,
    from: &'a mut Io,
    to: &'a mut Io,
    destination: Option<Destination<'a>>,
    /// Bytes that fill the memories, from another offset in each round.
    base: Vec<u8>,
    rounds: usize,
    /// The number of posts that found a full queue.
    refusals: usize,
}

impl<'a> Link<'a> {
    fn new(
        transport: Transport,
        [from, to]: [&'a mut Io; 2],
        destination: Option<Destination<'a>>,
    ) -> Self {
        let base = pattern(1, from.memory().len() + 2000);
        Self { transport, from, to, destination, base, rounds: 0, refusals: 0 }
    }

    /// Creates a key on the receiving side that a message can invalidate.
    fn key(&self) -> Key {
        let (pd, write) = (self.to.qp().pd(), AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE);
        if self.transport == Transport::Iwarp {
            let access = write | AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
            return Key::Region(MemoryRegion::alloc(pd, 64, access).expect("memory region"));
        }
        let window = MemoryWindow::new(pd, MemoryWindowType::IB_MW_TYPE_2).expect("window");
        let (window, region) = (&window, self.to.memory());
        post_bind(self.to.qp(), &binding(90, window, region, 0..64, write)).expect("bind");
        self.to.done(90);
        Key::Window(window.clone())
    }

    /// Returns request `number`. `theirs` are the bytes of the peer's memory.
    fn operation(
        &self,
        round: Round,
        number: usize,
        rkey: Option<u32>,
        theirs: &[u8],
    ) -> SendOperation<'a> {
        let there = round.there(number);
        let remote_addr = self.to.memory().addr() + there[0].start as u64;
        let small = u32::try_from(number).expect("the number should fit");
        let (imm_data, add) = (0xf0f1_0000 + small, u64::MAX - 1_000_000 * u64::from(small));
        match (round.movement, self.to.memory().rkey()) {
            (M::Send, _) => SendOperation::Send,
            (M::SendWithImm, _) => SendOperation::SendWithImm { imm_data },
            (M::SendWithInvalidate, rkey_of_all) => {
                SendOperation::SendWithInvalidate { rkey: rkey.unwrap_or(rkey_of_all) }
            }
            (M::SendTo, _) => {
                let destination = self.destination.expect("datagrams should have a destination");
                SendOperation::SendTo {
                    destination,
                    imm_data: (number % 2 == 1).then_some(imm_data),
                }
            }
            (M::Write, rkey) => SendOperation::Write { remote_addr, rkey },
            (M::WriteWithImm, rkey) => SendOperation::WriteWithImm { remote_addr, rkey, imm_data },
            (M::Read, rkey) => SendOperation::Read { remote_addr, rkey },
            (M::CompareSwap, rkey) => {
                // Each second comparison fails.
                let compare = number_at(theirs, &there) + u64::from(small % 2);
                SendOperation::CompareSwap { remote_addr, rkey, compare, swap: add }
            }
            (M::FetchAdd, rkey) => SendOperation::FetchAdd { remote_addr, rkey, add },
            (M::AtomicWrite, rkey) => {
                SendOperation::AtomicWrite { remote_addr, rkey, bytes: add.to_ne_bytes() }
            }
        }
    }

    /// Posts the requests of a round, waits for them, and compares.
    fn run(&mut self, round: Round) {
        let Round { movement, count, .. } = round;
        let size = count * round.slot();
        self.rounds += 1;
        let mut ours = self.base[self.rounds..][..size].to_vec();
        let mut theirs = self.base[self.rounds + 1000..][..size].to_vec();
        self.from.fill(0, &ours);
        self.to.fill(0, &theirs);
        let keys: Vec<Key> =
            (0..count).filter(|_| movement == M::SendWithInvalidate).map(|_| self.key()).collect();
        if movement.completes_receive() {
            self.post_receives(round);
        }
        let mut refusals = 0;
        let qp = self.from.qp();
        let mut queue = qp.lock_send_queue().expect("send queue");
        for number in 0..count {
            let operation = self.operation(round, number, keys.get(number).map(Key::rkey), &theirs);
            self.push(&mut queue, round, number, operation, &ours)
                .expect("the queue should have room");
            let (here, there) = (round.here(number), round.there(number));
            match operation {
                SendOperation::Read { .. } => scatter(&mut ours, &here, &gather(&theirs, &there)),
                SendOperation::CompareSwap { compare, swap, .. } => {
                    let before = number_at(&theirs, &there);
                    scatter(&mut ours, &here, &before.to_ne_bytes());
                    if before == compare {
                        scatter(&mut theirs, &there, &swap.to_ne_bytes());
                    }
                }
                SendOperation::FetchAdd { add, .. } => {
                    let before = number_at(&theirs, &there);
                    scatter(&mut ours, &here, &before.to_ne_bytes());
                    scatter(&mut theirs, &there, &before.wrapping_add(add).to_ne_bytes());
                }
                SendOperation::AtomicWrite { bytes, .. } => scatter(&mut theirs, &there, &bytes),
                _ => scatter(&mut theirs, &there, &gather(&ours, &here)),
            }
        }
        if count == qp.caps().max_send_wr as usize {
            // The kernel may have executed a request already. Then the push succeeds, and the request has no effect.
            if let Err(refused) = self.push_nothing(&mut queue) {
                assert_invalid(&refused, &["the queue is full", &format!("{count} requests")]);
                refusals += 1;
            }
        }
        queue.ring_doorbell().expect("ring");
        drop(queue);
        self.refusals += refusals;
        for number in (0..count).filter(|_| movement.completes_receive()) {
            let operation = self.operation(round, number, keys.get(number).map(Key::rkey), &theirs);
            self.received(round, number, operation, &mut theirs);
        }
        for number in (0..count).filter(|number| round.is_signaled(*number)) {
            self.done(self.from, number as u64, round);
        }
        if !movement.completes_receive() && movement != M::Read {
            self.send_empty();
        }
        assert!(self.from.polled().is_none() && self.to.polled().is_none(), "{round:?}: too many");
        for (io, expected, side) in
            [(&*self.from, ours, "posting side"), (&*self.to, theirs, "target side")]
        {
            let found = io.bytes(0..size);
            if found != expected {
                let at = found.iter().zip(&expected).position(|(one, other)| one != other);
                panic!("{:?}, {round:?}: {side} differs at {at:?}", self.transport);
            }
        }
    }

    fn push(
        &self,
        queue: &mut SendQueueGuard<'_>,
        round: Round,
        number: usize,
        operation: SendOperation<'_>,
        ours: &[u8],
    ) -> rdmacm::Result<()> {
        let (here, wr_id) = (round.here(number), number as u64);
        let signaled = round.is_signaled(number);
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        match round.inline {
            true => push_inline(queue, wr_id, operation, &gather(ours, &here), flags),
            false => self.from.push_parts(queue, wr_id, operation, &here, flags),
        }
    }

    /// Pushes a request without effect and without a completion.
    fn push_nothing(&self, queue: &mut SendQueueGuard<'_>) -> rdmacm::Result<()> {
        let (remote_addr, rkey) = (self.to.memory().addr(), self.to.memory().rkey());
        let operation = match self.destination {
            None => SendOperation::Write { remote_addr, rkey },
            Some(destination) => {
                let destination = Destination { qp_num: 0xff_fff0, ..destination };
                SendOperation::SendTo { destination, imm_data: None }
            }
        };
        self.from.push_parts(queue, 0, operation, &[], SendFlags::empty())
    }

    fn post_receives(&self, round: Round) {
        for number in 0..round.count {
            self.to.receive_into(number as u64, &round.receive(number)).expect("post a receive");
        }
        if round.count == self.to.qp().caps().max_recv_wr as usize {
            let refused = self.to.receive_into(0, &[]).expect_err("the queue should be full");
            assert_invalid(&refused, &["the queue is full"]);
        }
    }

    /// Waits for the receive of request `number`.
    fn received(
        &self,
        round: Round,
        number: usize,
        operation: SendOperation<'_>,
        theirs: &mut [u8],
    ) {
        let done = self.done(self.to, number as u64, round);
        let mut length = round.length;
        let (mut imm, mut invalidated) = (None, None);
        match operation {
            SendOperation::SendWithImm { imm_data }
            | SendOperation::WriteWithImm { imm_data, .. } => imm = Some(imm_data),
            SendOperation::SendTo { imm_data, .. } => {
                let start = round.receive(number)[0].start;
                let header = start..start + GRH_LENGTH;
                theirs[header.clone()].copy_from_slice(&self.to.bytes(header));
                length += GRH_LENGTH;
                imm = imm_data;
            }
            SendOperation::SendWithInvalidate { rkey } => {
                // siw does not report the key.
                invalidated = (self.transport != Transport::Iwarp).then_some(rkey);
            }
            _ => {}
        }
        assert_eq!(done.byte_len() as usize, length, "{round:?}");
        assert_eq!((done.imm_data(), done.invalidated_rkey()), (imm, invalidated), "{round:?}");
    }

    /// Returns the next completion, which must be the successful one of `wr_id`.
    fn done(&self, io: &Io, wr_id: u64, round: Round) -> Completion {
        let what = || format!("{:?}, {round:?}", self.transport);
        let mut done = [Completion::default()];
        let count = io.cq().wait_timeout(&mut done, LONG).expect("wait for a completion");
        assert_eq!(count, 1, "{}: {wr_id} does not complete", what());
        assert!(done[0].is_success() && done[0].wr_id() == wr_id, "{}: {:?}", what(), done[0]);
        done[0]
    }

    /// Sends a message without bytes. When it has arrived, all earlier writes have taken effect.
    fn send_empty(&self) {
        self.to.receive_into(100, &[]).expect("post a receive");
        self.from.post_parts(101, SendOperation::Send, &[], SendFlags::SIGNALED).expect("post");
        self.to.done(100);
        self.from.done(101);
    }

    /// Runs each operation in each combination of length, entries, signaling and inline data.
    fn sweep(&mut self) {
        let (ours, theirs) = (self.from.qp().caps(), self.to.qp().caps());
        let [depth, receives, most, inline] = [
            ours.max_send_wr,
            theirs.max_recv_wr,
            ours.max_send_sge.min(theirs.max_recv_sge),
            ours.max_inline_data,
        ]
        .map(|number| number as usize);
        let longest = self.transport.longest();
        for movement in self.transport.movements() {
            let depth = if movement.completes_receive() { depth.min(receives) } else { depth };
            let is_one = movement == M::Read && self.transport == Transport::Iwarp;
            let sges = |sges| if is_one { 1 } else { sges };
            let mut run = |count, length, sges, every, inline| {
                self.run(Round { movement, count, length, sges, every, inline });
            };
            if !movement.is_atomic() {
                let several = [1, 2, 3, most].map(sges).into_iter().cycle();
                let lengths = LENGTHS.into_iter().filter(|length| *length <= longest);
                lengths.zip(several).for_each(|(length, sges)| run(1, length, sges, 1, false));
            }
            for (several, every) in [(1, 1), (2, 3), (most, depth), (most, 1)] {
                let length = if movement.is_atomic() { 8 } else { longest.min(41 * several) };
                run(depth, length, sges(several), every, false);
            }
            if movement.is_inline() {
                for length in [0, 1, inline - 1, inline] {
                    run(depth, length, 1, depth, true);
                }
            }
        }
        assert!(self.refusals > 0, "a queue should have been full");
    }
}

/// Returns a shape with queues of an odd depth, and with the device's maximum of entries.
fn shape(device_name: &str) -> Shape {
    let context = rdmacm::verbs::Context::open(&device(device_name)).expect("open");
    let most = context.query_device().expect("query the device").max_sge;
    let caps = QueuePairCaps {
        max_send_wr: 13,
        max_recv_wr: 13,
        max_send_sge: most,
        max_recv_sge: most,
        max_inline_data: 64,
        ..QueuePairCaps::default()
    };
    let mut access = Shape::default().access;
    if device_name == roce_name() {
        access |= AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
        access |= AccessFlags::IB_UVERBS_ACCESS_MW_BIND;
    }
    Shape { caps, memory: LARGEST + 4096, access, ..Shape::default() }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn operations_work_on_reliable_connections() {
    let [mut from, mut to] = manual_qp::connected(QpType::IB_UVERBS_QPT_RC, shape(roce_name()));
    Link::new(Transport::Reliable, [&mut from, &mut to], None).sweep();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn operations_work_on_unreliable_connections() {
    let [mut from, mut to] = manual_qp::connected(QpType::IB_UVERBS_QPT_UC, shape(roce_name()));
    Link::new(Transport::Unreliable, [&mut from, &mut to], None).sweep();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn operations_work_for_datagrams() {
    let [mut from, mut to] = [(); 2].map(|()| manual_qp::datagrams(shape(roce_name())));
    let handle = AddressHandle::new(from.qp().pd(), &manual_qp::address()).expect("address handle");
    let destination = Destination { address: &handle, qp_num: to.qp().number(), qkey: QKEY };
    Link::new(Transport::Datagrams, [&mut from, &mut to], Some(destination)).sweep();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn operations_work_on_siw0() {
    let param = ConnParam { responder_resources: 4, initiator_depth: 4, ..ConnParam::default() };
    let mut connection = Connection::to(siw(0), shape("siw0"), &param);
    let Connection { client, server, .. } = &mut connection;
    Link::new(Transport::Iwarp, [&mut client.io, &mut server.io], None).sweep();
    connection.close();
}
