//! What a Rust test program prints: how many tests ran, how many it has.

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Tests that said themselves that they do not run on this kernel. libtest counts them as passed.
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// How many tests ended.
    pub(crate) const fn all(self) -> u64 {
        self.passed + self.failed + self.skipped
    }
}

/// How the last line of a test program begins.
pub(crate) const RESULT: &str = "test result: ";

/// Reads `test result: ok. 5 passed; 0 failed; 2 ignored; ...`.
pub(crate) fn result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix(RESULT)?.split_once(". ")?;
    let count = |name: &str| {
        let part = numbers.split(';').find_map(|part| part.trim().strip_suffix(name))?;
        part.trim().parse().ok()
    };
    Some(Counts { passed: count("passed")?, failed: count("failed")?, skipped: 0 })
}

/// The tests that `--list --format terse` names.
pub(crate) fn listed(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// The manifest of its package.
    pub(crate) manifest: String,
    pub(crate) target: String,
    pub(crate) program: String,
}

/// Finds the test programs among cargo's messages (`--message-format=json`: one object a line), which come in no
/// particular order; sorts them by package and name.
pub(crate) fn test_programs(messages: &str) -> Vec<Artifact> {
    let is_test = |line: &&str| {
        line.contains(r#""reason":"compiler-artifact""#)
            && line.contains(r#""test":true},"features""#)
    };
    let artifact = |line| {
        Some(Artifact {
            manifest: string(line, "manifest_path")?,
            target: string(line, "name")?,
            program: string(line, "executable")?,
        })
    };
    let mut found: Vec<Artifact> = messages.lines().filter(is_test).filter_map(artifact).collect();
    found.sort_by(|one, other| (&one.manifest, &one.target).cmp(&(&other.manifest, &other.target)));
    found
}

/// The string that the object's first key of this name has. Paths and names are all that is read so, and
/// of the escapes only those of `"` and `\` occur in them.
fn string(object: &str, key: &str) -> Option<String> {
    let (_, rest) = object.split_once(&format!("\"{key}\":\""))?;
    let mut text = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            character => text.push(character),
        }
    }
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
        };
        let expected = [
            artifact("a", "z", "/t/z-1"),
            artifact("tests", "headers", "/t/headers-1"),
            artifact("tests", "kernel", "/t \"q\"/kernel-1"),
        ];
        assert_eq!(test_programs(&messages.join("\n")), expected);
    }
}
