//! Memory of queues: rings of entries, and doorbell records.
//!
//! # Safety
//!
//! A queue has one private mapping, with its rings and its record in parts that do not overlap. The device reads and
//! writes the mapping at any time. So words are accessed as atomics, and entries are stored by raw pointers; the only
//! references that are handed out are those to atomics. Offsets are masked or checked against the lengths that the
//! mapping was made for.
#![expect(unsafe_code, reason = "accesses memory that the device shares")]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use verbs_abi::mlx5::mlx5_ib_resize_cq;
use verbs_abi::{ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp};

use crate::driver::CommandContext;
use crate::driver::dma::{self, Event};
use crate::driver::short_copy::copy;
#[cfg(loom)]
use crate::sync::FromPtr as _;
use crate::sync::{AtomicU8, AtomicU16, AtomicU32};
use crate::sys::command::CommandError;
use crate::sys::mapping::{Mapping, Place};

/// Bytes of a cache line. A doorbell record has a cache line for itself.
const CACHE_LINE: usize = 64;

/// Bytes of a completion.
pub(super) const COMPLETION: usize = 64;

/// Memory for `N` rings and one doorbell record.
#[derive(Debug)]
pub(super) struct QueueMemory<const N: usize> {
    pub(super) mapping: Arc<Mapping>,
    pub(super) rings: [Ring; N],
    pub(super) record: Record,
}

impl<const N: usize> QueueMemory<N> {
    /// Maps zeroed memory for rings of `lengths` bytes, one behind the other.
    ///
    /// Each length is a power of two or zero.
    pub(super) fn new(lengths: [usize; N]) -> Result<Self, Errno> {
        let mut end = 0_usize;
        let mut starts = [0; N];
        for (start, length) in starts.iter_mut().zip(lengths) {
            *start = end;
            end = end.checked_add(length).ok_or(Errno::EOVERFLOW)?;
        }
        let offset = end.checked_next_multiple_of(CACHE_LINE).ok_or(Errno::EOVERFLOW)?;
        let length = offset.checked_add(CACHE_LINE).ok_or(Errno::EOVERFLOW)?;
        let mapping = Arc::new(Mapping::queue(length)?);
        let mut lengths = lengths.into_iter();
        let rings = starts.map(|start| {
            let length = lengths.next().expect("there are as many lengths");
            debug_assert!(length == 0 || length.is_power_of_two());
            // An empty ring does not lie on the entries of another one.
            let start = if length == 0 { offset } else { start };
            let (base, mask) = (mapping.place(start), length.saturating_sub(1));
            Ring { base, mask, _mapping: Arc::clone(&mapping) }
        });
        let record = Record { start: mapping.place(offset), _mapping: Arc::clone(&mapping) };
        Ok(Self { mapping, rings, record })
    }

    /// Returns the address of the first ring.
    pub(super) fn address(&self) -> u64 {
        address(self.mapping.start())
    }
}

fn address(pointer: NonNull<u8>) -> u64 {
    u64::try_from(pointer.as_ptr().expose_provenance()).expect("an address has at most 64 bits")
}

/// A doorbell record: two words from which the device reads how many entries this process has posted or polled.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// The first word, at the beginning of a cache line.
    start: Place,
    _mapping: Arc<Mapping>,
}

/// The words of a doorbell record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Word {
    /// Receives that were posted; the completions that were taken off a completion queue.
    First = 0,
    /// Blocks of the send queue that were posted; the arming of a completion queue.
    Second = 4,
}

impl Record {
    pub(super) fn address(&self) -> u64 {
        address(self.start.pointer())
    }

    #[inline(always)]
    fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: `QueueMemory::new` has made the mapping so long that a cache line begins at the first word.
        let word = unsafe { self.start.pointer().add(word as usize) };
        // SAFETY: the word is valid as long as the mapping, which `self` keeps. The word is aligned, because the
        // first one is at a multiple of 64. This process accesses the word only as an atomic.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    #[inline(always)]
    pub(super) fn store(&self, word: Word, value: u32) {
        dma::record(Event::Doorbell);
        self.word(word).store(value.to_be(), Ordering::Release);
    }

    #[cfg(test)]
    pub(super) fn load(&self, word: Word) -> u32 {
        u32::from_be(self.word(word).load(Ordering::Acquire))
    }
}

/// A ring of entries that this process stores and the device reads. Offsets wrap at its end.
#[derive(Debug)]
pub(super) struct Ring {
    base: Place,
    /// One less than the length in bytes, which is a power of two.
    ///
    /// An empty ring has the mask 0, and begins at the cache line of the record.
    mask: usize,
    _mapping: Arc<Mapping>,
}

/// Bytes of a unit: the segments of all entries have a whole number of units.
pub(super) const UNIT: usize = 16;

/// A unit as it lies in memory.
pub(super) type Unit = [u64; 2];

/// Returns two 32-bit words in the device's order.
#[inline(always)]
pub(super) fn pair(first: u32, second: u32) -> u64 {
    (u64::from(first) << 32 | u64::from(second)).to_be()
}

impl Ring {
    /// Returns the address of the unit at `offset`.
    #[inline(always)]
    fn unit(&self, offset: usize) -> NonNull<Unit> {
        // SAFETY: the masked offset is within the ring; if the ring is empty, the unit is the first of the record's
        // cache line.
        unsafe { self.base.pointer().add(offset & self.mask & !(UNIT - 1)).cast() }
    }

    /// Stores a unit at `offset`, which is a multiple of 16.
    #[inline(always)]
    pub(super) fn put(&mut self, offset: usize, unit: Unit) {
        dma::record(Event::Entry);
        debug_assert!(self.mask >= UNIT - 1, "the ring is empty");
        // SAFETY: the unit is within the mapping, and aligned, because a ring begins at a multiple of 16. No other
        // thread accesses the unit: `self` is borrowed exclusively, and the links of a shared receive queue, which
        // other threads access, are in the first unit of each entry, while a post stores the units behind the first
        // one. A device that reads the unit at the same time reads an entry for which no doorbell was rung, and
        // ignores it. SECURITY.md, "Hardware", says why no test shows the last point.
        unsafe { self.unit(offset).write(unit) }
    }

    /// Stores `header` and `bytes` from `offset` on, a multiple of 16.
    ///
    /// Zeros are stored behind the bytes up to the next multiple of 16.
    ///
    /// # Panics
    ///
    /// Panics if the ring is shorter than these bytes.
    #[inline(always)]
    pub(super) fn put_bytes(&mut self, offset: usize, header: [u8; 4], bytes: &[u8]) {
        let start = offset & self.mask & !(UNIT - 1);
        let last = start + header.len() + bytes.len() - 1;
        if last > self.mask {
            return self.put_around_end(start, header, bytes);
        }
        self.put(last, [0; 2]);
        let place = self.put_header(start, header);
        // SAFETY: the bytes end within the ring, as checked above. The caller's bytes are not in the ring, to which
        // nothing else has a reference. See `put` for other threads and devices.
        unsafe { copy(place, bytes) };
    }

    /// Stores `header` at `offset`, a multiple of 16. Returns the place behind it.
    #[inline(always)]
    fn put_header(&mut self, offset: usize, header: [u8; 4]) -> NonNull<u8> {
        let place: NonNull<u8> = self.unit(offset).cast();
        // SAFETY: a unit has room for the header, and any address is aligned for bytes; see `put` for other threads and
        // devices.
        unsafe { place.cast::<[u8; 4]>().write(header) };
        // SAFETY: the address is behind the header, within the unit.
        unsafe { place.add(header.len()) }
    }

    /// Stores bytes like [`put_bytes`](Self::put_bytes), and continues at the beginning of the ring.
    #[cold]
    fn put_around_end(&mut self, start: usize, header: [u8; 4], bytes: &[u8]) {
        let (size, length) = (self.mask + 1, header.len() + bytes.len());
        assert!(length <= size, "the bytes should fit into the ring");
        self.put(start + length - 1, [0; 2]);
        let place = self.put_header(start, header);
        let (first, rest) = bytes.split_at(size - start - header.len());
        // SAFETY: at least as many bytes follow until the end of the ring; otherwise as in `put_bytes`.
        unsafe { copy(place, first) };
        // SAFETY: the ring has room for all bytes, as asserted, so it has room for the rest; otherwise as in
        // `put_bytes`.
        unsafe { copy(self.unit(0).cast(), rest) };
    }

    /// Returns the block of 64 bytes at `offset`, a multiple of 64, in a ring that is not empty.
    #[inline(always)]
    pub(super) fn block(&self, offset: usize) -> Block<'_> {
        Block(self.unit(offset & !(BLOCK - 1)).cast(), PhantomData)
    }
}

/// Bytes of a block.
const BLOCK: usize = 64;

/// Words of a block.
pub(super) const WORDS: usize = BLOCK / 8;

/// Units of a block.
pub(super) const UNITS_PER_BLOCK: u32 = 4;

/// A block of a ring, to be read by this process.
#[derive(Debug)]
pub(super) struct Block<'a>(NonNull<u64>, PhantomData<&'a Ring>);

impl Block<'_> {
    /// Returns the address of the words.
    ///
    /// A ring that is not empty has whole blocks, so all of them are valid for reads as long as the ring is borrowed.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn words(&self) -> *const u64 {
        self.0.as_ptr()
    }

    /// Returns the word `index`, as it lies in memory.
    #[inline(always)]
    pub(super) fn word(&self, index: usize) -> u64 {
        debug_assert!(index < WORDS);
        // SAFETY: a ring that is not empty has whole blocks, which begin at multiples of 64 in it, so the word is
        // within the ring.
        let word = unsafe { self.0.add(index & (WORDS - 1)) };
        // SAFETY: the word is within the ring, as above, and aligned; only this side writes to the ring, which is
        // borrowed.
        unsafe { word.read() }
    }
}

/// A view of the links between the entries of a shared receive queue: bytes 2 and 3 of each entry.
#[derive(Debug)]
pub(super) struct Links {
    base: Place,
    shift: u32,
    /// One less than the number of entries, which is a power of two.
    mask: u16,
    _mapping: Arc<Mapping>,
}

impl Links {
    /// Returns the links of `ring`, with entries of `1 << shift` bytes.
    pub(super) fn of(ring: &Ring, shift: u32) -> Self {
        let mask =
            u16::try_from(ring.mask >> shift).expect("a shared receive queue has 16-bit indices");
        Self { base: ring.base, shift, mask, _mapping: Arc::clone(&ring._mapping) }
    }

    #[inline(always)]
    fn link(&self, index: u16) -> &AtomicU16 {
        let offset = (usize::from(index & self.mask) << self.shift) + 2;
        // SAFETY: the entry is within the ring, as its index is masked, and has at least 16 bytes.
        let link = unsafe { self.base.pointer().add(offset) };
        // SAFETY: the link is valid as long as the mapping, which `self` keeps. Its offset is even. This process
        // accesses the link only as an atomic, because segments are stored behind the first unit of an entry.
        unsafe { AtomicU16::from_ptr(link.cast().as_ptr()) }
    }

    /// Returns the entry that follows entry `index`.
    #[inline(always)]
    pub(super) fn next(&self, index: u16) -> u16 {
        u16::from_be(self.link(index).load(Ordering::Relaxed)) & self.mask
    }

    #[inline(always)]
    pub(super) fn set_next(&self, index: u16, next: u16) {
        self.link(index).store(next.to_be(), Ordering::Relaxed);
    }
}

/// The ring of a completion queue, which the device writes.
#[derive(Debug, Clone)]
pub(super) struct CompletionRing {
    /// The completion of the first entry: the last 64 bytes of the entry.
    first: Place,
    /// The number of entries: a power of two.
    entries: u32,
    /// The logarithm of the bytes of an entry.
    shift: u32,
    _mapping: Arc<Mapping>,
}

/// A completion in its ring. Its words are read as atomics, because the device may write them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    start: NonNull<u8>,
    /// `true` if the ownership bit of the owner byte is set in the round of the entry.
    round: bool,
    ring: PhantomData<&'a CompletionRing>,
}

/// Offsets within a completion.
pub(super) mod at {
    pub(crate) const PATH: usize = 17;
    pub(crate) const SLID: usize = 22;
    pub(crate) const FLAGS_AND_SOURCE: usize = 24;
    pub(crate) const USER_INDEX: usize = 32;
    pub(crate) const IMMEDIATE: usize = 36;
    pub(crate) const BYTES: usize = 44;
    pub(crate) const VENDOR_ERROR: usize = 54;
    pub(crate) const SYNDROME: usize = 55;
    pub(crate) const OPCODE_AND_QP: usize = 56;
    pub(crate) const COUNTER: usize = 60;
    pub(crate) const OWNER: usize = 63;
}

/// The owner byte of an entry that the device has not written: an invalid opcode.
const UNWRITTEN: u8 = 0xf0;

/// The opcode in the owner byte of an entry without a completion.
const INVALID: u8 = 15;

impl CompletionRing {
    /// Takes the ring at the beginning of `mapping`, and marks all entries as unwritten.
    ///
    /// The ring has `entries` entries of `1 << shift` bytes.
    pub(super) fn new(mapping: Arc<Mapping>, entries: u32, shift: u32) -> Self {
        assert!(entries.is_power_of_two() && 1 << shift >= COMPLETION, "an impossible ring");
        assert!((entries as usize) << shift <= mapping.len(), "a ring beyond its memory");
        let first = mapping.place((1 << shift) - COMPLETION);
        let ring = Self { first, entries, shift, _mapping: mapping };
        (0..entries).for_each(|index| {
            ring.entry(index).byte(at::OWNER).store(UNWRITTEN, Ordering::Relaxed)
        });
        ring
    }

    /// Returns the completion with the index `index`, as the device counts.
    #[inline(always)]
    pub(super) fn entry(&self, index: u32) -> Entry<'_> {
        let offset = ((index & (self.entries - 1)) as usize) << self.shift;
        // SAFETY: the masked index is that of an entry, all of which are within the mapping.
        let start = unsafe { self.first.pointer().add(offset) };
        Entry { start, round: index & self.entries != 0, ring: PhantomData }
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Gives the device a ring with `entries` instead of this one.
    ///
    /// Returns the new ring with its mapping, and the capacity that the kernel reports.
    ///
    /// After an error the device continues with this one.
    pub(super) fn replace(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_resize_cq,
        entries: u32,
    ) -> Result<(Self, Arc<Mapping>, u32), CommandError> {
        cx.check()?;
        let length = (entries as usize) << self.shift;
        let mapping = Arc::new(Mapping::queue(length).map_err(CommandError::Os)?);
        let ring = Self::new(Arc::clone(&mapping), entries, self.shift);
        let driver_request = mlx5_ib_resize_cq {
            buf_addr: address(mapping.start()).into(),
            cqe_size: 1 << self.shift,
            ..mlx5_ib_resize_cq::default()
        };
        // SAFETY: the ring is the mapping, which is accessed as atomics only. The caller passes the mapping to the
        // owner of the queue, which keeps it until the queue is destroyed or has another ring.
        let resized = unsafe { cx.file().create_in_memory(request, driver_request) };
        let (response, ()): (ib_uverbs_resize_cq_resp, ()) = resized?;
        Ok((ring, mapping, response.cqe))
    }

    /// Copies the completion at `source` of `from` to `index`, where it belongs to this ring's round.
    pub(super) fn take_over(&self, index: u32, from: &Self, source: u32) {
        let (to, from) = (self.entry(index), from.entry(source));
        for offset in 0..at::OWNER {
            to.byte(offset).store(from.byte(offset).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let owner = from.byte(at::OWNER).load(Ordering::Relaxed) & !1;
        to.byte(at::OWNER).store(owner | u8::from(to.round), Ordering::Release);
    }
}

impl<'a> Entry<'a> {
    /// Returns the address of the bytes at `offset`.
    #[inline(always)]
    fn at(self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < COMPLETION);
        // SAFETY: the offset is less than the bytes of a completion, all of which are within the mapping.
        unsafe { self.start.add(offset & (COMPLETION - 1)) }
    }

    #[inline(always)]
    fn byte(self, offset: usize) -> &'a AtomicU8 {
        // SAFETY: the byte is valid as long as the mapping, which the ring keeps, and this process accesses it only as
        // an atomic.
        unsafe { AtomicU8::from_ptr(self.at(offset).as_ptr()) }
    }

    /// Returns the opcode of the completion, if the device has written it in this round.
    ///
    /// Its other fields may be read after that.
    #[inline(always)]
    pub(super) fn opcode(self) -> Option<u8> {
        let owner = self.byte(at::OWNER).load(Ordering::Acquire);
        let is_of_this_round = (owner & 1 != 0) == self.round;
        let is_written = is_of_this_round && owner >> 4 != INVALID;
        if is_written {
            dma::load_barrier();
        }
        is_written.then_some(owner >> 4)
    }

    #[inline(always)]
    pub(super) fn u8(self, offset: usize) -> u8 {
        self.byte(offset).load(Ordering::Relaxed)
    }

    /// Returns the 16-bit word at an even `offset`.
    #[inline(always)]
    pub(super) fn u16(self, offset: usize) -> u16 {
        debug_assert!(offset % 2 == 0);
        // SAFETY: the word is valid as long as the mapping, which the ring keeps; entries and the offset are even; this
        // process accesses it only as an atomic.
        let word = unsafe { AtomicU16::from_ptr(self.at(offset & !1).cast().as_ptr()) };
        u16::from_be(word.load(Ordering::Relaxed))
    }

    /// Returns the 32-bit word at `offset`, a multiple of 4.
    #[inline(always)]
    pub(super) fn u32(self, offset: usize) -> u32 {
        debug_assert!(offset % 4 == 0);
        // SAFETY: the word is valid as long as the mapping, which the ring keeps; entries and the offset are multiples
        // of 4; this process accesses it only as an atomic.
        let word = unsafe { AtomicU32::from_ptr(self.at(offset & !3).cast().as_ptr()) };
        u32::from_be(word.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
impl CompletionRing {
    /// Stores bytes of the completion at `index`, as the device does.
    pub(super) fn write(&self, index: u32, offset: usize, bytes: &[u8]) {
        for (place, byte) in (offset..).zip(bytes) {
            self.entry(index).byte(place).store(*byte, Ordering::Relaxed);
        }
    }

    /// Stores the owner byte of the completion at `index`, as the device does last.
    pub(super) fn store_owner(&self, index: u32, opcode: u8) {
        let entry = self.entry(index);
        entry.byte(at::OWNER).store(opcode << 4 | u8::from(entry.round), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(test)]
mod tests;
