//! A ring of the rxe driver: `struct rxe_queue_buf`, shared with the kernel.
//!
//! # Safety
//!
//! Both indices are always accessed as atomics. An element is copied as bytes, by raw pointer, while this side owns it
//! by the protocol. The producer owns it until the producer's index passes it. From then on the consumer owns it until
//! the consumer's index passes it. If a kernel breaks the protocol, the copy has wrong contents and no other harm
//! results: no reference is created, and any bytes are valid.
#![expect(unsafe_code, reason = "accesses memory that the kernel shares")]

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use verbs_abi::rxe::{mminfo, rxe_queue_buf};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::driver::checks::total;
use crate::driver::short_copy::{copy, copy_if_short};
use crate::driver::{PostError, Posted};
#[cfg(loom)]
use crate::sync::FromPtr as _;
use crate::sync::{AtomicU32, reads, writes};
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::Sge;

/// Offset of the first slot.
const DATA: usize = size_of::<rxe_queue_buf>();

/// Returns the length of `count` scatter/gather entries in an element.
pub(super) fn sges_len(count: u32) -> usize {
    (count as usize).saturating_mul(size_of::<Sge>())
}

/// Offsets in the ring's header.
const MASK: usize = offset_of!(rxe_queue_buf, index_mask);
const LOG2_ELEMENT: usize = offset_of!(rxe_queue_buf, log2_elem_size);
const PRODUCER: usize = offset_of!(rxe_queue_buf, producer_index);
const CONSUMER: usize = offset_of!(rxe_queue_buf, consumer_index);

/// A ring of slots that begin with an `E`, mapped. One slot always stays empty.
#[derive(Debug)]
pub(super) struct Queue<E> {
    mapping: Mapping,
    /// The number of slots minus one; the number is a power of two, checked against the mapping's length.
    mask: u32,
    /// The distance of slots in bytes; checked with `mask`.
    stride: usize,
    /// Number of bytes of a slot after the `E`; the slot was checked to have them.
    behind: usize,
    /// The index of the element to take next, at most the mask.
    ///
    /// The word in the header that publishes it to the kernel is never read.
    taken: u32,
    elements: PhantomData<fn() -> E>,
}

/// The error of a ring whose indices no correct kernel stores.
const OUT_OF_RANGE: &str = "an index of the shared ring is out of range";

impl<E> Queue<E> {
    /// Maps the ring that `info`, from a response of the driver, describes, beside that of `neighbor`.
    ///
    /// Its slots must have at least `least` bytes after an `E`.
    ///
    /// It can be mapped once.
    pub(super) fn map(
        file: &UverbsFile,
        info: &mminfo,
        least: usize,
        neighbor: Option<&mut Mapping>,
    ) -> Result<Self, Errno> {
        let length = usize::try_from(info.size).map_err(|_| Errno::EOVERFLOW)?;
        let mapping = Mapping::shared(file, info.offset.get(), length, neighbor)?;
        Self::over(mapping, least).ok_or(Errno::EPROTO)
    }

    /// Returns the ring in `mapping`, if its geometry is valid and its slots are large enough.
    pub(super) fn over(mapping: Mapping, least: usize) -> Option<Self> {
        let elements = PhantomData;
        let mut queue = Self { mapping, mask: 0, stride: 0, behind: 0, taken: 0, elements };
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
        // Not zero in a ring that takes the place of another one.
        queue.taken = queue.word(CONSUMER).load(Ordering::Relaxed);
        if queue.taken > mask {
            return None;
        }
        queue.stride = usize::try_from(element).ok()?;
        queue.behind = queue.stride.checked_sub(size_of::<E>())?;
        (queue.behind >= least).then_some(queue)
    }

    /// Returns the mapping of the ring.
    pub(super) fn mapping(&mut self) -> &mut Mapping {
        &mut self.mapping
    }

    /// Returns the number of elements that the ring holds.
    pub(super) fn capacity(&self) -> u32 {
        self.mask
    }

    /// Returns the slot to fill next.
    #[inline(always)]
    pub(super) fn free_slot(&mut self) -> Posted<Slot<'_, E>> {
        let producer = self.word(PRODUCER).load(Ordering::Relaxed);
        let consumer = self.word(CONSUMER).load(Ordering::Acquire);
        let next = producer.wrapping_add(1) & self.mask;
        if self.are_out_of_range(producer, consumer) {
            return Err(PostError::Malformed(OUT_OF_RANGE));
        }
        if next == consumer {
            return Err(PostError::Full(self.capacity()));
        }
        let start = self.slot(producer);
        writes(start);
        Ok(Slot { start, next, queue: self })
    }

    /// Returns `true` if one of the indices is above the mask.
    #[inline]
    fn are_out_of_range(&self, producer: u32, consumer: u32) -> bool {
        // The mask has all the bits that an index has.
        producer | consumer > self.mask
    }

    /// Returns a word of the ring's header, as an atomic.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + size_of::<u32>() <= DATA);
        // SAFETY: every caller passes an offset within the header, which `over` has checked to be
        // within the mapping.
        let word = unsafe { self.mapping.start().add(offset) };
        // SAFETY: the word is readable and writable as long as the mapping, which `self` borrows. Mappings begin at a
        // page and the header's offsets are multiples of 4, so the word is aligned. It is accessed only as an atomic on
        // this side; the other side is the kernel.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// Returns the first byte of slot `index`.
    #[inline]
    fn slot(&self, index: u32) -> NonNull<u8> {
        let offset = DATA + (index & self.mask) as usize * self.stride;
        // SAFETY: `over` has checked that all of the slots up to `mask` are within the mapping.
        unsafe { self.mapping.start().add(offset) }
    }
}

impl<E: FromBytes> Queue<E> {
    /// Takes elements off the ring into the beginning of `into`, and returns their number.
    ///
    /// It takes as many as there are and fit. Each is stored as `translate` returns it.
    #[inline(always)]
    pub(super) fn take<T>(
        &mut self,
        into: &mut [T],
        translate: impl Fn(E) -> T,
    ) -> Result<usize, &'static str> {
        let producer = self.word(PRODUCER).load(Ordering::Acquire);
        let mut consumer = self.taken;
        if producer > self.mask {
            return Err(OUT_OF_RANGE);
        }
        let filled = producer.wrapping_sub(consumer) & self.mask;
        let count = into.len().min(filled as usize);
        if count == 0 {
            return Ok(0);
        }
        for place in into.iter_mut().take(count) {
            let slot = self.slot(consumer);
            reads(slot);
            // SAFETY: the slot is valid for reads of an `E`, which is within the slot, as was checked. Any bytes are an
            // `E`. No alignment is required.
            *place = translate(unsafe { slot.cast::<E>().read_unaligned() });
            consumer = consumer.wrapping_add(1) & self.mask;
        }
        self.set_taken(consumer);
        Ok(count)
    }

    /// Takes at most one element into the beginning of `into`, as `translate` returns it.
    ///
    /// Returns how many were taken, or `None`, and takes none, if more can be taken or an index is out of range.
    ///
    /// It has no loop, so that a caller does not save registers for one.
    #[inline(always)]
    pub(super) fn try_take<T>(
        &mut self,
        into: &mut [T],
        translate: impl Fn(E) -> T,
    ) -> Option<usize> {
        let (producer, consumer) = (self.word(PRODUCER).load(Ordering::Acquire), self.taken);
        if consumer == producer {
            return Some(0);
        }
        if producer > self.mask {
            return None;
        }
        let following = consumer.wrapping_add(1) & self.mask;
        let (first, rest) = into.split_first_mut()?;
        if !rest.is_empty() && following != producer {
            return None;
        }
        let slot = self.slot(consumer);
        reads(slot);
        // SAFETY: the slot is valid for reads of an `E`, which is within the slot, as was checked when the ring was
        // mapped. Any bytes are an `E`. No alignment is required.
        *first = translate(unsafe { slot.cast::<E>().read_unaligned() });
        self.set_taken(following);
        Some(1)
    }

    /// Gives the slots before `index` back to the kernel.
    #[inline(always)]
    fn set_taken(&mut self, index: u32) {
        self.taken = index;
        self.word(CONSUMER).store(index, Ordering::Release);
    }
}

/// A free slot, which the other side does not access until the slot is published.
#[must_use]
pub(super) struct Slot<'a, E> {
    queue: &'a Queue<E>,
    /// The first byte of the slot.
    start: NonNull<u8>,
    /// The index after the index of the slot.
    next: u32,
}

impl<E> Slot<'_, E> {
    /// Fills the `E` with zeros.
    #[inline]
    pub(super) fn clear(&mut self) {
        // SAFETY: the slot is valid for writes of an `E`, which is within it, as was checked; bytes
        // have no alignment.
        unsafe { self.start.write_bytes(0, size_of::<E>()) };
    }

    /// Stores `value` into the `E`, from `offset` on.
    ///
    /// # Panics
    ///
    /// Panics if the value is not within the `E`.
    #[inline(always)]
    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, offset: usize, value: &T) {
        assert!(offset + size_of::<T>() <= size_of::<E>());
        // SAFETY: `offset` is within the `E`, and that within the slot, as was checked.
        let into = unsafe { self.start.add(offset) };
        let bytes = value.as_bytes();
        // SAFETY: `bytes` is a slice and so valid for reads. `into` is valid for writes of as many bytes, which are
        // within the `E`, as was checked. Bytes have no alignment. The two do not overlap, because this library creates
        // no slice of a mapping.
        unsafe { into.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Returns the first byte after the `E`, with room for `length` bytes.
    ///
    /// # Panics
    ///
    /// Panics if there is no room.
    #[inline]
    fn behind(&mut self, length: usize) -> NonNull<u8> {
        assert!(length <= self.queue.behind);
        // SAFETY: the `E` is within the slot, as was checked.
        unsafe { self.start.add(size_of::<E>()) }
    }

    /// Copies `bytes` to the end of the `E`.
    ///
    /// # Panics
    ///
    /// Panics if there is no room for them.
    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let into = self.behind(bytes.len());
        // SAFETY: there is room for the bytes, as was checked. They do not overlap it, because this library creates no
        // slice of a mapping.
        unsafe { copy(into, bytes) };
    }

    /// Copies `bytes` to the end of the `E` if that takes few instructions.
    ///
    /// Returns `false`, and copies nothing, otherwise.
    ///
    /// # Panics
    ///
    /// Panics if there is no room for them.
    #[inline(always)]
    pub(super) fn append_if_short(&mut self, bytes: &[u8]) -> bool {
        let into = self.behind(bytes.len());
        // SAFETY: as in `append`.
        unsafe { copy_if_short(into, bytes) }
    }

    /// Copies the scatter/gather entries after the `E`, and returns the total number of their bytes.
    ///
    /// # Panics
    ///
    /// Panics if there is no room for them.
    #[inline(always)]
    pub(super) fn append_sges(&mut self, sges: &[Sge]) -> u64 {
        // Most have one. A loop over one is longer than the rest.
        if let [sge] = sges {
            let into = self.behind(size_of::<Sge>()).cast();
            // SAFETY: `into` is valid for writes of an entry, as was checked. No alignment is required.
            unsafe { into.write_unaligned(*sge) };
            return u64::from(sge.length);
        }
        self.append(sges.as_bytes());
        total(sges)
    }

    /// Publishes the slot with its written contents to the other side.
    #[inline]
    pub(super) fn publish(self) {
        self.queue.word(PRODUCER).store(self.next, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(test)]
mod tests;
