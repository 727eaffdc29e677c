//! A ring of the rxe driver: `struct rxe_queue_buf`, shared with the kernel.
//!
//! # Safety
//!
//! Both indices are always accessed as atomics. An element is copied as bytes, by raw pointer,
//! while the protocol says that it is ours: the producer's until the producer's index passes it,
//! the consumer's from then until the consumer's index does. A kernel that breaks the protocol
//! makes the copy a garbled one and nothing worse: no reference is made, and any bytes are valid.
#![expect(unsafe_code, reason = "accesses memory that the kernel shares")]

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use verbs_abi::rxe::{mminfo, rxe_queue_buf};

use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;

/// Offset of the first slot.
const DATA: usize = size_of::<rxe_queue_buf>();

/// Offsets in the ring's header.
const MASK: usize = offset_of!(rxe_queue_buf, index_mask);
const LOG2_ELEMENT: usize = offset_of!(rxe_queue_buf, log2_elem_size);
const PRODUCER: usize = offset_of!(rxe_queue_buf, producer_index);
const CONSUMER: usize = offset_of!(rxe_queue_buf, consumer_index);

/// A ring, mapped. One slot always stays empty.
#[derive(Debug)]
pub(super) struct Queue {
    mapping: Mapping,
    /// One less than the number of slots, which is a power of two; checked against the mapping's
    /// length.
    mask: u32,
    /// The distance of elements, as a power of two; checked with `mask`.
    log2_element: u32,
}

/// Which end of the ring is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Producer,
    Consumer,
}

impl Side {
    fn offset(self) -> usize {
        match self {
            Self::Producer => PRODUCER,
            Self::Consumer => CONSUMER,
        }
    }
}

/// Said of a ring whose indices no correct kernel leaves there.
pub(super) const OUT_OF_RANGE: &str = "an index of the shared ring is out of range";

impl Queue {
    /// Maps the ring that `info`, from a response of the driver, tells of, and whose slots must have
    /// at least `least` bytes. It can be mapped once.
    pub(super) fn map(file: &UverbsFile, info: &mminfo, least: usize) -> Result<Self, Errno> {
        let length = usize::try_from(info.size).map_err(|_| Errno::EOVERFLOW)?;
        let mapping = Mapping::shared(file, info.offset.get(), length)?;
        Self::over(mapping, least).ok_or(Errno::EPROTO)
    }

    /// The ring in `mapping`, if its geometry holds together and its slots are large enough.
    fn over(mapping: Mapping, least: usize) -> Option<Self> {
        let mut queue = Self { mapping, mask: 0, log2_element: 0 };
        if queue.mapping.len() < DATA {
            return None;
        }
        let mask = queue.word(MASK).load(Ordering::Relaxed);
        let log2_element = queue.word(LOG2_ELEMENT).load(Ordering::Relaxed);
        let slots = u64::from(mask) + 1;
        let element = 1_u64.checked_shl(log2_element)?;
        let length = slots.checked_mul(element)?.checked_add(DATA as u64)?;
        if !slots.is_power_of_two() || length > queue.mapping.len() as u64 {
            return None;
        }
        queue.mask = mask;
        queue.log2_element = log2_element;
        (queue.element_size() >= least).then_some(queue)
    }

    /// How many elements the ring holds.
    pub(super) fn capacity(&self) -> u32 {
        self.mask
    }

    /// The size of a slot in bytes.
    pub(super) fn element_size(&self) -> usize {
        1 << self.log2_element
    }

    /// The slot to fill next, or `None` if the ring is full.
    #[inline]
    pub(super) fn free_slot(&self) -> Result<Option<Slot<'_>>, &'static str> {
        let ours = self.index(Side::Producer, Ordering::Relaxed)?;
        let theirs = self.index(Side::Consumer, Ordering::Acquire)?;
        let next = (ours + 1) & self.mask;
        Ok((next != theirs).then_some(Slot { queue: self, index: ours, side: Side::Producer }))
    }

    /// The slot to empty next, or `None` if the ring is empty.
    #[inline]
    pub(super) fn filled_slot(&self) -> Result<Option<Slot<'_>>, &'static str> {
        let theirs = self.index(Side::Producer, Ordering::Acquire)?;
        let ours = self.index(Side::Consumer, Ordering::Relaxed)?;
        Ok((theirs != ours).then_some(Slot { queue: self, index: ours, side: Side::Consumer }))
    }

    #[inline]
    fn index(&self, side: Side, order: Ordering) -> Result<u32, &'static str> {
        let index = self.word(side.offset()).load(order);
        if index > self.mask { Err(OUT_OF_RANGE) } else { Ok(index) }
    }

    /// A word of the ring's header, as an atomic.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + size_of::<u32>() <= DATA);
        // SAFETY: every caller passes an offset within the header, which `over` has checked to be
        // within the mapping.
        let word = unsafe { self.mapping.start().add(offset) };
        // SAFETY: the word is readable and writable as long as the mapping, which `self` borrows;
        // mappings begin at a page and the header's offsets are multiples of 4, so it is
        // aligned; and it is accessed only as an atomic on this side, the other being the
        // kernel's.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// The first byte of slot `index`.
    #[inline]
    fn slot(&self, index: u32) -> NonNull<u8> {
        let offset = DATA + ((index & self.mask) as usize) * self.element_size();
        // SAFETY: `over` has checked that all of the slots up to `mask` are within the mapping.
        unsafe { self.mapping.start().add(offset) }
    }
}

/// A slot that is ours until it is passed on.
#[must_use]
pub(super) struct Slot<'a> {
    queue: &'a Queue,
    index: u32,
    side: Side,
}

impl Slot<'_> {
    /// Copies `bytes` into the slot, from `offset` on.
    ///
    /// # Panics
    ///
    /// Where they are not within the slot.
    #[inline]
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.queue.element_size());
        assert!(bytes.len() <= self.queue.element_size() - offset);
        // SAFETY: `offset` is within the slot, as was checked.
        let into = unsafe { self.queue.slot(self.index).add(offset) };
        // SAFETY: `bytes` is valid for reads by being a slice; `into` is valid for writes of as
        // many, which are within the slot, as was checked; bytes have no alignment; the two
        // do not overlap, as no slice of ours is made of a mapping.
        unsafe { into.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Copies bytes out of the beginning of the slot.
    ///
    /// # Panics
    ///
    /// Where the slot is shorter.
    #[inline]
    pub(super) fn read(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.queue.element_size());
        let from = self.queue.slot(self.index);
        // SAFETY: `from` is valid for reads of as many bytes, which are within the slot, as was
        // checked; `bytes` is valid for writes by being a slice; bytes have no alignment;
        // the two do not overlap, as no slice of ours is made of a mapping.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
    }

    /// Passes the slot to the other side, with what was written to it.
    #[inline]
    pub(super) fn pass_on(self) {
        let next = (self.index + 1) & self.queue.mask;
        self.queue.word(self.side.offset()).store(next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring as the kernel makes it, in private memory, for elements of 40 bytes.
    fn ring(mask: u32, log2_element: u32, data: usize) -> Option<Queue> {
        let mapping = Mapping::private(DATA + data).expect("memory");
        let queue = Queue { mapping, mask: 0, log2_element: 0 };
        queue.word(MASK).store(mask, Ordering::Relaxed);
        queue.word(LOG2_ELEMENT).store(log2_element, Ordering::Relaxed);
        Queue::over(queue.mapping, 40)
    }

    #[test]
    fn holds_one_less_than_its_slots_and_keeps_their_order() {
        let queue = ring(3, 6, 4 * 64).expect("a good ring");
        assert_eq!(queue.capacity(), 3);
        for round in 0..5_u8 {
            for place in 0..3 {
                let mut slot = queue.free_slot().expect("in range").expect("not full");
                slot.write(2, &[round, place]);
                slot.pass_on();
            }
            assert!(queue.free_slot().expect("in range").is_none(), "full");
            for place in 0..3 {
                let slot = queue.filled_slot().expect("in range").expect("not empty");
                let mut bytes = [0; 4];
                slot.read(&mut bytes);
                assert_eq!(bytes[2..], [round, place]);
                slot.pass_on();
            }
            assert!(queue.filled_slot().expect("in range").is_none(), "empty");
        }
    }

    #[test]
    fn a_geometry_that_does_not_hold_together_is_refused() {
        assert!(ring(3, 6, 4 * 64 - 1).is_none(), "shorter than its slots");
        assert!(ring(2, 6, 4 * 64).is_none(), "no power of two");
        assert!(ring(3, 5, 4 * 64).is_none(), "slots shorter than elements");
        assert!(ring(u32::MAX, 40, 4096).is_none());
        assert!(ring(0, 64, 4096).is_none());
        assert!(ring(0, u32::MAX, 4096).is_none());
    }

    #[test]
    fn hostile_indices_are_detected() {
        let queue = ring(3, 6, 4 * 64).expect("a good ring");
        for offset in [PRODUCER, CONSUMER] {
            for index in [4, u32::MAX] {
                queue.word(offset).store(index, Ordering::Relaxed);
                assert_eq!(queue.free_slot().err(), Some(OUT_OF_RANGE));
                assert_eq!(queue.filled_slot().err(), Some(OUT_OF_RANGE));
            }
            queue.word(offset).store(0, Ordering::Relaxed);
        }
    }
}
