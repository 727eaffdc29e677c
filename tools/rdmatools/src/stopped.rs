//! How programs that end with `return status N` end early.

use std::io::Write;

use rdmacm::ErrorKind;
use rdmacm::addr::{AddrInfo, AddrInfoHints};
use rdmacm::cm::{Event, EventType, getaddrinfo};

use crate::failure::Failure;
use crate::host::first;

/// Why it ended early, and the status that the C program returns then.
pub(crate) struct Stopped {
    pub(crate) status: i32,
    pub(crate) failure: Failure,
}

impl<F: Into<Failure>> From<F> for Stopped {
    fn from(failure: F) -> Self {
        Self { status: -1, failure: failure.into() }
    }
}

impl Stopped {
    /// What `event` is to `program`, which waited for `wanted`.
    pub(crate) fn by(event: &Event, wanted: EventType, program: &str, out: &mut dyn Write) -> Self {
        let (name, status) = (event.event_type(), event.status());
        let told = writeln!(out, "{program}: event: {name}, error: {status}");
        match (told, event.failure(wanted)) {
            (Err(error), _) => error.into(),
            (Ok(()), Some(error)) => Self { status, failure: error.into() },
            (Ok(()), None) => Failure::because(format!("{name} came twice")).into(),
        }
    }

    /// The last line of a program that is `done`.
    pub(crate) fn report(done: Result<(), Self>, out: &mut dyn Write) -> Result<(), Failure> {
        let status = done.as_ref().map_or_else(|stopped| stopped.status, |()| 0);
        writeln!(out, "return status {status}")?;
        done.map_err(|stopped| stopped.failure)
    }
}

/// The first of what `program` finds for a node and a service.
pub(crate) fn find(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddrInfoHints,
    program: &str,
    out: &mut dyn Write,
) -> Result<AddrInfo, Stopped> {
    let found = match getaddrinfo(node, service, Some(hints)) {
        Ok(found) => found,
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::NotResolved { code, reason } => {
                    writeln!(out, "{program}: getaddrinfo error: {reason}")?;
                    *code
                }
                _ => -1,
            };
            return Err(Stopped { status, failure: error.into() });
        }
    };
    Ok(first(found)?)
}
