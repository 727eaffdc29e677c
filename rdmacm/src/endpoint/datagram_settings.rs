//! [`DatagramSettings`], the options of a datagram socket.

#[cfg(doc)]
use super::datagrams::DatagramSocket;
use crate::non_exhaustive::NonExhaustive;

/// What a [`DatagramSocket`] is to have.
///
/// Made from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramSettings {
    /// Buffers for sending: as many datagrams may be under way, or in the program's hands.
    pub send_buffers: u32,
    /// Buffers for receiving: as many datagrams may arrive before the program looks at them. One
    /// that finds none is lost, and nobody is told.
    pub receive_buffers: u32,
    /// How many senders are remembered. To answer another one takes some system calls and a kernel
    /// object again.
    pub known_senders: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for DatagramSettings {
    /// Sixteen buffers for sending, 64 for receiving, and 256 senders.
    fn default() -> Self {
        Self {
            send_buffers: 16,
            receive_buffers: 64,
            known_senders: 256,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}
