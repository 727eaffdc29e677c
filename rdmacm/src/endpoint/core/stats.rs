//! [`EndpointStats`], the statistics of a connection or a socket.

use super::operation::Operation;
#[cfg(doc)]
use crate::endpoint::{Connection, DatagramSocket};

/// The numbers of messages and operations of a [connection](Connection) or a [socket](DatagramSocket).
///
/// Messages and operations of this side are counted when they are posted, whether or not they succeed. Messages of the
/// peer are counted when a call finds their completions. One-sided operations of the peer on
/// [exported](Connection::export) memory are not counted: this side is not notified of them.
///
/// # Examples
///
/// ```no_run
/// # fn print(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
/// let stats = connection.stats()?;
/// println!("{} messages, {} bytes received", stats.messages_received, stats.bytes_received);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct EndpointStats {
    /// Messages posted to the peer.
    pub messages_sent: u64,
    /// Payload bytes of `messages_sent`.
    pub bytes_sent: u64,
    /// Messages of the peer that have arrived, received by the program or not.
    pub messages_received: u64,
    /// Payload bytes of `messages_received`.
    pub bytes_received: u64,
    /// Receive buffers posted again, after their messages were dropped or their requests failed.
    pub receives_reposted: u64,
    /// RDMA writes posted.
    pub writes: u64,
    /// Bytes of `writes`.
    pub bytes_written: u64,
    /// RDMA reads posted.
    pub reads: u64,
    /// Bytes of `reads`.
    pub bytes_read: u64,
    /// Atomic operations posted: compare-and-swap and fetch-and-add.
    pub atomics: u64,
    /// Work requests of this side that failed, except for those that the end of the connection has flushed.
    pub failures: u64,
}

impl EndpointStats {
    /// Counts a posted message or operation of `length` bytes.
    pub(in crate::endpoint) fn posted(&mut self, what: Operation, length: usize) {
        let bytes = bytes(length);
        match what {
            Operation::Send => {
                self.messages_sent += 1;
                self.bytes_sent += bytes;
            }
            Operation::Write => {
                self.writes += 1;
                self.bytes_written += bytes;
            }
            Operation::Read => {
                self.reads += 1;
                self.bytes_read += bytes;
            }
            Operation::Atomic => self.atomics += 1,
            Operation::AcquireBuffer
            | Operation::Export
            | Operation::Receive
            | Operation::Flush
            | Operation::Close
            | Operation::Resolve
            | Operation::Join => {}
        }
    }

    /// Counts a received message.
    pub(in crate::endpoint) fn received(&mut self, length: usize) {
        self.messages_received += 1;
        self.bytes_received += bytes(length);
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).expect("a length has at most 64 bits")
}
