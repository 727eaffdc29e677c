//! `cargo xtask fuzz`: feeds arbitrary bytes to the functions that read kernel or peer data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use tool_error::{Context, Error, Result};

use crate::host;
use crate::host::packages;
use crate::tally::Tests;
use crate::tally::progress::Progress;
use crate::tally::selection::Selection;

/// Packages that build the fuzzer itself.
pub(crate) const PACKAGES: [&str; 2] = ["g++", "gcc"];

/// Duration of each target if it runs as one of the tests.
pub(crate) const DEFAULT_DURATION: Duration = Duration::from_secs(3);

/// Time limit of one input, in seconds of wall-clock time.
///
/// A loaded machine may pause a process for some seconds.
const INPUT_TIMEOUT: &str = "60";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Flags of `cargo fuzz` that the stable compiler accepts: all except the sanitizer.
const FLAGS: &str = "--cfg fuzzing -Dwarnings -Ccodegen-units=1 -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs every target whose name contains `filter`, each for `time`.
pub(crate) fn run(filter: Option<&str>, time: Duration) -> ExitCode {
    let mut tests = Tests::default();
    let chooses = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    match packages::require(&PACKAGES).and_then(|()| selected_targets(chooses)) {
        Ok(targets) => run_all(&targets, time, &mut tests),
        Err(error) => tests.stop(&error),
    }
    tests.finish()
}

/// Runs the selected targets for [`DEFAULT_DURATION`] and adds them to `tests`.
pub(crate) fn add(selection: &Selection, progress: &Progress, tests: &mut Tests) {
    match targets() {
        Ok(targets) => {
            progress.begin("fuzz", "targets");
            let chosen = chosen(&targets, |name| selection.chooses(name));
            run_all(&chosen, DEFAULT_DURATION, tests);
            progress.leave("fuzz");
        }
        Err(error) => tests.step("fuzz", Err(error)),
    }
}

/// Returns the selected targets. If there is none, the error lists all names.
fn selected_targets(chooses: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let targets = targets()?;
    let chosen = chosen(&targets, chooses);
    if chosen.is_empty() {
        let names: Vec<String> = targets.iter().map(|target| test_name(target)).collect();
        let names = names.join(", ");
        return Err(Error::new(format!(
            "cannot select a fuzz target: no name matches the filter; the targets are {names}"
        )));
    }
    Ok(chosen)
}

fn chosen(targets: &[String], chooses: impl Fn(&str) -> bool) -> Vec<String> {
    targets.iter().filter(|target| chooses(&test_name(target))).cloned().collect()
}

fn run_all(targets: &[String], time: Duration, tests: &mut Tests) {
    if targets.is_empty() {
        return;
    }
    host::progress("building the fuzz targets");
    if let Err(error) = build(targets) {
        return tests.step("fuzz", Err(error));
    }
    for target in targets {
        tests.step(&test_name(target), run_one(target, time));
    }
}

/// Returns the name of a target in the list of tests.
fn test_name(target: &str) -> String {
    format!("fuzz::{target}")
}

/// Returns the folder of the targets, which is a separate workspace.
fn folder() -> PathBuf {
    host::workspace().join("tests/fuzz")
}

fn build_directory() -> PathBuf {
    host::build_directory().join("fuzz")
}

/// Returns the names of the targets.
fn targets() -> Result<Vec<String>> {
    let files = host::files(&folder().join("fuzz_targets"))?;
    let name = |file: &PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    Ok(files.iter().filter_map(name).collect())
}

fn build(targets: &[String]) -> Result<()> {
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--release", "--manifest-path"]);
    cargo.arg(folder().join("Cargo.toml"));
    for target in targets {
        cargo.args(["--bin", target]);
    }
    // With an explicit target, cargo does not apply the flags to build scripts.
    cargo.args(["--target", TARGET, "--target-dir"]).arg(build_directory());
    cargo.env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    host::run(&mut cargo, "build the fuzz targets")
}

/// Runs a target. New inputs are kept next to the corpus for later runs.
fn run_one(target: &str, time: Duration) -> Result<()> {
    let found = build_directory().join("corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("create {}", found.display()))?;
    let mut artifacts = build_directory().join("artifacts").into_os_string();
    fs::create_dir_all(&artifacts).context("create a directory for failing inputs")?;
    artifacts.push(format!("/{target}-"));
    let program = build_directory().join(TARGET).join("release").join(target);
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-timeout={INPUT_TIMEOUT}"));
    command.args(["-rss_limit_mb=1024", "-print_final_stats=1"]);
    let mut prefix = std::ffi::OsString::from("-artifact_prefix=");
    prefix.push(&artifacts);
    command.arg(prefix).arg(&found).arg(folder().join("corpus").join(target));
    // A target creates files many times per second.
    if Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
    let output = command.output().with_context(|| format!("start {target}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        return Err(Error::new(format!(
            "cannot fuzz {target}: it ended with {}:\n{last}",
            output.status
        )));
    }
    let done = log.lines().find(|line| line.starts_with("Done")).unwrap_or_default();
    let covered = log.lines().rfind(|line| line.contains(" cov: ")).unwrap_or_default();
    host::progress(&format!("{target}: {done}: {covered}"));
    Ok(())
}
