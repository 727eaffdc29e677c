//! The report: facts about machine and device, the result of each check, and the speed.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process;
use std::time::Instant;

use rdmacm::ErrorKind;
use rdmacm::device::Device;
use serde_json::{Value, json};

use crate::{devinfo, link};

/// Replaces the contents of a file in one step.
///
/// The file has the former contents or the new ones, even if the program is killed meanwhile. A link, and a path that
/// is not a regular file, such as `/dev/stdout`, are written directly. So is a file that cannot be replaced.
pub(super) fn replace_file(path: &Path, contents: &str) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return fs::write(path, contents);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", process::id()));
    // The user may not be allowed to create files in the directory.
    let Ok(mut file) = fs::File::create_new(&beside) else { return fs::write(path, contents) };
    let written = file.write_all(contents.as_bytes());
    if written.is_ok() && fs::rename(&beside, path).is_ok() {
        return Ok(());
    }
    let _ = fs::remove_file(&beside);
    // The file may be the mount point of a container.
    written.and_then(|()| fs::write(path, contents))
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The check passed, with this result.
    Passed(String),
    /// The device or the kernel lacks the checked feature.
    Skipped(String),
    Failed(String),
}

impl Outcome {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "ok",
            Self::Skipped(_) => "skipped",
            Self::Failed(_) => "FAILED",
        }
    }

    pub(super) fn detail(&self) -> &str {
        match self {
            Self::Passed(text) | Self::Skipped(text) | Self::Failed(text) => text,
        }
    }
}

/// The reason why a check did not pass.
#[derive(Debug)]
pub(super) enum Problem {
    /// A call of the library failed.
    Error(rdmacm::Error),
    /// A call had another result than it should have.
    Wrong(String),
    /// The device lacks the checked feature.
    Missing(String),
}

impl From<rdmacm::Error> for Problem {
    fn from(error: rdmacm::Error) -> Self {
        Self::Error(error)
    }
}

/// Returns an error with `text` unless the condition holds.
pub(super) fn ensure(condition: bool, text: impl Into<String>) -> Result<(), Problem> {
    if condition { Ok(()) } else { Err(Problem::Wrong(text.into())) }
}

impl From<Result<String, Problem>> for Outcome {
    fn from(result: Result<String, Problem>) -> Self {
        match result {
            Ok(text) => Self::Passed(text),
            Err(Problem::Error(error)) => Self::Failed(error.to_string()),
            Err(Problem::Wrong(text)) => Self::Failed(text),
            Err(Problem::Missing(text)) => Self::Skipped(text),
        }
    }
}

/// Returns `true` if the device or its driver lacks the requested feature.
pub(super) fn is_missing(kind: &ErrorKind) -> bool {
    const EOPNOTSUPP: i32 = nix::errno::Errno::EOPNOTSUPP as i32;
    const ENOSYS: i32 = nix::errno::Errno::ENOSYS as i32;
    matches!(kind, ErrorKind::Unsupported(_) | ErrorKind::Os(EOPNOTSUPP | ENOSYS))
}

/// A check that was made.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) outcome: Outcome,
    pub(super) milliseconds: u128,
}

/// The checks of a device, each of which is recorded when it ends.
pub(super) struct Checks<'a> {
    /// The time at which no further check begins.
    end: Instant,
    record: &'a mut dyn FnMut(Check),
}

impl<'a> Checks<'a> {
    pub(super) fn new(end: Instant, record: &'a mut dyn FnMut(Check)) -> Self {
        Self { end, record }
    }

    /// Runs a check that each device has to pass.
    pub(super) fn run(
        &mut self,
        name: &'static str,
        check: impl FnOnce() -> Result<String, Problem>,
    ) {
        if Instant::now() >= self.end {
            self.add(
                name,
                Outcome::Failed("not run: the time limit has passed; raise --timeout".into()),
                0,
            );
        } else {
            self.run_always(name, check);
        }
    }

    /// Runs a check that each device has to pass, also after the time limit.
    pub(super) fn run_always(
        &mut self,
        name: &'static str,
        check: impl FnOnce() -> Result<String, Problem>,
    ) {
        let start = Instant::now();
        let outcome = check().into();
        self.add(name, outcome, start.elapsed().as_millis());
    }

    /// Runs a check of a feature that a device may lack.
    pub(super) fn optional(
        &mut self,
        name: &'static str,
        check: impl FnOnce() -> Result<String, Problem>,
    ) {
        self.run(name, || {
            check().map_err(|problem| match problem {
                Problem::Error(error) if is_missing(error.kind()) => {
                    Problem::Missing(error.to_string())
                }
                other => other,
            })
        });
    }

    /// Records a check that cannot be made, for the reason in `why`.
    pub(super) fn skip(&mut self, name: &'static str, why: &str) {
        self.add(name, Outcome::Skipped(why.to_owned()), 0);
    }

    fn add(&mut self, name: &'static str, outcome: Outcome, milliseconds: u128) {
        (self.record)(Check { name, outcome, milliseconds });
    }
}

/// Returns the facts about a device.
pub(super) fn facts(device: &Device) -> Value {
    let ports = (1..=device.port_count().unwrap_or(0)).map(|number| {
        let Ok(port) = device.port(number) else { return Value::Null };
        json!({
            "number": number,
            "state": port.state().map(link::state),
            "link_layer": port.link_layer().map(devinfo::link_layer),
            "netdev": port.netdev(),
        })
    });
    json!({
        "name": device.name(),
        "driver": device.driver().map(devinfo::driver),
        "driver_abi": device.uverbs().and_then(rdmacm::device::CharDevice::abi_version),
        "firmware": device.firmware(),
        "protocol": device.protocol(),
        "ports": ports.collect::<Vec<_>>(),
    })
}

/// Prefixes of the environment variables that configure drivers, here or in the C library.
const VARIABLES: [&str; 2] = ["MLX5_", "RDMAV_"];

/// Returns the facts about the machine.
pub(super) fn machine() -> Value {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let changes_driver = VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        changes_driver.then(|| (name, Value::from(value.to_string_lossy())))
    });
    let name = nix::sys::utsname::uname().ok();
    let text =
        |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    json!({
        "kernel": text(name.as_ref().map(nix::sys::utsname::UtsName::release)),
        "architecture": text(name.as_ref().map(nix::sys::utsname::UtsName::machine)),
        "processors": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "variables": variables.collect::<serde_json::Map<_, _>>(),
    })
}

/// Returns the checks as the report has them.
pub(super) fn listed(checks: &[Check]) -> Value {
    let listed = checks.iter().map(|check| {
        json!({
            "check": check.name,
            "result": check.outcome.word(),
            "detail": check.outcome.detail(),
            "ms": u64::try_from(check.milliseconds).unwrap_or(u64::MAX),
        })
    });
    listed.collect()
}

#[cfg(test)]
mod tests;
