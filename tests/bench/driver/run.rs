//! Running programs: their output, how long they take, how much memory they touch.

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
        // Without what this process has inherited: cargo sets LD_LIBRARY_PATH, which makes the
        // loader look for every library in every directory.
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

/// How long one run of a program may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the same run may be useless.
const REPETITIONS: usize = 9;

/// Ends a program that does not end by itself with an alarm, which [`ended_well`] knows by its status. Kept
/// until it has ended.
pub(crate) struct Watch(#[expect(dead_code, reason = "dropping it is what is noticed")] Sender<()>);

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

/// Why a run says nothing of what is measured.
#[derive(Debug)]
pub(crate) struct Useless(pub(crate) String);

impl Useless {
    /// It did not end by itself, by no fault that it could name.
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

/// Whether the program ended by itself and well. If not well, then with what it `said`.
pub(crate) fn ended_well(
    program: &impl fmt::Display,
    status: ExitStatus,
    said: impl FnOnce() -> String,
) -> Result<(), Box<dyn Error>> {
    match status.signal() {
        Some(libc::SIGALRM) => Err(Useless::stalled(program).into()),
        _ if status.success() => Ok(()),
        _ => Err(format!("{program}: {status}\n{}", said()).into()),
    }
}

/// Makes a run, and makes it again if it is [useless](Useless), as where one of its programs stalls: rxe
/// leaves the acknowledgement of a message out if the receiver, of either library, ends its connection at
/// the same moment, and the server then waits for it without end. Each such run is told of on standard
/// error and counts in no result.
pub(crate) fn repeated<T>(
    mut run: impl FnMut() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    for _ in 0..REPETITIONS {
        match run() {
            Err(error) if error.is::<Useless>() => {
                USELESS.fetch_add(1, Ordering::Relaxed);
                progress(&format!("{error}: once more"));
            }
            result => return result,
        }
    }
    run()
}

static USELESS: AtomicUsize = AtomicUsize::new(0);

/// How many runs were made again.
pub(crate) fn made_again() -> usize {
    USELESS.load(Ordering::Relaxed)
}

/// Says what is being done, on standard error: standard output belongs to results.
pub(crate) fn progress(text: &str) {
    eprintln!("bench: {text}");
}

/// Runs the program to its end, which must be a good one; what it printed.
pub(crate) fn output(program: &Program) -> Result<String, Box<dyn Error>> {
    let mut command = program.command();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| format!("{program}: {error}"))?;
    let _watch = Watch::over(&child)?;
    let output = child.wait_with_output().map_err(|error| format!("{program}: {error}"))?;
    let printed = String::from_utf8(output.stdout)?;
    let said = || format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    ended_well(program, output.status, said)?;
    Ok(printed)
}

/// How long the program takes from its start to its end, in milliseconds.
pub(crate) fn milliseconds(program: &Program) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    output(program)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The most memory that the program had resident at once, in kilobytes.
///
/// The process is stopped on its way out and asked for its own mark. What `wait` reports would not
/// do: it counts what this process had resident when it made the other one.
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

/// The most memory that a running process had resident at once, in kilobytes.
pub(crate) fn peak_of(process: u32) -> Result<f64, Box<dyn Error>> {
    high_water_mark_of(process)?.ok_or_else(|| format!("process {process}: no VmHWM").into())
}

fn high_water_mark_of(process: u32) -> io::Result<Option<f64>> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(high_water_mark(&status))
}

/// `VmHWM` in the text of `/proc/PID/status`.
fn high_water_mark(status: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_in_kilobytes() {
        assert_eq!(
            high_water_mark("Name:\tx\nVmHWM:\t    3412 kB\nVmRSS:\t 12 kB\n"),
            Some(3412.0)
        );
        assert_eq!(high_water_mark("VmRSS:\t 12 kB\n"), None);
    }

    #[test]
    fn only_what_is_useless_is_run_again() {
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
    fn a_program_that_fails_is_an_error_that_says_what_it_printed() {
        let program = Program::new("sh").args(["-c", "echo this; echo that >&2; exit 3"]);
        let error = output(&program).expect_err("it exits with 3").to_string();
        assert!(error.contains("this") && error.contains("that") && error.contains('3'), "{error}");
        assert_eq!(output(&Program::new("echo").arg("x")).expect("it runs"), "x\n");
    }
}
