use super::*;

const RING: usize = 2 * BLOCK;

/// Returns the bytes of a ring of two blocks.
fn bytes(ring: &Ring) -> Vec<u8> {
    let words = |block| (0..WORDS).map(move |index| ring.block(block).word(index));
    [0, BLOCK].into_iter().flat_map(words).flat_map(u64::to_ne_bytes).collect()
}

#[test]
fn bytes_are_padded_and_wrap() {
    let mut ring = QueueMemory::new([RING]).expect("memory").rings.into_iter().next().expect("one");
    let data: Vec<u8> = (1..=124).collect();
    for offset in (0..2 * RING).step_by(UNIT) {
        for length in 1..=data.len() {
            (0..RING).step_by(UNIT).for_each(|unit| ring.put(unit, [u64::MAX; 2]));
            ring.put_bytes(offset, *b"head", &data[..length]);
            let mut expected = vec![0xff; RING];
            let padding = (4 + length).next_multiple_of(UNIT) - 4 - length;
            let stored = b"head".iter().chain(&data[..length]).copied();
            let stored = stored.chain(std::iter::repeat_n(0, padding));
            stored.enumerate().for_each(|(at, byte)| expected[(offset + at) % RING] = byte);
            assert_eq!(bytes(&ring), expected, "{length} bytes at {offset}");
        }
    }
}

#[test]
fn addresses_name_ring_and_record() {
    let memory = QueueMemory::new([256, 64, 0]).expect("memory");
    let start = address(memory.mapping.start());
    let places = memory.rings.each_ref().map(|ring| address(ring.base.pointer()));
    assert_eq!(places, [start, start + 256, start + 320], "an empty ring is at the record");
    assert_eq!((memory.address(), memory.record.address()), (start, start + 320));
    memory.record.store(Word::Second, 0x0102_0304);
    assert_eq!(
        (memory.record.load(Word::First), memory.record.load(Word::Second)),
        (0, 0x0102_0304)
    );
}

#[test]
fn link_of_any_index_stays_within_ring() {
    let [ring] = QueueMemory::new([4 * 32]).expect("memory").rings;
    let links = Links::of(&ring, 5);
    links.set_next(1, 2);
    let mut expected = vec![0; RING];
    expected[35] = 2;
    assert_eq!(bytes(&ring), expected);
    assert_eq!([links.next(1), links.next(5), links.next(u16::MAX - 2)], [2; 3]);
    // The device may have stored an index that no entry has.
    links.set_next(u16::MAX, 0xfff5);
    expected[98..100].copy_from_slice(&[0xff, 0xf5]);
    assert_eq!((bytes(&ring), links.next(3)), (expected, 1));
}

#[test]
fn owner_byte_marks_round_of_completion() {
    let memory = QueueMemory::new([4 * COMPLETION]).expect("memory");
    let ring = CompletionRing::new(memory.mapping, 4, 6);
    let opcodes = || [2, 6, 10].map(|index| ring.entry(index).opcode());
    assert_eq!(opcodes(), [None; 3], "the ring should have no completion");
    for (owner, expected) in [
        (0x20, [Some(2), None, Some(2)]),
        (0x21, [None, Some(2), None]),
        (0xf0, [None; 3]),
        (0xf1, [None; 3]),
    ] {
        ring.write(2, at::OWNER, &[owner]);
        // A barrier precedes the loads of the other fields.
        let barriers: &[Event] = if expected == [None; 3] { &[] } else { &[Event::LoadBarrier] };
        let events = dma::log::during(|| assert_eq!(opcodes(), expected, "{owner:#x}"));
        assert_eq!(events, barriers, "{owner:#x}");
    }
}

#[test]
#[should_panic = "should fit into the ring"]
fn more_bytes_than_ring_are_refused() {
    let mut ring =
        QueueMemory::new([BLOCK]).expect("memory").rings.into_iter().next().expect("one");
    ring.put_bytes(0, [0; 4], &[0; 61]);
}
