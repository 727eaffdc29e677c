//! [`CreationOrder`]: the order in which two events happened.

use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the lifetime of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CreationOrder(u64);

impl CreationOrder {
    /// Returns a value that is greater than all earlier ones.
    pub(super) fn now() -> Self {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        Self(LATEST.fetch_add(1, Ordering::SeqCst))
    }
}
