//! What a connection or a socket has done, in numbers.

use super::operation::Operation;
#[cfg(doc)]
use super::{Connection, DatagramSocket};

/// What a [connection](Connection) or a [socket](DatagramSocket) has done so far, and what has come.
///
/// Messages and operations of this side count when they are posted, whatever becomes of them; what
/// the peer sends, when a call on the connection sees that it has come. What the peer does with
/// [exported](Connection::export) memory nobody here sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages to the peer.
    pub messages_sent: u64,
    /// The bytes of those.
    pub bytes_sent: u64,
    /// Messages of the peer, received or waiting to be.
    pub messages_received: u64,
    /// The bytes of those.
    pub bytes_received: u64,
    /// Buffers that receive again, as their messages were dropped.
    pub receives_reposted: u64,
    /// RDMA writes to the peer's memory.
    pub writes: u64,
    /// The bytes of those.
    pub bytes_written: u64,
    /// RDMA reads of the peer's memory.
    pub reads: u64,
    /// The bytes of those.
    pub bytes_read: u64,
    /// Numbers of the peer's memory that were compared and swapped, or added to.
    pub atomics: u64,
    /// Requests of this side that failed; not those that the end of the connection cut off.
    pub failures: u64,
}

impl Counters {
    /// A message or an operation over `length` bytes was posted.
    pub(super) fn posted(&mut self, what: Operation, length: usize) {
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
            Operation::Change => self.atomics += 1,
            Operation::Take
            | Operation::Export
            | Operation::Receive
            | Operation::Flush
            | Operation::Close
            | Operation::Resolve
            | Operation::Join => {}
        }
    }

    /// A message has come.
    pub(super) fn received(&mut self, length: usize) {
        self.messages_received += 1;
        self.bytes_received += bytes(length);
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).expect("a length has at most 64 bits")
}
