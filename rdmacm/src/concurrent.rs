//! Atomics, locks and threads of the protocols that are checked with loom: the rings that the kernel
//! shares, and the count of events.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rdmacm --lib loom_` runs the modules named `loom_model`, with loom's
//! types in place of the standard library's: in every order that loom knows, which are most of those that the memory
//! model of the language allows, and which a processor that keeps stores in order does not show.

#[cfg(all(test, loom))]
mod modelled;

#[cfg(not(all(test, loom)))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, fence};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;

    use std::ptr::NonNull;

    /// Tells loom that what begins here is read.
    #[inline(always)]
    pub(crate) fn reads(_: NonNull<u8>) {}

    /// Tells loom that what begins here is written to.
    #[inline(always)]
    pub(crate) fn writes(_: NonNull<u8>) {}
}

#[cfg(all(test, loom))]
pub(crate) use self::modelled::*;
#[cfg(not(all(test, loom)))]
pub(crate) use self::real::*;
