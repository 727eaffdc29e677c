//! `cargo xtask ci`: the checks that every change must pass.

use std::fs;
use std::process::{self, Command, ExitCode};
use std::time::{Instant, SystemTime};

use guest::plan::Device;
use tool_error::{Context, Error, Result};

use crate::host::{self, progress};
use crate::tally::Tests;
use crate::tally::selection::Selection;
use crate::tasks::{api, demo, static_build, subjects, test};
use crate::testbed::kernel::Kernel;
use crate::testbed::machine;
use crate::testbed::rust::Rust;

/// Options that package the published crates and build each package against the packages before it.
const PACKAGE: [&str; 11] = [
    "package",
    "--quiet",
    "--allow-dirty",
    "--package",
    "verbs-abi",
    "--package",
    "ucma-abi",
    "--package",
    "verbs-core",
    "--package",
    "rdmacm",
];

/// Runs every test and, in parallel with the guests, the other checks.
///
/// The checks are format, subjects of commits, lints, documentation, packages, the oldest compiler, public interface,
/// demonstrations and static program. Each of them counts as one test.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    // Missing packages are reported before any long step.
    if let Err(error) = test::require_packages() {
        tests.stop(&error);
        return tests.finish();
    }
    // These checks take a second and find the most frequent mistakes.
    step(&mut tests, "format", || cargo(&["fmt", "--all", "--check"]));
    step(&mut tests, "subjects of commits", subjects::check);
    test::add(selection, &mut tests, checks);
    tests.finish()
}

/// Runs every check that is not a test, one after the other, while guests wait.
fn checks(tests: &mut Tests) {
    let lints =
        ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    step(tests, "lints", || cargo(&lints));
    // Most programs use the crate without features.
    let plain = ["clippy", "--package", "rdmacm", "--", "-D", "warnings"];
    step(tests, "lints without features", || cargo(&plain));
    let documentation = ["doc", "--workspace", "--all-features", "--no-deps"];
    step(tests, "documentation", || cargo(&documentation));
    step(tests, "packages", packages);
    step(tests, "minimum Rust version", || Rust::minimum().and_then(|rust| rust.check()));
    step(tests, "public interface", || api::run(false));
    step(tests, "demonstration", || demo::run(Kernel::V6_12, Device::Rxe, None));
    step(tests, "demonstration on the card", || demo::run(Kernel::V6_12, Device::Mlx5, None));
    step(tests, "static program", static_build::run_beside_tests);
}

/// Packages the crates in a new folder.
///
/// cargo unpacks a packed crate into its home only once for each path of the folder and version of the crate. In the
/// folder of an earlier run, the crates would be built with the crates of that run.
fn packages() -> Result<()> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since_epoch.map_or(0, |time| time.as_secs());
    let folder = host::build_directory().join(format!("package-{seconds}-{}", process::id()));
    let path = folder.to_str().ok_or_else(|| {
        Error::new("cannot package the crates: the path of the target directory is not UTF-8")
    })?;
    let mut cargo = host::cargo();
    cargo.args(PACKAGE).args(["--target-dir", path]);
    // The programs are not run, so debug information would take time for nothing.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
    run_cargo(&mut cargo)?;
    fs::remove_dir_all(&folder).context("remove the folder of the packages")
}

/// Runs a step and prints its duration.
///
/// A step whose guest fails for an unrelated reason runs a second time.
fn step(tests: &mut Tests, name: &str, run: impl Fn() -> Result<()>) {
    let start = Instant::now();
    progress(&format!("{name}: started"));
    let result = run().or_else(|error| {
        if machine::is_guest_failure(&error) {
            tests.add_rerun(&format!("{name}: {error}"));
            return run();
        }
        Err(error)
    });
    let outcome = if result.is_ok() { "passed" } else { "FAILED" };
    progress(&format!("{name}: {outcome} ({:.0} s)", start.elapsed().as_secs_f64()));
    tests.step(name, result);
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run_cargo(host::cargo().args(arguments).env("RUSTDOCFLAGS", "-D warnings"))
}

fn run_cargo(cargo: &mut Command) -> Result<()> {
    let arguments: Vec<_> = cargo.get_args().map(|argument| argument.to_string_lossy()).collect();
    let line = format!("cargo {}", arguments.join(" "));
    let status = cargo.status().with_context(|| format!("run {line}"))?;
    if status.success() { Ok(()) } else { Err(Error::new(format!("{line} ended with {status}"))) }
}
