//! Runs `rdmatools conform` on the kernels of the test bed, and compares the results with those recorded in `tests/conform`.

use std::fs;
use std::process::{Command, Output};

use rdmacm_tests::skip;

use crate::child::{hide, in_child};
use crate::fixtures::{device, is_card, promised, roce_ip, roce_name};
use crate::permission::make;

/// Runs the tool with `arguments`, and returns its result and its text.
fn run(arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(promised("RDMACM_TEST_RDMATOOLS"));
    let output = command.arg("conform").args(arguments).output().expect("run the tool");
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    (output, text)
}

/// Returns the output of a successful run.
fn conform(arguments: &[&str]) -> String {
    let (Output { status, stderr, .. }, text) = run(arguments);
    let bad: Vec<&str> = text.lines().filter(|line| !line.starts_with("ok ")).collect();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{}\n{errors}", bad.join("\n"));
    text
}

/// Runs every check on `device`, which has `address`.
fn matches_recorded_results(device: &str, address: &str) {
    let text = conform(&["--all", address]);
    let kernel = promised("RDMACM_TEST_KERNEL");
    let recorded = fs::read_dir(format!("{}/conform", env!("CARGO_MANIFEST_DIR")));
    let recorded =
        recorded.expect("list the recorded results").map(|entry| entry.expect("read the list"));
    let names: Vec<_> = recorded.map(|entry| entry.file_name().into_string()).collect();
    let is_of_kernel = |name: &String| name.starts_with(&format!("{kernel}-"));
    // Debian's stable kernels keep their version.
    if !["6.1", "6.12"].contains(&&*kernel) && !names.iter().flatten().any(is_of_kernel) {
        return skip("Debian unstable has a new kernel, whose results are not recorded");
    }
    let path = format!("{}/conform/{kernel}-{device}.tap", env!("CARGO_MANIFEST_DIR"));
    let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let differs = text.lines().zip(kept.lines()).find(|(text, kept)| text != kept);
    assert_eq!(differs, None, "the output should equal {path}");
    assert_eq!(
        text.lines().count(),
        kept.lines().count(),
        "the output should have as many lines as {path}"
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn roce_matches_recorded_results() {
    let kind = if is_card() { "mlx5" } else { "rxe" };
    matches_recorded_results(kind, roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_matches_recorded_results() {
    matches_recorded_results("siw", "10.0.0.2");
}

/// Runs all checks on Linux 6.12. On later kernels, only checks run that Linux 6.12 lacks. The tool's own tests alter recorded
/// answers.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_check_can_fail() {
    let of_later_ones = ["ucma.event.user", "ucma.resolve_ib_service.", "ucma.write_cm_event."];
    let filters = match &promised("RDMACM_TEST_KERNEL")[..] {
        "6.1" => return skip("6.12 and later have every check"),
        "6.12" => &[""][..],
        _ => &of_later_ones,
    };
    for filter in filters {
        let text = conform(&["--all", roce_ip(), "--alter", filter]);
        let last = text.lines().last().expect("a summary");
        assert!(last.ends_with(" 0 failed"), "{last}");
        assert!(filter.is_empty() || last.ends_with(" 0 skipped, 0 failed"), "{filter}: {last}");
        println!("{last}");
    }
}

/// Runs checks with the expectations of another kernel version, which the running kernel violates.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn violation_is_printed_and_exits_with_1() {
    let other = match &promised("RDMACM_TEST_KERNEL")[..] {
        "6.1" | "6.12" => "6.18",
        _ => "6.12",
    };
    let arguments = ["--kernel", other, "ucma.resolve_ib_service."];
    let (output, text) = run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("violations"), "{errors}");
    let points = text.lines().filter(|line| line.starts_with("ok ") || line.starts_with("not ok "));
    let plan = text.lines().nth(1).and_then(|plan| plan.strip_prefix("1..")).expect("a plan");
    assert_eq!(points.count().to_string(), plan, "{text}");
    assert!(text.contains("\nnot ok 1 - ucma.resolve_ib_service.implemented\n  ---\n"), "{text}");
    let (output, text) = run(&[&["--json"], &arguments[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{text}");
    let object: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(object["results"][0]["result"], "fail", "{text}");
}

/// Checks that a node that cannot be opened is reported, and that checks of other nodes run.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unopenable_node_is_named() {
    let node = device(roce_name()).uverbs().expect("a verbs node").path();
    let manager = rdmacm::device::cm_char_device();
    in_child(|| {
        hide("/dev/infiniband");
        let (output, text) = run(&[]);
        assert_eq!((output.status.code(), text.as_str()), (Some(3), ""));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("ENOENT; load the kernel's RDMA modules"), "{errors}");
        make(&manager.path(), manager.device_number().expect("the value should be known"), 0o666);
        // No device has this number.
        make(&node, libc::makedev(1, 200), 0o666);
        let text = conform(&["handle.max"]);
        assert!(text.contains(&format!("skipped: {node} cannot be opened: ENXIO")), "{text}");
        assert!(text.contains(" - ucma.bind.handle.max: ENOENT"), "{text}");
    });
}
