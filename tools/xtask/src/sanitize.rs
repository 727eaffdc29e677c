//! `cargo xtask sanitize`: the kernel tests under AddressSanitizer, whose runtime comes with rustup's compilers.

use std::process::{ExitCode, Output, Stdio};

use guest::error::{Context, Error, Result};

use crate::batch::{self, Place};
use crate::host::{self, progress};
use crate::libtest::{self, Artifact};
use crate::test::{self, Selection, Tests};
use crate::vm::{self, Guest};

/// The tests that it is for.
const KERNEL: &str = "kernel";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What a queue pair that the kernel keeps may still write to is leaked on purpose, by the library and by the tests,
/// which look at the heap where nothing is.
const NO_LEAKS: &str = "ASAN_OPTIONS=detect_leaks=0";

/// Runs them, on each of the kernels.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    match test::require_packages().and_then(|()| test::build_tools()).and_then(|()| build()) {
        Ok(artifact) => on_kernels(&artifact, selection, &mut tests),
        Err(error) => tests.stop(&error),
    }
    tests.finish()
}

fn on_kernels(artifact: &Artifact, selection: &Selection, tests: &mut Tests) {
    let all = match test::listed(artifact) {
        Ok(all) => all.into_iter().filter(|test| selection.chooses(test)).collect::<Vec<_>>(),
        Err(error) => return tests.stop(&error),
    };
    for kernel in &selection.kernels {
        let guest = Guest { limit: selection.limit, memory_mb: 4096, ..Guest::new(*kernel) };
        if let Err(error) = guest.fetch() {
            tests.step(KERNEL, Err(error));
            continue;
        }
        // What runs in a pair of guests does not touch other memory than the rest.
        for place in [Place::RdmaCmFirst, Place::Alone] {
            let Some(batch) = batch::Batch::new(place, artifact, &guest, &all) else { continue };
            let batch = batch.with(NO_LEAKS);
            let name = format!("{}, under AddressSanitizer", batch.name());
            progress(&format!("== {name}"));
            tests.add_program(&name, Some(batch.count()), batch.run(vm::pass_on));
        }
    }
}

/// Builds the tests, with the sanitizer.
fn build() -> Result<Artifact> {
    progress("building the tests, with AddressSanitizer");
    let mut cargo = host::cargo();
    cargo.args(["test", "--package", "rdmacm-tests", "--test", KERNEL]);
    cargo.args(["--no-run", "--message-format=json-render-diagnostics", "--target", TARGET]);
    cargo.arg("--target-dir").arg(host::build_directory().join("sanitize"));
    cargo.stderr(Stdio::inherit());
    // The runtime comes with the compiler of rustup; only the option is not stable.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo.env("RUSTFLAGS", "-Zsanitizer=address").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let Output { status, stdout: messages, .. } = cargo.output().context("build the tests")?;
    let manifest = batch::directory().join("Cargo.toml");
    let manifest = manifest.to_string_lossy();
    let mut found =
        libtest::integration_tests(&String::from_utf8_lossy(&messages), manifest.as_ref());
    match found.pop().filter(|_| status.success()) {
        Some(artifact) => Ok(artifact),
        None => Err(Error::new("cannot build the tests: cargo says why above")),
    }
}
