//! A connection.

use std::net::SocketAddr;

use super::parts::Parts;
use crate::cm::EventChannel;
use crate::error::Result;
use crate::verbs::CompletionChannel;

/// A connection that stands.
///
/// Dropping it ends it: see [the end](super#what-happens-at-the-end).
#[derive(Debug)]
pub struct Connection {
    // Before its channels: their descriptors go last.
    _parts: Parts,
    _channel: EventChannel,
    _completions: CompletionChannel,
    addresses: [Option<SocketAddr>; 2],
    private_data: Vec<u8>,
}

impl Connection {
    pub(super) fn new(
        parts: Parts,
        channel: EventChannel,
        completions: CompletionChannel,
        private_data: Vec<u8>,
    ) -> Result<Self> {
        let addresses = [parts.id.local_addr()?, parts.id.peer_addr()?];
        Ok(Self {
            _parts: parts,
            _channel: channel,
            _completions: completions,
            addresses,
            private_data,
        })
    }

    /// The local address; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses[0]
    }

    /// The peer's address; `None` for one of InfiniBand.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.addresses[1]
    }

    /// What the peer's program sent along when it connected or accepted. On InfiniBand and RoCE as long as the
    /// message's field (56 bytes of a request, 196 of an answer), and zero where the peer did not fill it; on iWARP as
    /// long as it was sent.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }
}
