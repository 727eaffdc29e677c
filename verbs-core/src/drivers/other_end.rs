//! A ring with arbitrary bytes for fuzz targets, into which its other end stores at any time.
//!
//! # Safety
//!
//! The other end stores into a private mapping that lives as long as the ring over it. The offsets are checked against
//! its length, and no reference to its bytes exists.
#![expect(unsafe_code, reason = "stores to the memory of a ring")]

use std::ptr::NonNull;

use crate::sys::mapping::Mapping;
use crate::testing::Input;
use crate::work::Sge;

/// The length of a page. The length of a mapping is a multiple of it.
const PAGE: usize = 4096;

/// The other end of a ring, which may store to its memory.
pub(super) struct OtherEnd {
    start: NonNull<u8>,
    length: usize,
}

impl OtherEnd {
    /// Returns memory of a few pages that begins with the next bytes of `input`, and its other end.
    ///
    /// In half of all cases the length is a multiple of a page: reading beyond it ends the program.
    pub(super) fn new(input: &mut Input<'_>) -> (Mapping, Self) {
        let choice = input.value::<u16>();
        let length = usize::from(choice & 0x3fff).max(1);
        let is_whole = choice & 0x8000 != 0;
        let length = if is_whole { length.next_multiple_of(PAGE) } else { length };
        let mapping = Mapping::guarded(length).expect("memory");
        let end = Self { start: mapping.start(), length };
        let first = usize::from(input.byte()) * 2;
        end.store(0, input.bytes(first));
        (mapping, end)
    }

    /// Stores the next bytes somewhere.
    pub(super) fn scribble(&self, input: &mut Input<'_>) {
        let offset = usize::from(input.value::<u16>());
        let length = usize::from(input.byte() & 15);
        self.store(offset, input.bytes(length));
    }

    /// Stores `bytes` from `offset` on, as far as there is memory.
    pub(super) fn store(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate().take(self.length.saturating_sub(offset)) {
            // SAFETY: the offset is within the mapping, which lives as long as the ring that the caller has.
            let into = unsafe { self.start.add(offset + at) };
            // SAFETY: the byte is writable, and no reference to it exists.
            unsafe { into.write_volatile(*byte) };
        }
    }

    /// Checks that nothing was stored between the end of the memory and that of its last page.
    pub(super) fn check(&self) {
        for offset in self.length..self.length.next_multiple_of(PAGE) {
            // SAFETY: the offset is within the mapping's last page.
            let from = unsafe { self.start.add(offset) };
            // SAFETY: the byte is readable.
            assert_eq!(unsafe { from.read_volatile() }, 0, "{offset} is behind the memory");
        }
    }
}

/// Returns a scatter/gather entry of memory that does not exist.
pub(super) fn sge(input: &mut Input<'_>) -> Sge {
    Sge { addr: input.value::<u64>().into(), length: input.value(), lkey: input.value() }
}
