//! Heap usage of a program, counted by its allocator.
//!
//! A program enables it with `#[global_allocator] static ALLOCATOR: Counting = Counting;`.
//!
//! # Safety
//!
//! The allocator is the system's, to which every call is passed on unchanged.
#![expect(unsafe_code, reason = "counts the calls of the allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Bytes that all threads have allocated and not freed.
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);
static LIVE_BLOCKS: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static KEPT: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, whose calls the counters of this module count.
#[derive(Debug)]
pub struct Counting;

/// Counts blocks of `layout`: added ones, or removed ones if `blocks` is negative.
fn changed(blocks: isize, layout: Layout) {
    let size = isize::try_from(layout.size()).expect("a layout should fit");
    let bytes = blocks * size;
    LIVE_BLOCKS.fetch_add(blocks, Ordering::Relaxed);
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    KEPT.set(KEPT.get() + bytes);
}

// SAFETY: every call is passed on to the system's allocator, whose contract this is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        changed(1, layout);
        // SAFETY: the contract of this function is that of the callee.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        changed(1, layout);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        changed(-1, layout);
        // SAFETY: the contract of this function has a size that is valid with the alignment of `layout`.
        changed(1, unsafe { Layout::from_size_align_unchecked(size, layout.align()) });
        // SAFETY: the contract of this function is that of the system's.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        changed(-1, layout);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Live allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Live {
    /// Bytes of the allocations, without the overhead of the allocator.
    pub bytes: u64,
    /// The number of allocations.
    pub blocks: u64,
}

/// Returns the live allocations of all threads together.
pub fn live() -> Live {
    // Each block is added to a counter before it is removed, also if another thread frees it. So no counter is below 0.
    let value = |count: &AtomicIsize| u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0);
    Live { bytes: value(&LIVE_BYTES), blocks: value(&LIVE_BLOCKS) }
}

/// Returns the number of allocations of this thread so far.
pub fn count() -> usize {
    COUNT.get()
}

/// Returns the number of allocations in `work`.
pub fn allocations(work: impl FnOnce()) -> usize {
    let before = count();
    work();
    count() - before
}

/// Returns the result of `work`, and the bytes that it allocates in this thread without freeing them.
pub fn kept<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = KEPT.get();
    let made = work();
    (made, KEPT.get() - before)
}
