//! `cargo xtask faults`: whether programs survive that any system call fails, in a guest.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use tool_error::Result;

use crate::host::packages;
use crate::host::{self, progress};
use crate::tally::batch::TOOLS;
use crate::tasks::vm;
use crate::testbed::kernel::Kernel;
use crate::testbed::vm::Guest;

/// The package with the program that makes calls fail, and that program.
const PACKAGE: &str = "rdmacm-tests";
const DRIVER: &str = "fault-driver";

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those on device nodes.
    Devices,
    /// Every one.
    All,
}

impl Extent {
    /// The driver's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::All => "all",
        }
    }

    /// Some runs a second, one after the other, in a machine that others may load.
    fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Devices => 1200,
            Self::All => 6 * 3600,
        })
    }
}

/// Runs the driver in a guest, where `words` choose a part, and ends as it does.
pub(crate) fn run(extent: Extent, kernel: Kernel, words: Vec<OsString>) -> Result<ExitCode> {
    packages::require(&["strace"])?;
    progress("building the programs");
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--release", "--bin", DRIVER, "--bin", TOOLS]);
    cargo.args(["--package", PACKAGE, "--package", TOOLS]);
    host::run(&mut cargo, "build the programs")?;
    let release = host::build_directory().join("release");
    let guest = Guest { limit: extent.limit(), ..Guest::new(kernel) };
    let mut command = vec![
        release.join(DRIVER).into_os_string(),
        release.join(TOOLS).into_os_string(),
        OsString::from(extent.name()),
    ];
    command.extend(words);
    vm::run(&guest, &command)
}
