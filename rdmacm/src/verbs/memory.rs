//! Registered memory ([`MemoryRegion`]).
//!
//! # Safety
//!
//! A device, and through the device a peer, writes to registered memory at any time, without the
//! compiler's knowledge.
//! - Memory of the library is a [`DmaMemory`]. It is accessed by copying, and unmapped only after
//!   the kernel has revoked every registration.
//! - Memory of the program is never accessed here. The caller that registers it is responsible for
//!   it.
#![expect(unsafe_code, reason = "registers memory that a device may write to")]

mod parts;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_abi::{AlignedU64, ib_mr_rereg_flags, ib_uverbs_reg_mr, ib_uverbs_rereg_mr};

use super::AccessFlags;
use super::copied_memory::DmaMemory;
use super::error_text::with_pinning_hint;
use super::pd::ProtectionDomain;
use super::registration::Registration;
use super::same::impl_ptr_eq;
use crate::driver::Driver as _;
use crate::error::{DestroyError, Error, ErrorKind, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::sys::mapping::Mapping;

/// A memory region: memory that a device may access, with its address range and keys.
///
/// A region created by [`alloc`](Self::alloc) owns its memory. One created by
/// [`register_shared`](Self::register_shared) shares it with other regions, and one created by
/// [`register`](Self::register) covers memory of the program.
///
/// Dropping a region deregisters it (`IB_USER_VERBS_CMD_DEREG_MR`). If the kernel refuses, the
/// library leaks memory of its own, because reusing it would be unsound while a device may write to
/// it.
///
/// A peer accesses the region by its key, within the access rights of the registration.
///
/// # Memory windows
///
/// While [windows](super::MemoryWindow) are bound to the region, the kernel does not deregister it.
/// A region that is dropped then stays registered, together with the memory that it owns. The
/// registration ends when the last window is destroyed. If the last window was bound to another
/// region instead, the registration ends later. It then ends when any window that was ever bound to
/// this region is dropped or bound again. [`destroy`](Self::destroy) reports whether the kernel
/// deregisters the region.
///
/// # Forking
///
/// The device accesses the pages that were pinned. A process that forks needs Linux 5.12 or later,
/// which copies pinned pages for the child.
///
/// On an older kernel, parent and child share the pages, and the first one that writes gets a copy.
/// After the parent's first write, the device continues to use a page that the parent no longer
/// has, so received data is not visible, and later writes are not sent. The library prevents this
/// only for the memory of its queues: registered memory is the responsibility of the program. On
/// these kernels, fork before registering memory, or mark memory of your own with
/// `madvise(MADV_DONTFORK)` before registering it. Alternatively, the child calls `execve` at once
/// and the parent waits for that without accessing the memory (`vfork`, and most functions that
/// start programs).
///
/// # Driver notes
///
/// siw (at least on Linux 6.1 and 6.12) does not check the right to read. A peer that knows or
/// guesses a key can read every region in the protection domain of the queue pair.
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct MemoryRegion {
    registration: Arc<Registration>,
    pd: ProtectionDomain,
    lkey: u32,
    rkey: u32,
    start: NonNull<u8>,
    length: usize,
    /// Address of the first byte in work requests.
    iova: u64,
    /// The memory, if the region has exclusive ownership.
    memory: Option<DmaMemory>,
}

// SAFETY: the memory belongs to no particular thread, and the address is only passed on.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above. Threads that share the region access its memory only through `DmaMemory`, which
// may be shared.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Allocates and registers `length` bytes of zeroed, page-aligned memory.
    ///
    /// The kernel pins the pages, which may take a while.
    ///
    /// # Errors
    ///
    /// - EINVAL if `length` is 0, or if `access` lacks a flag that another one requires (remote
    ///   write requires local write).
    /// - EPERM if the user may not pin memory (`RLIMIT_MEMLOCK` is 0), with a
    ///   [hint](crate::Error::hint).
    /// - ENOMEM if `length` exceeds the limit, if memory is short, or if the device has no more
    ///   regions, with a hint.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc(pd: &ProtectionDomain, length: usize, access: AccessFlags) -> Result<Self> {
        Self::map(pd, length, None, access)
    }

    /// Allocates and registers memory whose address in work requests begins at `iova`.
    ///
    /// Requests and peers use these addresses, and [`addr`](Self::addr) returns the first one. Only
    /// the keys distinguish regions: another region may use the same addresses. See
    /// [`alloc`](Self::alloc) for details.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`alloc`](Self::alloc):
    /// - EINVAL if `iova` is not a multiple of the page size.
    /// - [`ErrorKind::InvalidInput`] if the addresses wrap around.
    /// - [`ErrorKind::Unsupported`] if the driver supports only the memory's own addresses (siw).
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub fn alloc_with_iova(
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
        let memory = DmaMemory::new(length)?;
        let mut region = Self::over_memory(pd, &memory, 0..length, iova, access)?;
        region.memory = Some(memory);
        Ok(region)
    }

    /// Registers `memory`, which may have other registrations too.
    ///
    /// The others may be in other protection domains, on other devices or with other access rights.
    /// The kernel pins the pages, which may take a while. The region keeps the memory allocated.
    /// Access it through the [`DmaMemory`], not through the region.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc`](Self::alloc).
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    pub fn register_shared(
        pd: &ProtectionDomain,
        memory: &DmaMemory,
        access: AccessFlags,
    ) -> Result<Self> {
        Self::over_memory(pd, memory, 0..memory.len(), None, access)
    }

    /// Registers the bytes in `part` of `memory`.
    ///
    /// See [`register_shared`](Self::register_shared) for details.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`register_shared`](Self::register_shared):
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    pub fn register_shared_part(
        pd: &ProtectionDomain,
        memory: &DmaMemory,
        part: Range<usize>,
        access: AccessFlags,
    ) -> Result<Self> {
        Self::over_memory(pd, memory, part, None, access)
    }

    fn over_memory(
        pd: &ProtectionDomain,
        memory: &DmaMemory,
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
        // SAFETY: `start` is less than the length of the mapping, so the address lies in the
        // mapping.
        let first = unsafe { mapping.start().add(start) };
        // SAFETY: the bytes lie in the mapping, which is readable and writable. It stays mapped
        // until the region, which holds it, is deregistered. All references to it, now and later,
        // are references to atomics.
        unsafe { Self::over(pd, first, end - start, iova, access, Some(mapping)) }
    }

    /// Registers memory of the program.
    ///
    /// The kernel pins the pages, which may take a while.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`alloc`](Self::alloc):
    /// - EFAULT if the memory is not mapped.
    /// - [`ErrorKind::InvalidInput`] if the addresses wrap around, or if `length` is 0.
    ///
    /// # Safety
    ///
    /// The caller must ensure the following until the region is deregistered. A region is
    /// deregistered when [`destroy`](Self::destroy) has succeeded, or when the region and all
    /// windows that were ever bound to it are dropped.
    /// - `start` is valid for reads of `length` bytes, and for writes too if `access` permits any
    ///   write.
    /// - No Rust reference borrows the bytes that a device may write according to `access`.
    /// - No mutable reference borrows the bytes that a device may read.
    ///
    /// Such references are allowed while the program knows that no work request and no peer
    /// accesses the bytes.
    #[doc(alias = "rdma_reg_msgs")]
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub unsafe fn register(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: AccessFlags,
    ) -> Result<Self> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { Self::over(pd, start, length, None, access, None) }
    }

    /// Registers memory of the program whose address in work requests begins at `iova`.
    ///
    /// Requests and peers use these addresses, and [`addr`](Self::addr) returns the first one. Only
    /// the keys distinguish regions: another region may use the same addresses.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`register`](Self::register):
    /// - EINVAL if `iova` and `start` have different offsets in their pages.
    /// - [`ErrorKind::InvalidInput`] and [`ErrorKind::Unsupported`] as for
    ///   [`alloc_with_iova`](Self::alloc_with_iova).
    ///
    /// # Safety
    ///
    /// The contract of [`register`](Self::register).
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub unsafe fn register_with_iova(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Self> {
        // SAFETY: the contract of this function is the contract of the callee.
        unsafe { Self::over(pd, start, length, Some(iova), access, None) }
    }

    /// Registers a range of addresses, under the addresses from `iova` on or under its own.
    ///
    /// # Safety
    ///
    /// The contract of [`register`](Self::register). If the region is to hold the mapping,
    /// `mapping` contains the range.
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
        // SAFETY: the request's range is the range of the arguments, whose validity the caller
        // guarantees.
        let registered = unsafe { context.driver().register(context.commands(), request) };
        let registered = registered.map_err(|refused| {
            with_pinning_hint(context.creation_error(OPERATION, &what(), refused))
        })?;
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

    /// Changes the protection domain, the access rights or the memory of the region.
    ///
    /// The keys may change. After one of the errors of [`register`](Self::register), the region may
    /// be unusable and must be dropped.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`register`](Self::register):
    /// - EINVAL if `change` changes nothing, or if the access rights lack a right that another one
    ///   requires.
    /// - EACCES for a right to write if the region had none: its pages may be read-only. Register
    ///   the memory again instead.
    /// - [`ErrorKind::Unsupported`] if the driver, or its version in the kernel, cannot make the
    ///   change.
    /// - [`ErrorKind::InvalidInput`] if the protection domain belongs to another context, or if the
    ///   memory has no bytes or wraps around.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Safety
    ///
    /// - No work request that names the region by a key is outstanding, here or at a peer.
    /// - No memory window is bound to the region.
    /// - For memory of the program, the contract of [`register`](Self::register) holds for the new
    ///   access rights. After an error, it holds for both the new and the previous access rights.
    ///
    /// # Driver notes
    ///
    /// - rxe can change the protection domain and the access rights, on kernels newer than Linux
    ///   6.1.
    /// - siw cannot change anything.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REREG_MR`.
    #[doc(alias = "ibv_rereg_mr")]
    pub unsafe fn reregister(&mut self, change: &ReregisterOptions<'_>) -> Result<()> {
        const OPERATION: &str = "re-register";
        const SUBJECT: &str = "a memory region";
        let context = self.pd.context();
        // First: a lock that another thread held during the fork stays locked in the child.
        context.check_usable(OPERATION, || SUBJECT.to_owned())?;
        if change.pd.is_some_and(|pd| pd.context() != context) {
            let reason = "the protection domain is of another context";
            return Err(Error::invalid(OPERATION, SUBJECT, reason));
        }
        let mut flags = ib_mr_rereg_flags::empty();
        flags.set(ib_mr_rereg_flags::IB_MR_REREG_PD, change.pd.is_some());
        flags.set(ib_mr_rereg_flags::IB_MR_REREG_ACCESS, change.access.is_some());
        flags.set(ib_mr_rereg_flags::IB_MR_REREG_TRANS, change.memory.is_some());
        let memory = change.memory.map(|(start, length)| range(OPERATION, start, length));
        let [start, length] = memory.transpose()?.unwrap_or_default();
        let request = ib_uverbs_rereg_mr {
            response: AlignedU64::default(),
            mr_handle: self.registration.handle(),
            flags,
            start,
            length,
            hca_va: start,
            pd_handle: change.pd.map_or(0, ProtectionDomain::handle),
            access_flags: change.access.unwrap_or_default(),
        };
        // SAFETY: the caller guarantees the validity of the memory. A region that owns its memory
        // has exclusive access to it.
        let changed = unsafe { context.file().reregister_memory(request) };
        let keys = changed.map_err(|refused| {
            with_pinning_hint(context.refused_or_unsupported(
                OPERATION,
                SUBJECT,
                "this change",
                refused,
            ))
        })?;
        (self.lkey, self.rkey) = (keys.lkey, keys.rkey);
        if let Some(pd) = change.pd {
            self.registration.moved(pd);
            self.pd = pd.clone();
        }
        if let Some((start, length)) = change.memory {
            (self.start, self.length) = (start, length);
            self.iova = request.hca_va.get();
            self.registration.unmap();
            self.memory = None;
        }
        Ok(())
    }

    /// Deregisters the region.
    ///
    /// # Errors
    ///
    /// Every error returns the region.
    /// - EINVAL if a window is bound to the region.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DEREG_MR`.
    #[doc(alias = "rdma_dereg_mr")]
    #[doc(alias = "ibv_dereg_mr")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        const OPERATION: &str = "destroy";
        const SUBJECT: &str = "a memory region";
        let context = self.pd.context();
        // First: a lock that another thread held during the fork stays locked in the child.
        let destroyed = context.check_process(OPERATION, || SUBJECT.to_owned()).and_then(|()| {
            let released = self.registration.release();
            released.map_err(|refused| context.refused(OPERATION, SUBJECT, refused))
        });
        destroyed.map_err(|error| DestroyError::new(self, error))
    }

    /// Returns `true` if the memory is a [`DmaMemory`], to which there are no references.
    pub(super) fn is_over_memory(&self) -> bool {
        self.registration.has_memory()
    }

    /// Returns the registration, which windows that are bound to the region hold.
    pub(super) fn registration(&self) -> &Arc<Registration> {
        &self.registration
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the local key, by which local work requests name the region.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the remote key, by which peers name the region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns the address of the first byte in work requests of this process and of peers.
    ///
    /// It is the address of the memory, or the `iova` under which the memory was
    /// [registered](Self::alloc_with_iova).
    pub fn addr(&self) -> u64 {
        self.iova
    }

    /// Returns a pointer to the first byte, for access that the program guarantees to be sound.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns `true` if the region has no bytes, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Returns the first address and the length of memory in the form of the kernel ABI.
///
/// The kernel rejects memory without bytes only if it begins at a page boundary, so this function
/// checks the length.
fn range(operation: &'static str, start: NonNull<u8>, length: usize) -> Result<[AlignedU64; 2]> {
    if length == 0 {
        return Err(Error::invalid(operation, "memory", "the memory has no bytes"));
    }
    let [start, bytes] = [start.as_ptr().expose_provenance(), length]
        .map(|number| u64::try_from(number).expect("an address has at most 64 bits"));
    match start.checked_add(bytes) {
        Some(_) => Ok([start.into(), bytes.into()]),
        None => Err(wraps(operation, start, length)),
    }
}

fn wraps(operation: &'static str, first: u64, length: usize) -> Error {
    let subject = format!("{length} bytes of memory");
    Error::invalid(operation, subject, format!("the addresses from {first:#x} on wrap around"))
}

/// The changes that [`MemoryRegion::reregister`] makes.
///
/// Created from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, Copy, Default)]
pub struct ReregisterOptions<'a> {
    /// New protection domain.
    pub pd: Option<&'a ProtectionDomain>,
    /// New access rights.
    pub access: Option<AccessFlags>,
    /// New memory of the program, which replaces the region's memory and is used under its own
    /// addresses.
    pub memory: Option<(NonNull<u8>, usize)>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.pd.context().file().is_owner() {
            self.registration.abandon();
        }
    }
}

impl_ptr_eq!(MemoryRegion, registration);
