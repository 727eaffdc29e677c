//! The kernel's console: what a kernel says when something is wrong with it.

/// How such a message begins, after its time.
const BEGINNINGS: [&str; 11] = [
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
];

/// Bits of `/proc/sys/kernel/tainted` that say the same: bad page, died, warned, soft lockup.
const TAINTS: [(u32, &str); 4] =
    [(5, "bad page"), (7, "oops or BUG"), (9, "warning"), (14, "soft lockup")];

/// The lines in which the kernel complains.
pub(crate) fn complaints(console: &str) -> Vec<&str> {
    console.lines().map(str::trim_end).filter(|line| complains(line)).collect()
}

fn complains(line: &str) -> bool {
    let message = message(line);
    BEGINNINGS.iter().any(|beginning| message.starts_with(beginning))
}

/// Returns `true` if the kernel broke in a way that is known, and no fault of what ran there.
pub(crate) fn broke_by_itself(console: &str) -> bool {
    let is_known = [met_stale_breakpoint, lost_gid_table, has_impossible_flags];
    console.lines().map(message).any(|message| is_known.iter().any(|is_known| is_known(message)))
}

/// It met a breakpoint of its own that was no longer there. QEMU before 8.1 may keep the translation of code that another
/// processor changes while it is translated.
fn met_stale_breakpoint(message: &str) -> bool {
    ["Oops: int3:", "int3:"].iter().any(|beginning| message.starts_with(beginning))
}

/// It let go of a device's table of GIDs before the last of them. Seen once, of 6.12, where rdma_cm is told last that a
/// device goes.
fn lost_gid_table(message: &str) -> bool {
    message.starts_with("free_gid_work+")
}

/// QEMU gave the processor flags that none can have: bits above 21 are always zero. Seen once, behind `cmpxchg16b`.
fn has_impossible_flags(message: &str) -> bool {
    let flags = message
        .split_once("EFLAGS: ")
        .and_then(|(_, flags)| u32::from_str_radix(flags.split_whitespace().next()?, 16).ok());
    flags.is_some_and(|flags| flags >> 22 != 0)
}

/// What the taint bits complain about.
pub(crate) fn tainted(taint: u64) -> Vec<&'static str> {
    TAINTS.iter().filter(|(bit, _)| taint & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

/// The lines that tell why a guest failed: from the first complaint on, or a few last lines if the kernel has not complained.
pub(crate) fn excerpt(console: &str) -> String {
    const COMPLAINT: usize = 40;
    const END: usize = 10;
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let part = match lines.iter().position(|line| complains(line)) {
        Some(first) => &lines[first..lines.len().min(first + COMPLAINT)],
        None => &lines[lines.len().saturating_sub(END)..],
    };
    part.join("\n")
}

/// A line without its time: `[    1.234567] WARNING: ...`.
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
    fn complaints_are_found_with_and_without_a_time() {
        let console = "[    0.000000] Linux version 6.1\r\n\
            [    5.108451] ------------[ cut here ]------------\r\n\
            [    5.108461] WARNING: CPU: 1 PID: 86 at kernel/x.c:1 f+0x1/0x2\r\n\
            [   12.000000] BUG: kernel NULL pointer dereference, address: 0\r\n\
            [   12.000000] Oops: 0002 [#1] PREEMPT SMP\r\n\
            [   12.000001] Call Trace:\r\n\
            Kernel panic - not syncing: Attempted to kill init!\r\n";
        assert_eq!(complaints(console).len(), 6);
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
    fn an_out_of_tree_module_is_no_complaint() {
        assert!(tainted((1 << 12) | (1 << 13)).is_empty());
        assert_eq!(tainted((1 << 12) | (1 << 9)), ["warning"]);
    }

    #[test]
    fn a_stale_breakpoint_is_told_from_other_faults() {
        let fault = |header: &str| format!("[    1.5] systemd: x\r\n[   13.543571] {header}\r\n");
        for header in ["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "int3: 0000 [#1] PREEMPT SMP"] {
            assert!(broke_by_itself(&fault(header)), "{header}");
        }
        for header in ["Oops: 0002 [#1] PREEMPT SMP", "BUG: int3 in a message"] {
            assert!(!broke_by_itself(&fault(header)), "{header}");
        }
    }

    #[test]
    fn a_lost_gid_table_is_in_a_trace_of_calls() {
        let console = "[   35.4] Call Trace:\r\n[   35.4]  <TASK>\r\n[   35.4]  free_gid_work+0x38/0x50 [ib_core]\r\n";
        assert!(broke_by_itself(console));
        assert!(!broke_by_itself("[    1.5] workqueue: free_gid_work [ib_core] hogged CPU\r\n"));
    }

    #[test]
    fn flags_that_no_processor_has_are_told_from_others() {
        let fault =
            |flags: &str| format!("[  1584.6] RSP: 0018:ff66d66d8050b910 EFLAGS: {flags}\r\n");
        assert!(broke_by_itself(&fault("d256c6ca")));
        assert!(!broke_by_itself(&fault("00010246")));
        assert!(!broke_by_itself(&fault("?")));
    }

    #[test]
    fn excerpt_begins_at_first_complaint() {
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
