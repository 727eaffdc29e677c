//! Memory that is mapped and unmapped as a whole.
//!
//! # Safety
//!
//! A [`Mapping`] owns its range of addresses from `mmap` to `munmap`. It hands out a raw pointer
//! and never a reference: a device or the kernel may write to the memory at any time.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A range of memory, readable and writable, of its own until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: NonZeroUsize,
}

// SAFETY: the range belongs to the mapping and not to a thread; access to it goes by raw pointers,
// whose users answer for it.
unsafe impl Send for Mapping {}
// SAFETY: as above: a shared mapping gives nothing but its address and length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a ring that the kernel shares at `offset` of `file`.
    pub(crate) fn shared(file: impl AsFd, offset: u64, length: usize) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { mmap(None, length, READ_WRITE, MapFlags::MAP_SHARED, file, offset)? };
        Ok(Self { start: start.cast(), length })
    }

    /// Maps zeroed memory of this process.
    pub(crate) fn private(length: usize) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { mmap_anonymous(None, length, READ_WRITE, MapFlags::MAP_PRIVATE)? };
        Ok(Self { start: start.cast(), length })
    }

    /// The first byte. Valid for reads and writes of [`len`](Self::len) bytes until the mapping is
    /// dropped.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length.get()
    }

    /// Gives up the mapping without unmapping it: for memory that a device may still write to.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this object, which is its only owner and goes away now;
        // pointers into it are valid only while it lives, as `start` says.
        let unmapped = unsafe { munmap(self.start.cast(), self.length.get()) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping cannot fail");
    }
}
