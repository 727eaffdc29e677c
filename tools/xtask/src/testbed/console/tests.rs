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
    assert!(!is_unrelated_failure("[    1.5] workqueue: free_gid_work [ib_core] hogged CPU\r\n"));
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
    let fault = |flags: &str| format!("[  1584.6] RSP: 0018:ff66d66d8050b910 EFLAGS: {flags}\r\n");
    assert!(is_unrelated_failure(&fault("d256c6ca")));
    assert!(!is_unrelated_failure(&fault("00010246")));
    assert!(!is_unrelated_failure(&fault("?")));
}

#[test]
fn excerpt_starts_at_first_complaint() {
    let lines = |range: std::ops::Range<u32>| range.map(|n| format!("{n}\r\n")).collect::<String>();
    let (before, after) = (lines(0..100), lines(100..200));
    let excerpt_of_complaint = excerpt(&format!("{before}WARNING: at x\r\n{after}"));
    assert!(excerpt_of_complaint.starts_with("WARNING: at x\n100\n"), "{excerpt_of_complaint}");
    assert_eq!(excerpt_of_complaint.lines().count(), 40);
    let end = excerpt(&before);
    assert!(end.starts_with("90\n") && end.ends_with("\n99"), "{end}");
}
