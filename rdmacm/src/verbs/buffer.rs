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
use super::memory::MemoryRegion;
use super::pd::ProtectionDomain;
use super::post::Sge;
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

/// What buffers were cut from.
struct Block {
    region: MemoryRegion,
    /// Bytes from one buffer to the next.
    stride: usize,
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
        Self::cut(pd, count, length, 0)
    }

    /// The same, and in the same region one more buffer behind them, of a single byte.
    pub(crate) fn alloc_and_one(
        pd: &ProtectionDomain,
        count: usize,
        length: usize,
    ) -> Result<(Vec<Self>, Self)> {
        let mut all = Self::cut(pd, count, length, 1)?;
        let one = all.pop().expect("it is behind the others");
        Ok((all, one))
    }

    /// Registers memory for `count` buffers of `length` bytes, and so many `small` ones behind them.
    fn cut(pd: &ProtectionDomain, count: usize, length: usize, small: u32) -> Result<Vec<Self>> {
        let invalid = |reason| {
            let subject = format!("{count} buffers of {length} bytes");
            Error::invalid("register", subject, reason)
        };
        // So many bits has the length of an entry in a request.
        let bits = (u32::try_from(count), u32::try_from(length));
        let sizes = bits.0.ok().zip(bits.1.ok()).filter(|(many, long)| *many > 0 && *long > 0);
        let all = sizes.and_then(|(many, long)| Some((many, many.checked_add(small)?, long)));
        let Some((many, all, long)) = all else {
            return Err(invalid("there must be some, fewer than 4 Gi, of at most 4 GiB each"));
        };
        let Some([stride, total]) = layout(count, length, small) else {
            return Err(invalid("there are not as many addresses"));
        };
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let region = MemoryRegion::alloc(pd, total, access)?;
        let block = Arc::new(Block { region, stride });
        let buffer = |index| {
            let length = if index < many { long } else { 1 };
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
        self.index() * self.block.stride
    }

    fn length(&self) -> usize {
        usize::try_from(self.length).expect("32 bits fit")
    }

    fn first(&self) -> NonNull<u8> {
        // SAFETY: `start` is within the region's mapping, which is there as long as the region is.
        unsafe { self.block.region.as_ptr().add(self.start()) }
    }
}

/// How many bytes it is from one to the next of `count` buffers of `length` bytes, and how many they
/// have together with the `small` ones behind them: no more than pointers into one mapping may be
/// apart.
fn layout(count: usize, length: usize, small: u32) -> Option<[usize; 2]> {
    let stride = length.checked_next_multiple_of(ALIGNMENT)?;
    let behind = ALIGNMENT.checked_mul(usize::try_from(small).ok()?)?;
    let total = stride.checked_mul(count)?.checked_add(behind)?;
    isize::try_from(total).is_ok().then_some([stride, total])
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
    fn buffers_are_apart_and_no_more_than_pointers_reach() {
        assert_eq!(layout(3, 64, 0), Some([64, 192]));
        assert_eq!(layout(3, 65, 1), Some([128, 448]));
        let half = 1 << (usize::BITS - 2);
        assert_eq!(layout(1, half, 0), Some([half, half]));
        for (count, length) in [(2, half), (1, usize::MAX), (usize::MAX, 1)] {
            assert_eq!(layout(count, length, 0), None, "{count} of {length} bytes");
        }
    }
}
