//! Posts and polls on the null driver: the library beside the driver alone.

use std::error::Error;
use std::path::Path;

use crate::posts::{instructions, profile_with};
use crate::table::Row;

/// The number of requests of each kind.
const COUNT: u32 = 320;

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

/// Counts with the program in `directory`.
pub(crate) fn rows(directory: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let profile = profile_with(&[], &directory.join("bench-null"), &[&COUNT.to_string()])?;
    let each = |function: &str| -> Result<f64, Box<dyn Error>> {
        let total = instructions(&profile, &format!("bench_null::{function}"));
        let total = total.ok_or_else(|| format!("the profiler does not know {function}"))?;
        Ok(total / f64::from(COUNT))
    };
    let row = |(what, library, driver): (&str, &str, &str)| {
        Ok(Row::exact(what, "instructions", each(library)?, each(driver)?))
    };
    KINDS.into_iter().map(row).collect()
}
