//! Counters of rxe, and detection of a message that rxe repeats forever.

use std::fs;
use std::time::Duration;

use crate::holds_within;

/// Returns the counter `name` of an rxe device, or `None` in a guest without the device.
pub fn counter(device: &str, name: &str) -> Option<u64> {
    let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/{name}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

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

/// Returns the number of requests that rxe0 has repeated after a timeout.
fn retries() -> Option<u64> {
    counter("rxe0", "completer_retry_err")
}
