//! Doorbell registers: pages of the device, in which a store begins the processing of a queue.
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
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};
use verbs_abi::mlx5::{MLX5_IB_MMAP_CMD_SHIFT, mlx5_ib_mmap_cmd};

use crate::driver::dma::write_combining_barrier;
use crate::lock::ignore_poison;
use crate::sync::AtomicU32;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;

/// Bytes of a register page of the device. A page of the kernel may have several.
const DEVICE_PAGE: usize = 4096;

/// The offset of the first register for sends in its page.
const FIRST_REGISTER: usize = 0x800;

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
    /// Entries are never copied to registers.
    pub(super) copies_nothing: bool,
}

/// The registers of a context.
#[derive(Debug)]
pub(super) struct Registers {
    pages: Box<[Mapping]>,
    facts: RegisterFacts,
    kernel_page: usize,
    states: Box<[State]>,
}

/// The state of a register.
#[derive(Debug, Default)]
struct State {
    lock: Mutex<()>,
    /// The offset of the buffer that is written next. Only the holder of the register, or of the lock, accesses it.
    buffer: AtomicU32,
}

#[cfg(test)]
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
            states: Box::new([]),
        })
    }
}

impl Registers {
    /// Maps the registers of a context.
    pub(super) fn map(file: &UverbsFile, facts: RegisterFacts) -> Result<Self, Errno> {
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
            || (register != 0 && !register.is_power_of_two())
        {
            return Err(Errno::EPROTO);
        }
        let pages = facts.total.div_ceil(PER_PAGE * facts.per_kernel_page);
        let command = u64::from(mlx5_ib_mmap_cmd::MLX5_IB_MMAP_REGULAR_PAGE.0);
        let map = |index: u32| {
            let offset = command << MLX5_IB_MMAP_CMD_SHIFT | u64::from(index);
            Mapping::registers(
                file,
                offset * u64::try_from(kernel_page).map_err(|_| Errno::EINVAL)?,
                kernel_page,
            )
        };
        let pages = (0..pages).map(map).collect::<Result<_, _>>()?;
        let states = (0..facts.total).map(|_| State::default()).collect();
        Ok(Self { pages, facts, kernel_page, states })
    }

    /// Arms a completion queue: stores `doorbell`, which the record of the queue has too.
    pub(super) fn arm(&self, doorbell: u64) {
        write_combining_barrier();
        self.store(0, ARMS, doorbell);
        write_combining_barrier();
    }

    /// Stores `value` at `offset` of a page of the kernel's size, in the order of its bytes.
    #[inline(always)]
    fn store(&self, page: usize, offset: usize, value: u64) {
        let Some(page) = self.pages.get(page) else { return };
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.kernel_page);
        // SAFETY: every caller passes an offset within a page: `ARMS`, or one that `Register::take` has checked.
        let register: NonNull<u64> = unsafe { page.start().add(offset).cast() };
        // SAFETY: the register is valid for writes as long as the mapping, and aligned, as pages are and the offset is a
        // multiple of 8; nothing reads it but the device.
        unsafe { register.write_volatile(value) }
    }
}

/// The most registers that a context can have.
pub(super) const MAX_REGISTERS: u32 = 512;

/// The register of a send queue.
#[derive(Debug)]
pub(super) struct Register {
    registers: Arc<Registers>,
    number: usize,
    page: usize,
    /// The offset of its first buffer in the page.
    offset: usize,
    /// Bytes of an entry that may be copied to the register; 0 if only doorbells are stored there.
    pub(super) copied: usize,
    is_shared: bool,
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
        if page >= registers.pages.len()
            || offset + facts.size.max(8) as usize > registers.kernel_page
        {
            return Err(Errno::EPROTO);
        }
        // The kernel gives register 0 to queue pairs that need no speed, and it has no buffers.
        let copied = match facts.copies_nothing || number == 0 {
            true => 0,
            false => facts.size as usize / 2,
        };
        let is_shared = number < facts.total.saturating_sub(facts.dedicated);
        let registers = Arc::clone(registers);
        Ok(Self { registers, number: number as usize, page, offset, copied, is_shared })
    }

    /// Stores the words of `blocks` in the register, from its buffer's beginning on. The blocks are at most
    /// [`copied`](Self::copied) bytes, or one doorbell.
    #[inline(always)]
    pub(super) fn write(&self, words: impl Iterator<Item = u64>) {
        let state = &self.registers.states[self.number];
        let lock = self.is_shared.then(|| ignore_poison(state.lock.lock()));
        // Taking a lock does not order stores to registers on all processors.
        write_combining_barrier();
        let buffer = state.buffer.load(Ordering::Relaxed);
        let start = self.offset + buffer as usize;
        let end = start + (self.registers.facts.size as usize / 2).max(8);
        for (offset, word) in (start..end).step_by(8).zip(words) {
            self.registers.store(self.page, offset, word);
        }
        write_combining_barrier();
        state.buffer.store(buffer ^ (self.registers.facts.size / 2), Ordering::Relaxed);
        drop(lock);
    }
}
