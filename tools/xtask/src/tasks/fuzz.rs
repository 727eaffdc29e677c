//! `cargo xtask fuzz`: any bytes, wherever the library hears a kernel or a peer.

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

/// What builds the fuzzer itself.
pub(crate) const PACKAGES: [&str; 2] = ["g++", "gcc"];

/// How long each target runs as one of the tests.
pub(crate) const DEFAULT_DURATION: Duration = Duration::from_secs(3);

/// How long one input may take, in seconds by the wall: a machine that others load may stand still for some.
const SLOW: &str = "60";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What `cargo fuzz` builds with, of which the stable compiler takes all but the sanitizer.
const FLAGS: &str = "--cfg fuzzing -Dwarnings -Ccodegen-units=1 -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs every target whose name contains `filter`, each for as long.
pub(crate) fn run(filter: Option<&str>, time: Duration) -> ExitCode {
    let mut tests = Tests::default();
    let chooses = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    match packages::require(&PACKAGES).and_then(|()| meant(chooses)) {
        Ok(targets) => all(&targets, time, &mut tests),
        Err(error) => tests.stop(&error),
    }
    tests.finish()
}

/// Runs those that are selected for a moment and adds them to `tests`.
pub(crate) fn add(selection: &Selection, progress: &Progress, tests: &mut Tests) {
    match targets() {
        Ok(targets) => {
            progress.begin("fuzz", "targets");
            let chosen = chosen(&targets, |name| selection.chooses(name));
            all(&chosen, DEFAULT_DURATION, tests);
            progress.leave("fuzz");
        }
        Err(error) => tests.step("fuzz", Err(error)),
    }
}

/// Those chosen; an error that names all where there is none.
fn meant(chooses: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let targets = targets()?;
    let chosen = chosen(&targets, chooses);
    if chosen.is_empty() {
        let names: Vec<String> = targets.iter().map(|target| named(target)).collect();
        let names = names.join(", ");
        return Err(Error::new(format!("the targets are {names}, and none of them was meant")));
    }
    Ok(chosen)
}

fn chosen(targets: &[String], chooses: impl Fn(&str) -> bool) -> Vec<String> {
    targets.iter().filter(|target| chooses(&named(target))).cloned().collect()
}

fn all(targets: &[String], time: Duration, tests: &mut Tests) {
    if targets.is_empty() {
        return;
    }
    host::progress("building the fuzz targets");
    if let Err(error) = build(targets) {
        return tests.step("fuzz", Err(error));
    }
    for target in targets {
        tests.step(&named(target), one(target, time));
    }
}

/// What a target is called among the tests.
fn named(target: &str) -> String {
    format!("fuzz::{target}")
}

/// The folder of the targets, a workspace of its own.
fn folder() -> PathBuf {
    host::workspace().join("tests/fuzz")
}

fn build_directory() -> PathBuf {
    host::build_directory().join("fuzz")
}

/// The names of the targets.
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
    // With a target named, what cargo builds for itself is spared the flags.
    cargo.args(["--target", TARGET, "--target-dir"]).arg(build_directory());
    cargo.env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    host::run(&mut cargo, "build the fuzz targets")
}

/// Runs a target. What it finds to be new is kept beside the corpus, for the next time.
fn one(target: &str, time: Duration) -> Result<()> {
    let found = build_directory().join("corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("make {}", found.display()))?;
    let mut artifacts = build_directory().join("artifacts").into_os_string();
    fs::create_dir_all(&artifacts).context("make a directory for what fails")?;
    artifacts.push(format!("/{target}-"));
    let program = build_directory().join(TARGET).join("release").join(target);
    let mut command = Command::new(program);
    command.arg(format!("-max_total_time={}", time.as_secs())).arg(format!("-timeout={SLOW}"));
    command.args(["-rss_limit_mb=1024", "-print_final_stats=1"]);
    let mut prefix = std::ffi::OsString::from("-artifact_prefix=");
    prefix.push(&artifacts);
    command.arg(prefix).arg(&found).arg(folder().join("corpus").join(target));
    // A target makes files, many times a second.
    if Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
    let output = command.output().with_context(|| format!("start {target}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        return Err(Error::new(format!("{target} ended with {}:\n{last}", output.status)));
    }
    let done = said.lines().find(|line| line.starts_with("Done")).unwrap_or_default();
    let covered = said.lines().rfind(|line| line.contains(" cov: ")).unwrap_or_default();
    host::progress(&format!("{target}: {done}: {covered}"));
    Ok(())
}
