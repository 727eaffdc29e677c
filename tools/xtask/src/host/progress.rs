//! Progress of long work: lines with the elapsed time on a terminal, plain messages elsewhere.

use std::io::{self, IsTerminal};
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// The time without output after which a message says what is running.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// The time between two drawings of a line on a terminal.
const TICK: Duration = Duration::from_millis(200);

/// The lines at the bottom of the terminal. They are hidden if standard error is not a terminal.
static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Prints a message to standard error: standard output is for results.
pub(crate) fn progress(text: &str) {
    print(|| eprintln!("xtask: {text}"));
}

/// Calls `print` while the lines at the bottom of the terminal are cleared.
pub(crate) fn print<T>(print: impl FnOnce() -> T) -> T {
    LINES.suspend(print)
}

/// Adds a bar of `total` steps to the terminal, with a text that [`ProgressBar::set_message`] changes.
pub(crate) fn bar(total: u64) -> ProgressBar {
    add(ProgressBar::new(total), "{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}")
}

fn add(line: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template should be valid");
    let line = LINES.add(line.with_style(style));
    line.enable_steady_tick(TICK);
    line
}

/// Does `work` while a line on the terminal shows `doing` and the elapsed time.
///
/// Elsewhere a message says so after each period of [`SILENCE`].
pub(crate) fn during<T>(doing: &str, work: impl FnOnce() -> T) -> T {
    if io::stderr().is_terminal() {
        let line = add(ProgressBar::new_spinner(), "{spinner} {elapsed_precise} {wide_msg}");
        line.set_message(doing.to_owned());
        let done = work();
        line.finish_and_clear();
        return done;
    }
    let start = Instant::now();
    repeat(|| progress(&format!("{doing}: {} s", start.elapsed().as_secs())), work)
}

/// Does `work`, and calls `each` after each period of [`SILENCE`] until it is done.
pub(crate) fn repeat<T>(each: impl Fn() + Send, work: impl FnOnce() -> T) -> T {
    let (over, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
                each();
            }
        });
        let done = work();
        drop(over);
        done
    })
}
