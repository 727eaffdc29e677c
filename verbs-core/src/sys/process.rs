//! Which process this is: what tells a forked child from its parent, without a system call.
//!
//! The kernel refuses commands on a file that was opened before a fork, but it cannot keep a child
//! from storing to the rings that it shares with its parent. So every object remembers the process
//! that made it.
//!
//! # Safety
//!
//! One page is mapped for the life of the process and, once it is published, never unmapped; it is only
//! ever accessed as one atomic.
#![expect(unsafe_code, reason = "maps and reads the page that a fork wipes")]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use super::command::Refused;
use super::mapping::PAGE;
use super::ownership::WrongProcess;

/// A process, as distinct from the ones that it forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u64);

/// The number last given to a process. A child inherits it, and continues from it.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Where the number of the running process is kept: a page that the kernel fills with zeros in a forked
/// child, or [`NO_PAGE`]. [`UNMADE`] until somebody asks: no lock may be held while a thread forks.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const UNMADE).cast_mut());

/// Stands for the page that nobody has asked for yet: zero for ever.
static UNMADE: AtomicU64 = AtomicU64::new(0);

/// Stands for the page where the kernel has no such pages (before Linux 4.14): zero for ever, so that
/// the process id is asked for each time.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// [`MARK`], made by the first that asks.
fn mark() -> &'static AtomicU64 {
    let (made, unmade) = (wiped_page(), ptr::from_ref(&UNMADE).cast_mut());
    let nowhere = ptr::from_ref(&NO_PAGE).cast_mut();
    let published = made.unwrap_or(nowhere);
    let mark = match MARK.compare_exchange(unmade, published, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => published,
        Err(earlier) => {
            if let Some(page) = made.and_then(|page| NonNull::new(page.cast())) {
                // SAFETY: the mapping is that of `wiped_page`, and nobody else knows of it.
                let _ = unsafe { munmap(page, PAGE.get()) };
            }
            earlier
        }
    };
    // SAFETY: what is published is a page, mapped readable and writable for the life of the process,
    // page-aligned and zero initialised, or a static; either is accessed only as this atomic.
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
    /// The number of the running process, or 0 where it is not known yet.
    #[inline]
    fn number() -> u64 {
        let mark = MARK.load(Ordering::Acquire);
        // SAFETY: it is a static, or what `mark` has published, see there.
        unsafe { &*mark }.load(Ordering::Relaxed)
    }

    /// The process that is running now.
    #[inline]
    pub fn current() -> Self {
        match Self::number() {
            0 => Self::first_seen(),
            number => Self(number),
        }
    }

    /// Returns `true` if this is surely the process that is running now. It is not known where a process has no
    /// number, or the kernel no page to keep it in.
    #[inline]
    pub fn is_surely_current(self) -> bool {
        Self::number() == self.0
    }

    /// Returns `true` if this is the process that is running now.
    #[inline]
    pub fn is_current(self) -> bool {
        self.is_surely_current() || self == Self::current()
    }

    /// Refuses what a forked child must not do with its parent's objects.
    #[inline]
    pub fn check(self) -> Result<(), Refused> {
        match self.is_current() {
            true => Ok(()),
            false => Err(Refused::WrongProcess(WrongProcess::Forked)),
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

/// Runs `check` in a forked child, for tests. Returns `false` if `check` does, if it panics, or if it does not return.
///
/// # Panics
///
/// If the system has no process for the child.
#[cfg(any(test, feature = "null"))]
pub fn in_child(check: impl FnOnce() -> bool) -> bool {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, alarm, fork};

    // SAFETY: the child goes on with this thread alone, and leaves by `_exit`. If `check` waits for a lock of another
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
    fn a_child_is_another_process_and_its_parent_is_not() {
        let parent = Process::current();
        assert!(in_child(|| !parent.is_current() && Process::current().is_current()));
        assert!(parent.is_current());
    }

    #[test]
    fn a_grandchild_differs_from_both() {
        let parent = Process::current();
        assert!(in_child(|| {
            let child = Process::current();
            in_child(|| !parent.is_current() && !child.is_current())
        }));
    }
}
