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

/// Returns `true` if the kernel found a tasklet in its list that was set up again in the meantime. Seen once.
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

/// Returns `true` if the kernel released a device's GID table before the last GID. Seen once, on 6.12, if rdma_cm is
/// notified last of a device's removal.
fn lost_gid_table(message: &str) -> bool {
    message.starts_with("free_gid_work+")
}

/// Returns `true` if QEMU gave the processor impossible flags: bits above 21 are always zero. Seen once, after
/// `cmpxchg16b`.
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
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found_with_or_without_time() {
        let console = "[    0.000000] Linux version 6.1\r\n\
            [    5.108451] ------------[ cut here ]------------\r\n\
            [    5.108461] WARNING: CPU: 1 PID: 86 at kernel/x.c:1 f+0x1/0x2\r\n\
            [   12.000000] BUG: kernel NULL pointer dereference, address: 0\r\n\
            [   12.000000] Oops: 0002 [#1] PREEMPT SMP\r\n\
            [   12.000001] Call Trace:\r\n\
            [   12.000002] rdmacm_mlx5: fault of a program: opcode 0x3 of queue pair 7\r\n\
            Kernel panic - not syncing: Attempted to kill init!\r\n";
        assert_eq!(complaints(console).len(), 7);
        assert!(complaints(console)[1].ends_with("f+0x1/0x2"));
    }

    #[test]
    fn other_lines_are_no_complaints() {
        let console = "[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled\n\
            [    0.2] siw: loading out-of-tree module taints kernel.\n\
            [    0.3] test debug: BUG: not at the beginning\n";
        assert!(complaints(console).is_empty());
    }

    #[test]
    fn out_of_tree_module_is_no_complaint() {
        assert!(tainted((1 << 12) | (1 << 13)).is_empty());
        assert_eq!(tainted((1 << 12) | (1 << 9)), ["warning"]);
    }

    #[test]
    fn stale_breakpoint_is_distinguished() {
        let fault = |header: &str| format!("[    1.5] systemd: x\r\n[   13.543571] {header}\r\n");
        for header in ["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "int3: 0000 [#1] PREEMPT SMP"] {
            assert!(is_unrelated_failure(&fault(header)), "{header}");
        }
        for header in ["Oops: 0002 [#1] PREEMPT SMP", "BUG: int3 in a message"] {
            assert!(!is_unrelated_failure(&fault(header)), "{header}");
        }
    }

    #[test]
    fn lost_gid_table_is_found_in_call_trace() {
        let console = "[   35.4] Call Trace:\r\n[   35.4]  <TASK>\r\n[   35.4]  free_gid_work+0x38/0x50 [ib_core]\r\n";
        assert!(is_unrelated_failure(console));
        assert!(!is_unrelated_failure(
            "[    1.5] workqueue: free_gid_work [ib_core] hogged CPU\r\n"
        ));
    }

    #[test]
    fn stale_tasklet_is_distinguished() {
        let begin = "[  121.252518] ------------[ cut here ]------------";
        let known = "[  121.256404] WARNING: CPU: 1 PID: 21 at kernel/softirq.c:798 tasklet_clear_sched+0x64/0x70";
        let other = "[  121.256404] WARNING: CPU: 1 PID: 86 at kernel/x.c:1 f+0x1/0x2";
        let trace = "[  121.260328] Call Trace:";
        let oops = "[  121.4] Oops: 0002 [#1] PREEMPT SMP";
        let is_known = |lines: &[&str]| {
            is_known_warning(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
        };
        assert!(is_known(&[begin, known, trace, "kernel taint: warning"]));
        assert!(!is_known(&[begin, other, trace, "kernel taint: warning"]));
        assert!(!is_known(&[begin, known, trace, begin, other, trace]));
        assert!(!is_known(&[begin, known, trace, oops]));
        assert!(!is_known(&[begin, known, trace, "kernel taint: oops or BUG"]));
        assert!(!is_known(&[]));
    }

    #[test]
    fn impossible_flags_are_distinguished() {
        let fault =
            |flags: &str| format!("[  1584.6] RSP: 0018:ff66d66d8050b910 EFLAGS: {flags}\r\n");
        assert!(is_unrelated_failure(&fault("d256c6ca")));
        assert!(!is_unrelated_failure(&fault("00010246")));
        assert!(!is_unrelated_failure(&fault("?")));
    }

    #[test]
    fn excerpt_starts_at_first_complaint() {
        let lines =
            |range: std::ops::Range<u32>| range.map(|n| format!("{n}\r\n")).collect::<String>();
        let (before, after) = (lines(0..100), lines(100..200));
        let excerpt_of_complaint = excerpt(&format!("{before}WARNING: at x\r\n{after}"));
        assert!(excerpt_of_complaint.starts_with("WARNING: at x\n100\n"), "{excerpt_of_complaint}");
        assert_eq!(excerpt_of_complaint.lines().count(), 40);
        let end = excerpt(&before);
        assert!(end.starts_with("90\n") && end.ends_with("\n99"), "{end}");
    }
}
