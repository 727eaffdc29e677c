//! Deadlines: moments, or `None` for what has no end.

use std::time::{Duration, Instant};

/// When `timeout` from now is over; never, where that is beyond the clock.
pub(super) fn within(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// The earlier of two.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// Returns `true` if it is over.
pub(super) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
