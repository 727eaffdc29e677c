//! Programs of the host.

pub(crate) mod packages;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use tool_error::{Context, Error, Result};

/// The search path: the user's own, and where administration programs lie, which a user may not have.
pub(crate) fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

/// How many processors a guest gets unless something else is wanted: two where there are two.
pub(crate) fn processors() -> NonZeroUsize {
    let two = NonZeroUsize::MIN.saturating_add(1);
    thread::available_parallelism().map_or(NonZeroUsize::MIN, |processors| processors.min(two))
}

/// A command that reads nothing from standard input and finds administration programs.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// Runs a command to its end. What it printed is shown only where it fails.
pub(crate) fn run(command: &mut Command, doing: &str) -> Result<()> {
    output(command, doing).map(drop)
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command, doing: &str) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{doing}: start {}", name(command)))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::new(format!(
        "cannot {doing}: {} ended with {}\n{}{}",
        name(command),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    )))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// What is in a directory, in the order of the names.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let doing = || format!("list {}", directory.display());
    let entries = fs::read_dir(directory).with_context(doing)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).with_context(doing));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The cargo that runs xtask.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).stdin(Stdio::null());
    command
}

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the programs of a package so that they need nothing of the system that they run on; the
/// directory that they are in.
pub(crate) fn build_static(package: &str, profile: &str) -> Result<PathBuf> {
    // Its own directory: other flags than the host's programs have would throw those away.
    let directory = build_directory().join("static");
    let programs = directory.join(TARGET).join(profile);
    if !programs.exists() {
        progress(&format!("building {package}, linked statically"));
    }
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--bins", "--package", package, "--profile", profile]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(&directory);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(&mut cargo, &format!("build {package}"))?;
    Ok(programs)
}

/// The workspace's root.
pub(crate) fn workspace() -> PathBuf {
    // tools/xtask is two levels below it.
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// Where cargo puts what it builds.
pub(crate) fn build_directory() -> PathBuf {
    let root = workspace();
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}

/// Says what is being done, on standard error: standard output belongs to results.
pub(crate) fn progress(text: &str) {
    eprintln!("xtask: {text}");
}
