//! Values that each process has for itself.
//!
//! # Safety
//!
//! A value is created on the heap. After it is published, it lives until the process ends and is only shared.
#![expect(unsafe_code, reason = "publishes a value that is created later, without a lock")]

use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::process::Process;

/// A value that a forked child creates again.
///
/// The child has a copy of its parent's value. In that copy, a lock may be held forever by a thread that the child does
/// not have. The copy stays at its address, because the forking thread may have been about to use it.
pub struct PerProcess<T: 'static>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    process: Process,
    value: T,
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    /// Returns a cell whose value each process creates at its first use.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Creates the value of this process, in place of `inherited`. If two threads do so, one value is used.
    #[cold]
    fn create(&self, inherited: *mut Owned<T>) -> &T
    where
        T: Default,
    {
        let created = Box::new(Owned { process: Process::current(), value: T::default() });
        let created = Box::into_raw(created);
        match self.0.compare_exchange(inherited, created, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the pointer is that of a box, published just now and never freed from here on.
            Ok(_) => unsafe { &(*created).value },
            Err(existing) => {
                // SAFETY: the pointer is that of the box above, to which no other code has access.
                drop(unsafe { Box::from_raw(created) });
                // SAFETY: a value that another thread has published is never freed. It belongs to this process, because
                // only a thread of this process can have replaced the inherited one.
                unsafe { &(*existing).value }
            }
        }
    }
}

impl<T: Default + Sync> Deref for PerProcess<T> {
    type Target = T;

    /// Returns the value without waiting for another thread.
    #[inline]
    fn deref(&self) -> &T {
        let published = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or that of a value which was published, and is never freed. It is
        // only ever shared, by threads too, as `T` is `Sync`.
        match unsafe { published.as_ref() } {
            Some(owned) if owned.process.is_current() => &owned.value,
            _ => self.create(published),
        }
    }
}

#[cfg(test)]
mod tests;
