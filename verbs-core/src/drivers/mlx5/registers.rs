//! Doorbell registers in pages of the device (UAR): a store to a register begins the processing of a queue, and a short entry
//! can be copied to the register (BlueFlame).
//!
//! A page has two registers for sends, with two buffers each, which a program uses in turns, and one register that arms
//! completion queues. One queue pair has a register for itself, or several share it: then its lock is held while it is
//! written.
//!
//! # Safety
//!
//! A page is write-only memory of the device that is mapped as long as its [`Mapping`] lives. It is written by volatile stores
//! of 64 bits at offsets that are checked when a register is taken, and is never read.
#![expect(unsafe_code, reason = "writes to registers of the device")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};
use verbs_abi::mlx5::{MLX5_IB_MMAP_CMD_SHIFT, mlx5_ib_mmap_cmd};

use super::memory::{Ring, UNITS_PER_BLOCK, WORDS};
use crate::driver::dma::{write_combining_barrier, write_combining_barrier_in_lock};
use crate::lock::ignore_poison;
use crate::sys::mapping::{Mapping, Place};
use crate::sys::uverbs::UverbsFile;

/// Bytes of a register page of the device. A page of the kernel may have several.
const DEVICE_PAGE: usize = 4096;

/// The offset of the first register for sends in its page.
const FIRST_REGISTER: usize = 0x800;

/// Bytes of the smallest register with two buffers, each of which has a word.
const LEAST_REGISTER: usize = 16;

/// The offset of the register that arms completion queues.
const ARMS: usize = 0x20;

/// Registers for sends in a page of the device.
const PER_PAGE: u32 = 2;

/// Registers that the kernel counts in a page of the device, of which only the first ones are for sends.
const COUNTED_PER_PAGE: u32 = 4;

/// The facts about registers in the answer of GET_CONTEXT.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterFacts {
    /// The number of registers for sends.
    pub(super) total: u32,
    /// The number of registers that one queue pair has for itself: the last ones.
    pub(super) dedicated: u32,
    /// Bytes of a register, or 0 if only its first 8 bytes can be written.
    pub(super) size: u32,
    /// Register pages of the device in a page of the kernel.
    pub(super) per_kernel_page: u32,
    /// Entries are never copied to registers: BlueFlame is not used.
    pub(super) copies_nothing: bool,
}

/// The registers of a context.
#[derive(Debug)]
pub(super) struct Registers {
    pages: Box<[Mapping]>,
    facts: RegisterFacts,
    kernel_page: usize,
    /// For each register the offset of the buffer that is written next. If several queue pairs share the register, the thread
    /// that writes it holds the lock.
    next_buffers: Box<[Mutex<usize>]>,
}

#[cfg(any(test, fuzzing))]
impl Registers {
    /// Returns the registers of a context without pages: nothing is stored in them.
    pub(super) fn absent() -> Arc<Self> {
        let facts = RegisterFacts {
            total: 0,
            dedicated: 0,
            size: 0,
            per_kernel_page: 1,
            copies_nothing: true,
        };
        Arc::new(Self {
            pages: Box::new([]),
            facts,
            kernel_page: DEVICE_PAGE,
            next_buffers: Box::new([]),
        })
    }
}

impl Registers {
    /// Maps the registers of a context.
    pub(super) fn map(file: &UverbsFile, facts: RegisterFacts) -> Result<Self, Errno> {
        Self::map_with(facts, |offset, length| Mapping::registers(file, offset, length))
    }

    /// Takes the pages that `map` maps at an offset, in a length.
    pub(super) fn map_with(
        facts: RegisterFacts,
        map: impl Fn(u64, usize) -> Result<Mapping, Errno>,
    ) -> Result<Self, Errno> {
        let page = sysconf(SysconfVar::PAGE_SIZE)?.ok_or(Errno::EINVAL)?;
        let kernel_page = usize::try_from(page).map_err(|_| Errno::EINVAL)?;
        let per_kernel_page = facts.per_kernel_page as usize;
        let fits = per_kernel_page.checked_mul(DEVICE_PAGE).is_some_and(|fits| fits <= kernel_page);
        let register = facts.size as usize;
        if per_kernel_page == 0
            || !fits
            || facts.total == 0
            || facts.total > MAX_REGISTERS
            || register > (DEVICE_PAGE - FIRST_REGISTER) / PER_PAGE as usize
            || (register != 0 && !(register.is_power_of_two() && register >= LEAST_REGISTER))
        {
            return Err(Errno::EPROTO);
        }
        let pages = facts.total.div_ceil(PER_PAGE * facts.per_kernel_page);
        let page_of = |command: mlx5_ib_mmap_cmd, index: u32| {
            let offset = u64::from(command.0) << MLX5_IB_MMAP_CMD_SHIFT | u64::from(index);
            map(offset * u64::try_from(kernel_page).map_err(|_| Errno::EINVAL)?, kernel_page)
        };
        let regular = |index| page_of(mlx5_ib_mmap_cmd::MLX5_IB_MMAP_REGULAR_PAGE, index);
        let page = |index| match facts.copies_nothing {
            // Without write combining, if the kernel has such pages.
            true => {
                page_of(mlx5_ib_mmap_cmd::MLX5_IB_MMAP_NC_PAGE, index).or_else(|_| regular(index))
            }
            false => regular(index),
        };
        let pages = (0..pages).map(page).collect::<Result<_, _>>()?;
        let next_buffers = (0..facts.total).map(|_| Mutex::default()).collect();
        Ok(Self { pages, facts, kernel_page, next_buffers })
    }

    /// Arms a completion queue: stores `doorbell`, which the record of the queue has too.
    pub(super) fn arm(&self, doorbell: u64) {
        let Some(page) = self.pages.first() else { return };
        write_combining_barrier();
        // SAFETY: the offset is within the page, a multiple of 8, and the page is mapped.
        unsafe { put(page.place(ARMS).pointer().cast(), doorbell) };
        write_combining_barrier();
    }
}

/// The most registers that a context can have.
pub(super) const MAX_REGISTERS: u32 = 512;

/// The register of a send queue.
#[derive(Debug)]
pub(super) struct Register {
    /// The first byte of the first buffer.
    start: Place,
    /// The offset of the buffer that is written next, unless the register is shared. It passes to the next queue pair.
    buffer: usize,
    /// Bytes of a buffer, or 0 if there is only one.
    size: usize,
    /// Units of an entry that may be copied to a buffer; 0 if only doorbells are stored there.
    copied_units: u32,
    is_shared: bool,
    number: usize,
    registers: Arc<Registers>,
}

impl Register {
    /// Returns the register that the kernel has given to a queue pair under the number `index`.
    pub(super) fn take(registers: &Arc<Registers>, index: u32) -> Result<Self, Errno> {
        let facts = &registers.facts;
        let (device_page, slot) = (index / COUNTED_PER_PAGE, index % COUNTED_PER_PAGE);
        let number = device_page.checked_mul(PER_PAGE).and_then(|number| number.checked_add(slot));
        let number = number
            .filter(|number| slot < PER_PAGE && *number < facts.total)
            .ok_or(Errno::EPROTO)?;
        let page = (device_page / facts.per_kernel_page) as usize;
        let within = (device_page % facts.per_kernel_page) as usize * DEVICE_PAGE;
        let offset = within + FIRST_REGISTER + slot as usize * facts.size as usize;
        let fits = offset + facts.size.max(8) as usize <= registers.kernel_page;
        let page = registers.pages.get(page).filter(|_| fits).ok_or(Errno::EPROTO)?;
        // The kernel gives register 0 to queue pairs that need no speed. rdma-core stores doorbells there, always in the first
        // buffer and without a lock, and no entries.
        let is_slow = number == 0;
        let size = if is_slow { 0 } else { facts.size as usize / 2 };
        // Entries are copied in whole blocks.
        let copied_units = match facts.copies_nothing || size < 8 * WORDS {
            true => 0,
            false => facts.size / 2 / 16,
        };
        Ok(Self {
            start: page.place(offset),
            buffer: *ignore_poison(registers.next_buffers[number as usize].lock()),
            size,
            copied_units,
            is_shared: !is_slow && number < facts.total.saturating_sub(facts.dedicated),
            number: number as usize,
            registers: Arc::clone(registers),
        })
    }

    /// Makes the device process the entry of `units` at `start` of `ring`, and those before it.
    ///
    /// Copies the entry if it is the only one, which `is_only` says, and the register has a buffer that is large enough.
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

    /// Rings for several queue pairs that share the register.
    #[inline(never)]
    fn ring_shared(&self, ring: &Ring, start: usize, blocks: usize) {
        let mut buffer = ignore_poison(self.registers.next_buffers[self.number].lock());
        write_combining_barrier_in_lock();
        self.store(*buffer, ring, start, blocks);
        *buffer ^= self.size;
    }

    /// Stores `blocks` blocks in the buffer at offset `buffer`, which has room for them, or one word if `blocks` is 0.
    ///
    /// The caller has ordered earlier stores by a barrier.
    #[inline(always)]
    fn store(&self, buffer: usize, ring: &Ring, start: usize, blocks: usize) {
        debug_assert!(blocks * WORDS * 8 <= self.size && (buffer == 0 || buffer == self.size));
        // SAFETY: `take` has checked that both buffers are within the page, and a buffer is selected by its size.
        let mut register: NonNull<u64> = unsafe { self.start.pointer().add(buffer).cast() };
        if blocks == 0 {
            // SAFETY: a buffer has room for a word; see `put`.
            unsafe { put(register, ring.block(start).word(0)) };
        }
        for block in 0..blocks {
            let block = ring.block(start + block * WORDS * 8);
            for index in 0..WORDS {
                // SAFETY: the words are in the buffer, which has room for all blocks, as `ring` has compared.
                unsafe { put(register, block.word(index)) };
                // SAFETY: the address is within the page, or the end of it.
                register = unsafe { register.add(1) };
            }
        }
        write_combining_barrier();
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        if !self.is_shared {
            *ignore_poison(self.registers.next_buffers[self.number].lock()) = self.buffer;
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
    // SAFETY: the register is valid for writes, and aligned, as the caller promises; nothing reads it but the device.
    unsafe { register.write_volatile(word) }
}
