//! Programs of the host.

pub(crate) mod packages;
mod progress;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

pub(crate) use progress::{SILENCE, bar, print, progress, repeat};
use tool_error::{Context, Error, Result};

/// Returns the search path, extended by the directories of administration programs.
///
/// A user's own path may lack these directories.
pub(crate) fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

/// Returns the default number of processors of a guest: two if this machine has them.
pub(crate) fn processors() -> NonZeroUsize {
    let two = NonZeroUsize::MIN.saturating_add(1);
    thread::available_parallelism().map_or(NonZeroUsize::MIN, |processors| processors.min(two))
}

/// Creates a command with an empty standard input and a search path with the administration programs.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// Runs a command to its end. Its output is shown only if it fails.
pub(crate) fn run(command: &mut Command, doing: &str) -> Result<()> {
    output(command, doing).map(drop)
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command, doing: &str) -> Result<Vec<u8>> {
    let output = progress::during(doing, || command.output());
    let output = output.with_context(|| format!("{doing}: start {}", name(command)))?;
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

/// Returns the entries of a directory, sorted by name.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let doing = || format!("list {}", directory.display());
    let entries = fs::read_dir(directory).with_context(doing)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).with_context(doing));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Returns the cargo command that runs xtask.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).stdin(Stdio::null());
    command
}

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the programs of a package as static programs. Returns their directory.
pub(crate) fn build_static(package: &str, profile: &str) -> Result<PathBuf> {
    // The directory is separate, because different flags would invalidate the build of the host's programs.
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

/// Returns the root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    // tools/xtask is two levels below the root.
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// Returns cargo's target directory.
pub(crate) fn build_directory() -> PathBuf {
    let root = workspace();
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}
