//! `rdmatools conform` on the kernels of the bed: as the catalogue expects, and as it is kept in `conform/`.

use std::fs;
use std::process::{Command, Output};

use crate::bed::promised;

/// What the tool says with `arguments`, where it is content.
fn conform(arguments: &[&str]) -> String {
    let mut command = Command::new(promised("RDMACM_TEST_RDMATOOLS"));
    let Output { status, stdout, stderr } =
        command.arg("conform").args(arguments).output().expect("run the tool");
    let said = String::from_utf8(stdout).expect("text");
    let bad: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{}\n{errors}", bad.join("\n"));
    said
}

/// Every check on `device`, which has `address`.
fn is_as_it_was(device: &str, address: &str) {
    let said = conform(&["--all", address]);
    let kernel = promised("RDMACM_TEST_KERNEL");
    let path = format!("{}/conform/{kernel}-{device}.tap", env!("CARGO_MANIFEST_DIR"));
    let kept = match fs::read_to_string(&path) {
        // One that has moved on by itself is held to the catalogue alone.
        Err(_) if !["6.1", "6.12"].contains(&kernel.as_str()) => return,
        kept => kept.unwrap_or_else(|error| panic!("{path}: {error}")),
    };
    let differs = said.lines().zip(kept.lines()).find(|(said, kept)| said != kept);
    assert_eq!(differs, None, "said, and kept in {path}");
    assert_eq!(said.lines().count(), kept.lines().count(), "lines said, and kept in {path}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_is_as_it_was() {
    is_as_it_was("rxe", "10.0.0.1");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_is_as_it_was() {
    is_as_it_was("siw", "10.0.0.2");
}

/// On one kernel: the tool's own tests show it for all that was recorded.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_check_can_fail() {
    if promised("RDMACM_TEST_KERNEL") != "6.12" {
        return;
    }
    let said = conform(&["--all", "10.0.0.1", "--alter"]);
    let last = said.lines().last().expect("a summary");
    assert!(last.ends_with(" 0 failed"), "{last}");
    println!("{last}");
}
