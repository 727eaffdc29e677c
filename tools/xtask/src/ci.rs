//! `cargo xtask ci`: what every change must pass.

use std::process::{Command, ExitCode};

use guest::error::{Context, Error, Result};

use crate::host::{self, progress};
use crate::rust::Rust;
use crate::test::{self, Selection, Tests};

/// Packs the crates that are for others, and builds each as it is packed, with those before it as they are.
const PACKAGE: [&str; 9] = [
    "package",
    "--quiet",
    "--allow-dirty",
    "--package",
    "verbs-abi",
    "--package",
    "ucma-abi",
    "--package",
    "rdmacm",
];

/// Runs format, lints, documentation, packages, the oldest compiler, the public interface, the demonstration, the static
/// program and every test; each but the last counts as one test.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    // What cannot be had is said before anything takes time.
    if let Err(error) = test::require_packages() {
        tests.stop(&error);
        return tests.finish();
    }
    tests.step("format", cargo(&["fmt", "--all", "--check"]));
    let lints =
        ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    tests.step("lints", cargo(&lints));
    // As most programs have it.
    let plain = ["clippy", "--package", "rdmacm", "--", "-D", "warnings"];
    tests.step("lints without features", cargo(&plain));
    tests.step("documentation", cargo(&["doc", "--workspace", "--all-features", "--no-deps"]));
    tests.step("packages", cargo(&PACKAGE));
    tests.step("minimum Rust version", Rust::minimum().and_then(|rust| rust.check()));
    tests.step("public interface", cargo(&["xtask", "api"]));
    tests.step("demonstration", cargo(&["xtask", "demo"]));
    tests.step("static program", cargo(&["xtask", "static"]));
    test::add(selection, &mut tests);
    tests.finish()
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    progress(&format!("== {line}"));
    let mut cargo: Command = host::cargo();
    let status = cargo.args(arguments).env("RUSTDOCFLAGS", "-D warnings").status();
    let status = status.with_context(|| format!("run {line}"))?;
    if status.success() { Ok(()) } else { Err(Error::new(format!("{line} ended with {status}"))) }
}
