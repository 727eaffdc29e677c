//! The library's loom tests: protocols between threads in every order of their steps.
//!
//! Some of them include a kernel.

use std::fs;
use std::path::Path;

use tool_error::{Context, Result};

use crate::host;
use crate::tally::Tests;
use crate::tally::host_program;
use crate::tally::libtest::Artifact;
use crate::tally::progress::Progress;
use crate::tally::selection::Selection;

/// Part of the names of the loom tests.
const NAME_PART: &str = "loom_";

/// Runs the selected tests and adds them to `tests`.
pub(crate) fn add(selection: &Selection, progress: &Progress, tests: &mut Tests) {
    match may_match(selection.filter.as_deref()) {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => return tests.step("loom", Err(error)),
    }
    host::progress("building the tests for loom");
    progress.begin("loom", "building");
    let built = build();
    progress.leave("loom");
    let artifacts = match built {
        Ok(artifacts) => artifacts,
        Err(error) => return tests.step("loom", Err(error)),
    };
    for artifact in &artifacts {
        let mut listed = match host_program::listed(artifact, false) {
            Ok(listed) => listed,
            Err(error) => return tests.step("loom", Err(error)),
        };
        listed.retain(|test| test.contains(NAME_PART) && selection.chooses(test));
        if listed.is_empty() {
            continue;
        }
        let mut command = host_program::command(artifact);
        command.arg("--exact").args(&listed);
        let ended = host_program::run(&mut command, "loom", Some(listed.len()), progress);
        tests.add_program("loom", Some(listed.len()), ended);
    }
}

/// Packages that have loom models.
const PACKAGES: [&str; 2] = ["verbs-core", "rdmacm"];

/// Returns `true` if the name of a loom test may contain `filter`.
///
/// The result is `true` if the path and the text of a file together contain all parts of the filter.
///
/// Most filters select other tests; the loom tests are then not built.
fn may_match(filter: Option<&str>) -> Result<bool> {
    let Some(filter) = filter else { return Ok(true) };
    for package in PACKAGES {
        if contains_tests(&host::workspace().join(package).join("src"), filter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_tests(directory: &Path, filter: &str) -> Result<bool> {
    for path in host::files(directory)? {
        if path.is_dir() {
            if contains_tests(&path, filter)? {
                return Ok(true);
            }
            continue;
        }
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        let of_loom = text.contains(&format!("fn {NAME_PART}"));
        let path = path.to_string_lossy();
        if of_loom && filter.split("::").all(|part| text.contains(part) || path.contains(part)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Builds the tests of the crates, with loom's types instead of the standard library's.
fn build() -> Result<Vec<Artifact>> {
    let mut cargo = host::cargo();
    cargo.args(["test", "--quiet", "--lib"]);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    cargo.arg("--target-dir");
    // The directory is separate, because different flags would invalidate the build of the host's programs.
    cargo.arg(host::build_directory().join("loom"));
    cargo.env("RUSTFLAGS", "--cfg loom").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
    host_program::build(&mut cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_of_other_tests_builds_nothing() {
        assert_eq!(may_match(None), Ok(true));
        assert_eq!(may_match(Some("loom_")), Ok(true));
        assert_eq!(may_match(Some("waiters::loom_model")), Ok(true), "a module of them");
        assert_eq!(may_match(Some("endpoint_remote::")), Ok(false), "a module of other tests");
        assert_eq!(may_match(Some("no_such_test_of_loom")), Ok(false));
    }
}
