//! Two guests that are connected by two network links.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tool_error::{Error, Result};

use crate::testbed::machine::{Directory, FrameListener, LinkEnd, Machine, Outcome};
use crate::testbed::vm::Guest;

/// Memory of each guest in MiB: two guests run at once, in parallel with others.
const MEMORY_MB: u32 = 1024;

/// Runs `near` in the first guest and `far` in the second one.
///
/// The far guest is restarted if it ends early, and is ended with the near guest.
///
/// Returns the outcome of the near guest. The standard error of the far guest and the complaints of its kernel are
/// added to the complaints.
pub(crate) fn run(
    [near_guest, far_guest]: &[Guest; 2],
    directory: &Path,
    near: &[OsString],
    far: &[OsString],
    listener: &mut dyn FrameListener,
) -> Result<Outcome> {
    let sockets = Directory::make()?;
    let machine = |guest: &Guest, command, end| -> Result<Machine> {
        let link_end = Some(LinkEnd { directory: sockets.path.clone(), end });
        Ok(Machine { link_end, memory_mb: MEMORY_MB, ..guest.machine(directory, command)? })
    };
    let (near, far) = (machine(near_guest, near, 0)?, machine(far_guest, far, 1)?);
    let over = AtomicBool::new(false);
    let (outcome, far_output) = thread::scope(|scope| {
        let far = scope.spawn(|| far.run_until(&over));
        let outcome = near.run(listener);
        over.store(true, Ordering::SeqCst);
        (outcome, far.join().unwrap_or_else(|_| Err(Error::new("the thread panicked"))))
    });
    sockets.remove()?;
    let far_output =
        far_output.map_err(|error| Error::new(format!("cannot run the far guest: {error}")))?;
    outcome.map(|mut outcome| {
        outcome
            .complaints
            .extend(far_output.into_iter().map(|line| format!("the far guest: {line}")));
        outcome
    })
}
