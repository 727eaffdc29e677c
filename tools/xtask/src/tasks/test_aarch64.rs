//! `cargo xtask test --arch aarch64`: runs the tests of kernels and peers on Debian's kernel for aarch64.
//!
//! The programs of a guest are static, since the files of this machine that it sees are programs of another
//! architecture.

use std::cmp::Reverse;
use std::iter;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use guest::plan::Device;
use tool_error::{Error, Result};

use crate::host::{self, packages, progress};
use crate::tally::Tests;
use crate::tally::batch::{Batch, Place, Queue, TOOLS};
use crate::tally::host_program;
use crate::tally::libtest::Artifact;
use crate::tally::progress::Progress;
use crate::tally::selection::{RoceDevices, Selection};
use crate::testbed::architecture::Architecture;
use crate::testbed::kernel::Kernel;
use crate::testbed::static_programs;
use crate::testbed::vm::Guest;

const PACKAGE: &str = "rdmacm-tests";

/// Test programs that run on another architecture. The tests of other programs need no guest.
const PROGRAMS: [&str; 2] = ["kernel", "peers"];

/// Prefixes of the names of tests that run examples. Examples are not built for another architecture.
const EXAMPLE_TESTS: [&str; 7] = [
    "endpoint::examples_echo",
    "endpoint::killed_peer_is_reported",
    "endpoint::poll_group_example_echoes",
    "examples::",
    "file_copy::",
    "key_value::",
    "task_echo::",
];

/// Program that runs programs for aarch64 on this machine: it lists the tests.
const RUNNER: &str = "qemu-aarch64";
/// Package of the runner.
const RUNNER_PACKAGE: &str = "qemu-user";

/// Profile of the program `rdmatools` that the tests run.
const PROFILE: &str = "guest";

/// Runs the tests that `selection` chooses.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    if let Err(error) = add(selection, &mut tests) {
        tests.stop(&error);
    }
    tests.finish()
}

fn add(selection: &Selection, tests: &mut Tests) -> Result<()> {
    let architecture = Architecture::Aarch64;
    let wanted = [&Guest::packages(), architecture.packages(), &[RUNNER_PACKAGE]].concat();
    packages::require(&wanted)?;
    let guest = Guest { limit: selection.limit, ..Guest::new(Kernel::Aarch64) };
    let card = Guest { devices: vec![Device::Mlx5], ..guest.clone() };
    let guests = match selection.roce {
        RoceDevices::Both => vec![guest, card],
        RoceDevices::Card => vec![card],
    };
    guests.iter().try_for_each(Guest::fetch)?;
    let tools = static_programs::build_static(architecture, TOOLS, PROFILE)?.join(TOOLS);
    let artifacts = build()?;
    let mut batches = Vec::new();
    for artifact in &artifacts {
        let mut chosen = host_program::listed(artifact, true)?;
        chosen.retain(|test| selection.chooses(test) && !runs_example(test));
        for guest in &guests {
            let batch = |place| Batch::new(place, artifact, guest, &chosen);
            let new = [Place::RdmaCmFirst, Place::OneGuest].into_iter().filter_map(batch);
            batches.extend(new.map(|batch| batch.with_tools(tools.clone())));
        }
    }
    // The longest batch starts first, so that it does not run alone at the end.
    batches.sort_by_key(|batch| Reverse(batch.count()));
    let progress = Progress::default();
    progress.expect(batches.iter().map(Batch::count).sum());
    let (sender, results) = mpsc::channel();
    let queue = Queue::new(batches.iter().collect());
    thread::scope(|scope| {
        let (queue, progress) = (&queue, &progress);
        for sender in iter::repeat_n(sender, host::processors().get()) {
            scope.spawn(move || queue.run(progress, &sender));
        }
        for (batch, ended) in results {
            tests.add_program(&batch.name(), Some(batch.count()), ended);
        }
    });
    Ok(())
}

/// Returns `true` if the test runs an example.
fn runs_example(test: &str) -> bool {
    EXAMPLE_TESTS.iter().any(|prefix| test.starts_with(prefix))
}

/// Builds the test programs.
fn build() -> Result<Vec<Artifact>> {
    progress("building the tests for aarch64, with Debian's compiler");
    let mut cargo = static_programs::aarch64_cargo("test", "std,panic_unwind,test")?;
    cargo.args(["--package", PACKAGE, "--all-features"]);
    cargo.args(PROGRAMS.iter().flat_map(|program| ["--test", program]));
    let built = host_program::build(&mut cargo)?;
    let artifact = |program: &&str| {
        let built = built.iter().find(|artifact| artifact.target == *program);
        built.map(|built| Artifact { runner: Some(RUNNER), ..built.clone() }).ok_or_else(|| {
            Error::new(format!(
                "cannot find the test program {program}: cargo's output does not name it"
            ))
        })
    };
    PROGRAMS.iter().map(artifact).collect()
}

#[cfg(test)]
mod tests;
