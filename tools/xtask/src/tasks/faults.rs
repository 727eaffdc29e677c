//! `cargo xtask faults`: checks that programs survive the failure of any system call, in a guest.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use tool_error::Result;

use crate::host::packages;
use crate::host::{self, progress};
use crate::tally::batch::TOOLS;
use crate::tasks::vm;
use crate::testbed::vm::Guest;

/// Package with the program that injects failures, and below it that program.
const PACKAGE: &str = "rdmacm-tests";
const DRIVER: &str = "fault-driver";

/// The set of calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Calls on device nodes.
    Devices,
    /// All calls.
    All,
}

impl Extent {
    /// Returns the driver's name of the extent.
    fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::All => "all",
        }
    }

    /// Returns the time limit, which allows for some sequential runs per second on a loaded machine.
    fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Devices => 1200,
            Self::All => 6 * 3600,
        })
    }
}

/// Runs the driver in a guest with its exit status; `words` restrict the run.
pub(crate) fn run(extent: Extent, guest: Guest, words: Vec<OsString>) -> Result<ExitCode> {
    packages::require(&["strace"])?;
    progress("building the programs");
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--release", "--bin", DRIVER, "--bin", TOOLS]);
    cargo.args(["--package", PACKAGE, "--package", TOOLS]);
    host::run(&mut cargo, "build the programs")?;
    let release = host::build_directory().join("release");
    let guest = Guest { limit: extent.limit(), ..guest };
    let mut command = vec![
        release.join(DRIVER).into_os_string(),
        release.join(TOOLS).into_os_string(),
        OsString::from(extent.name()),
    ];
    command.extend(words);
    vm::run(&guest, &command)
}
