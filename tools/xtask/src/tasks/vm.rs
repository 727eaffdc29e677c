//! `cargo xtask vm`: runs a command of the host in a guest that sees the host's files.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use guest::plan::Device;
use guest::report::{Frame, Status};
use tool_error::{Context, Error, Result};

use crate::host::packages;
use crate::host::progress;
use crate::testbed::machine::{FrameListener, Outcome};
use crate::testbed::vm::Guest;

/// Exit status if the test bed failed: setup, boot, time limit, no report.
pub(crate) const BED_FAILED: u8 = 125;
/// Exit status if the command ended but the kernel complained.
const KERNEL_COMPLAINED: u8 = 126;
/// Exit status if the command could not be started.
const NOT_STARTED: u8 = 127;

/// Copies the output of the command to the same stream of this process.
pub(crate) fn pass_on(frame: Frame) -> io::Result<()> {
    match frame {
        Frame::Output(bytes) => {
            io::stdout().write_all(&bytes)?;
            io::stdout().flush()
        }
        Frame::Error(bytes) => io::stderr().write_all(&bytes),
        _ => Ok(()),
    }
}

/// Passes the output of a guest on, and keeps its last lines for the error of a failed run.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    last: Vec<u8>,
}

impl Relay {
    /// Number of last lines in the error of a failed run.
    const LINES: usize = 20;
    /// Number of bytes that these lines have at most.
    const BYTES: usize = 4096;

    /// Returns an error unless the command ended successfully and the kernel did not complain.
    ///
    /// The error contains the reason and the last lines of the output, so that it can be read without the rest.
    pub(crate) fn check(&self, outcome: &Outcome, doing: &str) -> Result<()> {
        let reason = match exit_status(outcome) {
            (0, None) => return Ok(()),
            (code, None) => format!("exit status {code}"),
            (_, Some(message)) => message,
        };
        let output = String::from_utf8_lossy(&self.last);
        let lines: Vec<_> = output.lines().collect();
        let lines = lines[lines.len().saturating_sub(Self::LINES)..].join("\n");
        Err(Error::new(format!("cannot {doing}: {reason}; its output ends with:\n{lines}")))
    }
}

impl FrameListener for Relay {
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        if let Frame::Output(bytes) | Frame::Error(bytes) = &frame {
            self.last.extend_from_slice(bytes);
            self.last.drain(..self.last.len().saturating_sub(Self::BYTES));
        }
        pass_on(frame)
    }
}

/// Runs the command and returns its exit status.
pub(crate) fn run(guest: &Guest, command: &[OsString]) -> Result<ExitCode> {
    prepare(guest)?;
    progress(&boot_message(&guest.kernel.image()?.release, &guest.devices));
    let outcome = outcome(guest, command, &mut pass_on)?;
    let program = command.first().map(|name| name.to_string_lossy());
    Ok(end(&outcome, &program.unwrap_or_default()))
}

/// Runs the command, which must succeed; `doing` names it in the error.
pub(crate) fn succeed(guest: &Guest, command: &[OsString], doing: &str) -> Result<()> {
    prepare(guest)?;
    let mut relay = Relay::default();
    let outcome = outcome(guest, command, &mut relay)?;
    relay.check(&outcome, doing)
}

/// Installs, downloads and builds everything that the guest needs.
fn prepare(guest: &Guest) -> Result<()> {
    packages::require(&Guest::packages())?;
    guest.fetch()
}

fn outcome(
    guest: &Guest,
    command: &[OsString],
    listener: &mut dyn FrameListener,
) -> Result<Outcome> {
    let directory = env::current_dir().context("find the current directory")?;
    guest.run(&directory, command, listener)
}

/// Returns the message that a guest boots, with the release of its kernel and the addresses of its devices.
fn boot_message(release: &str, devices: &[Device]) -> String {
    let device = |device: &Device| format!("{} at {}", device.name(), device.address());
    let devices: Vec<_> = devices.iter().map(device).collect();
    format!("booting Linux {release} with {}", devices.join(" and "))
}

/// Returns the exit status of `program`, and prints the reason of an abnormal end.
pub(crate) fn end(outcome: &Outcome, program: &str) -> ExitCode {
    let (code, message) = exit_status(outcome);
    if let Some(message) = message {
        progress(&format!("{program}: {message}"));
    }
    ExitCode::from(code)
}

/// Returns the exit status and a message for an abnormal end.
fn exit_status(outcome: &Outcome) -> (u8, Option<String>) {
    if !outcome.complaints.is_empty() {
        let complaints = outcome.complaints.join("\n");
        return (KERNEL_COMPLAINED, Some(format!("the guest's kernel complained:\n{complaints}")));
    }
    match &outcome.status {
        Status::Exited(code) => (u8::try_from(*code).unwrap_or(BED_FAILED), None),
        // Shells use the same status.
        Status::Signaled(signal) => {
            let code = u8::try_from(128 + signal).unwrap_or(BED_FAILED);
            (code, Some(format!("killed by signal {signal}")))
        }
        Status::NotStarted(reason) => (NOT_STARTED, Some(format!("cannot start: {reason}"))),
    }
}

#[cfg(test)]
mod tests;
