//! Test programs: their tests, the place where each test runs, and the results.

pub(crate) mod batch;
mod card;
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

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    counts: Counts,
    /// Problems other than failed tests; each counts as one failure.
    problems: Vec<String>,
    /// The failed tests, each with its program and the end of its output.
    failed: Vec<String>,
    /// Reasons for repeated tests, or parts of tests.
    reruns: Vec<String>,
    /// Warnings of kernels that no test caused.
    known_warnings: Vec<String>,
}

/// The result of a test program.
#[derive(Debug, Default)]
pub(crate) struct ProgramResult {
    pub(crate) counts: Counts,
    /// `true` if the program reported success.
    pub(crate) success: bool,
    /// The failed tests.
    pub(crate) failed: Vec<FailedTest>,
    /// Reasons for repeated tests, or parts of tests.
    pub(crate) reruns: Vec<String>,
    /// Complaints of the kernel during the run.
    pub(crate) complaints: Vec<String>,
    /// Warnings of the kernel that no test caused.
    pub(crate) known_warnings: Vec<String>,
    /// Path of the file with the program's output.
    pub(crate) log: Option<PathBuf>,
}

/// A failed test.
#[derive(Debug)]
pub(crate) struct FailedTest {
    pub(crate) name: String,
    /// Text that the test printed.
    pub(crate) output: String,
}

impl FailedTest {
    /// Returns the last lines of the output without backtraces, each on a line of its own and indented.
    ///
    /// A reader of the summary may have nothing else: the full output is far above it.
    fn last_output(&self) -> String {
        const SHOWN: usize = 20;
        let mut is_in_backtrace = false;
        let is_shown = |line: &&str| {
            let begins = line.trim() == "stack backtrace:";
            is_in_backtrace = begins || (is_in_backtrace && is_of_backtrace(line));
            !is_in_backtrace
        };
        let lines: Vec<&str> = self.output.lines().filter(is_shown).collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN)..];
        shown.iter().map(|line| format!("\n    {line}")).collect()
    }
}

/// Returns `true` if `line` is part of a backtrace: a function with its number, or a place.
fn is_of_backtrace(line: &str) -> bool {
    let text = line.trim_start();
    let number = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let is_function = number.len() < text.len() && number.starts_with(": ");
    line.starts_with(' ') && (is_function || text.starts_with("at "))
}

impl Tests {
    /// Counts a step as a single test.
    pub(crate) fn step(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.counts.passed += 1,
            Err(error) => self.add_problem(&format!("{name}: {error}")),
        }
    }

    /// Prints a problem now and again at the end, since much output may follow.
    pub(crate) fn add_problem(&mut self, text: &str) {
        host::progress(text);
        self.counts.failed += 1;
        self.problems.push(text.to_owned());
    }

    /// Records the reason for a repeated step.
    pub(crate) fn add_rerun(&mut self, text: &str) {
        host::progress(text);
        self.reruns.push(text.to_owned());
    }

    /// Records the error that keeps all other tests from running.
    pub(crate) fn stop(&mut self, error: &Error) {
        self.counts.failed += 1;
        self.problems.push(error.to_string());
    }

    /// Adds the tests of a program. Each unexpected result is recorded as a problem.
    pub(crate) fn add_program(
        &mut self,
        name: &str,
        listed: Option<usize>,
        ended: Result<ProgramResult>,
    ) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return self.add_problem(&format!("{name}: {error}")),
        };
        let Counts { passed, failed, skipped } = ended.counts;
        self.counts.add(ended.counts);
        let skips = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        host::progress(&format!("{name}: {passed} passed, {failed} failed{skips}"));
        let log = ended.log.map(|log| format!("; log: {}", log.display())).unwrap_or_default();
        self.failed.extend(
            ended
                .failed
                .iter()
                .map(|test| format!("{name}: {}{log}{}", test.name, test.last_output())),
        );
        self.reruns.extend(ended.reruns.iter().map(|rerun| format!("{name}: {rerun}")));
        let warnings = ended.known_warnings.iter();
        self.known_warnings.extend(warnings.map(|warning| format!("{name}: {warning}")));
        let ran = ended.counts.all();
        if let Some(listed) = listed.filter(|listed| *listed as u64 != ran) {
            self.add_problem(&format!("{name}: {ran} of {listed} expected tests ran{log}"));
        }
        if ended.success != (failed == 0) {
            let ending = if ended.success { "reported success" } else { "failed" };
            self.add_problem(&format!(
                "{name}: the program {ending}, with {failed} failed tests{log}"
            ));
        }
        if !ended.complaints.is_empty() {
            let complaints = ended.complaints.join("\n");
            self.add_problem(&format!("{name}: the kernel complained:\n{complaints}"));
        }
    }

    /// Prints the summary.
    ///
    /// It contains the failed tests, other problems, repeated tests, known kernel warnings and, in the last line, the
    /// counts.
    pub(crate) fn finish(mut self) -> ExitCode {
        if self.counts == Counts::default() {
            self.add_problem("no test ran");
        }
        for (title, lines) in [
            ("failed tests", &self.failed),
            ("other problems", &self.problems),
            ("repeated tests", &self.reruns),
            ("known kernel warnings", &self.known_warnings),
        ] {
            if !lines.is_empty() {
                eprintln!("\nxtask: {title}:");
            }
            lines.iter().for_each(|line| eprintln!("xtask: {line}"));
        }
        match io::stdout().write_all(self.last_line().as_bytes()) {
            Ok(()) if self.counts.failed == 0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// Returns the last line: `N passed, N failed`, and the numbers of skipped tests, repeated tests and known warnings of the
    /// kernel if there are any.
    fn last_line(&self) -> String {
        let Counts { passed, failed, skipped } = self.counts;
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let others = [
            (skipped, "skipped"),
            (count(self.reruns.len()), "run again"),
            (count(self.known_warnings.len()), "known kernel warnings"),
        ];
        let others = others.into_iter().filter(|(count, _)| *count > 0);
        let others: String = others.map(|(count, what)| format!(", {count} {what}")).collect();
        format!("{passed} passed, {failed} failed{others}\n")
    }
}

#[cfg(test)]
mod tests;
