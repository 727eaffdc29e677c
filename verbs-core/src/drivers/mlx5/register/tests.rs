use super::super::memory::QueueMemory;
use super::*;

/// The offset of the registers of these tests.
const AT: usize = 0x800;

fn page() -> Arc<Mapping> {
    Arc::new(Mapping::private(4096).expect("memory"))
}

/// Returns a ring of four blocks, whose words are numbered from 1.
fn numbered() -> Ring {
    let [mut ring] = QueueMemory::new([256]).expect("memory").rings;
    (0..16).for_each(|unit| ring.put(unit * 16, [unit as u64 * 2 + 1, unit as u64 * 2 + 2]));
    ring
}

/// Returns the words of `page` that are not zero, with their offsets from [`AT`].
fn words(page: &Mapping) -> Vec<(usize, u64)> {
    let all = (0..page.len()).step_by(WORD).map(|offset| (offset, stored(page, offset)));
    all.filter(|(_, word)| *word != 0).map(|(offset, word)| (offset - AT, word)).collect()
}

/// Returns the words `numbers` at their offsets in a buffer at offset `buffer`.
fn blocks(buffer: usize, numbers: std::ops::RangeInclusive<u64>) -> Vec<(usize, u64)> {
    (buffer..).step_by(WORD).zip(numbers).collect()
}

#[test]
fn register_must_be_within_page() {
    let page = page();
    let fits = |offset, size| Slot::new(&page, offset, size, Use::Dedicated).is_some();
    let possible = [(AT, 512), (4096 - 512, 512), (4088, 0), (4080, 16), (0, 4096)];
    assert!(possible.into_iter().all(|(offset, size)| fits(offset, size)));
    let beyond = [(4096 - 504, 512), (4096, 0), (4088, 16), (usize::MAX - 7, 0), (8, 4096)];
    let misaligned = [(AT + 4, 512), (AT, 8), (AT, 24), (AT + 1, 0)];
    for (offset, size) in beyond.into_iter().chain(misaligned) {
        assert!(!fits(offset, size), "{size} bytes at {offset}");
    }
}

#[test]
fn doorbells_alternate_between_buffers() {
    let (page, ring) = (page(), numbered());
    let slot = Slot::new(&page, AT, 128, Use::Dedicated).expect("the slot should fit");
    let mut register = Register::new(slot, true);
    register.ring(&ring, 64, 4, true);
    let mut expected = blocks(0, 9..=16);
    assert_eq!(words(&page), expected);
    // Five units are more than a buffer has room for.
    register.ring(&ring, 128, 5, true);
    expected.push((64, 17));
    assert_eq!(words(&page), expected);
    // Only the first word is stored if an entry has one unit, or if several entries were posted.
    register.ring(&ring, 0, 1, true);
    expected[0].1 = 1;
    assert_eq!(words(&page), expected);
    register.ring(&ring, 0, 4, false);
    expected[8].1 = 1;
    assert_eq!(words(&page), expected);
    register.ring(&ring, 0, 2, true);
    expected.splice(..8, blocks(0, 1..=8));
    assert_eq!(words(&page), expected);
}

#[test]
fn copied_entry_continues_at_ring_start() {
    let ring = numbered();
    for (units, stored) in [(4, 8), (5, 16), (8, 16), (9, 1)] {
        let page = page();
        let slot = Slot::new(&page, AT, 256, Use::Dedicated).expect("the slot should fit");
        Register::new(slot, true).ring(&ring, 192, units, true);
        let expected: Vec<_> = blocks(0, 25..=32).into_iter().chain(blocks(64, 1..=8)).collect();
        assert_eq!(words(&page), expected[..stored], "{units} units");
    }
}

#[test]
fn small_or_unused_buffers_get_words() {
    let ring = numbered();
    for (size, used_by, copies, second) in [
        // Buffers of 8 and of 56 bytes have no room for a block.
        (16, Use::Dedicated, true, 8),
        (112, Use::Dedicated, true, 56),
        (512, Use::Dedicated, false, 256),
        (512, Use::Plain, true, 0),
    ] {
        let page = page();
        let slot = Slot::new(&page, AT, size, used_by).expect("the slot should fit");
        let mut register = Register::new(slot, copies);
        register.ring(&ring, 0, 4, true);
        assert_eq!(words(&page), [(0, 1)]);
        register.ring(&ring, 64, 4, true);
        let expected = if second == 0 { vec![(0, 9)] } else { vec![(0, 1), (second, 9)] };
        assert_eq!(words(&page), expected, "{size} bytes, {used_by:?}");
    }
}

#[test]
fn next_queue_pair_uses_next_buffer() {
    let ring = numbered();
    for used_by in [Use::Dedicated, Use::Shared] {
        let page = page();
        let slot = Slot::new(&page, AT, 16, used_by).expect("the slot should fit");
        // A shared register serves several queue pairs at once, and a dedicated register one at a time.
        let mut first = Register::new(Arc::clone(&slot), true);
        let mut second = (used_by == Use::Shared).then(|| Register::new(Arc::clone(&slot), true));
        first.ring(&ring, 0, 1, true);
        drop(first);
        let second = second.get_or_insert_with(|| Register::new(slot, true));
        second.ring(&ring, 64, 1, true);
        assert_eq!(words(&page), [(0, 1), (8, 9)], "{used_by:?}");
        second.ring(&ring, 128, 1, true);
        assert_eq!(words(&page), [(0, 17), (8, 9)], "{used_by:?}");
    }
}

#[test]
fn arming_has_its_register() {
    let page = page();
    arm(&page, 7);
    assert_eq!(stored(&page, 0x20), 7);
    let others = (0..4096).step_by(WORD).filter(|offset| *offset != 0x20);
    assert!(others.map(|offset| stored(&page, offset)).all(|word| word == 0));
}
