//! The doorbell registers of a context, in pages of the device (UAR), and the register that a queue pair uses.
//!
//! The kernel selects one of two ways when the device is opened. With static registers, the program maps a fixed number
//! of pages, and the kernel selects a register when it creates a queue pair. With dynamic registers, the program
//! allocates pages by ioctl, and names one when it creates a queue. This driver offers both ways, as rdma-core does.
//! Newer kernels then select dynamic registers.
//!
//! A page of the device has two registers for sends, and one that arms completion queues.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};
use verbs_abi::mlx5::{
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE,
    MLX5_IB_METHOD_UAR_OBJ_ALLOC, MLX5_IB_METHOD_UAR_OBJ_DESTROY, MLX5_IB_MMAP_CMD_SHIFT,
    MLX5_IB_OBJECT_UAR, mlx5_ib_mmap_cmd, mlx5_ib_uapi_uar_alloc_type,
};

use super::register::{Register, Slot, Use, arm};
use crate::driver::CreateError;
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::{DriverObject, UverbsFile};

/// Bytes of a register page of the device. A page of the kernel may have several.
const DEVICE_PAGE: usize = 4096;

/// The offset of the first register for sends in its page.
const FIRST_REGISTER: usize = 0x800;

/// Bytes of the smallest register with two buffers, of one word each.
const LEAST_REGISTER: usize = 16;

/// Registers for sends in a page of the device.
const PER_PAGE: u32 = 2;

/// Registers that the kernel counts in a page of the device. Only the first ones are for sends.
const COUNTED_PER_PAGE: u32 = 4;

/// The facts about registers in the answer of GET_CONTEXT.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterFacts {
    /// The number of static registers for sends, or 0 if registers are dynamic.
    pub(super) total: u32,
    /// The number of registers that one queue pair has for itself: the last ones, if registers are static.
    pub(super) dedicated: u32,
    /// The number of dynamic registers that queue pairs share.
    pub(super) shared: u32,
    /// Bytes of a register, or 0 if only its first 8 bytes can be written.
    pub(super) size: u32,
    /// Register pages of the device in a page of the kernel.
    pub(super) per_kernel_page: u32,
    /// `true` if entries are never copied to registers: BlueFlame is not used.
    pub(super) copies_nothing: bool,
}

/// The registers of a context.
#[derive(Debug)]
pub(super) struct Registers {
    facts: RegisterFacts,
    /// The page whose register arms completion queues; absent in tests.
    arms: Option<Arc<Mapping>>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Static(Box<[Arc<Slot>]>),
    Dynamic(Dynamic),
}

/// Registers in pages that the program allocates.
#[derive(Debug)]
struct Dynamic {
    /// The register for all queue pairs if entries are not copied.
    plain: PagedSlot,
    /// The number of the page of that register, which arms completion queues too.
    arming_page: u16,
    /// The registers in pages that were allocated after the device was opened.
    allocated: Mutex<Allocated>,
}

#[derive(Debug, Default)]
struct Allocated {
    dedicated: Vec<PagedSlot>,
    shared: Vec<PagedSlot>,
}

/// A register, and the number of its page for create commands.
#[derive(Debug, Clone)]
pub(super) struct PagedSlot {
    slot: Arc<Slot>,
    pub(super) page: u32,
}

impl PagedSlot {
    /// Returns how many queue pairs use the register. The list of registers has one reference.
    fn users(&self) -> usize {
        Arc::strong_count(&self.slot) - 1
    }
}

/// A page of registers that the kernel has allocated.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) mapping: Arc<Mapping>,
    pub(super) number: u32,
}

/// The kind of a page of registers.
pub(super) type PageKind = mlx5_ib_uapi_uar_alloc_type;

#[cfg(any(test, fuzzing))]
impl Registers {
    /// Returns the registers of a context without pages: nothing is stored in them.
    pub(super) fn absent() -> Arc<Self> {
        let facts = RegisterFacts {
            total: 0,
            dedicated: 0,
            shared: 0,
            size: 0,
            per_kernel_page: 1,
            copies_nothing: true,
        };
        Arc::new(Self { facts, arms: None, source: Source::Static(Box::new([])) })
    }
}

#[cfg(test)]
impl Registers {
    /// Returns registers and their first page, for tests that read the page.
    pub(super) fn with_page() -> (Arc<Self>, Arc<Mapping>) {
        let absent = Arc::into_inner(Self::absent()).expect("one reference");
        let page = Arc::new(Mapping::private(DEVICE_PAGE).expect("memory"));
        (Arc::new(Self { arms: Some(Arc::clone(&page)), ..absent }), page)
    }
}

impl Registers {
    /// Maps the registers of a context: all static ones, or the first page of dynamic ones.
    ///
    /// Returns `None` if [`dynamic`](Self::dynamic) does.
    pub(super) fn map(
        file: &UverbsFile,
        facts: RegisterFacts,
    ) -> Result<Option<Self>, CreateError> {
        match facts.total {
            0 => Self::dynamic(facts, |kind| allocate(file, kind)),
            _ => {
                let map = |offset, length| Mapping::registers(file, offset, length);
                Self::map_static(facts, map).map(Some).map_err(CreateError::Map)
            }
        }
    }

    /// Takes the pages of static registers that `map` maps at an offset, in a length.
    pub(super) fn map_static(
        facts: RegisterFacts,
        map: impl Fn(u64, usize) -> Result<Mapping, Errno>,
    ) -> Result<Self, Errno> {
        facts.check()?;
        if facts.total == 0 || facts.total > MAX_REGISTERS {
            return Err(Errno::EPROTO);
        }
        let kernel_page = kernel_page()?;
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
        let per_page = facts.per_page();
        let count = facts.total.div_ceil(per_page);
        let pages =
            (0..count).map(|index| page(index).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let used_by = |number| match number {
            // The kernel gives register 0 to queue pairs that need no speed.
            0 => Use::Plain,
            number if number < facts.total.saturating_sub(facts.dedicated) => Use::Shared,
            _ => Use::Dedicated,
        };
        let mut slots = Vec::new();
        for number in 0..facts.total {
            let page = &pages[(number / per_page) as usize];
            slots.push(facts.slot(page, number % per_page, used_by(number))?);
        }
        let arms = pages.into_iter().next();
        Ok(Self { facts, arms, source: Source::Static(slots.into()) })
    }

    /// Takes dynamic registers, in pages that `allocate` makes.
    ///
    /// Returns `None` if static registers are needed. The number of the first page may be above 65,535, which
    /// CREATE_CQ cannot name, or the process may not issue the ioctl that allocates the page.
    pub(super) fn dynamic(
        facts: RegisterFacts,
        allocate: impl FnOnce(PageKind) -> Result<Page, CreateError>,
    ) -> Result<Option<Self>, CreateError> {
        facts.check().map_err(CreateError::Map)?;
        let page = allocate(mlx5_ib_uapi_uar_alloc_type::MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC);
        let Page { mapping, number } = match page {
            // Filters of system calls refuse the ioctl with these errnos.
            Err(CreateError::Command(CommandError::Os(Errno::EPERM | Errno::ENOSYS))) => {
                return Ok(None);
            }
            page => page?,
        };
        let Ok(arming_page) = u16::try_from(number) else { return Ok(None) };
        let slot = facts.slot(&mapping, 0, Use::Plain).map_err(CreateError::Map)?;
        let plain = PagedSlot { slot, page: number };
        let source = Source::Dynamic(Dynamic { plain, arming_page, allocated: Mutex::default() });
        Ok(Some(Self { facts, arms: Some(mapping), source }))
    }

    /// Returns the number of the page that arms a completion queue, or `None` if registers are static.
    ///
    /// The creation of the queue needs the number.
    pub(super) fn arming_page(&self) -> Option<u16> {
        match &self.source {
            Source::Static(_) => None,
            Source::Dynamic(dynamic) => Some(dynamic.arming_page),
        }
    }

    /// Chooses the register for a queue pair that is to be created.
    ///
    /// If another page is needed, `allocate` allocates the page.
    ///
    /// Returns `None` if the kernel chooses, because registers are static.
    pub(super) fn choose(
        &self,
        allocate: impl FnOnce(PageKind) -> Result<Page, CreateError>,
    ) -> Result<Option<PagedSlot>, CreateError> {
        let Source::Dynamic(dynamic) = &self.source else { return Ok(None) };
        if self.facts.copies_nothing || self.facts.size == 0 {
            return Ok(Some(dynamic.plain.clone()));
        }
        let mut allocated = ignore_poison(dynamic.allocated.lock());
        let Allocated { dedicated, shared } = &mut *allocated;
        if let Some(unused) = dedicated.iter().find(|slot| slot.users() == 0) {
            // The queue pair that used the register has stored which buffer is next before it dropped its reference.
            fence(Ordering::Acquire);
            return Ok(Some(unused.clone()));
        }
        let (slots, used_by) = if dedicated.len() < self.facts.dedicated as usize {
            (dedicated, Use::Dedicated)
        } else {
            (shared, Use::Shared)
        };
        if used_by == Use::Dedicated || slots.len() < self.facts.shared as usize {
            let page = allocate(mlx5_ib_uapi_uar_alloc_type::MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)?;
            slots.extend(self.facts.slots(&page, used_by)?);
        }
        let least_used = slots.iter().min_by_key(|slot| slot.users());
        least_used.cloned().map(Some).ok_or(CreateError::Map(Errno::ENOSPC))
    }

    /// Returns the register of a queue pair that was created: the `chosen` one, or the one that the kernel has chosen
    /// under the number `index`.
    pub(super) fn take(&self, chosen: Option<PagedSlot>, index: u32) -> Result<Register, Errno> {
        let slot = match (chosen, &self.source) {
            (Some(chosen), _) => chosen.slot,
            (None, Source::Dynamic(_)) => return Err(Errno::EPROTO),
            (None, Source::Static(slots)) => {
                let (device_page, slot) = (index / COUNTED_PER_PAGE, index % COUNTED_PER_PAGE);
                let number = device_page.checked_mul(PER_PAGE).map(|number| number + slot);
                let slot = number
                    .filter(|_| slot < PER_PAGE)
                    .and_then(|number| slots.get(number as usize));
                Arc::clone(slot.ok_or(Errno::EPROTO)?)
            }
        };
        Ok(Register::new(slot, !self.facts.copies_nothing))
    }

    /// Arms a completion queue: stores `doorbell`, which the record of the queue has too.
    pub(super) fn arm(&self, doorbell: u64) {
        if let Some(page) = &self.arms {
            arm(page, doorbell);
        }
    }
}

/// Returns the number of registers for sends in a kernel page that is full of the device's pages.
pub(super) fn registers_per_page() -> u32 {
    let pages = kernel_page().map_or(1, |bytes| bytes / DEVICE_PAGE);
    u32::try_from(pages).map_or(MAX_REGISTERS, |pages| pages.saturating_mul(PER_PAGE))
}

/// Returns the bytes of a page of the kernel.
fn kernel_page() -> Result<usize, Errno> {
    let page = sysconf(SysconfVar::PAGE_SIZE)?.ok_or(Errno::EINVAL)?;
    usize::try_from(page).map_err(|_| Errno::EINVAL)
}

impl RegisterFacts {
    /// Checks that the registers are within a page.
    fn check(&self) -> Result<(), Errno> {
        let register = self.size as usize;
        let per_kernel_page = self.per_kernel_page as usize;
        let bytes = per_kernel_page.checked_mul(DEVICE_PAGE).ok_or(Errno::EPROTO)?;
        let fits = register <= (DEVICE_PAGE - FIRST_REGISTER) / PER_PAGE as usize;
        let is_buffered = register.is_power_of_two() && register >= LEAST_REGISTER;
        let is_possible = per_kernel_page > 0 && bytes <= kernel_page()?;
        let is_possible = is_possible && fits && (register == 0 || is_buffered);
        is_possible.then_some(()).ok_or(Errno::EPROTO)
    }

    /// Returns the number of registers for sends in a page of the kernel.
    fn per_page(&self) -> u32 {
        PER_PAGE * self.per_kernel_page
    }

    /// Takes the register number `index` in `page`, a page of the kernel.
    fn slot(&self, page: &Arc<Mapping>, index: u32, used_by: Use) -> Result<Arc<Slot>, Errno> {
        let (device_page, slot) = (index / PER_PAGE, index % PER_PAGE);
        let size = self.size as usize;
        let offset = device_page as usize * DEVICE_PAGE + FIRST_REGISTER + slot as usize * size;
        Slot::new(page, offset, size, used_by).ok_or(Errno::EPROTO)
    }

    /// Takes all registers in `page`.
    fn slots(&self, page: &Page, used_by: Use) -> Result<Vec<PagedSlot>, CreateError> {
        let slot = |index: u32| {
            let slot = self.slot(&page.mapping, index, used_by)?;
            // The device numbers its own pages, which may be smaller than those of the kernel.
            let number = page.number.checked_add(index / PER_PAGE).ok_or(Errno::EPROTO)?;
            Ok(PagedSlot { slot, page: number })
        };
        let slots: Result<_, Errno> = (0..self.per_page()).map(slot).collect();
        slots.map_err(CreateError::Map)
    }
}

/// Allocates a page of registers, which the kernel frees with the context.
pub(super) fn allocate(file: &UverbsFile, kind: PageKind) -> Result<Page, CreateError> {
    let (mut offset, mut length, mut number) = ([0; 8], [0; 4], [0; 4]);
    let handle = file.create_driver_object(
        UAR,
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u64::from(kind.0)),
        [
            (MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &mut offset[..]),
            (MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &mut length[..]),
            (MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &mut number[..]),
        ],
    )?;
    match map_page(file, u64::from_ne_bytes(offset), u32::from_ne_bytes(length)) {
        Ok(mapping) => Ok(Page { mapping: Arc::new(mapping), number: u32::from_ne_bytes(number) }),
        Err(errno) => {
            // The first error counts. If this fails too, the kernel frees the page with the context.
            let _ = file.destroy_driver_object(UAR, handle);
            Err(CreateError::Map(errno))
        }
    }
}

/// Maps a page of registers that was allocated.
fn map_page(file: &UverbsFile, offset: u64, length: u32) -> Result<Mapping, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::EOVERFLOW)?;
    // Every page of the kernel has room for the registers of a page of the device.
    if length < DEVICE_PAGE {
        return Err(Errno::EPROTO);
    }
    Mapping::registers(file, offset, length)
}

/// A page of registers, as an object of the kernel.
const UAR: DriverObject = DriverObject {
    object: MLX5_IB_OBJECT_UAR,
    create: (MLX5_IB_METHOD_UAR_OBJ_ALLOC, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE),
    destroy: (MLX5_IB_METHOD_UAR_OBJ_DESTROY, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE),
};

/// The most registers that a context can have.
pub(super) const MAX_REGISTERS: u32 = 512;

#[cfg(test)]
mod tests;
