//! A test program that is running: at which test it is, since when, and how each test has ended.
//!
//! [`Watch`] reads what libtest prints. A guest's program runs with `--nocapture` and one thread, so that what a test
//! prints arrives while the test runs: the text of a failed test is shown at once, and is not lost with a guest that has
//! to be stopped. A program of the host runs with libtest's own capture and its threads; its lines come when its tests end.

use std::time::{Duration, Instant};

use crate::tally::libtest::{self, Counts, RESULT};

/// How the panic begins of a test that siw has stopped: see `Process` of the tests.
const STOPPED_BY_SIW: &str = "siw has left bytes lying: ";

/// How the name of a test ends that runs the C programs on both sides: it shows what they do in this test bed.
const C_ALONE: &str = "::c_serves_c";

/// How a line begins by which a test says that it does not run on this kernel, and why. See `skip` of the tests.
const SKIPPED: &str = "[skipped] ";

/// How a line begins by which a test says that it tries something again, and why. See `try_again` of the tests.
const TRIED_AGAIN: &str = "[tried again] ";

/// What is kept of a test's text: the end is more useful than the beginning.
const TEXT: usize = 64 * 1024;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// With what the test printed.
    Failed(String),
    /// For the reason that the test gave.
    Skipped(String),
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) test: String,
    pub(crate) outcome: Outcome,
    pub(crate) time: Duration,
    /// Why the test did parts of its work again.
    pub(crate) tried_again: Vec<String>,
}

impl Ending {
    /// Why the test failed by no fault of this project, if it did: siw stopped the program that the test waited for (the
    /// first panic decides), or no program of this project took part.
    pub(crate) fn foreign_fault(&self) -> Option<&'static str> {
        let Outcome::Failed(text) = &self.outcome else { return None };
        if first_panic(text).is_some_and(|message| message.starts_with(STOPPED_BY_SIW)) {
            Some("siw stopped it")
        } else if self.test.ends_with(C_ALONE) {
            Some("the C programs failed among themselves")
        } else {
            None
        }
    }
}

/// The test that is running.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) test: String,
    pub(crate) since: Instant,
    pub(crate) text: String,
}

/// Something to report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Began(String),
    Ended(Ending),
    /// A line of the summary that a failed program prints.
    Summary(String),
}

/// Reads the output of one run of a test program, which arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    line: Vec<u8>,
    running: Option<Running>,
    endings: Vec<Ending>,
    result: Option<Counts>,
    is_in_summary: bool,
}

impl Watch {
    /// Reads a piece of the output, which arrived at `now`.
    pub(crate) fn feed(&mut self, bytes: &[u8], now: Instant) -> Vec<Happening> {
        let mut happened = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.read(&String::from_utf8_lossy(&line), now, &mut happened);
            } else {
                self.line.push(*byte);
            }
        }
        // The name of a test stands at the end of the output until the test ends.
        let started = std::str::from_utf8(&self.line).ok().and_then(begun);
        if let Some((test, "")) = started {
            let test = test.to_owned();
            self.line.clear();
            self.begin(test, now, &mut happened);
        }
        happened
    }

    fn read(&mut self, line: &str, now: Instant, happened: &mut Vec<Happening>) {
        if let Some(counts) = libtest::result(line) {
            // A program may print one result after the other: one for each crate with documentation tests.
            self.result.get_or_insert_default().add(counts);
            self.is_in_summary = false;
        } else if self.is_in_summary {
            happened.push(Happening::Summary(line.to_owned()));
        } else if let Some((test, rest)) = begun(line) {
            self.begin(test.to_owned(), now, happened);
            self.read_of_test(rest, now, happened);
        } else if self.running.is_some() {
            self.read_of_test(line, now, happened);
        } else if line == "failures:" {
            self.is_in_summary = true;
        }
    }

    fn begin(&mut self, test: String, now: Instant, happened: &mut Vec<Happening>) {
        // Text without a line's end may have hidden how the test before ended. It passed: a panic's text ends a line.
        self.end(Outcome::Passed, now, happened);
        happened.push(Happening::Began(test.clone()));
        self.running = Some(Running { test, since: now, text: String::new() });
    }

    /// Reads a line that a test printed, or that says how the test ended.
    fn read_of_test(&mut self, line: &str, now: Instant, happened: &mut Vec<Happening>) {
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
            // Needs the test bed, and runs here without it.
            "ignored" => self.running = None,
            line if line.starts_with("ignored, ") => self.running = None,
            line => {
                running.text.push_str(line);
                running.text.push('\n');
                if running.text.len() > 2 * TEXT {
                    let mut start = running.text.len() - TEXT;
                    while !running.text.is_char_boundary(start) {
                        start += 1;
                    }
                    running.text.drain(..start);
                }
            }
        }
    }

    fn end(&mut self, outcome: Outcome, now: Instant, happened: &mut Vec<Happening>) {
        let Some(running) = self.running.take() else { return };
        let tried_again = running.text.lines().filter_map(|line| line.strip_prefix(TRIED_AGAIN));
        let ending = Ending {
            outcome,
            time: now.saturating_duration_since(running.since),
            tried_again: tried_again.map(str::to_owned).collect(),
            test: running.test,
        };
        self.endings.push(ending.clone());
        happened.push(Happening::Ended(ending));
    }

    /// The test that is running.
    pub(crate) fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Gives up the test that is running, which failed for this reason.
    pub(crate) fn fail(&mut self, reason: &str, now: Instant) -> Option<Ending> {
        let text = format!("{}{reason}", self.running.as_ref()?.text);
        let mut happened = Vec::new();
        self.end(Outcome::Failed(text), now, &mut happened);
        self.endings.last().cloned()
    }

    /// The tests that have ended, and the counts of the program's last line, if it came so far.
    pub(crate) fn finish(self) -> (Vec<Ending>, Option<Counts>) {
        (self.endings, self.result)
    }
}

/// Reads `test NAME ... REST`.
fn begun(line: &str) -> Option<(&str, &str)> {
    if line.starts_with(RESULT) {
        return None;
    }
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// The message of the first panic: it is on the line behind the one that says where it was.
fn first_panic(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.find(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    lines.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happened when `pieces` arrived, and what was said in the end.
    fn watched(pieces: &[&str]) -> (Vec<Happening>, Vec<(String, Outcome)>, Option<Counts>) {
        let mut watch = Watch::default();
        let now = Instant::now();
        let happened = pieces.iter().flat_map(|piece| watch.feed(piece.as_bytes(), now)).collect();
        let (endings, counts) = watch.finish();
        (happened, endings.into_iter().map(|end| (end.test, end.outcome)).collect(), counts)
    }

    fn outcomes(output: &str) -> Vec<(String, Outcome)> {
        let whole = watched(&[output]).1;
        let pieces: Vec<_> = output.split_inclusive("").collect();
        assert_eq!(watched(&pieces).1, whole, "it does not depend on the pieces");
        whole
    }

    #[test]
    fn test_begins_before_its_line_ends() {
        let began = |test: &str| Happening::Began(test.to_owned());
        let (happened, endings, counts) = watched(&["running 2 tests\ntest a::b ... "]);
        assert_eq!((happened, endings, counts), (vec![began("a::b")], vec![], None));
        let (happened, endings, _) = watched(&["test a ... ", "ok\ntest b ...", " "]);
        assert_eq!((happened.len(), endings.len()), (3, 1), "{happened:?}");
        assert_eq!(happened.last(), Some(&began("b")));
    }

    #[test]
    fn outcomes_are_told_apart() {
        let output = "test a ... ok\ntest b ... word\nthread 'b' (7) panicked at x.rs:1:1:\nno\nFAILED\n\
            test c ... [skipped] no XRC\nok\ntest d ... ignored, needs more\ntest e - should panic ... ok\n\
            \nfailures:\n\nfailures:\n    b\n\ntest result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured\n";
        let failed = "word\nthread 'b' (7) panicked at x.rs:1:1:\nno\n".to_owned();
        let expected = [
            ("a".to_owned(), Outcome::Passed),
            ("b".to_owned(), Outcome::Failed(failed)),
            ("c".to_owned(), Outcome::Skipped("no XRC".to_owned())),
            ("e - should panic".to_owned(), Outcome::Passed),
        ];
        assert_eq!(outcomes(output), expected);
        let counts = watched(&[output]).2;
        assert_eq!(counts, Some(Counts { passed: 3, failed: 1, skipped: 0 }));
    }

    #[test]
    fn unfinished_line_of_test_hides_no_other_test() {
        let outcomes = outcomes("test a ... no end of line, ok\ntest b ... FAILED\n");
        let failed = Outcome::Failed(String::new());
        assert_eq!(outcomes, [("a".to_owned(), Outcome::Passed), ("b".to_owned(), failed)]);
    }

    #[test]
    fn summary_of_failed_program_is_passed_on() {
        let output = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nno\n\nfailures:\n    a\n\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        let lines = watched(&[output]).0.into_iter().filter_map(|happened| match happened {
            Happening::Summary(line) => Some(line),
            _ => None,
        });
        assert!(lines.collect::<Vec<_>>().contains(&"---- a stdout ----".to_owned()));
    }

    #[test]
    fn first_panic_decides_whether_siw_stopped_test() {
        let stopped = |panics: &[&str]| {
            let text: String = panics
                .iter()
                .map(|message| format!("thread 'a' (7) panicked at a.rs:1:1:\n{message}\n"))
                .collect();
            let outcome = Outcome::Failed(format!("said before\n{text}"));
            let (test, tried_again) = ("a".to_owned(), vec![]);
            Ending { test, outcome, time: Duration::ZERO, tried_again }.foreign_fault().is_some()
        };
        let by_siw = "siw has left bytes lying: \"rping\" did not end";
        assert!(stopped(&[by_siw]) && stopped(&[by_siw, "another"]));
        assert!(!stopped(&["another", by_siw]) && !stopped(&["not: siw has left bytes lying: "]));
        let says = include_str!("../../../../tests/src/process.rs");
        assert!(says.contains(&format!("{STOPPED_BY_SIW:?}")), "the tests should say it");
    }

    #[test]
    fn markers_are_those_of_tests() {
        let says = include_str!("../../../../tests/src/lib.rs");
        for marker in [SKIPPED, TRIED_AGAIN] {
            assert!(says.contains(&format!("\"{marker}")), "the tests should print {marker:?}");
        }
    }

    #[test]
    fn repeated_attempts_are_counted() {
        let mut watch = Watch::default();
        let output = "test a ... [tried again] siw was late\nok\n";
        watch.feed(output.as_bytes(), Instant::now());
        assert_eq!(watch.finish().0[0].tried_again, ["siw was late"]);
    }

    #[test]
    fn test_that_is_given_up_has_failed_with_its_text() {
        let mut watch = Watch::default();
        let start = Instant::now();
        watch.feed(b"test a ... so far\n", start);
        assert_eq!(watch.running().map(|running| running.since), Some(start));
        let ending = watch.fail("out of time", start + Duration::from_secs(9)).expect("one runs");
        assert_eq!(ending.outcome, Outcome::Failed("so far\nout of time".to_owned()));
        assert_eq!(ending.time, Duration::from_secs(9));
        assert_eq!(watch.fail("out of time", start), None);
    }

    #[test]
    fn long_text_keeps_its_end() {
        let mut watch = Watch::default();
        let line = "\u{e9}".repeat(1000);
        let output = format!("test a ... {}the end\nFAILED\n", format!("{line}\n").repeat(200));
        watch.feed(output.as_bytes(), Instant::now());
        let Outcome::Failed(text) = &watch.finish().0[0].outcome else { panic!("it failed") };
        assert!(text.len() < 3 * TEXT && text.ends_with("the end\n"), "{}", text.len());
    }
}
