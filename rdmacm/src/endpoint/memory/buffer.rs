//! [`Buffer`] and [`Message`]: registered memory that the program owns.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

#[cfg(doc)]
use super::exported_memory::ExportedMemory;
use super::remote_memory::RemoteMemory;
use crate::endpoint::shared::Shared;
use crate::endpoint::shared::state::BufferedMessage;
#[cfg(doc)]
use crate::endpoint::{Connection, ConnectionConfig, DatagramSocket};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::{self, SendOperation};

const HELD: &str = "a buffer has its memory until it is dropped";

/// A send buffer: [bytes](Deref) of registered memory.
///
/// Created by [`Connection::acquire_buffer`] or [`DatagramSocket::acquire_buffer`]. It is as long as its capacity at
/// first; [`set_len`](Self::set_len) or [`copy_from`](Self::copy_from) makes it shorter. It implements [`io::Write`]:
/// call [`set_len(0)`](Self::set_len) before the first write.
///
/// Dropping it returns it to its connection. While it exists, the memory of the connection stays registered and its
/// descriptors stay open, also after the end of the connection.
///
/// # Examples
///
/// ```no_run
/// use std::io::Write;
///
/// # fn ask(connection: &rdmacm::endpoint::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let mut buffer = connection.acquire_buffer()?;
/// buffer.set_len(0)?;
/// write!(buffer, "GET {}", 7)?;
/// connection.post_send(buffer)?;
/// # Ok(())
/// # }
/// ```
pub struct Buffer {
    memory: Option<verbs::RegisteredBuffer>,
    length: usize,
    extra: Extra,
    shared: Arc<Shared>,
}

/// The number that a message carries in addition to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extra {
    None,
    ImmData(u32),
    InvalidatedKey(u32),
}

impl Buffer {
    pub(in crate::endpoint) fn new(memory: verbs::RegisteredBuffer, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self { memory: Some(memory), length: shared.max_message_len, extra: Extra::None, shared }
    }

    /// Returns the capacity in bytes.
    ///
    /// It is [`ConnectionConfig::send_buffer_size`], or [`DatagramSocket::mtu`].
    pub fn capacity(&self) -> usize {
        self.shared.max_message_len
    }

    /// Sets the length of the message to `length` bytes. Bytes within that length keep their values.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `length` exceeds the [`capacity`](Self::capacity).
    #[inline]
    pub fn set_len(&mut self, length: usize) -> Result<()> {
        self.shared.check_length(length)?;
        self.length = length;
        Ok(())
    }

    /// Copies `bytes` into the buffer and sets its length to theirs.
    ///
    /// # Errors
    ///
    /// The errors of [`set_len`](Self::set_len).
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets the immediate data that accompany the message: see [`Message::imm_data`]. `None` removes them.
    ///
    /// # Driver notes
    ///
    /// iWARP has no immediate data: posting the buffer fails.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn set_imm_data(&mut self, imm_data: Option<u32>) {
        self.extra = imm_data.map_or(Extra::None, Extra::ImmData);
    }

    /// Makes the message invalidate the key of `memory`, which the peer has exported.
    ///
    /// The peer's device invalidates the key when the message arrives, and the message reports it to the peer's program
    /// ([`Message::invalidated_key`]). A storage server uses this to notify a client that it no longer accesses the
    /// memory of a request.
    ///
    /// The key replaces the immediate data of [`set_imm_data`](Self::set_imm_data), and vice versa: a message carries
    /// one of them. `None` removes both.
    ///
    /// The key must be one that the peer's device can invalidate, or the message ends the connection. A key of
    /// [`Connection::start_export_window`] can be invalidated once; a key of [`Connection::export`] can be on siw. A
    /// datagram cannot invalidate a key: posting it fails.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    pub fn set_invalidated(&mut self, memory: Option<&RemoteMemory>) {
        self.extra = memory.map_or(Extra::None, |memory| Extra::InvalidatedKey(memory.rkey()));
    }

    /// Returns the immediate data of a datagram, or an error if the buffer should invalidate a key.
    pub(in crate::endpoint) fn datagram_imm_data(&self) -> Result<Option<u32>> {
        match self.extra {
            Extra::None => Ok(None),
            Extra::ImmData(imm_data) => Ok(Some(imm_data)),
            Extra::InvalidatedKey(_) => {
                let reason = "a datagram cannot invalidate a key";
                Err(Error::invalid("post", "a buffer", reason))
            }
        }
    }

    /// Returns the operation that sends the buffer.
    pub(in crate::endpoint) fn operation(&self) -> SendOperation<'static> {
        match self.extra {
            Extra::None => SendOperation::Send,
            Extra::ImmData(imm_data) => SendOperation::SendWithImm { imm_data },
            Extra::InvalidatedKey(rkey) => SendOperation::SendWithInvalidate { rkey },
        }
    }

    /// Returns `true` if the buffer belongs to the connection that has `shared`.
    pub(in crate::endpoint) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Returns the core of its connection.
    pub(in crate::endpoint) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes the memory out. The buffer may then only be dropped or given memory again.
    pub(in crate::endpoint) fn take_memory(&mut self) -> verbs::RegisteredBuffer {
        self.memory.take().expect(HELD)
    }

    /// Returns the buffer as a new one, with the memory that was taken out.
    pub(in crate::endpoint) fn with_memory(mut self, memory: verbs::RegisteredBuffer) -> Self {
        (self.memory, self.length, self.extra) =
            (Some(memory), self.shared.max_message_len, Extra::None);
        self
    }

    fn memory(&self) -> &verbs::RegisteredBuffer {
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

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Appends `bytes` to the first `length` bytes of `memory`, as far as there is room.
///
/// Returns the number of appended bytes.
pub(in crate::endpoint) fn append(memory: &mut [u8], length: &mut usize, bytes: &[u8]) -> usize {
    let room = &mut memory[*length..];
    let count = bytes.len().min(room.len());
    room[..count].copy_from_slice(&bytes[..count]);
    *length += count;
    count
}

/// Appends to the message, up to the capacity of the buffer.
///
/// A new buffer is full: call [`set_len(0)`](Buffer::set_len) first. A write to a full buffer returns 0, so `write_all`
/// fails with [`WriteZero`](io::ErrorKind::WriteZero).
impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let capacity = self.capacity();
        let memory = &mut self.memory.as_mut().expect(HELD)[..capacity];
        Ok(append(memory, &mut self.length, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.shared.return_buffer(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).finish_non_exhaustive()
    }
}

/// A received message: its [bytes](Deref), in the memory to which the device has written them.
///
/// Created by [`Connection::recv`] or [`DatagramSocket::recv_from`]. `message[..]` is the slice of its bytes. Dropping
/// the message posts its buffer again. A program that keeps as many messages as there are [receive
/// buffers](ConnectionConfig::receive_buffers) receives no more; on iWARP the connection then ends when another message
/// arrives.
///
/// While it exists, the memory of the connection stays registered and its descriptors stay open, also after the end of
/// the connection.
///
/// # Examples
///
/// ```no_run
/// # fn print(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
/// if let Some(message) = connection.recv()? {
///     println!("{}", String::from_utf8_lossy(&message));
///     // Dropping the message posts its buffer again: a copy lives longer.
///     let copy: Vec<u8> = message.to_vec();
/// }
/// # Ok(())
/// # }
/// ```
pub struct Message {
    memory: Option<verbs::RegisteredBuffer>,
    /// Offset of the message in its memory.
    start: usize,
    length: usize,
    imm_data: Option<u32>,
    invalidated_key: Option<u32>,
    shared: Arc<Shared>,
}

impl Message {
    pub(in crate::endpoint) fn new(arrived: BufferedMessage, shared: &Arc<Shared>) -> Self {
        let BufferedMessage { buffer, start, length, imm_data, invalidated_key, .. } = arrived;
        let (memory, shared) = (Some(buffer), Arc::clone(shared));
        Self { memory, start, length, imm_data, invalidated_key, shared }
    }

    /// Returns the immediate data that the peer sent with the message, if any.
    ///
    /// A peer that writes to memory of this side with immediate data, which this module never does, causes a message
    /// without bytes.
    pub fn imm_data(&self) -> Option<u32> {
        self.imm_data
    }

    /// Returns the key of this side that the message has invalidated, if any.
    ///
    /// The peer has invalidated it with [`Buffer::set_invalidated`]. An access with that key fails from then on.
    /// [`ExportedMemory::is_invalidated`] identifies the export.
    ///
    /// # Driver notes
    ///
    /// siw invalidates the key and does not report it: `None`.
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

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Converts the message into [`Bytes`](https://docs.rs/bytes/1/bytes/struct.Bytes.html) without a copy.
///
/// The buffer of the message receives again when the last clone is dropped.
#[cfg(feature = "bytes")]
impl From<Message> for bytes::Bytes {
    fn from(message: Message) -> Self {
        Self::from_owner(message)
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
