//! Locks.

use std::sync::{LockResult, PoisonError};

/// What was locked, whether or not a thread has panicked that held the lock: nothing here panics
/// half-way through a change of what a lock guards.
pub fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}
