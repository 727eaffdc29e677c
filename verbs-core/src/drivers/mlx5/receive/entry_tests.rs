//! Tests of the entries of receive queues: their bytes, their places in the ring, and the requests that are refused.

use super::super::memory::{Links, QueueMemory};
use super::super::table::{Table, UserIndex};
use super::*;
use crate::driver::dma::{Event, log};

/// The data segment that ends the list of an entry.
const LAST: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn sge(addr: u64, length: u32) -> Sge {
    Sge { addr: addr.into(), length, lkey: 7 }
}

/// Returns the data segment for memory at an address below 256.
fn pointer(addr: u8, length: u8) -> [u8; 16] {
    [0, 0, 0, length, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, addr]
}

/// Returns all units of a ring of `length` bytes.
fn units(queue: &RecvRing, length: usize) -> Vec<[u8; 16]> {
    let word = |offset: usize| queue.ring.block(offset).word(offset / 8 % 8).to_ne_bytes();
    let unit = |offset| [word(offset), word(offset + 8)].concat().try_into().expect("16 bytes");
    (0..length).step_by(16).map(unit).collect()
}

/// Creates a queue of four entries of `1 << shift` bytes, and its table.
fn own(shift: u32) -> (RecvRing, Arc<Table>) {
    let memory = QueueMemory::new([4 << shift]).expect("memory");
    let table = Table::new(9, 0, 4, None, Arc::new(UserIndex::NONE));
    let current = Current::new(table, memory.record.clone());
    let table = current.get().1;
    let size = ReceiveSize { entries: 4, shift, max_sge: 1 << (shift - 4) };
    let [ring] = memory.rings;
    (RecvRing::own(ring, memory.record, size, current), table)
}

fn store(queue: &mut RecvRing, wr_id: u64, scatter: &[Sge]) -> Posted {
    // SAFETY: no device uses the memory that the request names.
    unsafe { RecvOps::store(queue, &ReceiveRequest { wr_id, scatter }) }
}

fn try_store(queue: &mut RecvRing, wr_id: u64, sge: Sge) -> bool {
    // SAFETY: no device uses the memory that the request names.
    unsafe { queue.try_store(wr_id, sge) }
}

fn ring(queue: &mut RecvRing) {
    RecvOps::ring(queue, &UverbsFile::silent(), 0).expect("ring");
}

#[test]
fn receive_entry_ends_its_list_if_not_full() {
    let (mut queue, table) = own(5);
    let sges = [sge(16, 1), sge(32, 2)];
    store(&mut queue, 1, &sges).expect("two entries");
    store(&mut queue, 2, &sges[1..]).expect("one entry");
    store(&mut queue, 3, &[sge(1, 0), sge(48, 3)]).expect("an empty entry is left out");
    store(&mut queue, 4, &[]).expect("no entry");
    let expected = [
        [pointer(16, 1), pointer(32, 2)],
        [pointer(32, 2), LAST],
        [pointer(48, 3), LAST],
        [LAST, [0; 16]],
    ];
    assert_eq!(units(&queue, 128), expected.concat());
    assert_eq!(queue.record.load(Word::First), 0, "the doorbell should not be rung");
    ring(&mut queue);
    assert_eq!(queue.record.load(Word::First), 4);
    let full = store(&mut queue, 5, &sges);
    assert!(matches!(full, Err(PostError::Full(4))) && !try_store(&mut queue, 5, sges[0]));
    assert_eq!(units(&queue, 128), expected.concat());
    assert_eq!([table.complete_receive(), table.complete_receive()], [Some(1), Some(2)]);
    assert!(try_store(&mut queue, 5, sge(64, 4)));
    assert_eq!(queue.record.load(Word::First), 5);
    store(&mut queue, 6, &[]).expect("there is room");
    assert_eq!(units(&queue, 128)[..4], [pointer(64, 4), LAST, LAST, LAST]);
    let rest: Vec<_> = std::iter::from_fn(|| table.complete_receive()).collect();
    assert_eq!(rest, [3, 4, 5, 6]);
}

#[test]
fn entry_of_one_sge_preserves_neighbors() {
    for is_fast in [false, true] {
        let (mut queue, table) = own(4);
        for number in 0..6_u8 {
            if number >= 4 {
                table.complete_receive().expect("a receive");
            }
            let sge = sge(number.into(), 1);
            match is_fast {
                true => assert!(try_store(&mut queue, number.into(), sge)),
                false => store(&mut queue, number.into(), &[sge]).expect("there is room"),
            }
        }
        assert_eq!(units(&queue, 64), [4, 5, 2, 3].map(|number| pointer(number, 1)));
    }
}

#[test]
fn refused_receive_takes_no_place() {
    let (mut queue, _table) = own(4);
    let long = sge(1, TOO_LONG);
    assert!(matches!(store(&mut queue, 1, &[long]), Err(PostError::Long(_))));
    assert!(matches!(store(&mut queue, 1, &[sge(1, 1); 2]), Err(PostError::ManySges { .. })));
    assert!(!try_store(&mut queue, 1, long));
    assert_eq!((queue.requests, units(&queue, 64)), (0, vec![[0; 16]; 4]));
    assert!(try_store(&mut queue, 1, sge(1, 255)));
    // After a step to RESET, only `store` begins the next generation.
    let Entries::Own { current, .. } = &queue.entries else {
        panic!("the queue should have its own entries")
    };
    current.reset(&[]);
    assert!(!try_store(&mut queue, 2, sge(2, 1)));
    store(&mut queue, 2, &[sge(2, 1)]).expect("there is room");
    assert!(try_store(&mut queue, 3, sge(3, 1)));
    assert_eq!(units(&queue, 64)[..3], [pointer(2, 1), pointer(3, 1), [0; 16]]);
    assert_eq!(queue.record.load(Word::First), 2);
}

#[test]
fn shared_entry_begins_with_its_link() {
    let memory = QueueMemory::new([128]).expect("memory");
    let table = Arc::new(SharedTable::new(Links::of(&memory.rings[0], 5), 4, 4));
    let [ring_memory] = memory.rings;
    let size = ReceiveSize { entries: 4, shift: 5, max_sge: 1 };
    let mut queue = RecvRing::shared(ring_memory, memory.record, size, Arc::clone(&table), 3);
    let link = |next: u8| [0, 0, 0, next, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    store(&mut queue, 1, &[sge(16, 1)]).expect("there is room");
    assert_eq!(queue.record.load(Word::First), 0, "the doorbell should not be rung");
    assert!(try_store(&mut queue, 2, sge(32, 2)), "the doorbell should be rung");
    assert_eq!(queue.record.load(Word::First), 2);
    assert!(try_store(&mut queue, 3, sge(48, 3)));
    assert!(!try_store(&mut queue, 4, sge(64, 4)), "the last entry should stay in the list");
    assert!(matches!(store(&mut queue, 4, &[]), Err(PostError::Full(3))));
    let expected = [
        [link(1), pointer(16, 1)],
        [link(2), pointer(32, 2)],
        [link(3), pointer(48, 3)],
        [link(0), [0; 16]],
    ];
    assert_eq!(units(&queue, 128), expected.concat());
    assert_eq!(table.complete(1), Some(2));
    store(&mut queue, 4, &[]).expect("there is room");
    ring(&mut queue);
    assert_eq!(
        (units(&queue, 128)[6..].to_vec(), queue.record.load(Word::First)),
        (vec![link(1), LAST], 4)
    );
    let is_removed = std::sync::atomic::AtomicBool::new(false);
    let file = UverbsFile::silent();
    let resized = queue.resize(CommandContext::new(&file, &is_removed), Default::default());
    assert!(matches!(resized, Err(CreateError::Unsupported(_))));
}

#[test]
fn receive_orders_entry_before_record() {
    let expected = [Event::Entry, Event::StoreBarrier, Event::Doorbell];
    let (mut queue, _) = own(5);
    let events = log::during(|| {
        store(&mut queue, 1, &[sge(16, 8)]).expect("there is room");
        ring(&mut queue);
    });
    assert_eq!(events, expected);
    // This path rings the doorbell itself.
    let events = log::during(|| assert!(try_store(&mut queue, 2, sge(16, 8))));
    assert_eq!(events, expected);
}
