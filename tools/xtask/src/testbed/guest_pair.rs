//! Two guests with two wires between them.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tool_error::{Error, Result};

use crate::testbed::machine::{Directory, Listener, Machine, Outcome, Wires};
use crate::testbed::vm::Guest;

/// There are two of them, and others beside them.
const MEMORY_MB: u32 = 1024;

/// Runs `near` in one guest and `far` in another one of the same kind, which ends with the first and is started again
/// where it ends before.
///
/// The outcome is the near guest's; what the far one wrote to standard error, and what its kernel complained about, are
/// among the complaints.
pub(crate) fn run(
    guest: &Guest,
    directory: &Path,
    near: &[OsString],
    far: &[OsString],
    listener: &mut dyn Listener,
) -> Result<Outcome> {
    let sockets = Directory::make()?;
    let machine = |command, end| -> Result<Machine> {
        let wires = Some(Wires { directory: sockets.path.clone(), end });
        Ok(Machine { wires, memory_mb: MEMORY_MB, ..guest.machine(directory, command)? })
    };
    let (near, far) = (machine(near, 0)?, machine(far, 1)?);
    let over = AtomicBool::new(false);
    let (outcome, said) = thread::scope(|scope| {
        let far = scope.spawn(|| far.run_until(&over));
        let outcome = near.run(listener);
        over.store(true, Ordering::SeqCst);
        (outcome, far.join().unwrap_or_else(|_| Err(Error::new("it panicked"))))
    });
    sockets.remove()?;
    let said = said.map_err(|error| Error::new(format!("the far guest: {error}")))?;
    outcome.map(|mut outcome| {
        outcome.complaints.extend(said.into_iter().map(|line| format!("the far guest: {line}")));
        outcome
    })
}
