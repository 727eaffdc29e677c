//! Runs programs, and returns their output, their time and their peak memory.

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// A program and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new() }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).stdin(Stdio::null());
        // The environment is not inherited, because cargo's LD_LIBRARY_PATH makes the loader search every directory.
        command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        let arguments = self.arguments.iter();
        arguments.map(|a| a.to_string_lossy()).try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// Time limit of one run of a program: ten times the duration under the profiler on a loaded machine.
const LIMIT: Duration = Duration::from_secs(600);
/// Maximum number of repetitions of a useless run.
const REPETITIONS: usize = 9;

/// A timer that sends SIGALRM to a program that does not end in time. [`ended_well`] recognizes the signal.
///
/// The caller keeps this value until the program has ended.
pub(crate) struct Watch(
    #[expect(dead_code, reason = "the thread detects that the sender is dropped")] Sender<()>,
);

impl Watch {
    pub(crate) fn over(child: &Child) -> Result<Self, Box<dyn Error>> {
        let process = Pid::from_raw(child.id().try_into()?);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            if receiver.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                let _ = kill(process, Signal::SIGALRM);
            }
        });
        Ok(Self(sender))
    }
}

/// Reason why a run yields no measurement.
#[derive(Debug)]
pub(crate) struct Useless(pub(crate) String);

impl Useless {
    /// Returns the error of a program that did not end by itself, without a fault that it could report.
    fn stalled(program: &impl fmt::Display) -> Self {
        Self(format!("{program} did not end within {LIMIT:?}"))
    }
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Useless {}

/// Returns an error with the output `text` unless the program ended by itself and successfully.
pub(crate) fn ended_well(
    program: &impl fmt::Display,
    status: ExitStatus,
    text: impl FnOnce() -> String,
) -> Result<(), Box<dyn Error>> {
    match status.signal() {
        Some(libc::SIGALRM) => Err(Useless::stalled(program).into()),
        _ if status.success() => Ok(()),
        _ => Err(format!("{program}: {status}\n{}", text()).into()),
    }
}

/// Makes a run, and repeats it if it is [useless](Useless), for example because a program stalls.
///
/// rxe omits the acknowledgment of a message if the receiver, of either library, ends its connection at the same
/// moment. The server then waits for it forever. Each such run is reported on standard error and counts in no
/// result.
pub(crate) fn repeated<T>(
    mut run: impl FnMut() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    for _ in 0..REPETITIONS {
        match run() {
            Err(error) if error.is::<Useless>() => {
                USELESS.fetch_add(1, Ordering::Relaxed);
                progress(&format!("{error}: repeating the run"));
            }
            result => return result,
        }
    }
    run()
}

static USELESS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of repeated runs.
pub(crate) fn repetitions() -> usize {
    USELESS.load(Ordering::Relaxed)
}

/// Prints the current step on standard error, because standard output is for results.
pub(crate) fn progress(text: &str) {
    eprintln!("bench: {text}");
}

/// Runs the program, which must succeed, and returns its output.
pub(crate) fn output(program: &Program) -> Result<String, Box<dyn Error>> {
    let mut command = program.command();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| format!("{program}: {error}"))?;
    let _watch = Watch::over(&child)?;
    let output = child.wait_with_output().map_err(|error| format!("{program}: {error}"))?;
    let printed = String::from_utf8(output.stdout)?;
    let text = || format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    ended_well(program, output.status, text)?;
    Ok(printed)
}

/// Returns the time of the program from its start to its end, in milliseconds.
pub(crate) fn milliseconds(program: &Program) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    output(program)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Returns the peak resident memory of the program, in kilobytes.
///
/// The process is stopped at its exit, and its own mark is read. The value that `wait` reports is not usable: it counts
/// the resident memory of this process when it started the other one.
pub(crate) fn peak_kilobytes(program: &Program) -> Result<f64, Box<dyn Error>> {
    let mut command = program.command();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let _watch = Watch::over(&child)?;
    let process = Pid::from_raw(child.id().try_into()?);
    ptrace::seize(process, ptrace::Options::PTRACE_O_TRACEEXIT)?;
    let mut peak = None;
    loop {
        match waitpid(process, None)? {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT) => {
                peak = high_water_mark_of(child.id())?;
                ptrace::cont(process, None)?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(process, signal)?,
            WaitStatus::Exited(_, 0) => {
                return peak.ok_or_else(|| format!("{program}: no VmHWM").into());
            }
            WaitStatus::Signaled(_, Signal::SIGALRM, _) => {
                return Err(Useless::stalled(program).into());
            }
            WaitStatus::PtraceEvent(..) => ptrace::cont(process, None)?,
            other => return Err(format!("{program}: {other:?}").into()),
        }
    }
}

/// Returns the peak resident memory of a running process, in kilobytes.
pub(crate) fn peak_of(process: u32) -> Result<f64, Box<dyn Error>> {
    high_water_mark_of(process)?.ok_or_else(|| format!("process {process}: no VmHWM").into())
}

fn high_water_mark_of(process: u32) -> io::Result<Option<f64>> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(high_water_mark(&status))
}

/// Returns `VmHWM` from the text of `/proc/PID/status`.
fn high_water_mark(status: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_in_kilobytes() {
        assert_eq!(
            high_water_mark("Name:\tx\nVmHWM:\t    3412 kB\nVmRSS:\t 12 kB\n"),
            Some(3412.0)
        );
        assert_eq!(high_water_mark("VmRSS:\t 12 kB\n"), None);
    }

    #[test]
    fn only_useless_run_is_repeated() {
        let runs = |script: &'static str| {
            let mut runs = 0;
            let result = repeated(|| {
                runs += 1;
                output(&Program::new("sh").args(["-c", script]))
            });
            (runs, result.map_err(|error| error.to_string()))
        };
        assert_eq!(runs("echo x"), (1, Ok("x\n".to_owned())));
        assert_eq!(runs("exit 3").0, 1);
        let (count, result) = runs("kill -ALRM $$");
        assert_eq!(count, 1 + REPETITIONS);
        assert!(result.is_err_and(|error| error.contains("did not end")));
    }

    #[test]
    fn failed_program_error_contains_output() {
        let program = Program::new("sh").args(["-c", "echo this; echo that >&2; exit 3"]);
        let error = output(&program).expect_err("the program should exit with 3").to_string();
        assert!(error.contains("this") && error.contains("that") && error.contains('3'), "{error}");
        assert_eq!(output(&Program::new("echo").arg("x")).expect("the program should run"), "x\n");
    }
}
