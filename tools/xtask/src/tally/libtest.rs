//! Parsing of the output of Rust test programs: results and lists of tests.

use serde_json::Value;

/// Numbers of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Number of tests that reported that they do not apply to this kernel. libtest counts them as passed.
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Returns the number of tests that ended.
    pub(crate) const fn all(self) -> u64 {
        self.passed + self.failed + self.skipped
    }
}

/// Start of the last line of a test program.
pub(crate) const RESULT: &str = "test result: ";

/// Parses `test result: ok. 5 passed; 0 failed; 2 ignored; ...`.
pub(crate) fn result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix(RESULT)?.split_once(". ")?;
    let count = |name: &str| {
        let part = numbers.split(';').find_map(|part| part.trim().strip_suffix(name))?;
        part.trim().parse().ok()
    };
    Some(Counts { passed: count("passed")?, failed: count("failed")?, skipped: 0 })
}

/// Parses the output of `--list --format terse`.
pub(crate) fn listed(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// A test program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// Path of the manifest of its package.
    pub(crate) manifest: String,
    pub(crate) target: String,
    pub(crate) program: String,
    /// Name of the program that runs a program of another architecture on this machine.
    pub(crate) runner: Option<&'static str>,
}

/// Finds the test programs in cargo's messages, sorted by package and name.
///
/// The messages (`--message-format=json`) are one object per line, in arbitrary order.
pub(crate) fn test_programs(messages: &str) -> Vec<Artifact> {
    let artifact = |line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test =
            message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        is_test.then_some(())?;
        Some(Artifact {
            manifest: text(&message["manifest_path"])?,
            target: text(&message["target"]["name"])?,
            program: text(&message["executable"])?,
            runner: None,
        })
    };
    let mut found: Vec<Artifact> = messages.lines().filter_map(artifact).collect();
    found.sort_by(|one, other| (&one.manifest, &one.target).cmp(&(&other.manifest, &other.target)));
    found
}

#[cfg(test)]
mod tests;
