//! The kernel's console: detection of the kernel's error messages.

/// Prefixes of error messages, after the time.
const COMPLAINT_PREFIXES: [&str; 12] = [
    "------------[ cut here ]",
    "BUG:",
    "kernel BUG at",
    "watchdog: BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "general protection fault",
    "Call Trace:",
    "INFO: task",
    "rcu: INFO:",
    // The emulated card reports a fault of a program.
    "rdmacm_mlx5: fault of a program:",
];

/// Bits of `/proc/sys/kernel/tainted` for errors: bad page, died, warned, soft lockup.
const TAINTS: [(u32, &str); 4] =
    [(5, "bad page"), (7, "oops or BUG"), (9, "warning"), (14, "soft lockup")];

/// Returns the lines in which the kernel complains.
pub(crate) fn complaints(console: &str) -> Vec<&str> {
    console.lines().map(str::trim_end).filter(|line| is_complaint(line)).collect()
}

fn is_complaint(line: &str) -> bool {
    let message = message(line);
    COMPLAINT_PREFIXES.iter().any(|beginning| message.starts_with(beginning))
}

/// Returns `true` if the kernel failed with a known error that no program in the guest caused.
pub(crate) fn is_unrelated_failure(console: &str) -> bool {
    let is_known = [hit_stale_breakpoint, lost_gid_table, has_impossible_flags];
    console.lines().map(message).any(|message| is_known.iter().any(|is_known| is_known(message)))
}

/// Returns `true` if `complaints` are a single known warning that no program in the guest caused.
pub(crate) fn is_known_warning(complaints: &[String]) -> bool {
    let (warnings, others): (Vec<_>, Vec<_>) = complaints
        .iter()
        .map(|complaint| message(complaint))
        .partition(|complaint| complaint.starts_with("WARNING:"));
    let belong = ["------------[ cut here ]", "Call Trace:", "kernel taint: warning"];
    matches!(warnings[..], [warning] if found_stale_tasklet(warning))
        && others.iter().all(|other| belong.iter().any(|beginning| other.starts_with(beginning)))
}

/// Returns `true` if the kernel found a tasklet in its list that was set up again in the meantime.
///
/// The test bed has had this failure once.
///
/// rxe of Linux 6.1 queues a packet, which hands over the reference to the queue pair, before it schedules the tasklet
/// of the queue pair (`rxe_resp_queue_pkt`). If another processor handles the packet and destroys the queue pair in
/// between, the tasklet is freed while it is scheduled.
fn found_stale_tasklet(message: &str) -> bool {
    message.contains(" tasklet_clear_sched+")
}

/// Returns `true` if the kernel hit one of its own breakpoints that no longer existed.
///
/// QEMU before 8.1 may keep the translation of code that another processor changes during the translation.
fn hit_stale_breakpoint(message: &str) -> bool {
    ["Oops: int3:", "int3:"].iter().any(|beginning| message.starts_with(beginning))
}

/// Returns `true` if the kernel released a device's GID table before the last GID.
///
/// The test bed has had this failure once, on 6.12, in a guest that notifies rdma_cm last of a device's removal.
fn lost_gid_table(message: &str) -> bool {
    message.starts_with("free_gid_work+")
}

/// Returns `true` if QEMU gave the processor impossible flags: bits above 21 are always zero.
///
/// The test bed has had this failure once, after `cmpxchg16b`.
fn has_impossible_flags(message: &str) -> bool {
    let flags = message
        .split_once("EFLAGS: ")
        .and_then(|(_, flags)| u32::from_str_radix(flags.split_whitespace().next()?, 16).ok());
    flags.is_some_and(|flags| flags >> 22 != 0)
}

/// Returns the names of the errors in the taint bits.
pub(crate) fn tainted(taint: u64) -> Vec<&'static str> {
    TAINTS.iter().filter(|(bit, _)| taint & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

/// Returns the lines that explain the failure of a guest.
///
/// These are the lines from the first complaint on, or the last few lines if there is no complaint.
pub(crate) fn excerpt(console: &str) -> String {
    const COMPLAINT: usize = 40;
    const END: usize = 10;
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let part = match lines.iter().position(|line| is_complaint(line)) {
        Some(first) => &lines[first..lines.len().min(first + COMPLAINT)],
        None => &lines[lines.len().saturating_sub(END)..],
    };
    part.join("\n")
}

/// Returns a line without its time: `[    1.234567] WARNING: ...`.
fn message(line: &str) -> &str {
    let timed = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match timed {
        Some((time, message)) if time.trim().parse::<f64>().is_ok() => message.trim_start(),
        _ => line,
    }
}

#[cfg(test)]
mod tests;
