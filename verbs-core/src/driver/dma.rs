//! Order of memory accesses between a processor and a device that reads and writes memory by itself (DMA).
//!
//! | Function | x86-64 | aarch64 |
//! |---|---|---|
//! | [`store_barrier`] | none: the processor keeps stores to ordinary memory in order | `dsb st` |
//! | [`write_combining_barrier`] | `sfence`: a store to a register may otherwise pass stores to ordinary memory | `dsb st` |
//! | [`write_combining_barrier_in_lock`] | none: a locked instruction orders all stores before it | `dsb st` |
//!
//! A load with [`Acquire`](std::sync::atomic::Ordering::Acquire) of the word that a device stores last keeps the loads behind
//! it in order on both: x86-64 keeps all loads in order, and an acquiring load of aarch64 orders later loads for all observers
//! in its shareability domain, which includes devices that are coherent with the caches.
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

/// Records `event` in the [log](log) of this thread; does nothing outside of tests.
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
    dsb_st();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}

/// Makes earlier stores visible to devices before later stores to registers.
///
/// The earlier stores include those to registers. Later stores to registers do not wait in a buffer of the processor
/// behind the barrier.
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
        // SAFETY: the instruction is part of every x86-64 processor, and is a barrier. The compiler moves no access across it,
        // as it may access memory for all that the compiler knows.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
    #[cfg(target_arch = "aarch64")]
    dsb_st();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}

/// Makes earlier stores visible to devices before later stores to registers.
///
/// The calling thread must have locked a [`Mutex`](std::sync::Mutex) after the earlier stores: on x86-64, the locked
/// instruction of the mutex orders them.
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
    // SAFETY: the instruction is part of every aarch64 processor, and is a barrier. The compiler moves no access across it,
    // as it may access memory for all that the compiler knows.
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
