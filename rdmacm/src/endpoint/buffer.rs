//! Buffers in the program's hands: to send, and received.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::shared::Shared;
use super::traffic::Arrived;
#[cfg(doc)]
use super::{Connection, DatagramSocket, Settings};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
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
    imm_data: Option<u32>,
    shared: Arc<Shared>,
}

impl Buffer {
    pub(super) fn new(memory: verbs::Buffer, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self { memory: Some(memory), length: shared.longest, imm_data: None, shared }
    }

    /// How many bytes it can have: [`Settings::buffer_size`], or [`DatagramSocket::mtu`].
    pub fn capacity(&self) -> usize {
        self.shared.longest
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
    /// Those of [`set_len`](Self::set_len).
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets a number that comes with the message: [`Message::imm_data`]. iWARP has no such.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn set_imm_data(&mut self, imm_data: Option<u32>) {
        self.imm_data = imm_data;
    }

    pub(super) fn imm_data(&self) -> Option<u32> {
        self.imm_data
    }

    /// What sends it.
    pub(super) fn operation(&self) -> SendOperation<'static> {
        match self.imm_data {
            None => SendOperation::Send,
            Some(imm_data) => SendOperation::SendWithImm { imm_data },
        }
    }

    /// Whether it is of the connection that has `shared`.
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
        (self.memory, self.length, self.imm_data) = (Some(memory), self.shared.longest, None);
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
    shared: Arc<Shared>,
}

impl Message {
    pub(super) fn new(arrived: Arrived, shared: &Arc<Shared>) -> Self {
        let Arrived { buffer, start, length, imm_data, .. } = arrived;
        Self { memory: Some(buffer), start, length, imm_data, shared: Arc::clone(shared) }
    }

    /// The number that the peer sent with it, if it did. A peer that writes to memory of this side
    /// and sends a number along, as no connection of this module does, sends a message without
    /// bytes.
    pub fn imm_data(&self) -> Option<u32> {
        self.imm_data
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
            .finish_non_exhaustive()
    }
}
