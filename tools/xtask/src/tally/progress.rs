//! What is said while tests run: each result when it comes, and from time to time the tests that are running.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::progress;
use crate::tally::watch::{Ending, Outcome};

/// How long nothing has to come before the tests that are running are named.
const SILENCE: Duration = Duration::from_secs(30);

/// How far all tests of a run are.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    done: usize,
    /// What is being done, by the name of the place; for a test, its name.
    running: Vec<(String, String, Instant)>,
    said: Option<Instant>,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects so many tests more.
    pub(crate) fn expect(&self, tests: usize) {
        self.state().total += tests;
    }

    /// Takes note of what is done at a place now; a test of that place that has begun before has ended.
    pub(crate) fn begin(&self, place: &str, what: &str) {
        let mut state = self.state();
        state.running.retain(|(other, ..)| other != place);
        state.running.push((place.to_owned(), what.to_owned(), Instant::now()));
    }

    /// Takes note that nothing is done at a place any more.
    pub(crate) fn leave(&self, place: &str) {
        self.state().running.retain(|(other, ..)| other != place);
    }

    /// Says how a test ended, and shows what it printed if it failed.
    pub(crate) fn end(&self, place: &str, ending: &Ending) {
        let mut state = self.state();
        state.done += 1;
        state.said = Some(Instant::now());
        let text = shown(place, ending, state.done, state.total);
        // A reader that has gone ends the run when the last line cannot be written.
        let _ = io::stdout().write_all(text.as_bytes());
    }

    /// Runs `work`, and says meanwhile what is running whenever no result has come for a while.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let (over, is_over) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while is_over.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
                    let state = self.state();
                    if state.said.is_none_or(|said| said.elapsed() >= SILENCE) {
                        progress(&still(&state, Instant::now()));
                    }
                }
            });
            let done = work();
            drop(over);
            done
        })
    }
}

/// The lines about a test that has ended.
fn shown(place: &str, ending: &Ending, done: usize, total: usize) -> String {
    let Ending { test, outcome, time, tried_again } = ending;
    let (word, rest) = match outcome {
        Outcome::Passed => ("ok", String::new()),
        Outcome::Skipped(reason) => ("skipped", format!(": {reason}")),
        Outcome::Failed(_) => ("FAILED", String::new()),
    };
    let again: String = tried_again.iter().map(|why| format!(", tried again: {why}")).collect();
    let seconds = time.as_secs_f64();
    let mut text =
        format!("[{done}/{total}] {place}: {test} ... {word} ({seconds:.1} s){again}{rest}\n");
    if let Outcome::Failed(printed) = outcome {
        for line in printed.lines() {
            text.push_str("    ");
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// What is running, and for how long.
fn still(state: &State, now: Instant) -> String {
    let running = state.running.iter().map(|(place, what, since)| {
        format!("{place}: {what} ({} s)", now.saturating_duration_since(*since).as_secs())
    });
    let running = running.collect::<Vec<_>>().join("; ");
    format!("{} of {} tests have ended; running: {running}", state.done, state.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(outcome: Outcome) -> Ending {
        let time = Duration::from_millis(1250);
        Ending { test: "a::b".to_owned(), outcome, time, tried_again: vec![] }
    }

    #[test]
    fn result_is_one_line_with_its_number() {
        let line = |outcome| shown("kernel on Linux 6.1", &ending(outcome), 3, 70);
        assert_eq!(line(Outcome::Passed), "[3/70] kernel on Linux 6.1: a::b ... ok (1.2 s)\n");
        let skipped = line(Outcome::Skipped("it has no XRC".to_owned()));
        assert!(skipped.ends_with("a::b ... skipped (1.2 s): it has no XRC\n"), "{skipped}");
        let failed = line(Outcome::Failed("one\ntwo\n".to_owned()));
        assert!(failed.ends_with("a::b ... FAILED (1.2 s)\n    one\n    two\n"), "{failed}");
    }

    #[test]
    fn repeated_attempt_is_said() {
        let tried_again = vec!["siw was late".to_owned()];
        let line = shown("x", &Ending { tried_again, ..ending(Outcome::Passed) }, 1, 1);
        assert!(line.ends_with("ok (1.2 s), tried again: siw was late\n"), "{line}");
    }

    #[test]
    fn running_tests_are_named_with_their_time() {
        let progress = Progress::default();
        progress.expect(2);
        progress.begin("one", "a");
        progress.begin("two", "b");
        progress.begin("one", "c");
        progress.leave("two");
        let state = progress.state();
        let text = still(&state, Instant::now() + Duration::from_secs(40));
        assert!(text.starts_with("0 of 2 tests have ended; running: one: c (4"), "{text}");
        assert!(!text.contains("two"), "{text}");
    }
}
