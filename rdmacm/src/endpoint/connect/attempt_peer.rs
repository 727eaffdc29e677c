//! The peer of an attempt to connect, as errors name it.

use std::net::SocketAddr;

use nix::errno::Errno;

use crate::addr::Address;
use crate::cm::{ACCEPT, ASK_FOR_ATTRIBUTES, CmId, EventType};
use crate::error::{Error, ErrorKind, RejectReason, hint};

/// The peer of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum AttemptPeer {
    /// The server to which this side connects.
    Server(Address),
    /// The client whose request this side accepts; `None` if its address is not an IP address, or is not known.
    Client(Option<SocketAddr>),
}

impl AttemptPeer {
    /// Queries the address of the client that has requested the connection of `id`.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_QUERY`.
    pub(in crate::endpoint) fn query_client(id: &CmId) -> Self {
        Self::Client(id.peer_addr().ok().flatten())
    }

    /// Returns `error` as the failure of the step that the event `awaited` ends.
    ///
    /// The error names the peer, because the program has neither the event nor the id.
    pub(in crate::endpoint) fn step_error(self, error: Error, awaited: EventType) -> Error {
        match (self, awaited) {
            (Self::Client(_), _) => self.accept_error(error),
            (Self::Server(server), EventType::AddrResolved) => error
                .of("resolve the address", server.to_string())
                .with_hint_for(&ErrorKind::TimedOut, hint::NO_MACHINE),
            (Self::Server(_), EventType::RouteResolved) => {
                error.of("resolve the route", self.subject())
            }
            (Self::Server(_), _) => {
                let hint = match error.kind() {
                    ErrorKind::TimedOut => Some(hint::NOT_ACCEPTED),
                    ErrorKind::Rejected(rejection)
                        if rejection.reason == RejectReason::INVALID_SERVICE_ID =>
                    {
                        Some(hint::NO_PROGRAM)
                    }
                    _ => None,
                };
                error.of("connect", self.subject()).with_optional_hint(hint)
            }
        }
    }

    /// Returns `error` as the failure of accepting the request of the client.
    fn accept_error(self, error: Error) -> Error {
        let hint = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::Unreachable(_) => Some(hint::CLIENT_SILENT),
            ErrorKind::Os(libc::EINVAL | libc::ECONNRESET) => Some(hint::CLIENT_GONE),
            _ => None,
        };
        error.of(ACCEPT, self.subject()).with_other_hint(hint)
    }

    /// Returns the error of a command for the connection of the client.
    ///
    /// If the client has ended its attempt, the kernel knows no attributes of the queue pair, and does not accept. The
    /// error is then the failure of the accept.
    pub(in crate::endpoint) fn command_error(self, error: Error) -> Error {
        match error.kind() {
            _ if error.operation() == ACCEPT => self.accept_error(error),
            ErrorKind::Os(libc::EINVAL) if error.operation() == ASK_FOR_ATTRIBUTES => {
                self.accept_error(error)
            }
            _ => self.add_to(error),
        }
    }

    /// Returns the error of an event as the failure of the step that the event `awaited` ends.
    ///
    /// A client on iWARP gets EINVAL if the server sends or closes before it has received a message.
    pub(in crate::endpoint) fn event_error(
        self,
        error: Error,
        awaited: EventType,
        is_iwarp: bool,
    ) -> Error {
        let is_server = matches!(self, Self::Server(_));
        let may_be_early = is_iwarp && is_server && awaited == EventType::Established;
        let error = self.step_error(error, awaited);
        if may_be_early { error.with_hint(Errno::EINVAL, hint::EARLY_SERVER) } else { error }
    }

    /// Returns the error of an attempt whose time for all steps has elapsed.
    pub(in crate::endpoint) fn total_timeout_error(self) -> Error {
        let late = |operation| Error::new(operation, self.subject(), ErrorKind::TimedOut);
        match self {
            Self::Server(_) => late("connect").with_optional_hint(Some(hint::TOTAL_TIMEOUT)),
            Self::Client(_) => late(ACCEPT),
        }
    }

    /// Adds the peer to `error`, unless the error names it already.
    pub(in crate::endpoint) fn add_to(self, error: Error) -> Error {
        match self {
            Self::Server(server) => error.with_peer(server),
            Self::Client(Some(client)) => error.with_peer(client),
            Self::Client(None) => error,
        }
    }

    /// Returns the object of an operation of the attempt, for errors: `the request of 10.0.0.2:40312`.
    pub(in crate::endpoint) fn subject(self) -> String {
        match self {
            Self::Server(server) => format!("to {server}"),
            Self::Client(Some(client)) => format!("the request of {client}"),
            Self::Client(None) => "a connection request".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
