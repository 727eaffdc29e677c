//! Which of two things happened first.

use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl Moment {
    /// One that is later than all before.
    pub(super) fn now() -> Self {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        Self(LATEST.fetch_add(1, Ordering::SeqCst))
    }
}
