//! [`DmaMemory`]: memory that devices access, and that the program copies from and to.
//!
//! # Safety
//!
//! A device, and through the device a peer, may write to the memory at any time, without the
//! compiler's knowledge. The memory is therefore accessed only as atomics, which may change behind
//! a shared reference, and by copying. Every registration of the memory holds the mapping.
#![expect(unsafe_code, reason = "copies to and from memory that a device may write to")]

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

#[cfg(doc)]
use super::MemoryRegion;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::sys::mapping::Mapping;

/// Memory that devices and the program may access at the same time.
///
/// The program accesses it by copying; there are no references into the memory. It can be
/// [registered](MemoryRegion::register_shared) any number of times, in several protection domains
/// and for several devices. It stays mapped until it is dropped and its last registration has
/// ended. [`Connection::export`](crate::endpoint::Connection::export) lets the peer of a connection
/// access it.
///
/// # Examples
///
/// ```
/// use rdmacm::verbs::DmaMemory;
///
/// let mut memory = DmaMemory::new(4096)?;
/// memory.write(16, b"hello")?;
/// let mut bytes = [0; 5];
/// memory.read(16, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[derive(Debug)]
pub struct DmaMemory {
    mapping: Arc<Mapping>,
}

/// Size of a word in bytes.
const WORD: usize = size_of::<AtomicUsize>();

impl DmaMemory {
    /// Allocates `length` bytes of zeroed, page-aligned memory.
    ///
    /// # Errors
    ///
    /// - EINVAL if `length` is zero.
    /// - ENOMEM if there is not enough memory.
    pub fn new(length: usize) -> Result<Self> {
        let mapping = Mapping::private(length)
            .map_err(|errno| Error::os("map", format!("{length} bytes of memory"), errno))?;
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns `true` if the memory has no bytes, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out of the memory, starting at `offset`.
    ///
    /// Uses relaxed atomic loads of words and bytes. Data that a device writes at the same time is
    /// read in part or not at all, but aligned words are never torn. Data that a device wrote
    /// before a polled completion, or before a received message, is visible.
    ///
    /// Two calls may read in any order, unless `fence(Ordering::Acquire)` separates them
    /// ([`std::sync::atomic::fence`]).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the range exceeds the memory.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let (head, words, tail) = self.part("read", offset, into.len())?;
        let (first, rest) = into.split_at_mut(head.len());
        let (middle, last) = rest.split_at_mut(size_of_val(words));
        let load = |(byte, into): (&AtomicU8, &mut u8)| *into = byte.load(Ordering::Relaxed);
        head.iter().zip(first).for_each(load);
        for (word, into) in words.iter().zip(middle.chunks_exact_mut(WORD)) {
            into.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        tail.iter().zip(last).for_each(load);
        Ok(())
    }

    /// Copies bytes into the memory, starting at `offset`.
    ///
    /// Uses relaxed atomic stores of words and bytes. Requests that are posted afterwards see the
    /// data. A device that reads at the same time sees a part of it.
    ///
    /// A device or another thread may see the bytes of one call, or of two calls, in any order.
    /// `fence(Ordering::Release)` between two calls orders the calls
    /// ([`std::sync::atomic::fence`]): a device that has read bytes of the second call then reads
    /// the bytes of the first call in a later read.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the range exceeds the memory.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        let (head, words, tail) = self.part("write", offset, from.len())?;
        let (first, rest) = from.split_at(head.len());
        let (middle, last) = rest.split_at(size_of_val(words));
        let store = |(byte, from): (&AtomicU8, &u8)| byte.store(*from, Ordering::Relaxed);
        head.iter().zip(first).for_each(store);
        for (word, from) in words.iter().zip(middle.chunks_exact(WORD)) {
            let from = usize::from_ne_bytes(from.try_into().expect("a chunk is a word"));
            word.store(from, Ordering::Relaxed);
        }
        tail.iter().zip(last).for_each(store);
        Ok(())
    }

    /// Returns a second handle to the memory, to register it elsewhere.
    pub(crate) fn clone_handle(&self) -> Self {
        Self { mapping: Arc::clone(&self.mapping) }
    }

    /// Returns the mapping, which registrations hold.
    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns `length` bytes at `offset`: whole words, with the bytes before and after them.
    ///
    /// If two accesses of this process to the same memory differ in size, both load, or one follows
    /// the other. A store requires exclusive access to the memory.
    fn part(
        &self,
        operation: &'static str,
        offset: usize,
        length: usize,
    ) -> Result<(&[AtomicU8], &[AtomicUsize], &[AtomicU8])> {
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            let subject = format!("{length} bytes at offset {offset} of memory");
            return Err(Error::invalid(
                operation,
                subject,
                format!("the memory has {} bytes", self.len()),
            ));
        }
        // SAFETY: `offset` is within the mapping, as checked above, and the mapping exists while
        // `self` is borrowed.
        let start = unsafe { self.mapping.start().add(offset) };
        // SAFETY: `length` bytes from `start` on are within the one mapping, as checked above. The
        // mapping is readable, writable, initialized and shorter than `isize::MAX`, and stays so
        // while `self` is borrowed. Bytes have no alignment. They are atomics, so concurrent
        // changes are allowed.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<AtomicU8>().as_ptr(), length) };
        // SAFETY: a word consists of bytes with any value, and the words are atomics too.
        Ok(unsafe { bytes.align_to::<AtomicUsize>() })
    }
}

#[cfg(test)]
mod tests;
