//! Registered memory that has one owner at a time.
//!
//! # Safety
//!
//! A [`Buffer`] is a part of a region that no other buffer has, and the region is nobody else's. It
//! allows local writing only, so that a device writes there for requests with the region's key and
//! for no peer by itself. That key is known here and to [`BufferQueues`](super::BufferQueues),
//! which have the buffer from before its request is posted until the device is done with it. So a
//! buffer that somebody can look at is memory like any other.
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

/// Buffers begin at multiples of this: two of them share no cache line.
const ALIGNMENT: usize = 64;

/// A piece of registered memory that nobody else has: bytes to look at and to change, until it is
/// handed to [`BufferQueues`](super::BufferQueues).
///
/// Buffers that are [made](Self::alloc) together are one memory region, which is deregistered, and
/// its memory freed, when the last of them goes.
pub struct Buffer {
    block: Arc<Block>,
    index: u32,
    /// How many bytes it has: its block has as many from its beginning on.
    length: u32,
}

/// The registered memory of buffers that were made together: a group of one length, and behind it one of another.
struct Block {
    region: MemoryRegion,
    layout: Layout,
}

/// Where the buffers of two groups lie in their region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// The number of buffers in the first group.
    first: usize,
    /// Bytes from one buffer to the next in each group.
    strides: [usize; 2],
    /// The offset of the second group.
    second: usize,
    /// Bytes of all buffers.
    total: usize,
}

impl Buffer {
    /// Registers zeroed memory for `count` buffers of `length` bytes each.
    ///
    /// `IB_USER_VERBS_CMD_REG_MR`. Pins the pages, which may take a while.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for no buffers, buffers without bytes, and more memory than there are
    /// addresses; those of [`MemoryRegion::alloc`]: where the memory cannot be had, or the user may
    /// not pin it or not as much.
    pub fn alloc(pd: &ProtectionDomain, count: usize, length: usize) -> Result<Vec<Self>> {
        Self::alloc_groups(pd, [(count, length), (0, 0)], 0)
    }

    /// Registers zeroed memory for two groups of buffers, each a count and a length, and for so many `small` buffers
    /// of a single byte behind them, in one region.
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
        // A buffer has its index and its length in 32 bits, the second as an entry of a request has it.
        let [first, second] = groups.map(|(count, length)| {
            let bits = (u32::try_from(count).ok()?, u32::try_from(length).ok()?);
            (bits.0 == 0 || bits.1 > 0).then_some(bits)
        });
        let counts = first.zip(second).and_then(|((many, long), (more, short))| {
            let both = many.checked_add(more).filter(|both| *both > 0)?;
            Some(([many, both, both.checked_add(small)?], [long, short]))
        });
        let Some(([first, both, all], [long, short])) = counts else {
            return Err(invalid("there must be some, fewer than 4 Gi, of at most 4 GiB each"));
        };
        let Some(layout) = layout(groups, small) else {
            return Err(invalid("there are not as many addresses"));
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

    /// Which of those it is that were made together, from 0 on.
    pub fn index(&self) -> usize {
        usize::try_from(self.index).expect("32 bits fit")
    }

    /// The protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        self.block.region.pd()
    }

    /// Its first `length` bytes for a work request; nothing, where it has not so many.
    #[inline]
    pub(super) fn sge(&self, length: usize) -> Option<Sge> {
        let region = &self.block.region;
        // Within the region, as the buffer is.
        let length = u32::try_from(length).ok().filter(|length| *length <= self.length)?;
        let start = u64::try_from(self.start()).expect("an offset has at most 64 bits");
        Some(Sge { addr: (region.addr() + start).into(), length, lkey: region.lkey() })
    }

    /// Where it begins in its block: less than the block's length, of which it is a part.
    fn start(&self) -> usize {
        let Layout { first, strides, second, .. } = self.block.layout;
        match self.index().checked_sub(first) {
            None => self.index() * strides[0],
            Some(behind) => second + behind * strides[1],
        }
    }

    fn length(&self) -> usize {
        usize::try_from(self.length).expect("32 bits fit")
    }

    fn first(&self) -> NonNull<u8> {
        // SAFETY: `start` is within the region's mapping, which is there as long as the region is.
        unsafe { self.block.region.as_ptr().add(self.start()) }
    }
}

/// Returns the layout of two groups of buffers, each a count and a length, and of so many `small` ones behind them, or
/// `None` if it is longer than pointers into one mapping may be apart.
///
/// The small ones lie at the stride of the second group, and the last of them begins there: so each of them, of a
/// single byte, is within the region.
fn layout(groups: [(usize, usize); 2], small: u32) -> Option<Layout> {
    let [(first, long), (more, short)] = groups;
    let stride = |length: usize| length.checked_next_multiple_of(ALIGNMENT);
    let strides = [stride(long)?, stride(short)?.max(ALIGNMENT)];
    let second = strides[0].checked_mul(first)?;
    let small = usize::try_from(small).ok()?;
    // All but the last of the small ones take a stride.
    let (before, last) = (small.saturating_sub(1), small.min(1));
    let behind = strides[1].checked_mul(more.checked_add(before)?)?;
    let total = second.checked_add(behind)?.checked_add(ALIGNMENT * last)?;
    isize::try_from(total).is_ok().then_some(Layout { first, strides, second, total })
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes from there on are within the one mapping of the region, which
        // lives as long as this does; they are mapped readable, initialised, and fewer than
        // `isize::MAX`. Of this process only who has the buffer mutably writes to them, and no
        // device does before the buffer is handed over by value, when nobody borrows it.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.length()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; mapped writable too. No other buffer has these bytes, nothing in
        // this process looks at the region but by its buffers, and this one is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.length()) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("index", &self.index)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_keeps_buffers_apart() {
        let of = |groups, small| layout(groups, small).map(|layout| layout.total);
        assert_eq!(of([(3, 64), (0, 0)], 0), Some(192));
        assert_eq!(of([(3, 65), (0, 0)], 1), Some(448));
        assert_eq!(of([(2, 100), (3, 10)], 0), Some(448));
        assert_eq!(of([(2, 10), (3, 100)], 2), Some(128 + 4 * 128 + 64));
        for groups in
            [[(2, 100), (3, 10)], [(2, 10), (3, 100)], [(4, 64), (0, 0)], [(1, 1), (1, 1)]]
        {
            for small in 0..3 {
                let Layout { first, strides, second, total } =
                    layout(groups, small).expect("few bytes");
                let start = |index: usize| match index.checked_sub(first) {
                    None => index * strides[0],
                    Some(behind) => second + behind * strides[1],
                };
                let lengths = groups.iter().flat_map(|(count, length)| vec![*length; *count]);
                let lengths = lengths.chain((0..small).map(|_| 1));
                let ends =
                    lengths.enumerate().map(|(index, length)| (index, start(index) + length));
                for (index, end) in ends {
                    let next = start(index + 1);
                    assert!(end <= next.min(total), "{groups:?}, {small}: {index} ends at {end}");
                    assert!(next % ALIGNMENT == 0);
                }
            }
        }
    }

    #[test]
    fn layout_fits_pointers() {
        let half = 1 << (usize::BITS - 2);
        let of = |groups| layout(groups, 0).map(|layout| layout.total);
        assert_eq!(of([(1, half), (0, 0)]), Some(half));
        for (count, length) in [(2, half), (1, usize::MAX), (usize::MAX, 1)] {
            assert_eq!(of([(count, length), (0, 0)]), None, "{count} of {length} bytes");
            assert_eq!(of([(1, 1), (count, length)]), None, "{count} of {length} bytes");
        }
        assert_eq!(of([(1, half), (1, half)]), None);
    }
}
