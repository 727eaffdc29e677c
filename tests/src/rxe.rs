//! Detection of a message that rxe repeats forever.

use std::fs;
use std::time::Duration;

use crate::holds_within;

/// Counter of requests that rxe0 repeated after a timeout.
const RETRIES: &str = "/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err";

/// Returns `true` if rxe0 repeats a request forever.
///
/// If a receiver ends its connection at once, rxe may drop the acknowledgment of the last message. The sender then
/// repeats the message forever: rxe takes a retry count of 7, the default of librdmacm, as unlimited. The result is
/// meaningful only after all other traffic has stopped.
pub fn retries_forever() -> bool {
    let Some(before) = retries() else { return false };
    let repeats = || retries().is_some_and(|now| now >= before + 3);
    // The connection manager's timeouts are about a second long.
    holds_within(Duration::from_secs(20), repeats)
}

/// Returns the counter, or `None` in a guest without rxe0.
fn retries() -> Option<u64> {
    fs::read_to_string(RETRIES).ok()?.trim().parse().ok()
}
