//! Registered memory.
//!
//! # Safety
//!
//! A device, and through it a peer, writes to registered memory behind the compiler's back and at
//! any time. So memory of the library's is a [`Memory`], which is accessed by copying, and is unmapped
//! only after the kernel has taken every registration back; memory of the program's is not accessed
//! here at all, and whoever registers it answers for it.
#![expect(unsafe_code, reason = "registers memory that a device may write to")]

use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::{AlignedU64, ib_mr_rereg_flags, ib_uverbs_reg_mr, ib_uverbs_rereg_mr};

use super::AccessFlags;
use super::Sge;
use super::copied_memory::Memory;
use super::pd::ProtectionDomain;
use super::registration::Registration;
use super::same::equal_if_same;
use crate::driver::Driver as _;
use crate::error::{DestroyError, Error, ErrorKind, Result, hint};
use crate::non_exhaustive::NonExhaustive;
use crate::sys::mapping::Mapping;

/// Memory that a device may reach: its address range, and the keys that name it.
///
/// A region made with [`alloc`](Self::alloc) owns its memory, one made with [`share`](Self::share) has
/// it together with others, and one made with [`register`](Self::register) lies over memory of the
/// program's. Dropping it deregisters, with `IB_USER_VERBS_CMD_DEREG_MR`; where the kernel refuses that,
/// memory that is not the program's is leaked rather than given to somebody else while a device may
/// write to it.
///
/// A peer reaches it by its key, as far as the rights go that it is registered with. siw (of Linux 6.1 and
/// 6.12 at least) does not look for the right to read: who has the key, or guesses it, reads every region of
/// the queue pair's protection domain.
///
/// While [windows](super::MemoryWindow) are bound to the region, the kernel does not deregister it.
/// One that is dropped then stays registered, with the memory that it owns, until the last of them is
/// gone, or was bound to another region and a window that was ever bound to this one is dropped or
/// bound once more. [`destroy`](Self::destroy) tells.
///
/// The device writes to the pages that were pinned, so a process that forks needs Linux 5.12 or
/// later, which copies pinned pages for the child. On an older kernel parent and child share them
/// until one writes, and that one gets a copy: after the parent's first write the device stays on
/// the page that the parent has no more, and what it receives is not seen. There, fork before memory
/// is registered, or have the child call `execve` at once and the parent wait for that without
/// touching the memory (`vfork`, and most of what starts programs).
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct MemoryRegion {
    registration: Arc<Registration>,
    pd: ProtectionDomain,
    lkey: u32,
    rkey: u32,
    start: NonNull<u8>,
    length: usize,
    /// What requests address the first byte by.
    iova: u64,
    /// The memory, where the region has it to itself.
    memory: Option<Memory>,
}

// SAFETY: the memory belongs to no thread, and the address is only passed on.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above; threads that share the region read and write its memory as `Memory` lets them.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `length` bytes of fresh, zeroed, page-aligned memory.
    ///
    /// `IB_USER_VERBS_CMD_REG_MR`. Pins the pages, which may take a while.
    ///
    /// # Errors
    ///
    /// EINVAL for a length of zero, and for rights that go with each other only (the peer's writing
    /// needs local writing); [`ErrorKind::Remedy`] with EPERM where the user may pin no memory (the
    /// limit `RLIMIT_MEMLOCK` is 0), with ENOMEM where it would be more than that limit allows, or
    /// cannot be had, or the device has no more regions.
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc(pd: &ProtectionDomain, length: usize, access: AccessFlags) -> Result<Self> {
        Self::map(pd, length, None, access)
    }

    /// The same under the addresses from `iova` on: requests and peers say these, and so does
    /// [`addr`](Self::addr). Only the keys tell regions apart: another one may have the same addresses.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc`](Self::alloc), and EINVAL for an `iova` that is no multiple of the page size;
    /// [`ErrorKind::Invalid`] where the addresses wrap around; [`ErrorKind::Unsupported`] where the driver
    /// knows memory by its own addresses only (siw).
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub fn alloc_at(
        pd: &ProtectionDomain,
        length: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Self> {
        Self::map(pd, length, Some(iova), access)
    }

    fn map(
        pd: &ProtectionDomain,
        length: usize,
        iova: Option<u64>,
        access: AccessFlags,
    ) -> Result<Self> {
        let memory = Memory::new(length)?;
        let mut region = Self::over_memory(pd, &memory, 0..length, iova, access)?;
        region.memory = Some(memory);
        Ok(region)
    }

    /// Registers `memory`, of which there may be other registrations: in other protection domains, for
    /// other devices, with other rights.
    ///
    /// `IB_USER_VERBS_CMD_REG_MR`. Pins the pages, which may take a while. The region keeps the memory
    /// there; it is accessed by [`Memory`], and not by the region.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc`](Self::alloc).
    pub fn share(pd: &ProtectionDomain, memory: &Memory, access: AccessFlags) -> Result<Self> {
        Self::over_memory(pd, memory, 0..memory.len(), None, access)
    }

    /// Registers the bytes in `part` of `memory`: otherwise as [`share`](Self::share).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`share`](Self::share):
    /// - [`ErrorKind::Invalid`] if `part` is empty or exceeds the memory.
    pub fn share_part(
        pd: &ProtectionDomain,
        memory: &Memory,
        part: Range<usize>,
        access: AccessFlags,
    ) -> Result<Self> {
        Self::over_memory(pd, memory, part, None, access)
    }

    fn over_memory(
        pd: &ProtectionDomain,
        memory: &Memory,
        part: Range<usize>,
        iova: Option<u64>,
        access: AccessFlags,
    ) -> Result<Self> {
        let mapping = memory.mapping();
        let Range { start, end } = part;
        if start >= end || end > mapping.len() {
            let subject = format!("bytes {start} to {end} of memory");
            let reason = format!("the memory has {} bytes", mapping.len());
            return Err(Error::invalid("register", subject, reason));
        }
        // SAFETY: `start` is less than the length of the mapping, so the address lies in it.
        let first = unsafe { mapping.start().add(start) };
        // SAFETY: the bytes lie in the mapping, which is readable and writable, and stays so until the
        // region, which holds it, is deregistered; all references to it, now and later, are to atomics.
        unsafe { Self::over(pd, first, end - start, iova, access, Some(mapping)) }
    }

    /// Registers memory of the program's.
    ///
    /// `IB_USER_VERBS_CMD_REG_MR`. Pins the pages, which may take a while.
    ///
    /// # Safety
    ///
    /// - `start` is valid for reads, and where `access` lets anybody write for writes, of `length`
    ///   bytes, until the region is deregistered: when [`destroy`](Self::destroy) has succeeded, or
    ///   when it was dropped and so were the windows that were ever bound to it;
    /// - until then, what a device may write by `access` is not borrowed, and what it
    ///   may read is not mutably borrowed, by Rust references, save where the program knows that no
    ///   work request and no peer touches it.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc`](Self::alloc), and EFAULT; [`ErrorKind::Invalid`] where the memory wraps around.
    #[doc(alias = "rdma_reg_msgs")]
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub unsafe fn register(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: AccessFlags,
    ) -> Result<Self> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { Self::over(pd, start, length, None, access, None) }
    }

    /// The same under the addresses from `iova` on: requests and peers say these, and so does
    /// [`addr`](Self::addr). Only the keys tell regions apart: another one may have the same addresses.
    ///
    /// # Safety
    ///
    /// That of [`register`](Self::register).
    ///
    /// # Errors
    ///
    /// The errors of [`register`](Self::register), and EINVAL where `iova` lies elsewhere in its page than
    /// `start` in its; [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`] as with
    /// [`alloc_at`](Self::alloc_at).
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub unsafe fn register_at(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Self> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { Self::over(pd, start, length, Some(iova), access, None) }
    }

    /// Registers a range of addresses, under those from `iova` on or under those very addresses.
    ///
    /// # Safety
    ///
    /// That of [`register`](Self::register); `mapping` has the range, where the region is to hold it.
    unsafe fn over(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        iova: Option<u64>,
        access: AccessFlags,
        mapping: Option<&Arc<Mapping>>,
    ) -> Result<Self> {
        const OPERATION: &str = "register";
        let [first, bytes] = range(OPERATION, start, length)?;
        let iova = iova.unwrap_or_else(|| first.get());
        if iova.checked_add(bytes.get()).is_none() {
            return Err(wraps(OPERATION, iova, length));
        }
        let request = ib_uverbs_reg_mr {
            response: AlignedU64::default(),
            start: first,
            length: bytes,
            hca_va: iova.into(),
            pd_handle: pd.handle(),
            access_flags: access,
        };
        let context = pd.context();
        let what = || format!("{length} bytes of memory");
        context.check_usable(OPERATION, what)?;
        if request.hca_va != request.start && !context.driver_capabilities().custom_iova {
            let driver = context.driver_name();
            let missing = format!("memory under other addresses than its own by {driver}");
            return Err(Error::new(OPERATION, what(), ErrorKind::Unsupported(missing.into())));
        }
        // SAFETY: the request's range is that of the arguments, for which the caller answers.
        let registered = unsafe { context.driver().register(context.commands(), request) };
        let registered =
            registered.map_err(|refused| advised(context.not_made(OPERATION, &what(), refused)))?;
        let registration = Registration::new(pd, registered.mr_handle, mapping.map(Arc::clone));
        Ok(Self {
            registration: Arc::new(registration),
            pd: pd.clone(),
            lkey: registered.lkey,
            rkey: registered.rkey,
            start,
            length,
            iova,
            memory: None,
        })
    }

    /// Changes the region: its protection domain, what it allows, the memory under it.
    ///
    /// `IB_USER_VERBS_CMD_REREG_MR`. The keys may be others afterwards. rxe changes the first two, on
    /// newer kernels than Linux 6.1.
    ///
    /// # Safety
    ///
    /// - No work request that names the region by a key is outstanding, here or at a peer, and no
    ///   memory window is bound to it;
    /// - for memory of the program's, the contract of [`register`](Self::register) with what the
    ///   region allows from now on; after an error, both with that and with what it allowed before.
    ///
    /// # Errors
    ///
    /// EINVAL where nothing is to change, and for rights that go with each other only; EACCES for
    /// rights to write where the region had none, whose pages may be for reading only: register that
    /// anew; [`ErrorKind::Unsupported`] where the driver or its version in the kernel cannot change that
    /// (siw can change nothing); [`ErrorKind::Invalid`] for a protection domain of another context, and for
    /// memory without bytes or that wraps around.
    /// Others are those of [`register`](Self::register); after one of those the region may be of no use
    /// any more, and is to be dropped.
    #[doc(alias = "ibv_rereg_mr")]
    pub unsafe fn reregister(&mut self, change: &Reregistration<'_>) -> Result<()> {
        const OPERATION: &str = "re-register";
        const WHAT: &str = "a memory region";
        let context = self.pd.context();
        // First: a lock that another thread held while the process forked stays locked in the child.
        context.check_usable(OPERATION, || WHAT.to_owned())?;
        if change.pd.is_some_and(|pd| pd.context() != context) {
            let reason = "the protection domain is of another context";
            return Err(Error::invalid(OPERATION, WHAT, reason));
        }
        let mut flags = ib_mr_rereg_flags::empty();
        flags.set(ib_mr_rereg_flags::IB_MR_REREG_PD, change.pd.is_some());
        flags.set(ib_mr_rereg_flags::IB_MR_REREG_ACCESS, change.access.is_some());
        flags.set(ib_mr_rereg_flags::IB_MR_REREG_TRANS, change.memory.is_some());
        let (start, length) = change.memory.unwrap_or((self.start, self.length));
        let [start_address, bytes] = range(OPERATION, start, length)?;
        let request = ib_uverbs_rereg_mr {
            response: AlignedU64::default(),
            mr_handle: self.registration.handle(),
            flags,
            start: start_address,
            length: bytes,
            hca_va: start_address,
            pd_handle: change.pd.unwrap_or(&self.pd).handle(),
            access_flags: change.access.unwrap_or_default(),
        };
        // SAFETY: the caller answers for the memory, which a region that owns its own has to itself.
        let changed = unsafe { context.file().reregister_memory(request) };
        let keys = changed.map_err(|refused| {
            advised(context.refused_or_unsupported(OPERATION, WHAT, "this change", refused))
        })?;
        (self.lkey, self.rkey) = (keys.lkey, keys.rkey);
        if let Some(pd) = change.pd {
            self.registration.moved(pd);
            self.pd = pd.clone();
        }
        if change.memory.is_some() {
            (self.start, self.length) = (start, length);
            self.iova = start_address.get();
            self.registration.unmap();
            self.memory = None;
        }
        Ok(())
    }

    /// Deregisters the region. `IB_USER_VERBS_CMD_DEREG_MR`.
    ///
    /// # Errors
    ///
    /// EINVAL while a window is bound to it; [`ErrorKind::DeviceGone`],
    /// [`ErrorKind::WrongProcess`]. The region comes back with the error.
    #[doc(alias = "rdma_dereg_mr")]
    #[doc(alias = "ibv_dereg_mr")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        const OPERATION: &str = "destroy";
        const WHAT: &str = "a memory region";
        let context = self.pd.context();
        // First: a lock that another thread held while the process forked stays locked in the child.
        let destroyed = context.check_process(OPERATION, || WHAT.to_owned()).and_then(|()| {
            let released = self.registration.release();
            released.map_err(|refused| context.refused(OPERATION, WHAT, refused))
        });
        destroyed.map_err(|error| DestroyError::new(self, error))
    }

    /// Returns `true` if the memory is a [`Memory`], to which there are no references.
    pub(super) fn is_over_memory(&self) -> bool {
        self.registration.has_memory()
    }

    /// What the windows that are bound to it hold.
    pub(super) fn registration(&self) -> &Arc<Registration> {
        &self.registration
    }

    /// The protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The key that local work requests name the region by.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key that peers name the region by.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// What requests address the first byte by, and a peer is told: its address, or what it was
    /// [registered under](Self::alloc_at).
    pub fn addr(&self) -> u64 {
        self.iova
    }

    /// The first byte, for access that the program vouches for.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns `true` if there is nothing in it, which no region can be.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of the region for a work request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where the part is not within the region,
    /// or longer than the 32 bits of an entry.
    pub fn sge(&self, part: impl RangeBounds<usize>) -> Result<Sge> {
        let first = match part.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match part.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.length),
        };
        let (Some(first), Some(end)) = (first, end) else {
            return Err(self.outside("use", usize::MAX, 0));
        };
        let length = end.checked_sub(first).ok_or_else(|| self.outside("use", first, 0))?;
        self.check("use", first, length)?;
        let length = u32::try_from(length).map_err(|_| self.outside("use", first, length))?;
        let offset = u64::try_from(first).expect("an offset has at most 64 bits");
        Ok(Sge { addr: (self.addr() + offset).into(), length, lkey: self.lkey })
    }

    /// Copies bytes out of a region that owns its memory, from `offset` on: [`Memory::read`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where the part is not within the region,
    /// or the memory is not the region's own.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.memory.as_ref().ok_or_else(|| not_its_own("read"))?.read(offset, into)
    }

    /// Copies bytes into a region that owns its memory, from `offset` on: [`Memory::write`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where the part is not within the region,
    /// or the memory is not the region's own.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        self.memory.as_mut().ok_or_else(|| not_its_own("write"))?.write(offset, from)
    }

    fn check(&self, operation: &'static str, offset: usize, length: usize) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(self.outside(operation, offset, length)),
        }
    }

    fn outside(&self, operation: &'static str, offset: usize, length: usize) -> Error {
        let subject = format!("{length} bytes at offset {offset} of a memory region");
        Error::invalid(operation, subject, format!("the region has {} bytes", self.length))
    }
}

#[cold]
fn not_its_own(operation: &'static str) -> Error {
    let reason = "the memory is not its own, and is to be accessed by other means";
    Error::invalid(operation, "a memory region", reason)
}

/// The first address and the length of memory, as the kernel takes them: it looks whether there are
/// any bytes only where they begin with a page.
fn range(operation: &'static str, start: NonNull<u8>, length: usize) -> Result<[AlignedU64; 2]> {
    if length == 0 {
        return Err(Error::invalid(operation, "memory", "it has no bytes"));
    }
    let [start, bytes] = [start.as_ptr().expose_provenance(), length]
        .map(|number| u64::try_from(number).expect("it has at most 64 bits"));
    match start.checked_add(bytes) {
        Some(_) => Ok([start.into(), bytes.into()]),
        None => Err(wraps(operation, start, length)),
    }
}

fn wraps(operation: &'static str, first: u64, length: usize) -> Error {
    let subject = format!("{length} bytes of memory");
    Error::invalid(operation, subject, format!("the addresses from {first:#x} on wrap around"))
}

/// The same error with what to do where the kernel does not let the user pin the memory.
fn advised(error: Error) -> Error {
    let error = error.with_remedy(Errno::EPERM, hint::LOCKED_MEMORY);
    error.with_remedy(Errno::ENOMEM, hint::LOCKED_MEMORY_OR_REGIONS)
}

/// What [`MemoryRegion::reregister`] is to change.
///
/// Made from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, Copy, Default)]
pub struct Reregistration<'a> {
    /// The protection domain.
    pub pd: Option<&'a ProtectionDomain>,
    /// What the region allows.
    pub access: Option<AccessFlags>,
    /// The memory: memory of the program's takes the place of what is there, under its own addresses.
    pub memory: Option<(NonNull<u8>, usize)>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.pd.context().file().belongs_here() {
            self.registration.abandon();
        }
    }
}

equal_if_same!(MemoryRegion, registration);
