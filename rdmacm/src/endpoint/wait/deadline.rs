//! Deadlines: points in time, or `None` for no limit.

use std::time::{Duration, Instant};

/// Returns the time `timeout` from now, or `None` if that is beyond the clock.
pub(in crate::endpoint) fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Returns the earlier deadline.
pub(in crate::endpoint) fn earlier(
    one: Option<Instant>,
    other: Option<Instant>,
) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// Returns `true` if `deadline` has passed.
pub(in crate::endpoint) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
