//! Posts and polls on the null driver: the library beside the driver alone.

use std::error::Error;
use std::path::Path;

use crate::posts::{instructions, profile_with};
use crate::table::Row;

/// The number of requests of each kind.
const COUNT: u32 = 320;

/// Permitted ratio of instructions for a message: the safe tier to kept queues.
const SAFE_GOAL: f64 = 1.15;

/// The functions of `bench-null`: that of the library, and that of the driver alone.
const KINDS: [(&str, &str, &str); 12] = [
    ("a receive", "receive", "driver_receive"),
    ("a receive, of a kept queue", "receive_kept", "driver_receive"),
    ("a receive of a buffer", "receive_buffer", "driver_receive"),
    ("a send", "send", "driver_send"),
    ("a send, of a kept queue", "send_kept", "driver_send"),
    ("a send of a buffer", "send_buffer", "driver_send"),
    ("a poll that finds one", "poll", "driver_poll"),
    ("a poll that finds one, of a kept poller", "poll_kept", "driver_poll"),
    ("a completion of a buffer", "poll_buffers", "driver_poll"),
    ("a poll that finds nothing", "poll_empty", "driver_poll_empty"),
    ("a poll that finds nothing, of a kept poller", "poll_empty_kept", "driver_poll_empty"),
    ("a poll of buffers that finds nothing", "poll_buffers_empty", "driver_poll_empty"),
];

/// Counts with the programs in `directory`.
pub(crate) fn rows(directory: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let profile = |program| profile_with(&[], &[], &directory.join(program), &[&COUNT.to_string()]);
    let each = |profile: &str, function: &str| -> Result<f64, Box<dyn Error>> {
        let total = instructions(profile, function);
        let total = total.ok_or_else(|| format!("the profiler does not know {function}"))?;
        Ok(total / f64::from(COUNT))
    };
    let calls = profile("bench-null")?;
    let row = |(what, library, driver): (&str, &str, &str)| {
        let of = |function| each(&calls, &format!("bench_null::{function}"));
        Ok(Row::exact(what, "instructions", of(library)?, of(driver)?))
    };
    let mut rows = KINDS.into_iter().map(row).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let messages = profile("bench-null-message")?;
    let of = |function| each(&messages, &format!("bench_null_message::{function}"));
    let name = "a message of 16 bytes of the safe tier, beside the low level on kept queues";
    let row = Row::exact(name, "instructions", of("safe_message")?, of("low_message")?);
    rows.push(row.at_most(SAFE_GOAL));
    Ok(rows)
}
