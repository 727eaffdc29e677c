//! Registered memory with one owner at a time ([`RegisteredBuffer`]).
//!
//! # Safety
//!
//! A [`RegisteredBuffer`] is a part of a region that no other buffer contains, and the region
//! belongs to the buffers alone. The region permits local writes only, so a device writes there
//! only for requests with the region's key, never on behalf of a peer alone.
//!
//! The key is known to this module and to [`BufferedQueuePair`](super::BufferedQueuePair). The
//! latter owns the buffer from before its request is posted until the device has finished with it.
//! A buffer that is accessible to the program is therefore ordinary memory.
#![expect(unsafe_code, reason = "hands out registered memory as slices")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::AccessFlags;
use super::Sge;
use super::memory::MemoryRegion;
use super::pd::ProtectionDomain;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// Alignment of buffers: two buffers share no cache line.
const ALIGNMENT: usize = 64;

/// A buffer in registered memory with exclusive ownership, which dereferences to its bytes.
///
/// Pass it to a [`BufferedQueuePair`](super::BufferedQueuePair) to post it. Buffers that are
/// [allocated](Self::alloc) together form one memory region. It is deregistered, and its memory
/// freed, when the last of the buffers is dropped.
pub struct RegisteredBuffer {
    block: Arc<Block>,
    index: u32,
    /// Length in bytes, starting at the buffer's offset in its block.
    length: u32,
}

/// The registered memory of buffers that were allocated together.
///
/// It holds a group of buffers of one length, followed by a group of buffers of another length.
struct Block {
    region: MemoryRegion,
    layout: Layout,
}

/// The positions of two groups of buffers in their region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Number of buffers in the first group.
    first: usize,
    /// Distance in bytes from one buffer to the next, for each group.
    strides: [usize; 2],
    /// Offset of the second group in bytes.
    second: usize,
    /// Length of all buffers together in bytes.
    total: usize,
}

impl RegisteredBuffer {
    /// Registers zeroed memory for `count` buffers of `length` bytes each.
    ///
    /// The kernel pins the pages, which may take a while.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`MemoryRegion::alloc`]:
    /// - [`ErrorKind::InvalidInput`] if `count` or `length` is 0 or exceeds 32 bits, or if the
    ///   memory exceeds the address space.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    pub fn alloc(pd: &ProtectionDomain, count: usize, length: usize) -> Result<Vec<Self>> {
        Self::alloc_groups(pd, [(count, length), (0, 0)], 0)
    }

    /// Registers zeroed memory for two groups of buffers, and for `small` buffers of one byte after
    /// them.
    ///
    /// Each group is a count and a length. All buffers are in one region.
    pub(crate) fn alloc_groups(
        pd: &ProtectionDomain,
        groups: [(usize, usize); 2],
        small: u32,
    ) -> Result<Vec<Self>> {
        let invalid = |reason| {
            let named = groups.iter().filter(|(count, _)| *count > 0);
            let named = named.map(|(count, length)| format!("{count} buffers of {length} bytes"));
            let subject = match &named.collect::<Vec<_>>()[..] {
                [] => "no buffers".to_owned(),
                named => named.join(" and "),
            };
            Error::invalid("register", subject, reason)
        };
        // The index and the length of a buffer have 32 bits, as the length in a scatter/gather
        // entry does.
        let [first, second] = groups.map(|(count, length)| {
            let bits = (u32::try_from(count).ok()?, u32::try_from(length).ok()?);
            (bits.0 == 0 || bits.1 > 0).then_some(bits)
        });
        let counts = first.zip(second).and_then(|((many, long), (more, short))| {
            let both = many.checked_add(more).filter(|both| *both > 0)?;
            Some(([many, both, both.checked_add(small)?], [long, short]))
        });
        let Some(([first, both, all], [long, short])) = counts else {
            return Err(invalid(
                "the number of buffers must be 1 to 4294967295, and so must their size",
            ));
        };
        let Some(layout) = layout(groups, small) else {
            return Err(invalid("the buffers together exceed the address space"));
        };
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let region = MemoryRegion::alloc(pd, layout.total, access)?;
        let block = Arc::new(Block { region, layout });
        let buffer = |index| {
            let length = match index {
                _ if index < first => long,
                _ if index < both => short,
                _ => 1,
            };
            Self { block: Arc::clone(&block), index, length }
        };
        Ok((0..all).map(buffer).collect())
    }

    /// Returns the index of the buffer among those that were allocated together, counted from 0.
    pub fn index(&self) -> usize {
        usize::try_from(self.index).expect("32 bits fit")
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        self.block.region.pd()
    }

    /// Returns a scatter/gather entry for the first `length` bytes, or `None` if the buffer is
    /// shorter.
    #[inline]
    pub(super) fn sge(&self, length: usize) -> Option<Sge> {
        let region = &self.block.region;
        // Within the region, because the buffer is.
        let length = u32::try_from(length).ok().filter(|length| *length <= self.length)?;
        let start = u64::try_from(self.start()).expect("an offset has at most 64 bits");
        Some(Sge { addr: (region.addr() + start).into(), length, lkey: region.lkey() })
    }

    /// Returns the offset of the buffer in its block, which is less than the block's length.
    fn start(&self) -> usize {
        let Layout { first, strides, second, .. } = self.block.layout;
        match self.index().checked_sub(first) {
            None => self.index() * strides[0],
            Some(behind) => second + behind * strides[1],
        }
    }

    /// Returns the number of existing buffers that were allocated together, including this one.
    #[cfg(test)]
    pub(super) fn buffers_in_block(&self) -> usize {
        Arc::strong_count(&self.block)
    }

    fn length(&self) -> usize {
        usize::try_from(self.length).expect("32 bits fit")
    }

    fn first(&self) -> NonNull<u8> {
        // SAFETY: `start` is within the region's mapping, which exists as long as the region.
        unsafe { self.block.region.as_ptr().add(self.start()) }
    }
}

/// Returns the layout of two groups of buffers, and of `small` buffers after them.
///
/// Each group is a count and a length. Returns `None` if the layout is longer than the maximum
/// distance between pointers into one mapping.
///
/// The small buffers use the stride of the second group, and the last one begins within the region.
/// Each small buffer has one byte and is therefore within the region.
fn layout(groups: [(usize, usize); 2], small: u32) -> Option<Layout> {
    let [(first, long), (more, short)] = groups;
    let stride = |length: usize| length.checked_next_multiple_of(ALIGNMENT);
    let strides = [stride(long)?, stride(short)?.max(ALIGNMENT)];
    let second = strides[0].checked_mul(first)?;
    let small = usize::try_from(small).ok()?;
    // All small buffers except the last one take a full stride.
    let (before, last) = (small.saturating_sub(1), small.min(1));
    let behind = strides[1].checked_mul(more.checked_add(before)?)?;
    let total = second.checked_add(behind)?.checked_add(ALIGNMENT * last)?;
    isize::try_from(total).is_ok().then_some(Layout { first, strides, second, total })
}

impl Deref for RegisteredBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the `length` bytes starting there are within the one mapping of the region, which
        // lives as long as `self`. They are mapped readable and initialized, and `length` is less
        // than `isize::MAX`. In this process only the owner of a mutable borrow of the buffer
        // writes to them. No device writes to them before the buffer is passed by value, when it is
        // not borrowed.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.length()) }
    }
}

impl DerefMut for RegisteredBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the bytes are also mapped writable. No other buffer contains these
        // bytes, this process accesses the region only through its buffers, and this buffer is
        // borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.length()) }
    }
}

impl fmt::Debug for RegisteredBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuffer")
            .field("index", &self.index)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
