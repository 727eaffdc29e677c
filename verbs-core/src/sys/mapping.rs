//! Memory that is mapped and unmapped as a whole.
//!
//! # Safety
//!
//! A [`Mapping`] owns its addresses from `mmap` to `munmap`, some together with a neighbor: both are
//! unmapped when neither is left. It hands out a raw pointer and never a reference: a device or the kernel
//! may write to the memory at any time. A forked child does not have the memory [of a queue](Mapping::queue), and does
//! not unmap its addresses, where it may have mapped other memory.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;
#[cfg(fuzzing)]
use nix::sys::mman::mprotect;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::page::PAGE;
use super::process::Process;

/// A range of memory, which it owns until it is dropped: readable and writable, except for
/// [registers](Mapping::registers).
#[derive(Debug)]
pub struct Mapping {
    start: Place,
    length: NonZeroUsize,
    /// The range that one call unmaps: this mapping, alone or together with a neighbor.
    range: Arc<Range>,
}

/// The address of a byte in a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(NonNull<u8>);

impl Place {
    /// Returns the address, which is valid as long as the mapping.
    #[inline(always)]
    pub(crate) fn pointer(self) -> NonNull<u8> {
        self.0
    }
}

// SAFETY: the range belongs to its owner and not to a thread. Access to it uses raw pointers, for which their users are
// responsible.
unsafe impl Send for Place {}
// SAFETY: as above: sharing it gives access only to an address.
unsafe impl Sync for Place {}

/// The range that one call unmaps: a mapping, or two neighbors.
#[derive(Debug)]
struct Range {
    start: Place,
    length: NonZeroUsize,
    /// The process that has the memory, if its children do not have it.
    ///
    /// Boxed, because most ranges have none: an idle connection keeps several ranges.
    only_in: Option<Box<Process>>,
}

impl Mapping {
    /// Maps a ring that the kernel shares at `offset` of `file`.
    ///
    /// If there is a `neighbor` with room right below it, the ring is mapped there. One call then unmaps both, when
    /// neither is left.
    pub fn shared(
        file: impl AsFd,
        offset: u64,
        length: usize,
        neighbor: Option<&mut Self>,
    ) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        // The hint is the address of a page: the kernel would round another one, but valgrind refuses it.
        let pages = length.get().div_ceil(PAGE.get()).saturating_mul(PAGE.get());
        let hint = neighbor.as_ref().and_then(|neighbor| {
            NonZeroUsize::new(neighbor.start().addr().get().saturating_sub(pages))
        });
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing. Without MAP_FIXED, the kernel uses
        // the hint only if nothing is mapped there.
        let start = unsafe { mmap(hint, length, READ_WRITE, MapFlags::MAP_SHARED, file, offset)? };
        let range = Range { start: Place(start.cast()), length, only_in: None };
        Ok(match neighbor {
            Some(neighbor) => Self { start: range.start, length, range: neighbor.share(range) },
            None => Self::separate(range),
        })
    }

    /// Maps registers of a device at `offset` of `file`, which can be written but not read.
    pub fn registers(file: impl AsFd, offset: u64, length: usize) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        let (access, flags) = (ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { mmap(None, length, access, flags, file, offset)? };
        Ok(Self::separate(Range { start: Place(start.cast()), length, only_in: None }))
    }

    /// Maps zeroed memory of this process.
    pub fn private(length: usize) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { mmap_anonymous(None, length, READ_WRITE, MapFlags::MAP_PRIVATE)? };
        Ok(Self::separate(Range { start: Place(start.cast()), length, only_in: None }))
    }

    /// Maps zeroed memory for a queue that a device reads and writes, which a forked child does not have.
    ///
    /// Before Linux 5.12, a fork makes parent and child share the pages. The parent's next store then goes to a copy of
    /// the page, and the device continues with the page that the parent no longer has.
    pub fn queue(length: usize) -> Result<Self, Errno> {
        let mut mapping = Self::private(length)?;
        // SAFETY: the range is the new mapping. The advice does not change the memory of this process.
        unsafe { madvise(mapping.start().cast(), length, MmapAdvise::MADV_DONTFORK)? };
        let range = Arc::get_mut(&mut mapping.range).expect("the mapping is new");
        range.only_in = Some(Box::new(Process::current()));
        Ok(mapping)
    }

    /// Maps memory followed by a page that no access may touch.
    #[cfg(fuzzing)]
    pub fn guarded(length: usize) -> Result<Self, Errno> {
        let pages = length.next_multiple_of(PAGE.get());
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let whole = Self::private(pages + PAGE.get())?;
        // SAFETY: the page is the last one of the new mapping.
        let behind = unsafe { whole.start().add(pages) };
        // SAFETY: the page holds no data, and no other code has its address.
        unsafe { mprotect(behind.cast(), PAGE.get(), ProtFlags::PROT_NONE)? };
        Ok(Self { length, ..whole })
    }

    fn separate(range: Range) -> Self {
        Self { start: range.start, length: range.length, range: Arc::new(range) }
    }

    /// Returns the range that unmaps `below`.
    ///
    /// The range is that of this mapping if `below` ends at the beginning of this mapping.
    fn share(&mut self, below: Range) -> Arc<Range> {
        if Arc::get_mut(&mut self.range).is_some_and(|range| range.join(&below)) {
            // Its pages belong to the other range now.
            mem::forget(below);
            Arc::clone(&self.range)
        } else {
            Arc::new(below)
        }
    }

    /// Returns the first byte.
    ///
    /// It is valid for reads and writes of [`len`](Self::len) bytes until the mapping is dropped.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start.0
    }

    /// Returns the address of the byte at `offset`. Panics if it is not within the mapping.
    pub(crate) fn place(&self, offset: usize) -> Place {
        assert!(offset < self.len(), "offset {offset} in a mapping of {} bytes", self.len());
        // SAFETY: the byte is within the mapping.
        Place(unsafe { self.start().add(offset) })
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.length.get()
    }
}

impl Range {
    /// Grows by `below` if that ends at the beginning of this range, and returns `true` if it did.
    fn join(&mut self, below: &Self) -> bool {
        let [begins, ends] = [below.start, self.start].map(|start| start.0.addr().get());
        // A range that a child does not have is unmapped by its process alone.
        let is_everywhere = self.only_in.is_none() && below.only_in.is_none();
        let joined = is_everywhere && are_adjacent(begins, below.length.get(), ends);
        if joined {
            self.start = below.start;
            self.length = self.length.saturating_add(ends - begins);
        }
        joined
    }
}

/// Returns `true` if `length` mapped bytes from `start` on end in the page before `next`.
///
/// Both begin at pages.
fn are_adjacent(start: usize, length: usize, next: usize) -> bool {
    let behind = next.checked_sub(start).and_then(|distance| distance.checked_sub(length));
    behind.is_some_and(|behind| behind < PAGE.get())
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl Drop for Range {
    fn drop(&mut self) {
        if self.only_in.as_ref().is_some_and(|process| !process.is_current()) {
            return;
        }
        // SAFETY: all pages of the range were mapped for the mappings that hold the range. These mappings are its only
        // owners and are dropped. Pointers into them are valid only while they live, as `start` documents. If the
        // kernel refuses, the memory stays mapped. It refuses if it would have to split a mapping that it has merged
        // with a neighbor, and the process has its maximum number of mappings.
        let _ = unsafe { munmap(self.start.0.cast(), self.length.get()) };
    }
}

#[cfg(test)]
mod tests;
