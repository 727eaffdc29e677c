use super::*;

type Element = [u8; 40];

/// Returns a ring as the kernel creates it, in private memory, for elements of 40 bytes.
fn ring(mask: u32, log2_element: u32, data: usize) -> Option<Queue<Element>> {
    let mapping = Mapping::private(DATA + data).expect("memory");
    let (behind, elements) = (0, PhantomData);
    let queue: Queue<Element> = Queue { mapping, mask: 0, stride: 0, behind, taken: 0, elements };
    queue.word(MASK).store(mask, Ordering::Relaxed);
    queue.word(LOG2_ELEMENT).store(log2_element, Ordering::Relaxed);
    Queue::over(queue.mapping, 24)
}

/// Returns the error of a queue without a free slot.
fn free_slot_error(queue: &mut Queue<Element>) -> Option<PostError> {
    queue.free_slot().err()
}

#[test]
fn ring_holds_one_less_than_its_slots_in_order() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    assert_eq!(queue.capacity(), 3);
    for round in 0..5_u8 {
        for place in 0..3 {
            let mut slot = queue.free_slot().expect("not full");
            slot.clear();
            slot.put(2, &[round, place]);
            slot.publish();
        }
        assert!(matches!(free_slot_error(&mut queue), Some(PostError::Full(3))));
        for places in [&[0, 1][..], &[2], &[]] {
            let mut taken = [[7; 40]; 2];
            assert_eq!(queue.take(&mut taken, |element| element), Ok(places.len()));
            for (taken, place) in taken.iter().zip(places) {
                assert_eq!(taken[..5], [0, 0, round, *place, 0]);
            }
            assert!(taken[places.len()..].iter().all(|untouched| *untouched == [7; 40]));
        }
    }
}

#[test]
fn appended_bytes_follow_within_slot() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    let bytes = |queue: &Queue<Element>, index| {
        // SAFETY: the slot has 64 bytes.
        unsafe { queue.slot(index).cast::<[u8; 64]>().read() }
    };
    let mut slot = queue.free_slot().expect("not full");
    slot.append(&[1; 24]);
    slot.publish();
    let mut slot = queue.free_slot().expect("not full");
    let sge = Sge { addr: u64::MAX.into(), length: u32::MAX, lkey: 0x0101_0101 };
    assert_eq!(slot.append_sges(&[sge]), u64::from(u32::MAX));
    slot.publish();
    let first = bytes(&queue, 0);
    assert_eq!((&first[..40], &first[40..]), (&[0; 40][..], &[1; 24][..]));
    let second = bytes(&queue, 1);
    assert_eq!(
        (&second[40..52], &second[52..]),
        (&[0xff; 12][..], &[1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0][..])
    );
    assert_eq!(bytes(&queue, 2), [0; 64]);
}

#[test]
#[should_panic(expected = "behind")]
fn oversized_element_is_not_stored() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    queue.free_slot().expect("not full").append(&[1; 25]);
}

#[test]
fn inconsistent_geometry_is_refused() {
    assert!(ring(3, 6, 4 * 64 - 1).is_none(), "shorter than its slots");
    assert!(ring(2, 6, 4 * 64).is_none(), "no power of two");
    assert!(ring(3, 5, 4 * 64).is_none(), "slots shorter than elements");
    assert!(ring(u32::MAX, 40, 4096).is_none());
    assert!(ring(0, 64, 4096).is_none());
    assert!(ring(0, u32::MAX, 4096).is_none());
}

#[test]
fn hostile_indices_are_detected() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    for offset in [PRODUCER, CONSUMER] {
        for index in [4, u32::MAX] {
            queue.word(offset).store(index, Ordering::Relaxed);
            assert!(matches!(
                free_slot_error(&mut queue),
                Some(PostError::Malformed(OUT_OF_RANGE))
            ));
            // The consumer has a separate index.
            let taken = if offset == PRODUCER { Err(OUT_OF_RANGE) } else { Ok(0) };
            assert_eq!(queue.take(&mut [[0; 40]; 2], |element| element), taken);
            assert_eq!(queue.try_take(&mut [[0; 40]; 2], |element| element), taken.ok());
        }
        queue.word(offset).store(0, Ordering::Relaxed);
    }
}

#[test]
fn hostile_consumer_index_moves_no_element() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    for number in 0..3_u8 {
        let mut slot = queue.free_slot().expect("not full");
        slot.clear();
        slot.put(0, &[number]);
        slot.publish();
    }
    let mut one = [[7; 40]];
    for number in 0..2 {
        queue.word(CONSUMER).store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(queue.try_take(&mut one, |element| element), Some(1));
        assert_eq!(one[0][0], number);
        assert_eq!(queue.word(CONSUMER).load(Ordering::Relaxed), u32::from(number) + 1);
    }
    queue.word(CONSUMER).store(0, Ordering::Relaxed);
    assert_eq!(queue.take(&mut one, |element| element), Ok(1));
    assert_eq!((one[0][0], queue.word(CONSUMER).load(Ordering::Relaxed)), (2, 3));
}

#[test]
fn single_element_is_taken_without_loop() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    let put = |queue: &mut Queue<Element>, number: u8| {
        let mut slot = queue.free_slot().expect("not full");
        slot.put(0, &[number]);
        slot.publish();
    };
    let mut into = [[0; 40]; 3];
    for round in 0..6 {
        assert_eq!(queue.try_take(&mut into, |element| element), Some(0));
        put(&mut queue, round);
        assert_eq!(queue.try_take(&mut [], |element| element), None, "there is no room");
        assert_eq!(queue.try_take(&mut into, |element| element), Some(1));
        assert_eq!(into[0][0], round);
    }
    put(&mut queue, 10);
    put(&mut queue, 11);
    assert_eq!(queue.try_take(&mut into, |element| element), None, "there are two");
    assert_eq!(queue.try_take(&mut into[..1], |element| element), Some(1), "one fits");
    assert_eq!(queue.try_take(&mut into[1..], |element| element), Some(1));
    assert_eq!([into[0][0], into[1][0]], [10, 11]);
}

#[test]
fn ring_begins_at_its_consumer_index() {
    for (first, is_valid) in [(0, true), (3, true), (4, false), (u32::MAX, false)] {
        let mapping = Mapping::private(DATA + 4 * 64).expect("memory");
        let (behind, elements) = (0, PhantomData);
        let queue: Queue<Element> =
            Queue { mapping, mask: 0, stride: 0, behind, taken: 0, elements };
        for (offset, value) in [(MASK, 3), (LOG2_ELEMENT, 6), (CONSUMER, first)] {
            queue.word(offset).store(value, Ordering::Relaxed);
        }
        let found = Queue::<Element>::over(queue.mapping, 24).map(|queue| queue.taken);
        assert_eq!(found, is_valid.then_some(first));
    }
}

#[test]
fn equal_indices_out_of_range_are_detected() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    for offset in [PRODUCER, CONSUMER] {
        queue.word(offset).store(4, Ordering::Relaxed);
    }
    assert!(matches!(free_slot_error(&mut queue), Some(PostError::Malformed(OUT_OF_RANGE))));
}

#[test]
fn slots_follow_header_in_order() {
    let queue = ring(3, 6, 4 * 64).expect("a good ring");
    let offset = |index| queue.slot(index).addr().get() - queue.mapping.start().addr().get();
    assert_eq!([0, 1, 3, 4, u32::MAX].map(offset), [0, 64, 192, 0, 192].map(|slot| DATA + slot));
}

#[test]
fn scatter_gather_entries_have_16_bytes_each() {
    assert_eq!([0, 1, 32].map(sges_len), [0, 16, 512]);
}

#[test]
fn cleared_slot_has_no_earlier_contents() {
    let mut queue = ring(1, 6, 2 * 64).expect("a good ring");
    let mut slot = queue.free_slot().expect("not full");
    slot.put(0, &[7_u8; 40]);
    slot.clear();
    slot.put(1, &[1_u8]);
    slot.publish();
    let mut taken = [[7; 40]];
    assert_eq!(queue.take(&mut taken, |element| element), Ok(1));
    assert_eq!((&taken[0][..3], &taken[0][3..]), (&[0, 1, 0][..], &[0; 37][..]));
}

#[test]
fn only_short_bytes_are_appended_at_once() {
    let mut queue = ring(3, 6, 4 * 64).expect("a good ring");
    let mut slot = queue.free_slot().expect("not full");
    assert!(!slot.append_if_short(&[2; 4]), "few bytes are left to `append`");
    assert!(slot.append_if_short(&[1; 16]));
    slot.publish();
    // SAFETY: the slot has 64 bytes.
    let stored = unsafe { queue.slot(0).cast::<[u8; 64]>().read() };
    assert_eq!((&stored[40..56], &stored[56..]), (&[1; 16][..], &[0; 8][..]));
}
