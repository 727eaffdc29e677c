//! Test programs that run on this machine.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use tool_error::{Context, Error, Result};

use crate::host;
use crate::tally::libtest::{self, Artifact};
use crate::tally::progress::Progress;
use crate::tally::watch::{Event, Outcome, Watch};
use crate::tally::{FailedTest, ProgramResult};

/// Returns a command that runs a test program in the directory of its package, as cargo does.
pub(crate) fn command(artifact: &Artifact) -> Command {
    let directory = Path::new(&artifact.manifest).parent().unwrap_or_else(|| Path::new("/"));
    let mut command = Command::new(artifact.runner.unwrap_or(&artifact.program));
    command.args(artifact.runner.map(|_| &artifact.program));
    command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory).stdin(Stdio::null());
    command
}

/// Lists the tests of a program that run without the test bed or, with `ignored`, those that need it.
pub(crate) fn listed(artifact: &Artifact, ignored: bool) -> Result<Vec<String>> {
    let list = |options: &[&str]| {
        let mut command = command(artifact);
        command.args(options).args(["--list", "--format", "terse"]);
        let list = host::output(&mut command, "list the tests")?;
        Ok(libtest::listed(&String::from_utf8_lossy(&list)))
    };
    let of_bed = list(&["--ignored"])?;
    if ignored {
        return Ok(of_bed);
    }
    let mut all = list(&[])?;
    all.retain(|test| !of_bed.contains(test));
    Ok(all)
}

/// Builds test programs with `cargo`, a `cargo test` command with its options.
pub(crate) fn build(cargo: &mut Command) -> Result<Vec<Artifact>> {
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]).stderr(Stdio::inherit());
    let Output { status, stdout: messages, .. } = cargo.output().context("build the tests")?;
    if !status.success() {
        return Err(Error::new("cannot build the tests: see cargo's messages above"));
    }
    Ok(libtest::test_programs(&String::from_utf8_lossy(&messages)))
}

/// Runs a command with libtest's output, and counts and shows its tests under `name`.
///
/// `listed` tests are expected; if their number is unknown, any number is accepted.
pub(crate) fn run(
    command: &mut Command,
    name: &str,
    listed: Option<usize>,
    progress: &Progress,
) -> Result<ProgramResult> {
    progress.expect(listed.unwrap_or_default());
    progress.begin(name, "starting");
    let doing = || format!("run {name}");
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(doing)?;
    let mut output = child.stdout.take().expect("standard output should be a pipe");
    let (mut watch, mut ended) = (Watch::default(), ProgramResult::default());
    let mut buffer = [0; 8192];
    loop {
        let count = output.read(&mut buffer).with_context(doing)?;
        if count == 0 {
            break;
        }
        for happened in watch.feed(&buffer[..count], Instant::now()) {
            match happened {
                // With several threads, libtest prints the name of a test only with its result.
                Event::Began(_) => {}
                Event::ProgramResult(ending) => {
                    progress.expect(usize::from(listed.is_none()));
                    progress.end(name, &ending);
                    if let Outcome::Failed(output) = ending.outcome {
                        ended.failed.push(FailedTest { name: ending.test, output });
                    }
                }
                Event::Summary(line) => eprintln!("{line}"),
            }
        }
    }
    ended.success = child.wait().with_context(doing)?.success();
    progress.leave(name);
    // The counts are those of the program's last line: a program that dies before it has counted no test.
    ended.counts = watch.finish().1.unwrap_or_default();
    Ok(ended)
}
