//! The server of a connection attempt, and the ports that the attempt may use.

use std::time::Instant;

use nix::errno::Errno;

use super::connector::Connector;
use super::port::PortRetry;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel, EventType, PortSpace};
use crate::endpoint::wait::deadline::deadline_after;
use crate::error::{Error, ErrorKind, RejectReason, Result, hint};

/// An attempt to connect to a server, which may begin again with another port of this side.
#[derive(Debug)]
pub(in crate::endpoint) struct ConnectAttempt {
    pub(in crate::endpoint) connector: Connector,
    pub(in crate::endpoint) server: Address,
    ports: PortRetry,
}

impl ConnectAttempt {
    pub(in crate::endpoint) fn new(connector: &Connector, server: Address) -> Self {
        let ports = PortRetry::new(connector.local_addr.map_or(0, |local| local.port()));
        Self { connector: connector.clone(), server, ports }
    }

    /// Begins again after `error`, if another port may help.
    ///
    /// Returns the new id, and the deadline of the address.
    pub(in crate::endpoint) fn retry_on_new_port(
        &mut self,
        channel: &EventChannel,
        error: Error,
    ) -> Result<(CmId, Option<Instant>)> {
        if !self.ports.try_another(&error) {
            return Err(error);
        }
        let deadline = deadline_after(self.connector.resolve_addr_timeout);
        let resolving = CmId::new(channel, PortSpace::Tcp).and_then(|id| {
            self.connector.resolve(&id, self.server)?;
            Ok(id)
        });
        // The first error explains more than the error of beginning again.
        resolving.map(|id| (id, deadline)).map_err(|_| error)
    }
}

/// Returns the error that the time for all steps of an attempt to connect is over.
pub(in crate::endpoint) fn total_timeout_error(server: Option<Address>) -> Error {
    let server = server.map(|server| format!("to {server}")).unwrap_or_default();
    let late = Error::new("connect", server, ErrorKind::TimedOut);
    late.with_optional_hint(Some(hint::TOTAL_TIMEOUT))
}

/// Returns `error` as the failure of the step to `server` that the event `awaited` ends.
///
/// The error names the server, because the program that connects has neither the event nor the id.
pub(in crate::endpoint) fn step_error(
    error: Error,
    awaited: EventType,
    server: Option<Address>,
) -> Error {
    let Some(server) = server else { return error };
    match awaited {
        EventType::AddrResolved => error
            .of("resolve the address", server.to_string())
            .with_hint_for(&ErrorKind::TimedOut, hint::NO_MACHINE),
        EventType::RouteResolved => error.of("resolve the route", format!("to {server}")),
        _ => {
            let hint = match error.kind() {
                ErrorKind::TimedOut => Some(hint::NOT_ACCEPTED),
                ErrorKind::Rejected(rejection)
                    if rejection.reason == RejectReason::INVALID_SERVICE_ID =>
                {
                    Some(hint::NO_PROGRAM)
                }
                _ => None,
            };
            error.of("connect", format!("to {server}")).with_optional_hint(hint)
        }
    }
}

/// Returns the error of an event as the failure of the step that the event `awaited` ends.
///
/// A client on iWARP gets EINVAL if the server sends or closes before it has received a message.
pub(in crate::endpoint) fn event_error(
    error: Error,
    awaited: EventType,
    server: Option<Address>,
    is_iwarp: bool,
) -> Error {
    let may_be_early = is_iwarp && server.is_some() && awaited == EventType::Established;
    let error = step_error(error, awaited, server);
    if may_be_early { error.with_hint(Errno::EINVAL, hint::EARLY_SERVER) } else { error }
}

#[cfg(test)]
mod tests;
