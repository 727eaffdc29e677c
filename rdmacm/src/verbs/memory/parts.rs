//! Parts of a memory region: their scatter/gather entries, and copies of their bytes.

use std::ops::{Bound, RangeBounds};

use super::MemoryRegion;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::verbs::DmaMemory;
use crate::work::Sge;

impl MemoryRegion {
    /// Returns a scatter/gather entry for a part of the region.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the part exceeds the region, or if its length does not fit
    ///   in the 32 bits of an entry.
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

    /// Copies bytes from a region that owns its memory, starting at `offset`.
    ///
    /// See [`DmaMemory::read`].
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the part exceeds the region, or if the region does not own
    ///   its memory.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.memory.as_ref().ok_or_else(|| not_owned("read"))?.read(offset, into)
    }

    /// Copies bytes into a region that owns its memory, starting at `offset`.
    ///
    /// See [`DmaMemory::write`].
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the part exceeds the region, or if the region does not own
    ///   its memory.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        self.memory.as_mut().ok_or_else(|| not_owned("write"))?.write(offset, from)
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
fn not_owned(operation: &'static str) -> Error {
    let reason = "the region does not own its memory; access the memory itself";
    Error::invalid(operation, "a memory region", reason)
}
