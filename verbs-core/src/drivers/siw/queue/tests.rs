//! Rings whose other end is the test.

use std::mem::offset_of;
use std::thread;

use verbs_abi::AlignedU64;
use zerocopy::FromBytes;

use super::*;
use crate::drivers::siw::element::{gather, translated_sge};
use crate::work::Sge;

fn ring<E>(elements: u32, length: usize) -> Option<Ring<E>> {
    Ring::over(Mapping::private(length).expect("memory"), elements)
}

fn sends(elements: u32) -> Ring<siw_sqe> {
    ring(elements, elements as usize * size_of::<siw_sqe>()).expect("a good ring")
}

fn has_room(ring: &mut Ring<siw_sqe>) -> bool {
    ring.free().is_ok()
}

fn put(ring: &mut Ring<siw_sqe>, element: &siw_sqe) {
    let (before, behind) = element.as_bytes().split_at(FLAGS);
    let mut free = ring.free().expect("there is room");
    free.write(0, before);
    free.write(FLAGS + 2, &behind[2..]);
    free.publish(element.flags);
}

fn send(id: u64) -> siw_sqe {
    siw_sqe { id: id.into(), rkey: 7, raddr: AlignedU64::new(u64::MAX), ..siw_sqe::default() }
}

/// Returns the bytes of the `count`th element.
fn bytes(ring: &Ring<siw_sqe>, count: u32) -> [u8; size_of::<siw_sqe>()] {
    let mut bytes = [0; size_of::<siw_sqe>()];
    let from = ring.place.element(count);
    // SAFETY: an element has as many bytes, and no other thread writes to it meanwhile.
    unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut bytes).cast(), bytes.len()) };
    bytes
}

/// Reads an element and clears its flags, as the kernel does.
fn taken(ring: &Ring<siw_sqe>, count: u32) -> siw_sqe {
    let bytes = bytes(ring, count);
    ring.place.work_flags(count).store(0, Ordering::Release);
    siw_sqe::read_from_bytes(&bytes).expect("as many bytes as it has")
}

/// Stores a completion, as the kernel does.
fn complete(ring: &Ring<siw_cqe>, count: u32, completion: &siw_cqe) {
    let into = ring.place.element(count);
    let bytes = completion.as_bytes();
    // SAFETY: an element has as many bytes, and no other thread reads it meanwhile.
    unsafe { into.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
}

#[test]
fn ring_holds_all_elements_in_order() {
    for elements in [1, 4] {
        let mut ring = sends(elements);
        assert_eq!(ring.capacity(), elements);
        let mut count = u32::MAX - 5;
        ring.place.count.store(count, Ordering::Relaxed);
        for round in 0..10 {
            for place in 0..elements {
                assert!(has_room(&mut ring));
                put(&mut ring, &send(u64::from(round * elements + place)));
            }
            assert!(!has_room(&mut ring), "full");
            for place in 0..elements {
                let mut due = send(u64::from(round * elements + place));
                due.flags = siw_wqe_flags::SIW_WQE_VALID;
                assert_eq!(taken(&ring, count), due);
                count = count.wrapping_add(1);
            }
        }
    }
}

#[test]
fn doorbell_is_rung_if_previous_send_was_taken() {
    let mut ring = sends(4);
    put(&mut ring, &send(0));
    assert!(ring.needs_doorbell(1), "the first");
    put(&mut ring, &send(1));
    assert!(!ring.needs_doorbell(1), "the kernel has not taken the first element");
    put(&mut ring, &send(2));
    assert!(!ring.needs_doorbell(2), "the kernel has not taken the first of three elements");
    taken(&ring, 0);
    assert!(
        ring.needs_doorbell(2),
        "the kernel took the first element, and may have checked before the others"
    );
    assert!(!ring.needs_doorbell(1), "the kernel has not taken the second element");
    put(&mut ring, &send(3));
    put(&mut ring, &send(4));
    assert!(ring.needs_doorbell(4), "the last has the place of the first");
    let mut one = sends(1);
    put(&mut one, &send(0));
    assert!(one.needs_doorbell(1), "none is before the only one");
}

#[test]
fn withdrawn_request_is_absent() {
    let mut ring = sends(2);
    put(&mut ring, &send(0));
    put(&mut ring, &send(1));
    assert!(ring.take_back());
    assert!(has_room(&mut ring));
    put(&mut ring, &send(2));
    taken(&ring, 0);
    assert_eq!(taken(&ring, 1).id.get(), 2);
    assert!(!ring.take_back(), "the kernel has taken it");
}

#[test]
fn orphans_are_cleared_in_order() {
    let mut ring = sends(4);
    assert_eq!(ring.orphans().take_all(), [0; 0]);
    (10..14).for_each(|id| put(&mut ring, &send(id)));
    taken(&ring, 0);
    put(&mut ring, &send(14));
    taken(&ring, 1);
    assert_eq!(ring.orphans().take_all(), [12, 13, 14]);
    assert_eq!(ring.orphans().take_all(), [0; 0]);
    assert!(has_room(&mut ring));
}

#[test]
fn requests_put_meanwhile_come_last() {
    for (before, meanwhile) in [(0, 0), (3, 1), (2, 1), (2, 2), (0, 4), (1, 3), (4, 0)] {
        let mut ring = sends(4);
        ring.place.count.store(u32::MAX - 1, Ordering::Relaxed);
        (0..before).for_each(|id| put(&mut ring, &send(id)));
        let count = ring.count();
        (before..before + meanwhile).for_each(|id| put(&mut ring, &send(id)));
        let left = ring.orphans().take_since(count);
        assert!(left.into_iter().eq(0..before + meanwhile), "{before} and {meanwhile}");
        assert!(has_room(&mut ring));
    }
}

#[test]
fn requests_of_other_thread_are_taken_in_order() {
    const PUT: u16 = 5_000;
    let mut ring = sends(4);
    let orphans = ring.orphans();
    let mut taken = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..u64::from(PUT) {
                while !has_room(&mut ring) {
                    thread::yield_now();
                }
                put(&mut ring, &send(id));
            }
        });
        while taken.len() < usize::from(PUT) {
            taken.extend(orphans.take_all());
            thread::yield_now();
        }
    });
    assert!(taken.into_iter().eq(0..u64::from(PUT)));
}

#[test]
fn completions_are_taken_once_with_any_content() {
    let elements = 4;
    let length = 4 * size_of::<siw_cqe>() + size_of::<siw_cq_ctrl>();
    let mut ring: Ring<siw_cqe> = ring(elements, length).expect("a good ring");
    assert!(take_one(&mut ring).is_none());
    for count in 0..10 {
        let completion = siw_cqe { id: u64::from(count).into(), flags: 0xff, ..Default::default() };
        complete(&ring, count, &completion);
        assert_eq!(take_one(&mut ring), Some(completion));
        assert!(take_one(&mut ring).is_none());
    }
    let arming = ring.arming().expect("there is room");
    assert!(!arming.is_set());
    arming.arm_next();
    assert!(arming.is_set());
    assert_eq!(arming.flags().load(Ordering::Relaxed), 3);
    assert!(take_one(&mut ring).is_none(), "the word is behind the elements");
}

#[test]
fn single_completion_is_taken_without_loop() {
    let mut ring: Ring<siw_cqe> = ring(4, 4 * size_of::<siw_cqe>()).expect("a good ring");
    let completion = |id: u64| siw_cqe { id: id.into(), flags: 0xff, ..siw_cqe::default() };
    // Even identifiers are translated by the other function.
    let translate_odd = |element: &siw_cqe| Some(element.id.get()).filter(|id| id % 2 == 1);
    let mut into = [0; 3];
    let (translate_any, translate_all) =
        (|element: &siw_cqe| element.id.get(), |element: &siw_cqe| Some(element.id.get()));
    assert_eq!(ring.try_take(&mut into, translate_all), Some(0));
    complete(&ring, 0, &completion(10));
    assert_eq!(ring.try_take(&mut [], translate_all), None, "there is no room");
    assert_eq!((ring.try_take(&mut into, translate_all), into), (Some(1), [10, 0, 0]));
    complete(&ring, 1, &completion(11));
    let untranslated = |_: &siw_cqe| None;
    assert_eq!(
        ring.try_take(&mut into, untranslated),
        None,
        "the completion should stay in the ring"
    );
    (1..5).for_each(|count| complete(&ring, count, &completion(10 + u64::from(count))));
    assert_eq!(ring.try_take(&mut into, translate_all), None, "there are several");
    assert_eq!((ring.take(&mut into, translate_odd, translate_any), into), (3, [11, 12, 13]));
    assert_eq!((ring.try_take(&mut into, translate_all), into), (Some(1), [14, 12, 13]));
    assert_eq!(ring.take(&mut into, translate_odd, translate_any), 0);
}

#[test]
fn several_completions_are_left_to_loop() {
    for elements in [1, 2] {
        let length = elements as usize * size_of::<siw_cqe>();
        let mut ring: Ring<siw_cqe> = ring(elements, length).expect("a good ring");
        let completion = siw_cqe { id: 7.into(), flags: 0xff, ..siw_cqe::default() };
        (0..elements).for_each(|count| complete(&ring, count, &completion));
        let translate_all = |element: &siw_cqe| Some(element.id.get());
        assert_eq!(ring.try_take(&mut [0; 2], translate_all), None);
        assert_eq!(ring.try_take(&mut [0; 1], translate_all), Some(1));
    }
}

#[test]
fn impossible_element_count_is_refused() {
    for elements in [0, 3, u32::MAX, 1 << 31] {
        assert!(ring::<siw_rqe>(elements, 4096).is_none(), "{elements}");
    }
    assert!(ring::<siw_rqe>(4, 4 * size_of::<siw_rqe>() - 1).is_none(), "too short");
    let bare: Ring<siw_cqe> = ring(4, 4 * size_of::<siw_cqe>()).expect("a good ring");
    assert!(bare.arming().is_none(), "no room behind the elements");
}

#[test]
fn values_are_stored_at_their_offsets() {
    let mut ring = sends(2);
    let mut free = ring.free().expect("there is room");
    free.put(0, &1_u64.to_be_bytes());
    free.put(FLAGS + 2, &[2_u8; 2]);
    assert!(free.write_if_short(16, &[3; 8]));
    assert!(!free.write_if_short(24, &[4; 65]), "long bytes are left to `write`");
    free.publish(siw_wqe_flags::SIW_WQE_VALID | siw_wqe_flags::SIW_WQE_SIGNALLED);
    let stored = bytes(&ring, 0);
    assert_eq!(stored[..8], 1_u64.to_be_bytes());
    let flags = siw_wqe_flags::SIW_WQE_VALID | siw_wqe_flags::SIW_WQE_SIGNALLED;
    assert_eq!(stored[FLAGS..FLAGS + 2], flags.bits().to_ne_bytes());
    assert_eq!(stored[10..24], [2, 2, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert!(stored[24..].iter().all(|byte| *byte == 0));
}

#[test]
fn flags_and_neighbors_are_not_overwritten() {
    let size = size_of::<siw_sqe>();
    for (offset, length) in
        [(0, 9), (6, 3), (8, 1), (8, 0), (9, 1), (size - 1, 2), (size, 1), (usize::MAX, 1)]
    {
        let mut ring = sends(2);
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ring.free().expect("there is room").write(offset, &[1; 9][..length]);
        }));
        assert!(written.is_err(), "{length} bytes at {offset}");
        assert_eq!(bytes(&ring, 0), [0; size_of::<siw_sqe>()]);
    }
}

#[test]
fn sends_behind_pending_one_need_no_doorbell() {
    let mut ring = sends(4);
    (0..4).for_each(|id| put(&mut ring, &send(id)));
    assert!(!ring.needs_doorbell(3), "the kernel has not taken the first element");
}

#[test]
fn marked_element_stays_valid_until_it_is_emptied() {
    let mut ring = sends(1);
    put(&mut ring, &send(7));
    let orphans = ring.orphans();
    assert!(orphans.mark(0));
    assert_eq!(ring.place.work_flags(0).load(Ordering::Relaxed), VALID | TAKEN);
    assert!(!has_room(&mut ring) && !orphans.mark(0) && !ring.take_back());
    assert_eq!(orphans.empty(0), 7);
    assert!(has_room(&mut ring));
}

#[test]
fn mapping_is_lent_while_there_are_no_orphans() {
    let mut ring = sends(1);
    assert!(ring.mapping().is_some());
    let orphans = ring.orphans();
    assert!(ring.mapping().is_none());
    drop(orphans);
    assert!(ring.mapping().is_some());
}

/// Checks the entries that the kernel gets. The kernel crashes when it processes an entry of length 0.
#[test]
fn empty_entries_are_left_out() {
    let sge = |number: u32, length| Sge { addr: u64::from(number).into(), length, lkey: number };
    let cases: [(&[Sge], &[u32]); 5] = [
        (&[], &[]),
        (&[sge(1, 0)], &[]),
        (&[sge(1, 5)], &[1]),
        (&[sge(1, 0), sge(2, 6), sge(3, 0)], &[2]),
        (&[sge(1, 5), sge(2, 6)], &[1, 2]),
    ];
    for (sges, expected) in cases {
        let mut ring = sends(1);
        let mut free = ring.free().expect("there is room");
        let number = gather(&mut free, offset_of!(siw_sqe, sge), sges, 3).expect("few entries");
        free.publish(siw_wqe_flags::empty());
        assert_eq!(usize::from(number), expected.len(), "{sges:?}");
        let stored = taken(&ring, 0);
        for (place, number) in expected.iter().enumerate() {
            let given = &sges[*number as usize - 1];
            assert_eq!(stored.sge[place], translated_sge(given), "{sges:?}");
        }
    }
}
