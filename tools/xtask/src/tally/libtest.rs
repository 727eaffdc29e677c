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
mod tests {
    use super::*;

    #[test]
    fn result_line_is_counted() {
        let line = "test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(result(line), Some(Counts { passed: 2, failed: 1, skipped: 0 }));
        for line in ["test result: ok. many passed; 0 failed", "test result: ok. 10 passed", "ok"] {
            assert_eq!(result(line), None, "{line}");
        }
    }

    #[test]
    fn benchmarks_are_not_tests() {
        assert_eq!(listed("a::b: test\nc: test\nd: bench\n\n"), ["a::b", "c"]);
    }

    #[test]
    fn only_test_programs_are_found() {
        let line = |manifest: &str, name: &str, is_test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{manifest}","target":{{"kind":["lib"],"name":"{name}","test":true}},"profile":{{"opt_level":"1","test":{is_test}}},"features":[],"executable":{executable},"fresh":true}}"#
            )
        };
        let messages = [
            line("/w/tests/Cargo.toml", "kernel", true, r#""/t \"q\"/kernel-1""#),
            line("/w/a/Cargo.toml", "z", true, r#""/t/z-1""#),
            line("/w/tests/Cargo.toml", "headers", true, r#""/t/headers-1""#),
            line("/w/tests/Cargo.toml", "soak", false, r#""/t/soak""#),
            line("/w/tests/Cargo.toml", "unbuilt", true, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let artifact = |package: &str, target: &str, program: &str| Artifact {
            manifest: format!("/w/{package}/Cargo.toml"),
            target: target.to_owned(),
            program: program.to_owned(),
            runner: None,
        };
        let expected = [
            artifact("a", "z", "/t/z-1"),
            artifact("tests", "headers", "/t/headers-1"),
            artifact("tests", "kernel", "/t \"q\"/kernel-1"),
        ];
        assert_eq!(test_programs(&messages.join("\n")), expected);
    }
}
