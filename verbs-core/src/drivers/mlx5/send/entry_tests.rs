//! Tests of the entries of a send queue: their bytes, their places in the ring, and the requests that are refused.
//!
//! Both functions store each frequent request, and must store the same bytes. The expected bytes are from the segments
//! in the "Work Queue Element" chapter of the ConnectX-4 programmer's reference manual.

use std::sync::Mutex;

use super::super::memory::QueueMemory;
use super::super::register::{Slot, Use, stored};
use super::super::table::UserIndex;
use super::*;
use crate::driver::dma::{Event, log};
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;

const QP: u32 = 0x12_3456;
const RTS: QpState = QpState::IB_QPS_RTS;

/// The function that stores a request: `try_store` or `store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Fast,
    Complete,
}

const PATHS: [Path; 2] = [Path::Fast, Path::Complete];

struct Queue {
    ring: SendRing,
    page: Arc<Mapping>,
    file: UverbsFile,
    changing: Mutex<()>,
}

impl Queue {
    /// Creates a queue of `blocks` blocks for `requests` requests.
    ///
    /// A request has up to three scatter/gather entries or 60 inline bytes.
    fn new(blocks: u32, requests: u32, options: Options) -> Self {
        Self::with_register(blocks, requests, options, Use::Dedicated)
    }

    fn with_register(blocks: u32, requests: u32, options: Options, used_by: Use) -> Self {
        let memory = QueueMemory::new([blocks as usize * 64]).expect("memory");
        let table = Table::new(QP, blocks, 0, None, Arc::new(UserIndex::NONE));
        let current = Current::new(table, memory.record.clone());
        let page = Arc::new(Mapping::private(4096).expect("memory"));
        let slot = Slot::new(&page, 0x800, 512, used_by).expect("the slot should fit");
        let [ring] = memory.rings;
        let size = SendSize { blocks, requests, max_inline: 60 };
        let register = Register::new(slot, true);
        let ring = SendRing::new(ring, memory.record, register, current, size, 3, options);
        Self { ring, page, file: UverbsFile::silent(), changing: Mutex::default() }
    }

    fn plain(blocks: u32, requests: u32) -> Self {
        Self::new(blocks, requests, Options::new(false, false, false))
    }

    fn doorbell(&mut self) {
        let at = Doorbell { file: &self.file, handle: 0, changing: &self.changing };
        self.ring.ring(at).expect("ring");
    }

    fn post_in(&mut self, state: QpState, path: Path, request: &SendRequest<'_>) -> Posted<bool> {
        let at = Doorbell { file: &self.file, handle: 0, changing: &self.changing };
        match path {
            // SAFETY: no device uses the memory that the request names.
            Path::Fast => Ok(unsafe { self.ring.try_store(state, request) }),
            // SAFETY: no device uses the memory that the request names.
            Path::Complete => unsafe { self.ring.store(at, state, request) }.map(|()| true),
        }
    }

    #[track_caller]
    fn post(&mut self, path: Path, request: &SendRequest<'_>) {
        assert!(matches!(self.post_in(RTS, path, request), Ok(true)), "{request:?} by {path:?}");
    }

    /// Returns the `units` units from block `block` on.
    fn units(&self, block: usize, units: usize) -> Vec<[u8; 16]> {
        let word = |index: usize| {
            let offset = block * 64 + index * 8;
            self.ring.ring.block(offset).word(index % WORDS_OF_BLOCK).to_ne_bytes()
        };
        let unit = |index: usize| [word(2 * index), word(2 * index + 1)].concat();
        (0..units).map(|index| unit(index).try_into().expect("16 bytes")).collect()
    }

    /// Asserts that the entry at `block` consists of `expected`.
    #[track_caller]
    fn assert_entry(&self, block: usize, expected: &[[u8; 16]]) {
        assert_eq!(self.units(block, expected.len()), expected, "block {block}");
    }
}

const WORDS_OF_BLOCK: usize = 8;

fn request<'a>(operation: SendOperation<'a>, payload: Payload<'a>) -> SendRequest<'a> {
    SendRequest { wr_id: 5, operation, payload, flags: SendFlags::empty() }
}

fn sge(addr: u64, length: u32) -> Sge {
    Sge { addr: addr.into(), length, lkey: 0x0708_090a }
}

/// Returns the control segment of an entry at `index` without flags.
fn control(index: u8, opcode: u8, units: u8) -> [u8; 16] {
    [0, 0, index, opcode, 0x12, 0x34, 0x56, units, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn with_immediate(mut control: [u8; 16], immediate: [u8; 4]) -> [u8; 16] {
    control[12..].copy_from_slice(&immediate);
    control
}

const POINTER: [u8; 16] = [0, 0, 0, 32, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0x10, 0];
const LONG_POINTER: [u8; 16] = [0x7f, 255, 255, 255, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0x20, 0];
const REMOTE: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0];
const REMOTE_ADDR: u64 = 0x0102_0304_0506_0708;
const RKEY: u32 = 0x090a_0b0c;

#[test]
fn frequent_operation_has_its_bytes() {
    let (remote_addr, rkey, imm_data) = (REMOTE_ADDR, RKEY, 0x0d0e_0f10);
    let number = [13, 14, 15, 16];
    let sges = [sge(0x1000, 32), sge(0x3000, 0), sge(0x2000, TOO_LONG - 1)];
    for path in PATHS {
        for (operation, before) in [
            (SendOperation::Send, vec![control(0, 0x0a, 3)]),
            (
                SendOperation::SendWithImm { imm_data },
                vec![with_immediate(control(0, 0x0b, 3), number)],
            ),
            (SendOperation::Write { remote_addr, rkey }, vec![control(0, 8, 4), REMOTE]),
            (
                SendOperation::WriteWithImm { remote_addr, rkey, imm_data },
                vec![with_immediate(control(0, 9, 4), number), REMOTE],
            ),
            (SendOperation::Read { remote_addr, rkey }, vec![control(0, 0x10, 4), REMOTE]),
        ] {
            let mut queue = Queue::plain(4, 4);
            queue.post(path, &request(operation, Payload::Gather(&sges)));
            let expected = [&before[..], &[POINTER, LONG_POINTER, [0; 16]]].concat();
            queue.assert_entry(0, &expected);
        }
    }
}

#[test]
fn inline_data_follows_its_length() {
    let data: Vec<u8> = (1..=60).collect();
    for path in PATHS {
        for (length, units, blocks) in
            [(0, 1_u8, 1), (1, 2, 1), (12, 2, 1), (13, 3, 1), (44, 4, 1), (45, 5, 2), (60, 5, 2)]
        {
            let mut queue = Queue::plain(4, 4);
            // The bytes of an earlier entry are not sent.
            (0..16).for_each(|unit| queue.ring.ring.put(unit * UNIT, [u64::MAX; 2]));
            queue.post(path, &request(SendOperation::Send, Payload::Inline(&data[..length])));
            let mut bytes = control(0, 0x0a, units).to_vec();
            if length > 0 {
                let header = 0x8000_0000 | u32::try_from(length).expect("the length should fit");
                bytes.extend(header.to_be_bytes());
                bytes.extend(&data[..length]);
                bytes.resize(usize::from(units) * 16, 0);
            }
            assert_eq!(queue.units(0, units.into()).concat(), bytes, "{length} bytes by {path:?}");
            assert_eq!(queue.ring.next, blocks, "{length} bytes by {path:?}");
        }
    }
}

#[test]
fn other_operation_has_its_bytes() {
    let (remote_addr, rkey) = (REMOTE_ADDR, RKEY);
    let atomic = [
        [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    let result = [sge(0x1000, 32)];
    for (operation, expected) in [
        (
            SendOperation::SendWithInvalidate { rkey },
            vec![with_immediate(control(0, 1, 2), [9, 10, 11, 12]), POINTER],
        ),
        (
            SendOperation::CompareSwap { remote_addr, rkey, compare: 1, swap: 2 },
            vec![control(0, 0x11, 4), REMOTE, atomic[0], POINTER],
        ),
        (
            SendOperation::FetchAdd { remote_addr, rkey, add: 3 },
            vec![control(0, 0x12, 4), REMOTE, atomic[1], POINTER],
        ),
    ] {
        let mut queue = Queue::plain(4, 4);
        let request = request(operation, Payload::Gather(&result));
        assert!(
            matches!(queue.post_in(RTS, Path::Fast, &request), Ok(false)),
            "the fast path should refuse the request"
        );
        queue.post(Path::Complete, &request);
        queue.assert_entry(0, &expected);
    }
}

#[test]
fn datagram_has_address_qp_number_and_qkey() {
    let pd = crate::work::PdNumber::next();
    let vector: [Unit; 3] = [[0, pair(0, 0x7a00_e341)], [u64::MAX; 2], [7; 2]];
    let address = crate::work::AddressVector::new(pd, &vector);
    let destination =
        crate::work::Destination { address: &address, qp_num: 0x11_2233, qkey: 0x4455_6677 };
    let mut queue = Queue::plain(4, 4);
    let payload = Payload::Gather(&[]);
    let flags = SendFlags::empty();
    for (index, imm_data, opcode) in [(0, None, 0x0a), (1, Some(0x0102_0304), 0x0b)] {
        let operation = SendOperation::SendTo { destination, imm_data };
        queue.post(Path::Complete, &SendRequest { wr_id: 1, operation, payload, flags });
        let number = imm_data.unwrap_or(0).to_be_bytes();
        let first =
            [0x44, 0x55, 0x66, 0x77, 0, 0, 0, 0, 0x80, 0x11, 0x22, 0x33, 0x7a, 0, 0xe3, 0x41];
        let [_, second, third] = vector.map(|[low, high]| {
            [low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().expect("16 bytes")
        });
        queue.assert_entry(
            index,
            &[
                with_immediate(control(u8::try_from(index).expect("small"), opcode, 4), number),
                first,
                second,
                third,
            ],
        );
    }
}

#[test]
fn entries_continue_at_ring_start() {
    let sges = [sge(0x1000, 32); 3];
    let short = request(SendOperation::Send, Payload::Gather(&[]));
    let write = SendOperation::Write { remote_addr: REMOTE_ADDR, rkey: RKEY };
    // Five units take two blocks.
    let long = request(write, Payload::Gather(&sges));
    for path in PATHS {
        let mut queue = Queue::plain(4, 3);
        queue.post(path, &short);
        queue.post(path, &long);
        queue.post(path, &short);
        queue.assert_entry(0, &[control(0, 0x0a, 1)]);
        queue.assert_entry(1, &[control(1, 8, 5), REMOTE, POINTER, POINTER, POINTER]);
        queue.assert_entry(3, &[control(3, 0x0a, 1)]);
        // The queue is full until a request has completed, and a refused request does not change the ring.
        let before = queue.units(0, 16);
        match path {
            Path::Fast => assert!(matches!(queue.post_in(RTS, path, &long), Ok(false))),
            Path::Complete => {
                assert!(matches!(queue.post_in(RTS, path, &long), Err(PostError::Full(3))))
            }
        }
        assert_eq!(queue.units(0, 16), before);
        assert_eq!(queue.ring.table.complete_send(1), Some(5));
        // The entry begins in the last place and continues in the first one.
        assert_eq!(queue.ring.table.complete_send(3), Some(5));
        queue.post(path, &short);
        queue.post(path, &short);
        queue.post(path, &short);
        queue.assert_entry(0, &[control(4, 0x0a, 1)]);
        queue.assert_entry(2, &[control(6, 0x0a, 1)]);
        assert_eq!(queue.ring.table.complete_send(6), Some(5));
        queue.post(path, &long);
        queue.assert_entry(3, &[control(7, 8, 5), REMOTE, POINTER, POINTER]);
        queue.assert_entry(0, &[POINTER]);
        assert_eq!(queue.ring.next, 9);
    }
}

#[test]
fn refused_request_takes_no_place() {
    let sges = [sge(0x1000, 32); 4];
    let long = [sge(0x1000, TOO_LONG)];
    let gather = |sges| request(SendOperation::Send, Payload::Gather(sges));
    for path in PATHS {
        let mut queue = Queue::plain(4, 4);
        for (state, refused) in [
            (RTS, gather(&sges[..])),
            (RTS, gather(&long)),
            (RTS, request(SendOperation::Send, Payload::Inline(&[1; 61]))),
            (QpState::IB_QPS_RTR, gather(&sges[..1])),
        ] {
            let posted = queue.post_in(state, path, &refused);
            assert!(matches!(posted, Ok(false) | Err(_)), "{refused:?} by {path:?}");
            assert_eq!((queue.ring.next, queue.ring.requests, queue.ring.unrung), (0, 0, 0));
        }
        queue.post(path, &gather(&sges[..3]));
        queue.assert_entry(0, &[control(0, 0x0a, 4), POINTER, POINTER, POINTER]);
    }
    let unsupported = [
        SendOperation::AtomicWrite { remote_addr: 0, rkey: 0, bytes: [0; 8] },
        SendOperation::AtSharedQueue { srq_number: 1, operation: &SendOperation::Send },
    ];
    let mut queue = Queue::plain(4, 4);
    for operation in unsupported {
        let request = request(operation, Payload::Gather(&[]));
        assert!(queue.post_in(RTS, Path::Complete, &request).is_err(), "{request:?}");
        assert_eq!(queue.ring.next, 0);
    }
}

#[test]
fn entry_has_flags_of_request_and_queue() {
    for (flags, bits) in [
        (SendFlags::empty(), 0),
        (SendFlags::SIGNALED, 8),
        (SendFlags::SOLICITED, 2),
        (SendFlags::FENCE, 0x80),
        (SendFlags::all(), 0x8a),
    ] {
        for (path, signals_all) in PATHS.into_iter().flat_map(|path| [(path, false), (path, true)])
        {
            let mut queue = Queue::new(4, 4, Options::new(signals_all, false, false));
            let request =
                SendRequest { flags, ..request(SendOperation::Send, Payload::Gather(&[])) };
            queue.post(path, &request);
            let expected = if signals_all { bits | 8 } else { bits };
            assert_eq!(queue.units(0, 1)[0][8..12], [0, 0, 0, expected], "{flags:?}");
        }
    }
}

#[test]
fn request_after_key_invalidation_is_fenced() {
    let invalidation = request(SendOperation::LocalInvalidate { rkey: 3 }, Payload::Gather(&[]));
    let send = request(SendOperation::Send, Payload::Gather(&[]));
    let fenced = SendRequest { flags: SendFlags::FENCE, ..send };
    let flags = |queue: &Queue, block| queue.units(block, 1)[0][11];
    for (next, expected) in [(send, 0x20), (fenced, 0x80)] {
        let mut queue = Queue::plain(16, 8);
        queue.post(Path::Complete, &invalidation);
        assert_eq!((queue.ring.next, flags(&queue, 0)), (2, 0));
        assert_eq!(queue.ring.table.key_change(0), KeyChange::Invalidation);
        // The fast path does not set this fence.
        assert!(matches!(queue.post_in(RTS, Path::Fast, &next), Ok(false)));
        queue.post(Path::Complete, &next);
        queue.post(Path::Fast, &send);
        assert_eq!([flags(&queue, 2), flags(&queue, 3)], [expected, 0]);
        // A step to RESET removes the fence.
        queue.post(Path::Complete, &invalidation);
        queue.ring.current.reset(&[]);
        queue.post(Path::Complete, &send);
        assert_eq!((queue.ring.next, flags(&queue, 0)), (1, 0));
    }
}

#[test]
fn initiator_names_shared_receive_queue() {
    let options = Options::new(false, true, false);
    let number = |number: u8| [0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut queue = Queue::new(16, 4, options);
    let operation = SendOperation::AtSharedQueue { srq_number: 9, operation: &SendOperation::Send };
    let send = request(operation, Payload::Gather(&[]));
    assert!(matches!(queue.post_in(RTS, Path::Fast, &send), Ok(false)));
    queue.post(Path::Complete, &send);
    queue.assert_entry(0, &[control(0, 0x0a, 2), number(9)]);
    let plain = request(SendOperation::Send, Payload::Gather(&[]));
    assert!(matches!(queue.post_in(RTS, Path::Complete, &plain), Err(PostError::Invalid(_))));
    // A request of a queue pair in ERR completes and is not executed.
    assert!(matches!(queue.post_in(QpState::IB_QPS_ERR, Path::Complete, &plain), Ok(true)));
    queue.assert_entry(1, &[control(1, 0x0a, 2), number(0)]);
    let invalidation = request(SendOperation::LocalInvalidate { rkey: 3 }, Payload::Gather(&[]));
    queue.post(Path::Complete, &invalidation);
    assert_eq!(queue.units(2, 1)[0][3], 0x25);
    assert_eq!(queue.units(2, 2)[1][0], 0x98, "the entry should name no queue");
}

#[test]
fn only_short_single_entry_is_copied_to_register() {
    let send = request(SendOperation::Send, Payload::Gather(&[]));
    let sges = [sge(0x1000, 32)];
    let gathered = request(SendOperation::Send, Payload::Gather(&sges));
    let inline = request(SendOperation::Send, Payload::Inline(&[7; 12]));
    let first = |queue: &Queue, block: usize| queue.ring.ring.block(block * 64).word(0);
    for copies_inline_only in [false, true] {
        let mut queue = Queue::new(8, 8, Options::new(false, false, copies_inline_only));
        queue.doorbell();
        assert_eq!(stored(&queue.page, 0x800), 0, "no request should be stored");
        // Buffers have 256 bytes, and doorbells alternate between the buffers. The third word belongs to the data.
        queue.post(Path::Complete, &inline);
        queue.doorbell();
        assert_eq!(stored(&queue.page, 0x800), first(&queue, 0));
        assert_eq!(stored(&queue.page, 0x810), queue.ring.ring.block(0).word(2));
        assert_eq!(queue.ring.record.load(Word::Second), 1);
        queue.post(Path::Complete, &gathered);
        queue.doorbell();
        let copied = if copies_inline_only { 0 } else { queue.ring.ring.block(64).word(2) };
        assert_eq!(
            [stored(&queue.page, 0x900), stored(&queue.page, 0x910)],
            [first(&queue, 1), copied]
        );
        // For two requests, only the first word of the last one is stored.
        queue.post(Path::Complete, &send);
        queue.post(Path::Complete, &inline);
        queue.doorbell();
        assert_eq!(stored(&queue.page, 0x800), first(&queue, 3));
        assert_eq!(
            stored(&queue.page, 0x818),
            queue.ring.ring.block(0).word(3),
            "this word should be unchanged"
        );
        assert_eq!(queue.ring.record.load(Word::Second), 4);
        queue.doorbell();
        assert_eq!(
            stored(&queue.page, 0x900),
            first(&queue, 1),
            "no other request should be stored"
        );
    }
}

#[test]
fn post_orders_entry_record_and_register() {
    for (used_by, before_register) in [
        (Use::Dedicated, Event::WriteCombiningBarrier),
        (Use::Shared, Event::WriteCombiningBarrierInLock),
    ] {
        // One request is copied to the register, and the doorbell of two is one word.
        for (path, count) in PATHS.into_iter().flat_map(|path| [(path, 1), (path, 2)]) {
            let options = Options::new(false, false, false);
            let mut queue = Queue::with_register(16, 4, options, used_by);
            let data = [sge(0x1000, 32)];
            let events = log::during(|| {
                for _ in 0..count {
                    queue.post(path, &request(SendOperation::Send, Payload::Gather(&data)));
                }
                queue.doorbell();
            });
            let expected = [
                Event::Entry,
                Event::StoreBarrier,
                Event::Doorbell,
                before_register,
                Event::Register,
                Event::WriteCombiningBarrier,
            ];
            assert_eq!(events, expected, "{used_by:?}, {count} requests by {path:?}");
        }
    }
}
