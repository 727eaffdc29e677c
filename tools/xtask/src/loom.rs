//! The protocols between threads, and between this library and a kernel, in every order: the tests of the
//! library that loom runs.

use std::process::Command;

use guest::error::Result;

use crate::host::{self, progress};
use crate::libtest;
use crate::test::{self, Selection, Tests};

/// How the names of those tests begin, within their module.
const NAMED: &str = "loom_";

/// Runs those that are selected and adds them to `tests`.
pub(crate) fn add(selection: &Selection, tests: &mut Tests) {
    progress("== loom");
    let chosen = match listed() {
        Ok(all) => all.into_iter().filter(|test| selection.chooses(test)).collect::<Vec<_>>(),
        Err(error) => return tests.step("loom", Err(error)),
    };
    if chosen.is_empty() {
        return;
    }
    let mut cargo = cargo();
    cargo.args(["--", "--exact"]).args(&chosen);
    tests.add_program("loom", Some(chosen.len()), test::counted(&mut cargo));
}

fn listed() -> Result<Vec<String>> {
    let mut cargo = cargo();
    cargo.args(["--", "--list", "--format", "terse", NAMED]);
    let list = host::output(&mut cargo, "build the tests for loom")?;
    Ok(libtest::listed(&String::from_utf8_lossy(&list)))
}

/// The library's tests, with loom's types in place of the standard library's.
fn cargo() -> Command {
    let mut cargo = host::cargo();
    cargo.args(["test", "--quiet", "--package", "rdmacm", "--lib", "--target-dir"]);
    // Its own directory: other flags than the host's programs have would throw those away.
    cargo.arg(host::build_directory().join("loom"));
    cargo.env("RUSTFLAGS", "--cfg loom").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
    cargo
}
