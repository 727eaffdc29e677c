//! Buffers in the program's hands: to send, and received.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

#[cfg(doc)]
use super::export::Export;
use super::remote_memory::Remote;
use super::shared::Shared;
use super::state::Arrived;
#[cfg(doc)]
use super::{Connection, DatagramSocket, Settings};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::{self, SendOperation};

const HELD: &str = "nobody has a buffer without its memory";

/// A buffer to send: [bytes](Deref) of registered memory, all that the buffer has, until they are
/// made fewer.
///
/// Of [`Connection::buffer`] or [`DatagramSocket::buffer`]. Dropping it gives it back to its connection. It keeps the memory of
/// that registered and its descriptors open, also when the connection has ended.
pub struct Buffer {
    memory: Option<verbs::Buffer>,
    length: usize,
    extra: Extra,
    shared: Arc<Shared>,
}

/// The number that a message carries beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extra {
    None,
    ImmData(u32),
    InvalidatedKey(u32),
}

impl Buffer {
    pub(super) fn new(memory: verbs::Buffer, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self { memory: Some(memory), length: shared.max_message_len, extra: Extra::None, shared }
    }

    /// How many bytes it can have: [`Settings::send_buffer_size`], or [`DatagramSocket::mtu`].
    pub fn capacity(&self) -> usize {
        self.shared.max_message_len
    }

    /// Makes the message that it will be `length` bytes long. What is in those stays.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with EMSGSIZE for more than its [`capacity`](Self::capacity).
    #[inline]
    pub fn set_len(&mut self, length: usize) -> Result<()> {
        self.shared.check_length(length)?;
        self.length = length;
        Ok(())
    }

    /// Makes the message that it will be `bytes`, by copying them.
    ///
    /// # Errors
    ///
    /// The errors of [`set_len`](Self::set_len).
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets a number that comes with the message: [`Message::imm_data`]. iWARP has no such.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn set_imm_data(&mut self, imm_data: Option<u32>) {
        self.extra = imm_data.map_or(Extra::None, Extra::ImmData);
    }

    /// Makes the message take the key of `memory`, which the peer has exported, back from this side: the peer's device
    /// does it when the message arrives, and the message reports it to the peer's program
    /// ([`Message::invalidated_key`]). So a storage server says that it is done with the memory of a request.
    ///
    /// Replaces a number that [`set_imm_data`](Self::set_imm_data) has set, and the other way round: a message carries
    /// one of them. `None` takes neither.
    ///
    /// The peer's key must be one that its device can take back. Otherwise the message ends the connection. A key of
    /// [`Connection::export_window`] can be taken back once; a key of [`Connection::export`] can on siw.
    /// A datagram cannot: posting it fails.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    pub fn set_invalidated(&mut self, memory: Option<&Remote>) {
        self.extra = memory.map_or(Extra::None, |memory| Extra::InvalidatedKey(memory.rkey()));
    }

    /// Returns the immediate data of a datagram; an error if the buffer is to take a key back.
    pub(super) fn datagram_imm_data(&self) -> Result<Option<u32>> {
        match self.extra {
            Extra::None => Ok(None),
            Extra::ImmData(imm_data) => Ok(Some(imm_data)),
            Extra::InvalidatedKey(_) => {
                let reason = "a datagram cannot take a key back";
                Err(Error::invalid("post", "a buffer", reason))
            }
        }
    }

    /// What sends it.
    pub(super) fn operation(&self) -> SendOperation<'static> {
        match self.extra {
            Extra::None => SendOperation::Send,
            Extra::ImmData(imm_data) => SendOperation::SendWithImm { imm_data },
            Extra::InvalidatedKey(rkey) => SendOperation::SendWithInvalidate { rkey },
        }
    }

    /// Returns `true` if it is of the connection that has `shared`.
    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// The core of its connection.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The memory, without which the buffer is only to be dropped or refilled.
    pub(super) fn take_memory(&mut self) -> verbs::Buffer {
        self.memory.take().expect(HELD)
    }

    /// One as new, with the memory that was taken out.
    pub(super) fn refilled(mut self, memory: verbs::Buffer) -> Self {
        (self.memory, self.length, self.extra) =
            (Some(memory), self.shared.max_message_len, Extra::None);
        self
    }

    fn memory(&self) -> &verbs::Buffer {
        self.memory.as_ref().expect(HELD)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory()[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().expect(HELD)[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.shared.give_back(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).finish_non_exhaustive()
    }
}

/// A message that was received: its [bytes](Deref), where the device has put them.
///
/// Of [`Connection::recv`] or [`DatagramSocket::recv_from`]. Dropping it makes its buffer receive another message: who keeps as many
/// as there are [buffers](Settings::receive_buffers) receives no more (on iWARP soon, and then the connection ends). It keeps the memory of its
/// connection registered and its descriptors open, also when the connection has ended.
pub struct Message {
    memory: Option<verbs::Buffer>,
    /// Where it begins in its memory.
    start: usize,
    length: usize,
    imm_data: Option<u32>,
    invalidated_key: Option<u32>,
    shared: Arc<Shared>,
}

impl Message {
    pub(super) fn new(arrived: Arrived, shared: &Arc<Shared>) -> Self {
        let Arrived { buffer, start, length, imm_data, invalidated_key, .. } = arrived;
        let (memory, shared) = (Some(buffer), Arc::clone(shared));
        Self { memory, start, length, imm_data, invalidated_key, shared }
    }

    /// The number that the peer sent with it, if it did. A peer that writes to memory of this side
    /// and sends a number along, as no connection of this module does, sends a message without
    /// bytes.
    pub fn imm_data(&self) -> Option<u32> {
        self.imm_data
    }

    /// Returns the key of this side that the peer took back with the message, if it did:
    /// [`Buffer::set_invalidated`]. An access by that key fails from then on. [`Export::is_invalidated`] finds the
    /// export.
    ///
    /// # Driver notes
    ///
    /// siw takes the key back and does not report it: `None`.
    #[doc(alias = "IBV_WC_WITH_INV")]
    pub fn invalidated_key(&self) -> Option<u32> {
        self.invalidated_key
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.as_ref().expect(HELD)[self.start..self.start + self.length]
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.shared.receive(memory);
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("length", &self.length)
            .field("imm_data", &self.imm_data)
            .field("invalidated_key", &self.invalidated_key)
            .finish_non_exhaustive()
    }
}
