//! What a Rust test program prints: how many tests ran, how many it has.

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// How the panic begins of a test that siw has stopped: see `Process` of the tests.
const STOPPED_BY_SIW: &str = "siw has left bytes lying: ";

/// Adds up the results in an output that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Counts,
    /// The failed test whose output is being read, until its panic was.
    test: Option<String>,
    /// Whether the next line is what the test panicked with.
    panicked: bool,
    stopped_by_siw: Vec<String>,
    line: Vec<u8>,
}

impl Tally {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.read(&String::from_utf8_lossy(&line));
            } else {
                self.line.push(*byte);
            }
        }
    }

    fn read(&mut self, line: &str) {
        self.counts.add(result(line).unwrap_or_default());
        if let Some(test) = failed(line) {
            self.test = Some(test.to_owned());
        } else if self.panicked {
            // What it panicked with first decides.
            let test = self.test.take().filter(|_| line.starts_with(STOPPED_BY_SIW));
            self.stopped_by_siw.extend(test);
        }
        self.panicked = line.starts_with("thread '") && line.contains(" panicked at ");
    }

    /// The sum over every result line that was complete.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// The tests that failed since siw stopped what they ran.
    pub(crate) fn stopped_by_siw(self) -> Vec<String> {
        self.stopped_by_siw
    }
}

/// Reads `test result: ok. 5 passed; 0 failed; 2 ignored; ...`.
fn result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |name: &str| {
        let part = numbers.split(';').find_map(|part| part.trim().strip_suffix(name))?;
        part.trim().parse().ok()
    };
    Some(Counts { passed: count("passed")?, failed: count("failed")? })
}

/// Reads `---- a::test stdout ----`, behind which is what a failed test printed.
fn failed(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The tests that `--list --format terse` names.
pub(crate) fn listed(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) target: String,
    pub(crate) program: String,
}

/// Finds the integration tests of the package whose manifest this is among cargo's messages
/// (`--message-format=json`: one object a line), which come in no particular order; sorts them by name.
pub(crate) fn integration_tests(messages: &str, manifest: &str) -> Vec<Artifact> {
    let wanted = |line: &&str| {
        line.contains(r#""reason":"compiler-artifact""#)
            && line.contains(r#""kind":["test"]"#)
            && string(line, "manifest_path").as_deref() == Some(manifest)
    };
    let artifact = |line| {
        Some(Artifact { target: string(line, "name")?, program: string(line, "executable")? })
    };
    let mut found: Vec<Artifact> = messages.lines().filter(wanted).filter_map(artifact).collect();
    found.sort_by(|one, other| one.target.cmp(&other.target));
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
    fn results_add_up_across_pieces() {
        let output = b"running 3 tests\ntest a ... ok\n\n\
            test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\n\
            test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n";
        let mut tally = Tally::default();
        for piece in output.chunks(7) {
            tally.feed(piece);
        }
        assert_eq!(tally.counts(), Counts { passed: 12, failed: 1 });
    }

    #[test]
    fn a_result_that_breaks_off_does_not_count() {
        let mut tally = Tally::default();
        tally.feed(b"test result: ok. 10 passed; 0 failed; 0 ignored");
        tally.feed(b"\ntest result: ok. many passed; 0 failed\n");
        assert_eq!(tally.counts(), Counts { passed: 10, failed: 0 });
        let mut tally = Tally::default();
        tally.feed(b"test result: ok. 10 passed; 0 failed; 0 ign");
        assert_eq!(tally.counts(), Counts::default());
    }

    #[test]
    fn what_siw_stopped_is_told_from_other_failures() {
        let stopped = |panics: &[&str]| {
            let panics = panics.iter().map(|message| {
                format!(
                    "thread 'siw::pings' (7) panicked at a.rs:1:1:\n{message}\nstack backtrace:\n"
                )
            });
            let mut tally = Tally::default();
            tally.feed(b"\n---- other stdout ----\n\nthread 'other' panicked at a.rs:1:1:\nno\n\n");
            tally.feed(b"---- siw::pings stdout ----\n\n");
            tally.feed(panics.collect::<String>().as_bytes());
            tally.feed(b"\n\nfailures:\n    other\n    siw::pings\n");
            tally.stopped_by_siw()
        };
        let by_siw = "siw has left bytes lying: \"rping\" did not end";
        assert_eq!(stopped(&[by_siw]), ["siw::pings"]);
        assert_eq!(stopped(&[by_siw, "another"]), ["siw::pings"]);
        assert_eq!(stopped(&["another", by_siw]), [""; 0], "what was wrong first was not siw");
        assert_eq!(stopped(&["not: siw has left bytes lying: "]), [""; 0]);
        let says = include_str!("../../../tests/src/process.rs");
        assert!(says.contains(&format!("{STOPPED_BY_SIW:?}")), "what the tests say");
    }

    #[test]
    fn benchmarks_are_not_tests() {
        assert_eq!(listed("a::b: test\nc: test\nd: bench\n\n"), ["a::b", "c"]);
    }

    #[test]
    fn only_integration_tests_of_the_package_are_found() {
        let line = |manifest: &str, kind: &str, name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{manifest}","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}","src_path":"/s.rs"}},"executable":{executable},"fresh":true}}"#
            )
        };
        let messages = [
            line("/w/tests/Cargo.toml", "test", "kernel", r#""/t \"q\"/kernel-1""#),
            line("/w/tests/Cargo.toml", "test", "headers", r#""/t/headers-1""#),
            line("/w/tests/Cargo.toml", "lib", "rdmacm_tests", r#""/t/lib-1""#),
            line("/w/other/Cargo.toml", "test", "kernel", r#""/t/kernel-2""#),
            line("/w/tests/Cargo.toml", "test", "unbuilt", "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = integration_tests(&messages.join("\n"), "/w/tests/Cargo.toml");
        let artifact = |target: &str, program: &str| Artifact {
            target: target.to_owned(),
            program: program.to_owned(),
        };
        let expected =
            [artifact("headers", "/t/headers-1"), artifact("kernel", "/t \"q\"/kernel-1")];
        assert_eq!(found, expected);
    }
}
