//! `cargo xtask sanitize`: the kernel tests under AddressSanitizer.
//!
//! The runtime is part of rustup's compilers.

use std::process::ExitCode;

use tool_error::{Error, Result};

use crate::host;
use crate::tally::Tests;
use crate::tally::batch::{self, Place};
use crate::tally::host_program::{self, listed};
use crate::tally::libtest::Artifact;
use crate::tally::progress::Progress;
use crate::tally::selection::Selection;
use crate::tasks::test;
use crate::testbed::vm::Guest;

/// Name of the test program that runs under the sanitizer.
const KERNEL: &str = "kernel";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Disables leak detection.
///
/// The library and the tests intentionally leak memory that a surviving queue pair may still write to; the heap tests
/// check the other leaks.
const NO_LEAKS: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

/// Runs the tests on each of the kernels.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    match test::require_packages().and_then(|()| test::build()).and_then(|_| build()) {
        Ok(artifact) => on_kernels(&artifact, selection, &mut tests),
        Err(error) => tests.stop(&error),
    }
    tests.finish()
}

fn on_kernels(artifact: &Artifact, selection: &Selection, tests: &mut Tests) {
    let progress = Progress::default();
    let all = match listed(artifact, true) {
        Ok(all) => all.into_iter().filter(|test| selection.chooses(test)).collect::<Vec<_>>(),
        Err(error) => return tests.stop(&error),
    };
    for kernel in &selection.kernels {
        let guest = Guest { limit: selection.limit, memory_mb: 4096, ..Guest::new(*kernel) };
        if let Err(error) = guest.fetch() {
            tests.step(KERNEL, Err(error));
            continue;
        }
        // The tests in a pair of guests touch no other memory than the rest.
        for place in [Place::RdmaCmFirst, Place::OneGuest] {
            let Some(batch) = batch::Batch::new(place, artifact, &guest, &all) else { continue };
            let batch = batch.with(NO_LEAKS.0, NO_LEAKS.1);
            let name = format!("{} under AddressSanitizer", batch.name());
            host::progress(&format!("{name}: starting {} tests", batch.count()));
            progress.expect(batch.count());
            let ended = progress.during(|| batch.run(&progress));
            tests.add_program(&name, Some(batch.count()), ended);
        }
    }
}

/// Builds the tests with the sanitizer.
fn build() -> Result<Artifact> {
    host::progress("building the tests with AddressSanitizer");
    let mut cargo = host::cargo();
    cargo.args(["test", "--package", "rdmacm-tests", "--test", KERNEL]);
    cargo.args(["--target", TARGET]);
    cargo.arg("--target-dir").arg(host::build_directory().join("sanitize"));
    // The runtime is part of rustup's stable compiler; only the option is unstable.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo.env("RUSTFLAGS", "-Zsanitizer=address").env_remove("CARGO_ENCODED_RUSTFLAGS");
    host_program::build(&mut cargo)?
        .pop()
        .ok_or_else(|| Error::new("cannot build the tests: cargo built no test program"))
}
