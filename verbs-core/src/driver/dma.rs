//! Order of memory accesses between a processor and a device that reads and writes memory by itself (DMA).
//!
//! | Function | x86-64 | aarch64 |
//! |---|---|---|
//! | [`store_barrier`] | none: the processor keeps stores to ordinary memory in order | `dmb oshst` |
//! | [`load_barrier`] | none: the processor keeps loads in order | `dmb oshld` |
//! | [`write_combining_barrier`] | `sfence`: a store to a register may otherwise pass stores to ordinary memory | `dsb st` |
//! | [`write_combining_barrier_in_lock`] | none: a locked instruction orders all stores before it | `dsb st` |
//!
//! A driver loads the word that a device stores last with [`Acquire`](std::sync::atomic::Ordering::Acquire), and
//! calls [`load_barrier`] before it loads other words. If a thread models the device, as in the models of loom, the
//! acquiring load orders the later loads. For a device, Linux orders loads by `dmb oshld` (`dma_rmb`), which includes
//! the outer shareable domain, and stores by `dmb oshst` (`dma_wmb`). Before and after stores to registers, this
//! crate and rdma-core execute `dsb st`.
//!
//! # Safety
//!
//! The instructions are barriers: they access no memory and change no register.
#![expect(unsafe_code, reason = "barriers are instructions that no safe function has")]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use std::sync::atomic::fence;
use std::sync::atomic::{Ordering, compiler_fence};

/// Records `event` in the log of this thread; does nothing outside of tests.
#[inline(always)]
pub(crate) fn record(event: Event) {
    #[cfg(test)]
    log::push(event);
    #[cfg(not(test))]
    let _ = event;
}

/// A store or a barrier, for tests of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A store to an entry of a ring.
    Entry,
    /// A store to a doorbell record.
    Doorbell,
    /// A store to a register.
    Register,
    StoreBarrier,
    LoadBarrier,
    WriteCombiningBarrier,
    WriteCombiningBarrierInLock,
}

/// Makes earlier stores to ordinary memory visible to devices before later stores to ordinary memory.
#[inline(always)]
pub fn store_barrier() {
    record(Event::StoreBarrier);
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: every aarch64 processor has the instruction, which is a barrier. The options do not exclude memory
        // accesses, so the compiler moves no access across it.
        unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}

/// Makes later loads from ordinary memory return values that a device stored before a certain word.
///
/// The caller has just loaded that word, with [`Acquire`](Ordering::Acquire), so that the compiler keeps the order too.
#[inline(always)]
pub fn load_barrier() {
    record(Event::LoadBarrier);
    #[cfg(target_arch = "aarch64")]
    {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: every aarch64 processor has the instruction, which is a barrier. The options do not exclude memory
        // accesses, so the compiler moves no access across it.
        unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}

/// Makes earlier stores visible to devices before later stores to registers.
///
/// The earlier stores may be to ordinary memory or to registers. Earlier stores to registers do not stay in a
/// write-combining buffer of the processor.
#[inline(always)]
pub fn write_combining_barrier() {
    record(Event::WriteCombiningBarrier);
    order_register_stores();
}

#[inline(always)]
fn order_register_stores() {
    #[cfg(target_arch = "x86_64")]
    {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: every x86-64 processor has the instruction, which is a barrier. The options do not exclude memory
        // accesses, so the compiler moves no access across it.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
    #[cfg(target_arch = "aarch64")]
    dsb_st();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}

/// Makes earlier stores visible to devices before later stores to registers.
///
/// After the earlier stores, the calling thread must have locked a [`Mutex`](std::sync::Mutex). On x86-64, locking
/// executes a locked instruction, which orders the stores.
#[inline(always)]
pub fn write_combining_barrier_in_lock() {
    record(Event::WriteCombiningBarrierInLock);
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(target_arch = "x86_64"))]
    order_register_stores();
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn dsb_st() {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: every aarch64 processor has the instruction, which is a barrier. The options do not exclude memory
    // accesses, so the compiler moves no access across it.
    unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
}

/// The stores and barriers of a thread, in program order.
#[cfg(test)]
pub(crate) mod log {
    use std::cell::RefCell;

    use super::Event;

    thread_local! { static LOG: RefCell<Option<Vec<Event>>> = const { RefCell::new(None) } }

    pub(super) fn push(event: Event) {
        LOG.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.push(event)));
    }

    /// Returns the events of this thread while `run` ran. Several events of one kind in succession are one.
    pub(crate) fn during(run: impl FnOnce()) -> Vec<Event> {
        LOG.set(Some(Vec::new()));
        run();
        let mut events = LOG.take().unwrap_or_default();
        events.dedup();
        events
    }
}
