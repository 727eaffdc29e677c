//! `cargo xtask vm`: a command of the host, run in a guest that sees the host's files.

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

/// Exit status where the test bed failed: set-up, boot, time limit, no report.
pub(crate) const BED_FAILED: u8 = 125;
/// Exit status where the command ended but the kernel complained.
const KERNEL_COMPLAINED: u8 = 126;
/// Exit status where the command could not be started.
const NOT_STARTED: u8 = 127;

/// Passes what the command prints on to where it belongs.
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

/// Runs the command and ends as it did.
pub(crate) fn run(guest: &Guest, command: &[OsString]) -> Result<ExitCode> {
    packages::require(&Guest::packages())?;
    guest.fetch()?;
    let directory = env::current_dir().context("find the current directory")?;
    let outcome = guest.run(&directory, command, &mut pass_on)?;
    let program = command.first().map(|name| name.to_string_lossy());
    Ok(end(&outcome, &program.unwrap_or_default()))
}

/// Ends as `program` did in a guest, and says what there is to say about that.
pub(crate) fn end(outcome: &Outcome, program: &str) -> ExitCode {
    let (code, said) = ending(outcome);
    if let Some(said) = said {
        progress(&format!("{program}: {said}"));
    }
    ExitCode::from(code)
}

/// The exit status, and what there is to say about it.
fn ending(outcome: &Outcome) -> (u8, Option<String>) {
    if !outcome.complaints.is_empty() {
        let complaints = outcome.complaints.join("\n");
        return (KERNEL_COMPLAINED, Some(format!("the guest's kernel complained:\n{complaints}")));
    }
    match &outcome.status {
        Status::Exited(code) => (u8::try_from(*code).unwrap_or(BED_FAILED), None),
        // As a shell has it.
        Status::Signaled(signal) => {
            let code = u8::try_from(128 + signal).unwrap_or(BED_FAILED);
            (code, Some(format!("killed by signal {signal}")))
        }
        Status::NotStarted(reason) => (NOT_STARTED, Some(format!("cannot be started: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_ends_the_task_as_it_ended_unless_the_kernel_complains() {
        let ended = |status: &Status, complaints: &[&str]| {
            let complaints = complaints.iter().map(|text| (*text).to_owned()).collect();
            ending(&Outcome { status: status.clone(), complaints })
        };
        let statuses = [
            (Status::Exited(0), 0, None),
            (Status::Exited(7), 7, None),
            (Status::Signaled(9), 137, Some("killed by signal 9")),
            (
                Status::NotStarted("no such file".into()),
                127,
                Some("cannot be started: no such file"),
            ),
        ];
        for (status, code, said) in statuses {
            assert_eq!(ended(&status, &[]), (code, said.map(str::to_owned)));
            let (code, said) = ended(&status, &["WARNING: one", "BUG: two"]);
            assert_eq!(code, 126, "{status:?}");
            let said = said.expect("it is said");
            assert!(said.contains("WARNING: one") && said.contains("BUG: two"), "{said}");
        }
    }
}
