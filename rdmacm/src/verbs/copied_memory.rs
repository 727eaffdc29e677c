//! Memory that is looked at by copying only.
//!
//! # Safety
//!
//! A device, and through it a peer, may write to the memory behind the compiler's back and at any
//! time. So it is only ever looked at as atomics, which may change under a reference to them, and
//! copied from and to them. Every registration of it holds the mapping.
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

/// Memory that devices may read and write while the program does: here it is accessed by copying,
/// and nobody has a reference into it.
///
/// Registered as [often as wanted](MemoryRegion::share), in several protection domains and for
/// several devices. It is there until it is dropped and no registration of it is left.
#[derive(Debug)]
pub struct Memory {
    mapping: Arc<Mapping>,
}

/// The bytes of a word.
const WORD: usize = size_of::<AtomicUsize>();

impl Memory {
    /// `length` bytes, zeroed and page-aligned.
    ///
    /// # Errors
    ///
    /// EINVAL for a length of zero, ENOMEM where there is not so much.
    pub fn new(length: usize) -> Result<Self> {
        let mapping = Mapping::private(length)
            .map_err(|errno| Error::os("map", format!("{length} bytes of memory"), errno))?;
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns `true` if there is nothing in it, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out of it, from `offset` on.
    ///
    /// What a device writes meanwhile arrives in part or not at all: relaxed atomic loads of words
    /// and bytes, so that aligned words arrive whole. What it wrote before a completion that was
    /// polled, or a message that was received, is there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where that is not within it.
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

    /// Copies bytes into it, from `offset` on.
    ///
    /// Relaxed atomic stores of words and bytes. What is posted after it sees them, and a device
    /// that reads meanwhile sees them in part.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where that is not within it.
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

    /// The same memory, to be registered elsewhere.
    pub(crate) fn same(&self) -> Self {
        Self { mapping: Arc::clone(&self.mapping) }
    }

    /// What a registration holds.
    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// `length` bytes at `offset`: whole words, with the bytes before and behind them.
    ///
    /// Of any two accesses by this process to the same memory that are of different sizes, either
    /// both load or one comes after the other: what stores has the memory for itself.
    fn part(
        &self,
        operation: &'static str,
        offset: usize,
        length: usize,
    ) -> Result<(&[AtomicU8], &[AtomicUsize], &[AtomicU8])> {
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            let subject = format!("{length} bytes at offset {offset} of memory");
            return Err(Error::invalid(operation, subject, format!("it has {}", self.len())));
        }
        // SAFETY: `offset` is within the mapping, as was checked, which is there while `self` is
        // borrowed.
        let start = unsafe { self.mapping.start().add(offset) };
        // SAFETY: `length` bytes from `start` on are within the one mapping, as was checked, which
        // is readable, writable, initialised and shorter than `isize::MAX`, and stays so while
        // `self` is borrowed; bytes have no alignment; and as they are atomics, it does not matter
        // who changes them meanwhile.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<AtomicU8>().as_ptr(), length) };
        // SAFETY: a word is as many bytes, of any value, and the words are atomics too.
        Ok(unsafe { bytes.align_to::<AtomicUsize>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_at_any_place() {
        let mut memory = Memory::new(100).expect("memory");
        let text: Vec<u8> = (1..=40).collect();
        for offset in 0..=16 {
            for length in 0..=24 {
                memory.write(0, &[0; 100]).expect("within");
                memory.write(offset, &text[..length]).expect("within");
                let mut read = [0; 100];
                memory.read(0, &mut read).expect("within");
                let mut due = [0; 100];
                due[offset..offset + length].copy_from_slice(&text[..length]);
                assert_eq!(read, due);
                let mut part = vec![0; length];
                memory.read(offset, &mut part).expect("within");
                assert_eq!(part, text[..length]);
            }
        }
    }

    #[test]
    fn what_is_not_within_it_is_refused() {
        let mut memory = Memory::new(8).expect("memory");
        for (offset, length) in [(0, 9), (8, 1), (9, 0), (usize::MAX, 1)] {
            let mut bytes = vec![0; length];
            memory.read(offset, &mut bytes).expect_err("outside");
            let error = memory.write(offset, &bytes).expect_err("outside");
            assert_eq!(error.errno(), libc::EINVAL);
        }
        memory.write(8, &[]).expect("its end");
        assert_eq!(Memory::new(0).expect_err("nothing").errno(), libc::EINVAL);
    }
}
