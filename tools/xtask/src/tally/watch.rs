//! Observation of a running test program: the running test, its start time, and the results.
//!
//! [`Watch`] parses libtest's output. A guest's program runs with `--nocapture` and one thread, so that a test's output
//! arrives while the test runs. The text of a failed test is shown at once, and is not lost if the guest has to be
//! stopped. A program of the host uses libtest's own capture and threads; its lines arrive when its tests end.

use std::time::{Duration, Instant};

use crate::tally::libtest::{self, Counts, RESULT};

/// Starts of panic messages of tests that failed because of a driver, and the cause.
///
/// `Process` of the tests prints them.
const BLOCKED_BY_DRIVER: [(&str, &str); 2] = [
    ("siw leaves bytes unread: ", "siw blocked the program"),
    ("rxe repeats a message forever: ", "rxe blocked the program"),
];

/// End of the name of tests with C programs on both sides, which show how these behave in the test bed.
pub(super) const C_ONLY: &str = "::c_serves_c";

/// Start of a line in which a test gives the reason why it does not apply to this kernel.
///
/// See `skip` of the tests.
const SKIPPED: &str = "[skipped] ";

/// Start of a line in which a test gives the reason for repeating a step. See `try_again` of the tests.
const TRIED_AGAIN: &str = "[tried again] ";

/// Length of the test output that is kept, in bytes: the end is more useful than the start.
const MAX_TEXT: usize = 64 * 1024;

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Failed, with the test's output.
    Failed(String),
    /// Skipped, with the test's reason.
    Skipped(String),
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) test: String,
    pub(crate) outcome: Outcome,
    pub(crate) time: Duration,
    /// Reasons for which the test repeated parts of its work.
    pub(crate) tried_again: Vec<String>,
}

impl Ending {
    /// Returns the cause if the test failed for a reason outside this project.
    ///
    /// Either a driver blocked the program for which the test waited (the first panic decides), or no program of this
    /// project took part.
    pub(crate) fn external_cause(&self) -> Option<&'static str> {
        let Outcome::Failed(text) = &self.outcome else { return None };
        let message = first_panic(text).unwrap_or_default();
        let stopped = BLOCKED_BY_DRIVER.iter().find(|(start, _)| message.starts_with(start));
        let c_alone =
            || self.test.ends_with(C_ONLY).then_some("the C programs failed without this library");
        stopped.map(|(_, cause)| *cause).or_else(c_alone)
    }
}

/// The running test.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) test: String,
    pub(crate) since: Instant,
    pub(crate) text: String,
}

/// An event of a test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Began(String),
    ProgramResult(Ending),
    /// A line of the summary that a failed program prints.
    Summary(String),
}

/// Parser of the output of a test program, which arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    line: Vec<u8>,
    running: Option<Running>,
    endings: Vec<Ending>,
    result: Option<Counts>,
    is_in_summary: bool,
}

impl Watch {
    /// Parses a piece of the output, which arrived at `now`.
    pub(crate) fn feed(&mut self, bytes: &[u8], now: Instant) -> Vec<Event> {
        let mut happened = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.read(&String::from_utf8_lossy(&line), now, &mut happened);
            } else {
                self.line.push(*byte);
            }
        }
        // The name of a test is the last part of the output until the test ends.
        let started = std::str::from_utf8(&self.line).ok().and_then(parse_begin);
        if let Some((test, "")) = started {
            let test = test.to_owned();
            self.line.clear();
            self.begin(test, now, &mut happened);
        }
        happened
    }

    fn read(&mut self, line: &str, now: Instant, happened: &mut Vec<Event>) {
        if let Some(counts) = libtest::result(line) {
            // `cargo test --doc` prints one result for each crate with documentation tests.
            self.result.get_or_insert_default().add(counts);
            self.is_in_summary = false;
        } else if self.is_in_summary {
            happened.push(Event::Summary(line.to_owned()));
        } else if let Some((test, rest)) = parse_begin(line) {
            self.begin(test.to_owned(), now, happened);
            self.read_of_test(rest, now, happened);
        } else if self.running.is_some() {
            self.read_of_test(line, now, happened);
        } else if line == "failures:" {
            self.is_in_summary = true;
        }
    }

    fn begin(&mut self, test: String, now: Instant, happened: &mut Vec<Event>) {
        // Text without a newline may have hidden the previous test's result. That test passed: a panic message ends
        // with a newline.
        self.end(Outcome::Passed, now, happened);
        happened.push(Event::Began(test.clone()));
        self.running = Some(Running { test, since: now, text: String::new() });
    }

    /// Parses a line that a test printed, or that contains the test's result.
    fn read_of_test(&mut self, line: &str, now: Instant, happened: &mut Vec<Event>) {
        let Some(running) = &mut self.running else { return };
        match line {
            "ok" => {
                let skipped = running.text.lines().find_map(|line| line.strip_prefix(SKIPPED));
                let outcome = skipped.map(str::to_owned).map_or(Outcome::Passed, Outcome::Skipped);
                self.end(outcome, now, happened);
            }
            "FAILED" => {
                let text = std::mem::take(&mut running.text);
                self.end(Outcome::Failed(text), now, happened);
            }
            // The test needs the test bed, and is skipped on the host.
            "ignored" => self.running = None,
            line if line.starts_with("ignored, ") => self.running = None,
            line => {
                running.text.push_str(line);
                running.text.push('\n');
                if running.text.len() > 2 * MAX_TEXT {
                    let mut start = running.text.len() - MAX_TEXT;
                    while !running.text.is_char_boundary(start) {
                        start += 1;
                    }
                    running.text.drain(..start);
                }
            }
        }
    }

    fn end(&mut self, outcome: Outcome, now: Instant, happened: &mut Vec<Event>) {
        let Some(running) = self.running.take() else { return };
        let tried_again = running.text.lines().filter_map(|line| line.strip_prefix(TRIED_AGAIN));
        let ending = Ending {
            outcome,
            time: now.saturating_duration_since(running.since),
            tried_again: tried_again.map(str::to_owned).collect(),
            test: running.test,
        };
        self.endings.push(ending.clone());
        happened.push(Event::ProgramResult(ending));
    }

    /// Returns the running test.
    pub(crate) fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Ends the running test as failed, for `reason`.
    pub(crate) fn fail(&mut self, reason: &str, now: Instant) -> Option<Ending> {
        let text = &self.running.as_ref()?.text;
        // The cause comes last, because the summary shows the end of the output.
        let text = match reason.split_once('\n') {
            Some((cause, details)) => format!("{text}{details}\n{cause}"),
            None => format!("{text}{reason}"),
        };
        let mut happened = Vec::new();
        self.end(Outcome::Failed(text), now, &mut happened);
        self.endings.last().cloned()
    }

    /// Returns the tests that have ended, and the counts of the program's last line if it was received.
    pub(crate) fn finish(self) -> (Vec<Ending>, Option<Counts>) {
        (self.endings, self.result)
    }
}

/// Parses `test NAME ... REST`.
fn parse_begin(line: &str) -> Option<(&str, &str)> {
    if line.starts_with(RESULT) {
        return None;
    }
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// Returns the message of the first panic, which follows the line with its location.
fn first_panic(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.find(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    lines.next()
}

#[cfg(test)]
mod tests;
