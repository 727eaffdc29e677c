//! A ring of the siw driver: an array of elements, shared with the kernel.
//!
//! There are no indices: each side counts separately, and the flag VALID in an element determines its owner. The side
//! that fills elements stores the flag last; the other side clears it.
//!
//! # Safety
//!
//! Flags are always accessed as atomics. The rest of an element is copied as bytes, by raw pointer, while this side
//! owns it by the flag. If a kernel breaks the protocol, the copy has wrong contents and no other harm results: no
//! reference is created, and any bytes are valid. Positions come from counters of this library.
#![expect(unsafe_code, reason = "accesses memory that the kernel shares")]

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use verbs_abi::siw::{siw_cq_ctrl, siw_cqe, siw_notify_flags, siw_rqe, siw_sqe, siw_wqe_flags};
use zerocopy::{Immutable, IntoBytes};

use crate::driver::short_copy::copy_if_short;
use crate::driver::{PostError, Posted};
#[cfg(loom)]
use crate::sync::FromPtr as _;
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, fence, reads, writes};
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;

/// Offset of the flags in every element.
const FLAGS: usize = 8;
const _: () = assert!(
    offset_of!(siw_sqe, flags) == FLAGS
        && offset_of!(siw_rqe, flags) == FLAGS
        && offset_of!(siw_cqe, flags) == FLAGS
);

const VALID: u16 = siw_wqe_flags::SIW_WQE_VALID.bits();

/// The library's own mark on an element that is taken back.
///
/// Other threads do not use the element until it is empty. The kernel has no such flag.
const TAKEN: u16 = 1 << 15;

/// A mapped ring of elements `E`, and the position of this side in the ring.
#[derive(Debug)]
pub(super) struct Ring<E> {
    place: Arc<Place>,
    elements: PhantomData<fn() -> E>,
}

/// The memory of a ring, and the position of this side in the ring.
#[derive(Debug)]
struct Place {
    mapping: Mapping,
    /// The number of elements minus one.
    ///
    /// The number is a power of two, checked against the mapping's length together with `size`.
    mask: u32,
    /// Size of an element, in bytes.
    size: usize,
    /// Number of elements that were filled, or emptied, on this side.
    ///
    /// Modulo the number of elements, it is the index of the next one. Only the owner of the ring stores it.
    count: AtomicU32,
}

impl Place {
    /// Returns the first byte of the `count`th element since the ring was created.
    #[inline]
    fn element(&self, count: u32) -> NonNull<u8> {
        self.element_of(self.size, count)
    }

    /// Returns [`element`](Self::element) of a queue with elements of `size` bytes.
    #[inline]
    fn element_of(&self, size: usize, count: u32) -> NonNull<u8> {
        debug_assert_eq!(size, self.size);
        let offset = (count & self.mask) as usize * size;
        // SAFETY: `Ring::over` has checked that all of the elements up to `mask` are within the
        // mapping.
        unsafe { self.mapping.start().add(offset) }
    }

    /// Returns the flags of an element of a work queue.
    #[inline]
    fn work_flags(&self, count: u32) -> &AtomicU16 {
        self.flags_of(self.element(count))
    }

    /// Returns the flags of `element`, which is one of a work queue.
    #[inline]
    fn flags_of(&self, element: NonNull<u8>) -> &AtomicU16 {
        debug_assert!(self.size % 8 == 0 && FLAGS + 2 <= self.size);
        // SAFETY: the flags are within the element, which has more than 10 bytes.
        let flags = unsafe { element.add(FLAGS) };
        // SAFETY: the flags are readable and writable as long as the mapping, which `self` borrows. Mappings begin at a
        // page, and elements and their flags at multiples of 8, so the flags are aligned. They are accessed only as an
        // atomic on this side; the other side is the kernel.
        unsafe { AtomicU16::from_ptr(flags.cast().as_ptr()) }
    }
}

impl<E> Ring<E> {
    /// Maps the ring of `elements` that the driver has under `key`, beside `neighbor`.
    ///
    /// The mapping includes the bytes after the elements.
    fn map(
        file: &UverbsFile,
        key: u64,
        elements: u32,
        behind: usize,
        neighbor: Option<&mut Mapping>,
    ) -> Result<Self, Errno> {
        let length = (elements as usize).checked_mul(size_of::<E>()).ok_or(Errno::EOVERFLOW)?;
        let length = length.checked_add(behind).ok_or(Errno::EOVERFLOW)?;
        let mapping = Mapping::shared(file, key, length, neighbor)?;
        Self::over(mapping, elements).ok_or(Errno::EPROTO)
    }

    /// Returns the ring of `elements` in `mapping`, if its geometry is valid.
    pub(super) fn over(mapping: Mapping, elements: u32) -> Option<Self> {
        let size = size_of::<E>();
        let length = (elements as usize).checked_mul(size)?;
        if !elements.is_power_of_two() || length > mapping.len() {
            return None;
        }
        let place = Place { mapping, mask: elements - 1, size, count: AtomicU32::new(0) };
        Some(Self { place: Arc::new(place), elements: PhantomData })
    }

    /// Returns the mapping, while there are no [orphans](OrphanedElements) yet.
    pub(super) fn mapping(&mut self) -> Option<&mut Mapping> {
        Arc::get_mut(&mut self.place).map(|place| &mut place.mapping)
    }

    /// Returns the number of elements.
    pub(super) fn capacity(&self) -> u32 {
        self.place.mask + 1
    }

    #[inline]
    fn count(&self) -> u32 {
        self.place.count.load(Ordering::Relaxed)
    }
}

/// An element of a work queue, which begins with an identifier and flags of 16 bits.
pub(super) trait Work {}

impl Work for siw_sqe {}

impl Work for siw_rqe {}

/// A free element, which the kernel does not access until the element is handed over.
#[must_use]
pub(super) struct Free<'a, E> {
    place: &'a Place,
    /// The first byte of the slot.
    start: NonNull<u8>,
    flags: &'a AtomicU16,
    /// Number of elements including this one.
    count: u32,
    elements: PhantomData<fn() -> E>,
}

impl<E> Free<'_, E> {
    /// Stores `value` into the element, from `offset` on.
    ///
    /// # Panics
    ///
    /// Panics if the value is not within the element, or overlaps the flags.
    #[inline(always)]
    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, offset: usize, value: &T) {
        self.write(offset, value.as_bytes());
    }

    /// Returns the place of `length` bytes at `offset`.
    ///
    /// # Panics
    ///
    /// Panics if the bytes are not within the element, or overlap the flags.
    #[inline(always)]
    fn bytes_at(&mut self, offset: usize, length: usize) -> NonNull<u8> {
        let before = offset < FLAGS && length <= FLAGS - offset;
        let behind = offset >= FLAGS + size_of::<u16>();
        assert!(before || behind);
        assert!(offset <= size_of::<E>() && length <= size_of::<E>() - offset);
        // SAFETY: `offset` is within the element, as was checked.
        unsafe { self.start.add(offset) }
    }

    /// Writes `bytes` into the element, from `offset` on.
    ///
    /// # Panics
    ///
    /// Panics if the bytes are not within the element, or overlap the flags.
    #[inline(always)]
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let into = self.bytes_at(offset, bytes.len());
        // SAFETY: `bytes` is a slice and so valid for reads. `into` is valid for writes of as many bytes, which are
        // within the element, as was checked. Bytes have no alignment. The two do not overlap, because this library
        // creates no slice of a mapping.
        unsafe { into.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Writes `bytes` if that takes few instructions. Returns `false`, and writes nothing, otherwise.
    ///
    /// # Panics
    ///
    /// Panics if the bytes are not within the element, or overlap the flags.
    #[inline(always)]
    pub(super) fn write_if_short(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let into = self.bytes_at(offset, bytes.len());
        // SAFETY: the rest of the element has room for the bytes, as was checked. They do not overlap it, because this
        // library creates no slice of a mapping.
        unsafe { copy_if_short(into, bytes) }
    }

    /// Passes the element to the kernel, with its written contents and with `flags`.
    #[inline(always)]
    pub(super) fn publish(self, flags: siw_wqe_flags) {
        // A thread that finds the element valid must find it counted too, to recognize it as the last one.
        self.place.count.store(self.count, Ordering::Relaxed);
        let flags = flags | siw_wqe_flags::SIW_WQE_VALID;
        self.flags.store(flags.bits(), Ordering::Release);
    }
}

impl<E: Work> Ring<E> {
    /// Maps a work queue, beside `neighbor`.
    pub(super) fn of_work(
        file: &UverbsFile,
        key: u64,
        elements: u32,
        neighbor: Option<&mut Mapping>,
    ) -> Result<Self, Errno> {
        Self::map(file, key, elements, 0, neighbor)
    }

    /// Returns the element to fill next, which still has its earlier contents.
    #[inline(always)]
    pub(super) fn free(&mut self) -> Posted<Free<'_, E>> {
        let (place, count) = (&*self.place, self.count());
        let start = place.element_of(size_of::<E>(), count);
        let flags = place.flags_of(start);
        if flags.load(Ordering::Acquire) & VALID != 0 {
            return Err(PostError::Full(self.capacity()));
        }
        writes(start);
        let (count, elements) = (count.wrapping_add(1), PhantomData);
        Ok(Free { place, start, flags, count, elements })
    }

    /// Returns `true` if the kernel may not process the last `stored` elements without a doorbell.
    ///
    /// After each element that the kernel has taken, it checks the next one. So it processes the stored elements if it
    /// has not yet taken the one before them.
    #[inline]
    pub(super) fn needs_doorbell(&self, stored: u32) -> bool {
        // The kernel clears the flag of an element and then checks the next one. Either it sees the stored flags, or
        // this thread sees the cleared one.
        fence(Ordering::SeqCst);
        let before = self.count().wrapping_sub(stored).wrapping_sub(1);
        let before = self.place.element_of(size_of::<E>(), before);
        // Elements that fill the ring have taken the place of the one before them.
        stored > self.place.mask || self.place.flags_of(before).load(Ordering::Acquire) & VALID == 0
    }

    /// Takes back the last element. Returns `true` if the kernel had not taken it.
    pub(super) fn take_back(&mut self) -> bool {
        let last = self.count().wrapping_sub(1);
        let flags = self.place.work_flags(last);
        let free = |flags: u16| (flags & VALID != 0 && flags & TAKEN == 0).then_some(0);
        let taken = flags.fetch_update(Ordering::AcqRel, Ordering::Relaxed, free).is_ok();
        if taken {
            self.place.count.store(last, Ordering::Relaxed);
        }
        taken
    }

    /// Returns an object that takes back the elements that the kernel has left.
    ///
    /// Taking them needs no access to the ring.
    pub(super) fn orphans(&self) -> OrphanedElements {
        OrphanedElements { place: Arc::clone(&self.place) }
    }
}

/// The elements of a work queue that the kernel will never process.
#[derive(Debug)]
pub(super) struct OrphanedElements {
    place: Arc<Place>,
}

impl OrphanedElements {
    /// Takes back all elements that the kernel has left, and returns their identifiers in order.
    ///
    /// An element that another thread stores meanwhile may stay. An element that was stored before a returned one
    /// does not stay.
    pub(super) fn take_all(&self) -> Vec<u64> {
        self.take_since(self.place.count.load(Ordering::Relaxed))
    }

    /// Takes back all elements, for a caller that has seen `count` elements.
    fn take_since(&self, mut count: u32) -> Vec<u64> {
        let mask = self.place.mask;
        let mut marked = Vec::new();
        loop {
            marked.extend((0..=mask).filter(|slot| self.mark(*slot)));
            // An element is counted before it can be marked. If none was counted while all slots were checked, each
            // element that was stored before a marked one could be marked too. The loop ends, because no element is
            // stored into a marked slot.
            match self.place.count.load(Ordering::Relaxed) {
                now if now == count => break,
                now => count = now,
            }
        }
        // The slot of the next element is that of the oldest one.
        marked.sort_unstable_by_key(|slot| slot.wrapping_sub(count) & mask);
        marked.into_iter().map(|slot| self.empty(slot)).collect()
    }

    /// Marks the element in `slot`, if there is one, and returns `true` if it did.
    fn mark(&self, slot: u32) -> bool {
        let mark = |flags: u16| (flags & VALID != 0 && flags & TAKEN == 0).then_some(flags | TAKEN);
        let flags = self.place.work_flags(slot);
        flags.fetch_update(Ordering::AcqRel, Ordering::Relaxed, mark).is_ok()
    }

    /// Empties the element in `slot`, which was marked before, and returns its identifier.
    fn empty(&self, slot: u32) -> u64 {
        let mut id = [0; size_of::<u64>()];
        let from = self.place.element(slot);
        reads(from);
        // SAFETY: `from` is valid for reads of an element, which begins with the identifier. No thread fills the
        // element before its flags are cleared. `id` is an array and so valid for writes. Bytes have no alignment. The
        // two do not overlap, because this library creates no array of a mapping.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut id).cast(), id.len()) };
        self.place.work_flags(slot).store(0, Ordering::Release);
        u64::from_ne_bytes(id)
    }
}

impl Ring<siw_cqe> {
    /// Maps a completion queue.
    pub(super) fn of_completions(
        file: &UverbsFile,
        key: u64,
        elements: u32,
    ) -> Result<Self, Errno> {
        Self::map(file, key, elements, size_of::<siw_cq_ctrl>(), None)
    }

    /// Returns the slot of the `count`th completion since the queue was created.
    #[inline(always)]
    fn slot(&self, count: u32) -> CompletionSlot<'_> {
        self.cursor(count).slot()
    }

    /// Returns a cursor at the slot of the `count`th completion since the queue was created.
    #[inline(always)]
    fn cursor(&self, count: u32) -> CompletionCursor<'_> {
        let Place { mapping, mask, size, .. } = &*self.place;
        debug_assert_eq!(*size, size_of::<siw_cqe>());
        let offset = |count: u32| (count & mask) as usize * size_of::<siw_cqe>();
        CompletionCursor {
            start: mapping.start(),
            offset: offset(count),
            last: offset(*mask),
            mapping: PhantomData,
        }
    }

    /// Takes at most one completion into the beginning of `into`, as `translate` returns it.
    ///
    /// Returns how many were taken, or `None`, and takes none, if more can be taken or `translate` returns `None`.
    ///
    /// It has no loop, so that a caller does not save registers for one.
    #[inline(always)]
    pub(super) fn try_take<T>(
        &mut self,
        into: &mut [T],
        translate: impl Fn(&siw_cqe) -> Option<T>,
    ) -> Option<usize> {
        let count = self.count();
        let slot = self.slot(count);
        if !slot.is_valid() {
            return Some(0);
        }
        let (first, rest) = into.split_first_mut()?;
        if !rest.is_empty() && self.slot(count.wrapping_add(1)).is_valid() {
            return None;
        }
        *first = translate(&slot.read())?;
        slot.free();
        // The count is loaded again, so that no register keeps it meanwhile.
        self.place.count.store(self.count().wrapping_add(1), Ordering::Relaxed);
        Some(1)
    }

    /// Takes completions into the beginning of `into`, as many as there are and fit.
    ///
    /// Each is translated by `translate`, or by `translate_any` if `translate` returns `None`.
    ///
    /// Returns the number of completions that were taken.
    #[inline(always)]
    pub(super) fn take<T>(
        &mut self,
        into: &mut [T],
        translate: impl Fn(&siw_cqe) -> Option<T>,
        translate_any: impl Fn(&siw_cqe) -> T,
    ) -> usize {
        let first = self.count();
        let mut taken = 0;
        let mut cursor = self.cursor(first);
        for place in into {
            let slot = cursor.slot();
            if !slot.is_valid() {
                break;
            }
            // With a single store after both, the compiler would keep the element in memory.
            match translate(&slot.read()) {
                Some(translated) => *place = translated,
                None => *place = translate_any(&slot.read()),
            }
            slot.free();
            cursor.advance();
            taken += 1;
        }
        self.place.count.store(first.wrapping_add(taken), Ordering::Relaxed);
        taken as usize
    }

    /// Returns the word that arms the queue, if there is room for it after the elements.
    pub(super) fn arming(&self) -> Option<Arming> {
        let offset = (self.place.mask as usize + 1).checked_mul(size_of::<siw_cqe>())?;
        let end = offset.checked_add(size_of::<siw_cq_ctrl>())?;
        let place = Arc::clone(&self.place);
        (end <= place.mapping.len()).then_some(Arming { place, offset })
    }
}

/// A place in a completion queue, which advances from slot to slot.
#[derive(Debug, Clone, Copy)]
struct CompletionCursor<'a> {
    start: NonNull<u8>,
    /// Bytes from the start to the current slot: a multiple of the length of a slot.
    offset: usize,
    /// Bytes from the start to the last slot: the length of a slot times the mask.
    last: usize,
    mapping: PhantomData<&'a Mapping>,
}

impl<'a> CompletionCursor<'a> {
    #[inline(always)]
    fn slot(self) -> CompletionSlot<'a> {
        // SAFETY: the offset is at most that of the last slot. `Ring::over` has checked that all elements up to `mask`
        // are within the mapping.
        let start = unsafe { self.start.add(self.offset) };
        // SAFETY: the flags are within the element.
        let flags = unsafe { start.add(FLAGS) };
        // SAFETY: the flags are readable and writable as long as the mapping, which is borrowed. A byte has no
        // alignment. They are accessed only as an atomic on this side; the other side is the kernel.
        CompletionSlot { start, flags: unsafe { AtomicU8::from_ptr(flags.as_ptr()) } }
    }

    /// Advances to the next slot, and from the last one to the first.
    #[inline(always)]
    fn advance(&mut self) {
        // The number of slots is a power of two.
        self.offset = (self.offset + size_of::<siw_cqe>()) & self.last;
    }
}

/// A slot of a completion queue.
#[derive(Debug, Clone, Copy)]
struct CompletionSlot<'a> {
    /// The first byte of the slot.
    start: NonNull<u8>,
    flags: &'a AtomicU8,
}

impl CompletionSlot<'_> {
    /// Returns `true` if the kernel has stored a completion that was not taken.
    #[inline(always)]
    fn is_valid(self) -> bool {
        u16::from(self.flags.load(Ordering::Acquire)) & VALID != 0
    }

    #[inline(always)]
    fn read(self) -> siw_cqe {
        reads(self.start);
        // SAFETY: `start` is valid for reads of a completion, as `Ring::slot` guarantees. Any bytes are a completion.
        // No alignment is required.
        unsafe { self.start.cast::<siw_cqe>().read_unaligned() }
    }

    /// Gives the slot back to the kernel.
    #[inline(always)]
    fn free(self) {
        self.flags.store(0, Ordering::Release);
    }
}

/// The word that arms a completion queue.
#[derive(Debug)]
pub struct Arming {
    place: Arc<Place>,
    /// Checked to be within the mapping.
    offset: usize,
}

impl Arming {
    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: `Ring::arming` has checked that the word is within the mapping.
        let flags = unsafe { self.place.mapping.start().add(self.offset) };
        // SAFETY: the word is readable and writable as long as the mapping, which `self` borrows. Mappings begin at a
        // page and the word follows elements of 32 bytes, so it is aligned. It is accessed only as an atomic on this
        // side; the other side is the kernel.
        unsafe { AtomicU32::from_ptr(flags.cast().as_ptr()) }
    }

    /// Returns `true` if the queue was armed and no event was raised since.
    pub(super) fn is_set(&self) -> bool {
        // The library may have stored a completion before: either the thread that arms sees it, or this thread sees the
        // armed flag.
        fence(Ordering::SeqCst);
        self.flags().load(Ordering::Relaxed) != 0
    }

    /// Arms the queue: the kernel clears the word with the event.
    pub(super) fn arm_next(&self) {
        // The kernel checks SOLICITED only at the completions of sends, by the flag of the send. A queue that was armed
        // for solicited messages would never wake a thread.
        let any =
            siw_notify_flags::SIW_NOTIFY_SOLICITED | siw_notify_flags::SIW_NOTIFY_NEXT_COMPLETION;
        self.flags().store(any.bits(), Ordering::Relaxed);
        // The kernel stores a completion and then reads the word. Either it sees the armed word, or the poll that
        // follows sees the completion.
        fence(Ordering::SeqCst);
    }
}

/// Takes a completion, if there is one.
#[cfg(test)]
fn take_one(ring: &mut Ring<siw_cqe>) -> Option<siw_cqe> {
    let mut into = [siw_cqe::default()];
    let taken = ring.try_take(&mut into, |element| Some(*element));
    (taken.expect("there is room for one") == 1).then_some(into[0])
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(test)]
mod tests;
