//! The command: it is started, its output is relayed, and its processes are reaped.

use std::fs::File;
use std::io::Read;
use std::process::{self, Stdio};
use std::thread;

use guest::plan::HostCommand;
use guest::report::{Frame, Status};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{Pid, pipe2};
use tool_error::{Context, Error, Result};

use crate::channel::Report;

/// Buffer size for one read of a pipe.
const PIPE: usize = 64 * 1024;

/// Runs a command to its end and sends its output. Processes that are left running are killed.
pub(crate) fn run(command: &HostCommand, report: &Report) -> Result<Status> {
    let (program, arguments) = command
        .arguments
        .split_first()
        .ok_or_else(|| Error::new("cannot run the command: the plan has none"))?;
    // The command inherits the ends only as its standard streams.
    let pipe = || pipe2(OFlag::O_CLOEXEC).context("create a pipe");
    let (output, output_end) = pipe()?;
    let (error, error_end) = match command.joins_output {
        true => (None, output_end.try_clone().context("duplicate a pipe")?),
        false => pipe().map(|(error, end)| (Some(error), end))?,
    };
    let spawned = process::Command::new(program)
        .args(arguments)
        .current_dir(&command.directory)
        .env_clear()
        .envs(command.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(output_end)
        .stderr(error_end)
        .spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) => return Ok(Status::NotStarted(error.to_string())),
    };
    let output = Some(relay(File::from(output), report, Frame::Output));
    let error = error.map(|error| relay(File::from(error), report, Frame::Error));
    let status =
        reap_until(Pid::from_raw(i32::try_from(child.id()).context("read a process id")?))?;
    match kill(Pid::from_raw(-1), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => {
            return Err(Error::new(format!("cannot kill the remaining processes: {errno}")));
        }
    }
    for relay in [output, error].into_iter().flatten() {
        relay.join().map_err(|_| Error::new("cannot relay the output: the thread panicked"))??;
    }
    Ok(status)
}

/// Sends the data that arrives in `pipe` until every writer has closed it.
fn relay(
    mut pipe: impl Read + Send + 'static,
    report: &Report,
    frame: fn(Vec<u8>) -> Frame,
) -> thread::JoinHandle<Result<()>> {
    let report = report.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; PIPE];
        loop {
            let count = pipe.read(&mut buffer).context("read the command's output")?;
            if count == 0 {
                return Ok(());
            }
            report.send(&frame(buffer[..count].to_vec()))?;
        }
    })
}

/// Reaps every child, as an init process must, until `command` is one of them.
fn reap_until(command: Pid) -> Result<Status> {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => return Ok(Status::Exited(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                return Ok(Status::Signaled(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new(format!("cannot wait for the command: {errno}"))),
        }
    }
}
