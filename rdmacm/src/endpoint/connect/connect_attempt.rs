//! The server of a connection attempt, and the ports that the attempt may use.

use std::time::Instant;

use super::connector::Connector;
use super::port::PortRetry;
use crate::addr::Address;
use crate::cm::{CmId, EventChannel, PortSpace};
use crate::endpoint::wait::deadline::deadline_after;
use crate::error::{Error, Result};

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
