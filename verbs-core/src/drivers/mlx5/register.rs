//! A doorbell register: a store to it begins the processing of a queue, and a short entry can be copied to it
//! (BlueFlame).
//!
//! A register for sends has two buffers, which are written alternately. It belongs to one queue pair, or several share
//! it. A thread that writes a shared register holds its lock.
//!
//! # Safety
//!
//! A page of registers is write-only memory of the device that is mapped as long as its [`Mapping`] exists. It is
//! written by volatile stores of 64 bits, and on aarch64 of blocks, at offsets that are checked when a slot is made. It
//! is never read.
#![expect(unsafe_code, reason = "writes to registers of the device")]

#[cfg(target_arch = "aarch64")]
use std::arch::asm;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::{Block, Ring, UNITS_PER_BLOCK, WORDS};
use crate::driver::dma::{self, Event, write_combining_barrier, write_combining_barrier_in_lock};
use crate::lock::ignore_poison;
use crate::sync::{AtomicUsize, Mutex};
use crate::sys::mapping::{Mapping, Place};

/// Bytes of a word.
const WORD: usize = 8;

/// The offset of the register that arms completion queues.
const ARMS: usize = 0x20;

/// Stores a word that arms a completion queue in the arming register of `page`.
pub(super) fn arm(page: &Mapping, doorbell: u64) {
    assert!(ARMS + WORD <= page.len(), "a page should have all registers");
    write_combining_barrier();
    // SAFETY: the word is within the page, as asserted, at a multiple of 8, and the page is mapped.
    unsafe { put(page.place(ARMS).pointer().cast(), doorbell) };
    write_combining_barrier();
}

/// The queue pairs that use a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Any number of queue pairs, which store only doorbells, and only in the first buffer.
    ///
    /// Each doorbell is one store, so the register needs no lock.
    Plain,
    /// One queue pair at a time.
    Dedicated,
    /// Several queue pairs, which take the lock of the register.
    Shared,
}

/// A register for sends, at its place in a page.
#[derive(Debug)]
pub(super) struct Slot {
    /// The first byte of the first buffer.
    start: Place,
    /// Bytes of a buffer, or 0 if there is only one.
    size: usize,
    used_by: Use,
    /// The offset of the buffer that is written next.
    next_buffer: AtomicUsize,
    /// Held while the register is written, if several queue pairs share it.
    writing: Mutex<()>,
    _page: Arc<Mapping>,
}

impl Slot {
    /// Takes the register of `size` bytes at `offset` in `page`; `size` 0 means a register of one word.
    ///
    /// Returns `None` if the page is shorter, or if `offset` or `size` is misaligned.
    pub(super) fn new(
        page: &Arc<Mapping>,
        offset: usize,
        size: usize,
        used_by: Use,
    ) -> Option<Arc<Self>> {
        let end = offset.checked_add(size.max(WORD))?;
        if end > page.len() || offset % WORD != 0 || size % (2 * WORD) != 0 {
            return None;
        }
        let size = if used_by == Use::Plain { 0 } else { size / 2 };
        Some(Arc::new(Self {
            start: page.place(offset),
            size,
            used_by,
            next_buffer: AtomicUsize::new(0),
            writing: Mutex::new(()),
            _page: Arc::clone(page),
        }))
    }
}

/// The register of a send queue.
#[derive(Debug)]
pub(super) struct Register {
    /// The first byte of the first buffer.
    start: Place,
    /// The offset of the buffer that is written next, unless the register is shared.
    ///
    /// The offset passes to the next queue pair.
    buffer: usize,
    /// Bytes of a buffer, or 0 if there is only one.
    size: usize,
    /// Units of an entry that may be copied to a buffer; 0 if only doorbells are stored there.
    copied_units: u32,
    is_shared: bool,
    slot: Arc<Slot>,
}

impl Register {
    /// Takes `slot` for a queue pair.
    ///
    /// Entries are copied there if `copies` is `true` and the buffers are large enough.
    pub(super) fn new(slot: Arc<Slot>, copies: bool) -> Self {
        // Entries are copied in whole blocks.
        let copied_blocks = if copies { slot.size / (WORDS * WORD) } else { 0 };
        let copied_units = u32::try_from(copied_blocks).unwrap_or(u32::MAX / UNITS_PER_BLOCK);
        Self {
            start: slot.start,
            buffer: slot.next_buffer.load(Ordering::Acquire),
            size: slot.size,
            copied_units: copied_units * UNITS_PER_BLOCK,
            is_shared: slot.used_by == Use::Shared,
            slot,
        }
    }

    /// Returns `true` if several queue pairs use the register by its lock.
    #[cfg(test)]
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the page of the register.
    #[cfg(test)]
    pub(super) fn page(&self) -> &Arc<Mapping> {
        &self.slot._page
    }

    /// Makes the device process the entry of `units` at `start` of `ring`, and those before it.
    ///
    /// Copies the entry if it is the only one (`is_only`) and the register has a buffer that is large enough.
    /// Otherwise stores the beginning of the entry.
    #[inline(always)]
    pub(super) fn ring(&mut self, ring: &Ring, start: usize, units: u32, is_only: bool) {
        let is_copied = is_only && units > 1 && units <= self.copied_units;
        let blocks = if is_copied { units.div_ceil(UNITS_PER_BLOCK) as usize } else { 0 };
        if self.is_shared {
            return self.ring_shared(ring, start, blocks);
        }
        write_combining_barrier();
        self.store(self.buffer, ring, start, blocks);
        self.buffer ^= self.size;
    }

    /// Rings the doorbell for several queue pairs that share the register.
    #[inline(never)]
    fn ring_shared(&self, ring: &Ring, start: usize, blocks: usize) {
        let _writing = ignore_poison(self.slot.writing.lock());
        let buffer = self.slot.next_buffer.load(Ordering::Relaxed);
        write_combining_barrier_in_lock();
        self.store(buffer, ring, start, blocks);
        self.slot.next_buffer.store(buffer ^ self.size, Ordering::Relaxed);
    }

    /// Stores `blocks` blocks in the buffer at offset `buffer`, or one word if `blocks` is 0.
    ///
    /// The buffer has room for the blocks. The caller has ordered earlier stores by a barrier.
    #[inline(always)]
    fn store(&self, buffer: usize, ring: &Ring, start: usize, blocks: usize) {
        debug_assert!(blocks * WORDS * WORD <= self.size && (buffer == 0 || buffer == self.size));
        // SAFETY: `Slot::new` has checked that both buffers are within the page, and a buffer is selected by its size.
        let mut register: NonNull<u64> = unsafe { self.start.pointer().add(buffer).cast() };
        if blocks == 0 {
            // SAFETY: a buffer has room for a word; see `put`.
            unsafe { put(register, ring.block(start).word(0)) };
        }
        for block in 0..blocks {
            let block = ring.block(start + block * WORDS * WORD);
            // SAFETY: the words are in the buffer, which has room for all blocks, as `ring` has compared. The page is
            // mapped as long as this register exists. `Slot::new` has checked that the buffers begin at multiples of 8,
            // and a block has a multiple of 8 bytes.
            unsafe { put_block(register, &block) };
            // SAFETY: the address is within the page, or the end of it.
            register = unsafe { register.add(WORDS) };
        }
        write_combining_barrier();
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        if !self.is_shared {
            self.slot.next_buffer.store(self.buffer, Ordering::Release);
        }
    }
}

/// Stores a word in a register.
///
/// # Safety
///
/// The address is that of a word of a register, a multiple of 8, whose page is mapped.
#[inline(always)]
unsafe fn put(register: NonNull<u64>, word: u64) {
    dma::record(Event::Register);
    // SAFETY: the register is valid for writes, and aligned, as the caller promises; nothing reads it but the device.
    unsafe { register.write_volatile(word) }
}

/// Stores a block in a register.
///
/// # Safety
///
/// The addresses are those of [`WORDS`] words of a register, at a multiple of 8, whose page is mapped.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
unsafe fn put_block(register: NonNull<u64>, block: &Block<'_>) {
    for index in 0..WORDS {
        // SAFETY: the word is one of those that the caller promises.
        let register = unsafe { register.add(index) };
        // SAFETY: as the caller promises.
        unsafe { put(register, block.word(index)) };
    }
}

/// Stores a block in a register.
///
/// One instruction stores all words: some processors, such as NVIDIA's Grace, do not combine stores of single words to
/// a burst.
///
/// # Safety
///
/// The addresses are those of [`WORDS`] words of a register, at a multiple of 8, whose page is mapped.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn put_block(register: NonNull<u64>, block: &Block<'_>) {
    dma::record(Event::Register);
    // SAFETY: the first instruction reads the block, which is valid for reads of all its words as long as it is
    // borrowed. The second one writes to the register, which is valid for writes of all its words, as the caller
    // promises; nothing reads it but the device. Both addresses are multiples of 8. All registers that change are
    // named.
    unsafe {
        asm!(
            "ld1 {{v0.2d, v1.2d, v2.2d, v3.2d}}, [{block}]",
            "st1 {{v0.2d, v1.2d, v2.2d, v3.2d}}, [{register}]",
            block = in(reg) block.words(),
            register = in(reg) register.as_ptr(),
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the word at `offset` in `page`, which must be memory of this process.
#[cfg(test)]
pub(super) fn stored(page: &Mapping, offset: usize) -> u64 {
    assert!(offset % WORD == 0 && offset + WORD <= page.len());
    // SAFETY: the word is within the page, as asserted, and aligned, and the page is memory of this process.
    unsafe { page.place(offset).pointer().cast::<u64>().read_volatile() }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(test)]
mod tests;
