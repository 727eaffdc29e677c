//! The identity of the process, which distinguishes a forked child from its parent without a system call.
//!
//! The kernel refuses commands on a file that was opened before a fork. But it cannot keep a child from storing to the
//! rings that it shares with its parent. So every object records the process that created it.
//!
//! # Safety
//!
//! One page is mapped for the life of the process. After it is published, it is never unmapped, and it is only accessed
//! as one atomic.
#![expect(unsafe_code, reason = "maps and reads the page that a fork wipes")]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use super::command::CommandError;
use super::ownership::NotOwner;
use super::page::PAGE;

/// A process, as distinct from the ones that it forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u64);

/// The number last given to a process. A child inherits it, and continues from it.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The page with the number of the running process, or [`NO_PAGE`].
///
/// The kernel fills the page with zeros in a forked child.
///
/// It is [`UNINITIALIZED`] until the first use: no lock may be held while a thread forks.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const UNINITIALIZED).cast_mut());

/// Represents the page before its first use: always zero.
static UNINITIALIZED: AtomicU64 = AtomicU64::new(0);

/// Represents the page if the kernel has no such pages (before Linux 4.14): always zero.
///
/// The process id is then queried each time.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// Returns [`MARK`], which the first caller creates.
fn mark() -> &'static AtomicU64 {
    let (page, uninitialized) = (wiped_page(), ptr::from_ref(&UNINITIALIZED).cast_mut());
    let no_page = ptr::from_ref(&NO_PAGE).cast_mut();
    let published = page.unwrap_or(no_page);
    let mark = match MARK.compare_exchange(
        uninitialized,
        published,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => published,
        Err(earlier) => {
            if let Some(page) = page.and_then(|page| NonNull::new(page.cast())) {
                // SAFETY: the mapping is that of `wiped_page`, and no other code has its address.
                let _ = unsafe { munmap(page, PAGE.get()) };
            }
            earlier
        }
    };
    // SAFETY: the published value is a static, or a page that is mapped readable and writable for the life of the
    // process, page-aligned and initialized to zero. Either is accessed only as this atomic.
    unsafe { &*mark }
}

/// Maps a page that is wiped on fork.
fn wiped_page() -> Option<*mut AtomicU64> {
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a private anonymous mapping at an address of the kernel's choice replaces
    // nothing.
    let page = unsafe { mmap_anonymous(None, PAGE, protection, MapFlags::MAP_PRIVATE) }.ok()?;
    // SAFETY: the range is exactly the mapping made above, which holds zeros already.
    let wiped = unsafe { madvise(page, PAGE.get(), MmapAdvise::MADV_WIPEONFORK) };
    if wiped.is_err() {
        // SAFETY: the mapping was made above, and nothing refers to it.
        let _ = unsafe { munmap(page, PAGE.get()) };
        return None;
    }
    Some(page.cast().as_ptr())
}

impl Process {
    /// Returns the number of the running process, or 0 if it is not known yet.
    #[inline]
    fn number() -> u64 {
        let mark = MARK.load(Ordering::Acquire);
        // SAFETY: it is a static, or the page that `mark` has published; see there.
        unsafe { &*mark }.load(Ordering::Relaxed)
    }

    /// Returns the running process.
    #[inline]
    pub fn current() -> Self {
        match Self::number() {
            0 => Self::first_seen(),
            number => Self(number),
        }
    }

    /// Returns `true` if this is surely the process that is running now.
    ///
    /// The result is `false` if the process has no number, or the kernel has no page for it.
    #[inline]
    pub fn is_surely_current(self) -> bool {
        Self::number() == self.0
    }

    /// Returns `true` if this is the process that is running now.
    #[inline]
    pub fn is_current(self) -> bool {
        self.is_surely_current() || self == Self::current()
    }

    /// Returns an error in a forked child, which must not use the objects of its parent.
    #[inline]
    pub fn check(self) -> Result<(), CommandError> {
        match self.is_current() {
            true => Ok(()),
            false => Err(CommandError::NotOwner(NotOwner::Forked)),
        }
    }

    /// Gives the running process a number that none of its ancestors had.
    #[cold]
    fn first_seen() -> Self {
        let number = mark();
        if ptr::eq(number, &NO_PAGE) {
            return Self(u64::from(std::process::id()));
        }
        let fresh = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        match number.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Self(fresh),
            Err(other_thread) => Self(other_thread),
        }
    }
}

/// Runs `check` in a forked child, for tests.
///
/// Returns `false` if `check` does, if it panics, or if it does not return.
///
/// # Panics
///
/// Panics if no child process can be created.
#[cfg(any(test, feature = "null"))]
pub fn in_child(check: impl FnOnce() -> bool) -> bool {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, alarm, fork};

    // SAFETY: the child continues with this thread alone, and leaves by `_exit`. If `check` waits for a lock of another
    // thread, an alarm ends the child. The C library keeps the locks of the allocator whole.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            alarm::set(20);
            let code = i32::from(!catch_unwind(AssertUnwindSafe(check)).unwrap_or(false));
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forked_child_is_other_process() {
        let parent = Process::current();
        assert!(in_child(|| !parent.is_current() && Process::current().is_current()));
        assert!(parent.is_current());
    }

    #[test]
    fn grandchild_differs_from_both() {
        let parent = Process::current();
        assert!(in_child(|| {
            let child = Process::current();
            in_child(|| !parent.is_current() && !child.is_current())
        }));
    }
}
