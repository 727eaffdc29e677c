//! Progress output while tests run: each result, and after a period of silence the running tests.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use indicatif::ProgressBar;

use crate::host::{SILENCE, bar, print, progress, repeat};
use crate::tally::watch::{Ending, Outcome};

/// The progress of all tests of a run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    done: usize,
    /// Place, task and start time of the work in progress; the task is the name of a test if a test runs.
    running: Vec<(String, String, Instant)>,
    last_output: Option<Instant>,
    /// The bar on the terminal.
    bar: Option<ProgressBar>,
}

impl State {
    /// Shows the numbers and the running tests on the terminal.
    fn draw(&self) {
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(self.total).unwrap_or(u64::MAX));
            bar.set_position(u64::try_from(self.done).unwrap_or(u64::MAX));
            let running = self.running.iter().map(|(place, what, _)| format!("{place}: {what}"));
            bar.set_message(running.collect::<Vec<_>>().join("; "));
        }
    }
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `tests` to the number of expected tests.
    pub(crate) fn expect(&self, tests: usize) {
        self.state().total += tests;
    }

    /// Records that `place` starts `what`; the test that ran there before has ended.
    pub(crate) fn begin(&self, place: &str, what: &str) {
        let mut state = self.state();
        state.running.retain(|(other, ..)| other != place);
        state.running.push((place.to_owned(), what.to_owned(), Instant::now()));
        state.draw();
    }

    /// Records that nothing runs at `place` any more.
    pub(crate) fn leave(&self, place: &str) {
        self.state().running.retain(|(other, ..)| other != place);
    }

    /// Prints the result of a test, and its output if it failed.
    pub(crate) fn end(&self, place: &str, ending: &Ending) {
        let mut state = self.state();
        state.done += 1;
        state.last_output = Some(Instant::now());
        let text = result_text(place, ending, state.done, state.total);
        // If standard output is closed, printing the last line ends the run.
        let _ = print(|| io::stdout().write_all(text.as_bytes()));
        state.draw();
    }

    /// Runs `work`; after each period without a result, prints what is running.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state().bar = Some(bar(0));
        let report = || {
            let state = self.state();
            if state.last_output.is_none_or(|last_output| last_output.elapsed() >= SILENCE) {
                progress(&running_text(&state, Instant::now()));
            }
        };
        let done = repeat(report, work);
        if let Some(bar) = self.state().bar.take() {
            bar.finish_and_clear();
        }
        done
    }
}

/// Returns the lines that show the result of a test.
fn result_text(place: &str, ending: &Ending, done: usize, total: usize) -> String {
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

/// Returns a line with the running tests and their durations.
fn running_text(state: &State, now: Instant) -> String {
    let running = state.running.iter().map(|(place, what, since)| {
        format!("{place}: {what} ({} s)", now.saturating_duration_since(*since).as_secs())
    });
    let running = running.collect::<Vec<_>>().join("; ");
    format!("{} of {} tests have ended; running: {running}", state.done, state.total)
}

#[cfg(test)]
mod tests;
