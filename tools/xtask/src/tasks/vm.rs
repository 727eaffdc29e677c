//! `cargo xtask vm`: runs a command of the host in a guest that sees the host's files.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use guest::report::{Frame, Status};
use tool_error::{Context, Result};

use crate::host::packages;
use crate::host::progress;
use crate::testbed::machine::Outcome;
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

/// Runs the command and returns its exit status.
pub(crate) fn run(guest: &Guest, command: &[OsString]) -> Result<ExitCode> {
    packages::require(&Guest::packages())?;
    guest.fetch()?;
    let directory = env::current_dir().context("find the current directory")?;
    let outcome = guest.run(&directory, command, &mut pass_on)?;
    let program = command.first().map(|name| name.to_string_lossy());
    Ok(end(&outcome, &program.unwrap_or_default()))
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
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_that_of_command_or_complaint() {
        let ended = |status: &Status, complaints: &[&str]| {
            let complaints = complaints.iter().map(|text| (*text).to_owned()).collect();
            exit_status(&Outcome { status: status.clone(), complaints })
        };
        let statuses = [
            (Status::Exited(0), 0, None),
            (Status::Exited(7), 7, None),
            (Status::Signaled(9), 137, Some("killed by signal 9")),
            (Status::NotStarted("no such file".into()), 127, Some("cannot start: no such file")),
        ];
        for (status, code, message) in statuses {
            assert_eq!(ended(&status, &[]), (code, message.map(str::to_owned)));
            let (code, message) = ended(&status, &["WARNING: one", "BUG: two"]);
            assert_eq!(code, 126, "{status:?}");
            let message = message.expect("there should be a message");
            assert!(message.contains("WARNING: one") && message.contains("BUG: two"), "{message}");
        }
    }
}
