//! The report: facts about machine and device, the result of each check, and the speed.

use std::time::Instant;

use rdmacm::ErrorKind;
use rdmacm::device::Device;
use serde_json::{Value, json};

use crate::{devinfo, link};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The check passed. The text has what was found.
    Passed(String),
    /// The device or the kernel lacks what is checked.
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
    /// The device lacks what is checked.
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

/// Returns `true` if the device or its driver lacks what was asked for.
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

impl Check {
    /// Runs a check that each device has to pass.
    pub(super) fn run(name: &'static str, check: impl FnOnce() -> Result<String, Problem>) -> Self {
        let start = Instant::now();
        let outcome = check().into();
        Self { name, outcome, milliseconds: start.elapsed().as_millis() }
    }

    /// Runs a check of a feature that a device may lack.
    pub(super) fn optional(
        name: &'static str,
        check: impl FnOnce() -> Result<String, Problem>,
    ) -> Self {
        Self::run(name, || {
            check().map_err(|problem| match problem {
                Problem::Error(error) if is_missing(error.kind()) => {
                    Problem::Missing(error.to_string())
                }
                other => other,
            })
        })
    }

    /// Creates a check that cannot be made, for the reason in `why`.
    pub(super) fn skipped(name: &'static str, why: &str) -> Self {
        Self { name, outcome: Outcome::Skipped(why.to_owned()), milliseconds: 0 }
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

/// Returns the facts about the machine.
pub(super) fn machine() -> Value {
    let name = nix::sys::utsname::uname().ok();
    let text =
        |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    json!({
        "kernel": text(name.as_ref().map(nix::sys::utsname::UtsName::release)),
        "architecture": text(name.as_ref().map(nix::sys::utsname::UtsName::machine)),
        "processors": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
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
mod tests {
    use rdmacm::endpoint::RemoteMemory;

    use super::*;

    #[test]
    fn only_missing_features_are_skipped() {
        for kind in [
            ErrorKind::Unsupported("XRC".into()),
            ErrorKind::Os(nix::errno::Errno::EOPNOTSUPP as i32),
        ] {
            assert!(is_missing(&kind), "{kind:?}");
        }
        assert!(!is_missing(&ErrorKind::TimedOut));
        let missing = Check::optional("a", || Err(Problem::Missing("no atomics".into())));
        assert_eq!((missing.outcome.word(), missing.outcome.detail()), ("skipped", "no atomics"));
        let wrong = Check::optional("a", || Err(Problem::Wrong("3 and not 4".into())));
        assert_eq!((wrong.outcome.word(), wrong.outcome.detail()), ("FAILED", "3 and not 4"));
        let failed =
            Check::optional("a", || Err(RemoteMemory::from_bytes(b"short").unwrap_err().into()));
        assert_eq!(failed.outcome.word(), "FAILED");
    }

    #[test]
    fn report_lists_checks() {
        let check = Check::run("a check", || Ok("seen".into()));
        let listed = listed(&[check]);
        assert_eq!(listed[0]["check"], "a check");
        assert_eq!((&listed[0]["result"], &listed[0]["detail"]), (&json!("ok"), &json!("seen")));
    }
}
