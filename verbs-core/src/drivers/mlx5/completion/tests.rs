mod sweep;

use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

use super::super::memory::QueueMemory;
use super::super::table::{SharedTable, UserIndex, UserIndices};
use super::translation::{UNKNOWN_OPCODE, UNKNOWN_REQUEST, status};
use super::*;
use crate::driver::dma::{Event, log};
use crate::work::{WcOpcode, WcStatus};

/// A completion queue of four entries, which the test writes as the device does.
struct Device {
    shared: Arc<Shared>,
    ring: CqRing,
    file: UverbsFile,
    written: u32,
    indices: Arc<UserIndices>,
}

impl Device {
    fn new(names_user_index: bool) -> Self {
        let memory = QueueMemory::new([4 * 64]).expect("memory");
        let ring = CompletionRing::new(memory.mapping, 4, 6);
        let shared = Shared::new(ring, memory.record, names_user_index, Registers::absent(), 9);
        let ring = CqRing::new(Arc::clone(&shared));
        let (file, indices) = (UverbsFile::silent(), UserIndices::new());
        Self { shared, ring, file, written: 0, indices }
    }

    /// Creates the table of a queue pair with four blocks and four receives.
    fn qp(&self, number: u32, srq: Option<Arc<SharedTable>>) -> Arc<Table> {
        let index = match self.shared.names_user_index {
            true => self.indices.take().expect("an index"),
            false => UserIndex::NONE,
        };
        let table = Arc::new(Table::new(number, 4, 4, srq, Arc::new(index)));
        self.shared.add(&table);
        table
    }

    /// Writes a completion of `table`.
    fn complete(&mut self, table: &Table, opcode: u8, fields: &[Field<'_>]) {
        let index = self.written;
        let ring = &self.ring.ring;
        (0..64).for_each(|at| ring.write(index, at, &[if at == 63 { 0xf0 } else { 0 }]));
        let user_index = match self.shared.names_user_index {
            true => table.user_index.index,
            false => 0,
        };
        ring.write(index, at::USER_INDEX, &user_index.to_be_bytes());
        ring.write(index, at::OPCODE_AND_QP, &table.qp_num.to_be_bytes());
        fields.iter().for_each(|(offset, bytes)| ring.write(index, *offset, bytes));
        ring.store_owner(index, opcode);
        self.written += 1;
    }

    /// Writes the entry that ends the ring, and moves the completions to a ring of `entries`.
    fn resize(&mut self, entries: u32) -> Result<(), CreateError> {
        self.ring.ring.store_owner(self.written, opcode::RESIZED);
        self.written += 1;
        self.move_to(entries)
    }

    fn move_to(&mut self, entries: u32) -> Result<(), CreateError> {
        let memory = QueueMemory::new([entries as usize * 64]).expect("memory");
        let ring = CompletionRing::new(memory.mapping, entries, 6);
        let shared = Arc::clone(&self.shared);
        let mut changing = ignore_poison(shared.changing.lock());
        self.ring.move_to(ring, &mut changing)
    }

    fn poll(&mut self) -> Result<Option<ib_uverbs_wc>, PollError> {
        let mut into = [Completion::default()];
        let taken = self.ring.try_poll(&mut into).or_else(|| self.ring.try_take(&mut into));
        let count = match taken {
            Some(count) => count,
            None => self.ring.poll(&self.file, &mut into)?,
        };
        Ok((count == 1).then_some(into[0].0))
    }

    #[track_caller]
    fn polls(&mut self) -> ib_uverbs_wc {
        self.poll().expect("poll").expect("a completion")
    }

    #[track_caller]
    fn fails(&mut self, reason: &str) {
        match self.poll() {
            Err(PollError::Malformed(found)) => assert_eq!(found, reason),
            other => panic!("{other:?} instead of an error"),
        }
    }
}

/// Bytes of a completion, and their offset.
type Field<'a> = (usize, &'a [u8]);

const COUNTER_1: Field<'static> = (at::COUNTER, &[0, 1]);
const COUNTER_2: Field<'static> = (at::COUNTER, &[0, 2]);

#[test]
fn sends_complete_in_all_rounds_of_ring() {
    for names_user_index in [true, false] {
        let mut device = Device::new(names_user_index);
        let qp = device.qp(17, None);
        for number in 0..20_u32 {
            assert!(device.poll().expect("poll").is_none());
            let block = number % 4;
            qp.post_send(block, number, u64::from(number) + 5);
            let counter = u16::try_from(block).expect("the number fits").to_be_bytes();
            device.complete(&qp, opcode::REQUEST, &[(at::COUNTER, &counter)]);
            let completion = device.polls();
            assert_eq!(completion.wr_id.get(), u64::from(number) + 5);
            assert_eq!((completion.qp_num, completion.byte_len), (17, 0));
            assert_eq!(completion.opcode, WcOpcode::IB_UVERBS_WC_SEND);
            assert_eq!(device.shared.record.load(Word::First), number + 1);
        }
    }
}

#[test]
fn read_and_atomic_have_lengths() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    for (number, (operation, wanted, length)) in [
        (0x10, WcOpcode::IB_UVERBS_WC_RDMA_READ, 300),
        (0x11, WcOpcode::IB_UVERBS_WC_COMP_SWAP, 8),
        (0x12, WcOpcode::IB_UVERBS_WC_FETCH_ADD, 8),
        (0x08, WcOpcode::IB_UVERBS_WC_RDMA_WRITE, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let number = u32::try_from(number).expect("the number fits");
        qp.post_send(number, number, 0);
        let counter = u16::try_from(number).expect("the number fits").to_be_bytes();
        let word = (operation << 24 | 17_u32).to_be_bytes();
        let fields: [Field<'_>; 3] = [
            (at::COUNTER, &counter),
            (at::OPCODE_AND_QP, &word),
            (at::BYTES, &300_u32.to_be_bytes()),
        ];
        device.complete(&qp, opcode::REQUEST, &fields);
        let completion = device.polls();
        assert_eq!((completion.opcode, completion.byte_len), (wanted, length));
    }
}

#[test]
fn receive_has_sender_and_number() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    (0..3).for_each(|number| qp.post_receive(number, u64::from(number) + 7));
    let fields: [Field<'_>; 5] = [
        (at::FLAGS_AND_SOURCE, &[0x15, 1, 2, 3]),
        (at::IMMEDIATE, &[1, 2, 3, 4]),
        (at::BYTES, &[0, 0, 1, 0]),
        (at::SLID, &[0x12, 0x34]),
        (at::PATH, &[0x89]),
    ];
    device.complete(&qp, opcode::SEND_WITH_IMMEDIATE, &fields);
    let completion = device.polls();
    assert_eq!((completion.wr_id.get(), completion.byte_len), (7, 256));
    assert_eq!((completion.src_qp, completion.sl, completion.slid), (0x01_0203, 5, 0x1234));
    assert_eq!(completion.dlid_path_bits, 9);
    assert_eq!(completion.imm_data().map(verbs_abi::Be32::get), Some(0x0102_0304));
    assert!(completion.wc_flags.contains(ib_wc_flags::IB_WC_GRH));
    device.complete(&qp, opcode::SEND_WITH_INVALIDATE, &fields[1..2]);
    let completion = device.polls();
    assert_eq!(completion.invalidate_rkey(), Some(0x0102_0304));
    assert!(!completion.wc_flags.contains(ib_wc_flags::IB_WC_GRH));
    device.complete(&qp, opcode::WRITE_WITH_IMMEDIATE, &[]);
    assert_eq!(device.polls().opcode, WcOpcode::IB_WC_RECV_RDMA_WITH_IMM);
    device.complete(&qp, opcode::SEND, &[]);
    device.fails(UNKNOWN_REQUEST);
}

#[test]
fn failure_has_status_and_vendor_error() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    qp.post_send(1, 0, 3);
    qp.post_receive(0, 4);
    let [vendor, syndrome]: [Field<'_>; 2] = [(at::VENDOR_ERROR, &[0x74]), (at::SYNDROME, &[0x13])];
    device.complete(&qp, opcode::REQUEST_ERROR, &[COUNTER_1, vendor, syndrome]);
    let completion = device.polls();
    assert_eq!((completion.wr_id.get(), completion.vendor_err), (3, 0x74));
    assert_eq!(completion.status, WcStatus::IB_WC_REM_ACCESS_ERR);
    device.complete(&qp, opcode::RECEIVE_ERROR, &[(at::SYNDROME, &[5])]);
    let completion = device.polls();
    assert_eq!((completion.wr_id.get(), completion.opcode), (4, WcOpcode::IB_WC_RECV));
    assert_eq!(completion.status, WcStatus::IB_WC_WR_FLUSH_ERR);
    assert_eq!(status(0x77), WcStatus::IB_WC_GENERAL_ERR);
}

#[test]
fn malformed_completion_is_reported_once() {
    for names_user_index in [true, false] {
        let mut device = Device::new(names_user_index);
        let qp = device.qp(17, None);
        qp.post_send(1, 0, 3);
        let user_index = Arc::new(device.indices.take().expect("an index"));
        let stranger = Table::new(18, 4, 4, None, user_index);
        device.complete(&qp, opcode::REQUEST, &[COUNTER_1]);
        device.complete(&stranger, opcode::REQUEST, &[]);
        let mut into = [Completion::default(); 4];
        // A completion before the malformed one is returned first.
        assert_eq!(device.ring.poll(&device.file, &mut into).expect("poll"), 1);
        device.fails(UNKNOWN_QP);
        qp.post_send(2, 1, 4);
        device.complete(&qp, opcode::REQUEST, &[COUNTER_2]);
        assert_eq!(device.polls().wr_id.get(), 4);
        let mut device = Device::new(names_user_index);
        let qp = device.qp(17, None);
        device.complete(&qp, 5, &[]);
        device.fails(UNKNOWN_OPCODE);
        let mut device = Device::new(names_user_index);
        let qp = device.qp(17, None);
        device.complete(&qp, opcode::REQUEST, &[]);
        device.fails(UNKNOWN_REQUEST);
    }
}

#[test]
fn completions_of_ended_generations_are_dropped() {
    for names_user_index in [true, false] {
        let mut device = Device::new(names_user_index);
        let qp = device.qp(17, None);
        let other = device.qp(18, None);
        qp.post_send(0, 0, 1);
        qp.post_send(1, 1, 2);
        other.post_send(1, 0, 3);
        device.complete(&qp, opcode::REQUEST, &[]);
        device.complete(&other, opcode::REQUEST, &[COUNTER_1]);
        device.complete(&qp, opcode::REQUEST, &[COUNTER_1]);
        // A step to RESET, with a request of the next generation that completes before anything is polled.
        let next = Arc::new(qp.emptied());
        device.shared.end(&qp);
        device.shared.add(&next);
        next.post_send(0, 0, 4);
        device.complete(&next, opcode::REQUEST, &[]);
        assert_eq!(device.polls().wr_id.get(), 3);
        assert_eq!(device.polls().wr_id.get(), 4);
        assert!(device.poll().expect("poll").is_none());
        assert_eq!(qp.sends_done(), 0, "the completions were not those of requests");
        // The next change removes generations whose completions have been polled from the list.
        device.shared.end(&other);
        assert_eq!(ignore_poison(device.shared.changing.lock()).generations.len(), 1);
        drop(qp);
    }
}

#[test]
fn number_is_reused_before_its_generation_ends() {
    let mut device = Device::new(false);
    let first = device.qp(17, None);
    first.post_send(1, 0, 5);
    device.complete(&first, opcode::REQUEST, &[COUNTER_1]);
    assert_eq!(device.polls().wr_id.get(), 5);
    // The kernel has destroyed the first queue pair, and the thread that destroyed it was slower than this one.
    let second = device.qp(17, None);
    for wr_id in [6, 7] {
        let number = wr_id - 6;
        second.post_send(1, number, wr_id.into());
        device.complete(&second, opcode::REQUEST, &[COUNTER_1]);
        if wr_id == 7 {
            device.shared.end(&first);
        }
        assert_eq!(device.polls().wr_id.get(), u64::from(wr_id));
    }
}

#[test]
fn user_index_is_free_when_its_completions_are_polled() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    qp.post_send(0, 0, 1);
    device.complete(&qp, opcode::REQUEST, &[]);
    device.shared.end(&qp);
    drop(qp);
    let second = device.qp(18, None);
    assert_eq!(second.user_index.index, 1, "a completion names the first index");
    assert!(device.poll().expect("poll").is_none());
    second.post_send(0, 0, 2);
    device.complete(&second, opcode::REQUEST, &[]);
    assert_eq!(device.polls().wr_id.get(), 2);
    let third = device.qp(19, None);
    third.post_send(0, 0, 3);
    device.complete(&third, opcode::REQUEST, &[]);
    assert_eq!(device.polls().wr_id.get(), 3);
    assert_eq!(device.qp(20, None).user_index.index, 0);
}

/// Creates a shared receive queue with three receives, and queue pair 17, which takes them.
///
/// Receives 5, 6 and 7 are in the first entries.
fn qp_with_shared_receives(device: &Device) -> (Arc<SharedTable>, Arc<Table>) {
    let memory = QueueMemory::new([4 * 32]).expect("memory");
    let links = super::super::memory::Links::of(&memory.rings[0], 5);
    let srq = Arc::new(SharedTable::new(links, 4, 4));
    [(0, 5), (1, 6), (2, 7)].into_iter().for_each(|(index, wr_id)| srq.post(index, wr_id));
    let qp = device.qp(17, Some(Arc::clone(&srq)));
    (srq, qp)
}

#[test]
fn shared_receive_outlives_its_queue_pair() {
    let mut device = Device::new(true);
    let (srq, qp) = qp_with_shared_receives(&device);
    device.complete(&qp, opcode::SEND, &[COUNTER_1]);
    assert_eq!(device.polls().wr_id.get(), 6);
    device.complete(&qp, opcode::SEND, &[]);
    qp.post_send(0, 0, 9);
    device.complete(&qp, opcode::REQUEST, &[]);
    device.shared.end(&qp);
    let completion = device.polls();
    assert_eq!((completion.wr_id.get(), completion.qp_num), (5, 17));
    assert!(device.poll().expect("poll").is_none(), "the send is dropped");
    assert_eq!(srq.complete(0), None, "the entry should be free");
    assert_eq!(srq.complete(2), Some(7));
}

#[test]
fn unpolled_receive_frees_entry_of_shared_queue() {
    let mut device = Device::new(true);
    let (srq, qp) = qp_with_shared_receives(&device);
    device.complete(&qp, opcode::SEND, &[COUNTER_1]);
    device.complete(&qp, opcode::SEND, &[]);
    device.shared.end(&qp);
    drop(device);
    assert_eq!([srq.complete(0), srq.complete(1), srq.complete(2)], [None, None, Some(7)]);
}

#[test]
fn end_is_found_after_overwritten_entries() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    for number in 0..6 {
        complete_sends(&mut device, &qp, number..number + 1);
        if number < 4 {
            device.polls();
        }
    }
    assert_eq!(device.shared.written(&device.ring.ring), 6);
}

/// Posts and completes sends with these numbers on queue pair `qp`.
fn complete_sends(device: &mut Device, qp: &Table, numbers: std::ops::Range<u32>) {
    for number in numbers {
        qp.post_send(number % 4, number, number.into());
        let counter = u16::try_from(number % 4).expect("the number fits").to_be_bytes();
        device.complete(qp, opcode::REQUEST, &[(at::COUNTER, &counter)]);
    }
}

#[test]
fn unpolled_completions_move_to_new_ring() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    let mut numbers = 0..;
    let mut due = 0..;
    for entries in [8, 2, 4, 16, 1, 4] {
        for unpolled in [0, 1] {
            let number = numbers.by_ref().take(2).last().expect("a number");
            complete_sends(&mut device, &qp, number - 1..number + 1);
            for _ in unpolled..2 {
                assert_eq!(device.polls().wr_id.get(), due.next().expect("a number"));
            }
            device.resize(entries).expect("resize");
            for _ in 0..unpolled {
                assert_eq!(device.polls().wr_id.get(), due.next().expect("a number"));
            }
            assert!(device.poll().expect("poll").is_none());
            assert_eq!(device.shared.record.load(Word::First), device.written);
            // The ring needs room for two.
            device.resize(4).expect("resize");
        }
    }
}

#[test]
fn ended_generations_end_one_later_in_new_ring() {
    let mut device = Device::new(true);
    let (qp, other) = (device.qp(17, None), device.qp(18, None));
    complete_sends(&mut device, &qp, 0..1);
    complete_sends(&mut device, &other, 0..1);
    complete_sends(&mut device, &qp, 1..2);
    let next = Arc::new(qp.emptied());
    device.shared.end(&qp);
    device.shared.add(&next);
    device.resize(16).expect("resize");
    complete_sends(&mut device, &next, 5..6);
    assert_eq!((device.polls().qp_num, device.polls().wr_id.get()), (18, 5));
    assert!(device.poll().expect("poll").is_none());
    assert_eq!(qp.sends_done(), 0, "the completions were not those of requests");
    assert_eq!(device.shared.written(&device.ring.ring), 5);
}

#[test]
fn ring_without_end_or_room_is_error() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    complete_sends(&mut device, &qp, 0..2);
    assert_eq!(device.move_to(8), Err(CreateError::Map(Errno::EPROTO)));
    complete_sends(&mut device, &qp, 2..3);
    assert_eq!(device.resize(2), Err(CreateError::Map(Errno::EOVERFLOW)));
}

/// The device sees 24 bits of the number of a completion, and this process 64.
#[test]
fn ended_generation_stays_ended_if_index_wraps() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    let other = device.qp(18, None);
    let next = Arc::new(qp.emptied());
    device.shared.end(&qp);
    device.shared.add(&next);
    // The list still has the ended generation, as if no list had been made since.
    let ended = Generation { key: qp.user_index.index, table: qp, end: AtomicU64::new(1) };
    let mut generations = ignore_poison(device.shared.changing.lock()).generations.to_vec();
    generations.insert(0, Arc::new(ended));
    ignore_poison(device.shared.changing.lock()).generations = generations.into();
    let far = (1 << 24) + (1 << 23);
    device.ring.next = far;
    device.shared.polled.store(far, Ordering::Relaxed);
    device.written = index(far);
    for number in 0..2 {
        for table in [&next, &other] {
            table.post_send(0, number, u64::from(number) + 5);
            device.complete(table, opcode::REQUEST, &[]);
            assert_eq!(device.polls().wr_id.get(), u64::from(number) + 5);
        }
    }
}

#[test]
fn arming_stores_serial_number_and_position() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    qp.post_send(0, 0, 1);
    device.complete(&qp, opcode::REQUEST, &[]);
    device.polls();
    let word = |solicited_only, events: u32| {
        let record = &device.shared.record;
        let polled = device.shared.polled.load(Ordering::Relaxed);
        record.store(Word::Second, arm::word(polled, solicited_only, events));
        record.load(Word::Second)
    };
    assert_eq!([word(false, 0), word(true, 0)], [1, 0x0100_0001]);
    assert_eq!([word(false, 5), word(false, 4)], [0x1000_0001, 1]);
}

#[test]
fn arming_for_all_remains_until_its_event() {
    let (all, solicited) = (arm::word(3, false, 1), arm::word(4, true, 1));
    assert_eq!(arm::after(None, solicited), solicited);
    assert_eq!(arm::after(Some(all), solicited), arm::word(4, false, 1));
    assert_eq!(arm::after(Some(solicited), all), all);
    let later = arm::word(5, true, 1);
    assert_eq!(arm::after(Some(solicited), later), later);
    // The event of the first word was read.
    let next = arm::word(5, true, 2);
    assert_eq!(arm::after(Some(all), next), next);
}

#[test]
fn arming_is_stored_in_record_and_register() {
    use std::sync::atomic::AtomicBool;

    let memory = QueueMemory::new([4 * 64]).expect("memory");
    let ring = CompletionRing::new(memory.mapping, 4, 6);
    let (registers, page) = Registers::with_page();
    let shared = Shared::new(ring, memory.record, true, registers, 9);
    shared.polled.store(3, Ordering::Relaxed);
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let events_read = crate::sync::AtomicU32::new(2);
    let arm = Arm { cq_handle: 1, solicited_only: false, events_read: &events_read };
    let control = CqControl(Arc::clone(&shared));
    let cx = CommandContext::new(&file, &is_removed);
    let events = log::during(|| control.arm(cx, &arm).expect("arm"));
    let around = [Event::WriteCombiningBarrier, Event::Register, Event::WriteCombiningBarrier];
    assert_eq!((events[0], &events[1..]), (Event::Doorbell, &around[..]));
    assert_eq!(shared.record.load(Word::Second), 0x2000_0003);
    assert_eq!(
        super::super::register::stored(&page, 0x20).to_ne_bytes(),
        [0x20, 0, 0, 3, 0, 0, 0, 9]
    );
}

/// Resizes the queue of `device`. The kernel accepts every request.
fn resize_by_command(device: &mut Device, cqe: u32) -> (Result<u32, CreateError>, Option<usize>) {
    let is_removed = std::sync::atomic::AtomicBool::new(false);
    let file = UverbsFile::silent();
    let mut memory = None;
    let request = ib_uverbs_resize_cq { cqe, ..ib_uverbs_resize_cq::default() };
    let resized = CqOps::resize(
        &mut device.ring,
        CommandContext::new(&file, &is_removed),
        request,
        &mut memory,
    );
    (resized, memory.map(|memory| memory.len()))
}

#[test]
fn resized_ring_has_capacity_of_kernel_answer() {
    let mut device = Device::new(true);
    let qp = device.qp(17, None);
    assert_eq!(resize_by_command(&mut device, 3), (Ok(3), None), "the ring should keep this size");
    let none = SizeError::Zero { what: "completions" };
    assert_eq!(resize_by_command(&mut device, 0), (Err(none.into()), None));
    complete_sends(&mut device, &qp, 0..2);
    let waiting =
        SizeError::Exceeds { what: "completions that were not polled", given: 2, most: 1 };
    assert_eq!(resize_by_command(&mut device, 1), (Err(waiting.into()), None));
    device.polls();
    device.polls();
    device.ring.ring.store_owner(device.written, opcode::RESIZED);
    device.written += 1;
    // The kernel's answer determines the capacity.
    assert_eq!(resize_by_command(&mut device, 100), (Ok(0), Some(128 * 64)));
    assert_eq!(device.ring.ring.entries(), 128);
    complete_sends(&mut device, &qp, 2..3);
    assert_eq!(device.polls().wr_id.get(), 2);
    device.ring.ring.store_owner(device.written, opcode::RESIZED);
    device.written += 1;
    assert_eq!(resize_by_command(&mut device, 1), (Ok(0), Some(2 * 64)));
}

#[test]
fn receives_of_xrc_targets_find_shared_queue() {
    for names_user_index in [true, false] {
        let mut device = Device::new(names_user_index);
        let (srq, _qp) = qp_with_shared_receives(&device);
        let index = match names_user_index {
            true => device.indices.take().expect("an index"),
            false => UserIndex::NONE,
        };
        let generation = device.shared.add_shared(5, &srq, Arc::new(index));
        let name = if names_user_index { generation.table.user_index.index } else { 5 };
        let name = name.to_be_bytes();
        let target = Table::new(99, 0, 0, None, Arc::new(UserIndex::NONE));
        let fields: [Field<'_>; 2] = [COUNTER_1, (at::USER_INDEX, &name)];
        device.complete(&target, opcode::SEND, &fields);
        let completion = device.polls();
        assert_eq!((completion.wr_id.get(), completion.qp_num), (6, 99));
        // Completions of the destroyed queue are dropped. A later completion is malformed.
        device.complete(&target, opcode::SEND, &[(at::USER_INDEX, &name)]);
        generation.on_destroyed();
        assert!(device.poll().expect("poll").is_none());
        assert_eq!(srq.complete(0), None, "the entry should be free");
        device.complete(&target, opcode::SEND, &[COUNTER_2, (at::USER_INDEX, &name)]);
        device.fails(UNKNOWN_QP);
        assert_eq!(srq.complete(2), Some(7), "the receive should not have completed");
    }
}

#[test]
fn generation_ends_on_each_completion_queue() {
    use super::super::queue_pair::{Current, distinct};

    for is_one in [false, true] {
        let mut devices = [(); 2].map(|()| Device::new(false));
        let memory = QueueMemory::new([64]).expect("memory");
        let table = Table::new(17, 4, 4, None, Arc::new(UserIndex::NONE));
        let current = Current::new(table, memory.record);
        let controls =
            [0, usize::from(!is_one)].map(|at| CqControl(Arc::clone(&devices[at].shared)));
        let queues = distinct(&controls[0], &controls[1]);
        assert_eq!(queues.len(), 2 - usize::from(is_one));
        let table = current.get().1;
        queues.iter().for_each(|queue| queue.0.add(&table));
        (0..2).for_each(|number| table.post_send(number, number, 1));
        for device in &mut devices[..queues.len()] {
            device.complete(&table, opcode::REQUEST, &[]);
        }
        current.end(&queues);
        for device in &mut devices[..queues.len()] {
            assert!(device.poll().expect("poll").is_none(), "the completion should be dropped");
        }
        assert_eq!(table.sends_done(), 0);
    }
}
