//! Locks, and a check that no command is issued under them.
//!
//! Other callers wait for the lock of an endpoint, so no kernel command is issued under it, except those that post and
//! poll. [`NoCommands`] is a part of the guard of such a lock. The code that issues a command asserts that
//! `forbids_commands` is `false`. Both exist in builds with debug assertions, such as the tests, and cost nothing in
//! others.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{LockResult, PoisonError};

/// Returns the guard, even if a thread has panicked while it held the lock.
///
/// No code of this crate panics in the middle of a change of a guarded value.
pub fn ignore_poison<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(debug_assertions)]
thread_local! {
    /// The number of locks that this thread holds under which it issues no commands.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// The part of a lock's guard that forbids commands to its thread. Stays in that thread.
#[derive(Debug)]
pub struct NoCommands(PhantomData<*const ()>);

impl NoCommands {
    /// Forbids commands to this thread until the result is dropped.
    #[inline(always)]
    #[must_use = "commands are allowed again when this is dropped"]
    pub fn begin() -> Self {
        #[cfg(debug_assertions)]
        HELD.set(HELD.get() + 1);
        Self(PhantomData)
    }
}

impl Drop for NoCommands {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        HELD.set(HELD.get() - 1);
    }
}

/// Returns `true` if this thread holds a lock under which it issues no commands.
#[cfg(debug_assertions)]
pub(crate) fn forbids_commands() -> bool {
    HELD.get() > 0
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn commands_are_forbidden_while_guard_lives() {
        assert!(!forbids_commands());
        let guards = [NoCommands::begin(), NoCommands::begin()];
        assert!(forbids_commands());
        let [first, second] = guards;
        drop(first);
        assert!(forbids_commands());
        drop(second);
        assert!(!forbids_commands());
    }
}
