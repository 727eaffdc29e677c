//! Test programs: which tests they have, which of them run where, and how those ended.

pub(crate) mod batch;
pub(crate) mod host_program;
pub(crate) mod libtest;
pub(crate) mod progress;
pub(crate) mod selection;
pub(crate) mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tool_error::{Error, Result};

use crate::host;
use crate::tally::libtest::Counts;

/// What has run so far.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    counts: Counts,
    /// What went wrong besides failed tests; each counts as one.
    troubles: Vec<String>,
    /// The tests that failed, each with its program.
    failed: Vec<String>,
    /// Why tests, or parts of them, ran more than once.
    reruns: Vec<String>,
}

/// How a test program ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) counts: Counts,
    /// `true` if the program said that all is well.
    pub(crate) success: bool,
    /// The tests that failed.
    pub(crate) failed: Vec<String>,
    /// Why tests, or parts of them, ran more than once.
    pub(crate) reruns: Vec<String>,
    /// What the kernel said against it.
    pub(crate) complaints: Vec<String>,
    /// Where all that the program printed is.
    pub(crate) log: Option<PathBuf>,
}

impl Tests {
    /// Counts a step that is a test as a whole.
    pub(crate) fn step(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.counts.passed += 1,
            Err(error) => self.trouble(&format!("{name}: {error}")),
        }
    }

    /// Says now what went wrong, and again at the end: much output may lie between.
    pub(crate) fn trouble(&mut self, text: &str) {
        host::progress(text);
        self.counts.failed += 1;
        self.troubles.push(text.to_owned());
    }

    /// Takes note of what keeps everything else from running.
    pub(crate) fn stop(&mut self, error: &Error) {
        self.counts.failed += 1;
        self.troubles.push(error.to_string());
    }

    /// Adds a program's tests. Each way in which it was not what it should have been is a trouble.
    pub(crate) fn add_program(&mut self, name: &str, listed: Option<usize>, ended: Result<Ended>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return self.trouble(&format!("{name}: {error}")),
        };
        let Counts { passed, failed, skipped } = ended.counts;
        self.counts.add(ended.counts);
        let skips = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        host::progress(&format!("{name}: {passed} passed, {failed} failed{skips}"));
        let log = ended.log.map(|log| format!("; log: {}", log.display())).unwrap_or_default();
        self.failed.extend(ended.failed.iter().map(|test| format!("{name}: {test}{log}")));
        self.reruns.extend(ended.reruns.iter().map(|rerun| format!("{name}: {rerun}")));
        let ran = ended.counts.all();
        if let Some(listed) = listed.filter(|listed| *listed as u64 != ran) {
            self.trouble(&format!("{name}: {listed} tests should have run, {ran} did{log}"));
        }
        if ended.success != (failed == 0) {
            let ending = if ended.success { "was content" } else { "failed" };
            self.trouble(&format!("{name}: the program {ending} with {failed} failed tests{log}"));
        }
        if !ended.complaints.is_empty() {
            let complaints = ended.complaints.join("\n");
            self.trouble(&format!("{name}: the kernel complained:\n{complaints}"));
        }
    }

    /// Says how it went: the failed tests, what else went wrong, what ran again, and in the last line the numbers.
    pub(crate) fn finish(mut self) -> ExitCode {
        if self.counts == Counts::default() {
            self.trouble("no test ran");
        }
        for (title, lines) in [
            ("failed tests", &self.failed),
            ("what went wrong besides failed tests", &self.troubles),
            ("what ran more than once", &self.reruns),
        ] {
            if !lines.is_empty() {
                eprintln!("\nxtask: {title}:");
            }
            lines.iter().for_each(|line| eprintln!("xtask: {line}"));
        }
        match io::stdout().write_all(self.last_lines().as_bytes()) {
            Ok(()) if self.counts.failed == 0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// The numbers: `N passed, N failed` is in the last line, and what ran more than once above it.
    fn last_lines(&self) -> String {
        let Counts { passed, failed, skipped } = self.counts;
        let reruns = match self.reruns.len() {
            0 => String::new(),
            count => format!("{count} run again\n"),
        };
        let skips = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        format!("{reruns}{passed} passed, {failed} failed{skips}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts and the number of troubles after a program that listed `listed` tests.
    fn added(listed: Option<usize>, ended: Result<Ended>) -> (u64, u64, usize) {
        let mut tests = Tests::default();
        tests.add_program("it", listed, ended);
        (tests.counts.passed, tests.counts.failed, tests.troubles.len())
    }

    fn ended(passed: u64, failed: u64, success: bool) -> Result<Ended> {
        let counts = Counts { passed, failed, skipped: 0 };
        Ok(Ended { counts, success, ..Ended::default() })
    }

    #[test]
    fn expected_result_is_no_trouble() {
        assert_eq!(added(Some(3), ended(3, 0, true)), (3, 0, 0));
        assert_eq!(added(Some(3), ended(2, 1, false)), (2, 1, 0));
        assert_eq!(added(None, ended(5, 0, true)), (5, 0, 0));
        let counts = Counts { passed: 2, failed: 0, skipped: 1 };
        let skipped = Ended { counts, success: true, ..Ended::default() };
        assert_eq!(added(Some(3), Ok(skipped)), (2, 0, 0));
    }

    #[test]
    fn unexpected_result_is_a_failure() {
        assert_eq!(added(Some(3), ended(2, 0, true)), (2, 1, 1), "a test did not run");
        assert_eq!(added(Some(0), ended(1, 0, true)), (1, 1, 1), "a test too many");
        assert_eq!(added(Some(3), ended(3, 0, false)), (3, 1, 1), "the program failed");
        assert_eq!(added(Some(3), ended(2, 1, true)), (2, 2, 1), "it was content with a failure");
        assert_eq!(added(Some(3), ended(0, 0, false)), (0, 2, 2), "it ended before any test");
        assert_eq!(added(Some(3), Err(Error::new("no report"))), (0, 1, 1));
        let complaints = vec!["WARNING: at".to_owned()];
        let complained = ended(3, 0, true).map(|ended| Ended { complaints, ..ended });
        assert_eq!(added(Some(3), complained), (3, 1, 1), "the kernel complained");
    }

    #[test]
    fn last_line_counts_skips_and_the_one_above_reruns() {
        let mut tests = Tests::default();
        tests.add_program("it", Some(2), ended(2, 0, true));
        assert_eq!(tests.last_lines(), "2 passed, 0 failed\n");
        let counts = Counts { passed: 1, failed: 1, skipped: 4 };
        let (failed, reruns) = (vec!["a".to_owned()], vec!["b: siw stopped it".to_owned()]);
        tests.add_program("it", None, Ok(Ended { counts, failed, reruns, ..Ended::default() }));
        assert_eq!(tests.last_lines(), "1 run again\n3 passed, 1 failed, 4 skipped\n");
        assert_eq!(tests.failed, ["it: a"]);
    }
}
