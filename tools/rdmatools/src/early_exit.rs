//! Early exit of programs that end with the line `return status N`.

use std::io::Write;

use rdmacm::ErrorKind;
use rdmacm::addr::{AddrInfo, AddrInfoHints};
use rdmacm::cm::{Event, EventType, getaddrinfo};

use crate::failure::Failure;
use crate::host::first;

/// An early exit: the failure, and the status that the C program returns.
pub(crate) struct EarlyExit {
    pub(crate) status: i32,
    pub(crate) failure: Failure,
}

impl<F: Into<Failure>> From<F> for EarlyExit {
    fn from(failure: F) -> Self {
        Self { status: -1, failure: failure.into() }
    }
}

impl EarlyExit {
    /// Creates an early exit for an `event` that `program` received while it expected `wanted`.
    pub(crate) fn from_event(
        event: &Event,
        wanted: EventType,
        program: &str,
        out: &mut dyn Write,
    ) -> Self {
        let (name, status) = (event.event_type(), event.status());
        let printed = writeln!(out, "{program}: event: {name}, error: {status}");
        match (printed, event.error_for(wanted)) {
            (Err(error), _) => error.into(),
            (Ok(()), Some(error)) => Self { status, failure: error.into() },
            (Ok(()), None) => {
                Failure::new(format!("cannot continue: received {name} twice")).into()
            }
        }
    }

    /// Prints the last line of a program that is `done`.
    pub(crate) fn report(done: Result<(), Self>, out: &mut dyn Write) -> Result<(), Failure> {
        let status = done.as_ref().map_or_else(|exit| exit.status, |()| 0);
        writeln!(out, "return status {status}")?;
        done.map_err(|exit| exit.failure)
    }
}

/// Returns the first address that `program` finds for a node and a service.
pub(crate) fn find(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddrInfoHints,
    program: &str,
    out: &mut dyn Write,
) -> Result<AddrInfo, EarlyExit> {
    let found = match getaddrinfo(node, service, Some(hints)) {
        Ok(found) => found,
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::NameResolution { code, reason, .. } => {
                    writeln!(out, "{program}: getaddrinfo error: {reason}")?;
                    *code
                }
                _ => -1,
            };
            return Err(EarlyExit { status, failure: error.into() });
        }
    };
    Ok(first(found)?)
}
