//! Buffers and messages of a poll group that the program owns.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::member_table::Member;
use super::return_list::{ReturnList, Returned};
#[cfg(doc)]
use super::{PollGroup, PollGroupConfig};
use crate::endpoint::memory::buffer::append;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, hint};
use crate::verbs::{RegisteredBuffer, SendOperation};

const HELD: &str = "the memory is taken out only when the buffer is dropped or posted";

/// A message that a member has received: its [bytes](Deref), in the memory of the device's buffer.
///
/// Dropping the message lets the group receive into its buffer again, from any thread. A program that holds
/// [`PollGroupConfig::max_held`] messages of a member ends the member with the next message. The memory stays
/// registered as long as the message exists, also after the group is dropped.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::poll_group::{Message, PollGroup};
///
/// /// Answers a request.
/// fn answer(group: &mut PollGroup, request: &Message) -> rdmacm::Result<()> {
///     let answer: &[u8] = if request.starts_with(b"ping") { b"pong" } else { b"unknown" };
///     group.post_bytes(request.member(), answer)
/// }
/// ```
pub struct Message {
    memory: Option<RegisteredBuffer>,
    length: usize,
    imm_data: Option<u32>,
    member: Member,
    returns: Arc<ReturnList>,
}

impl Message {
    pub(super) fn new(
        memory: RegisteredBuffer,
        length: usize,
        imm_data: Option<u32>,
        member: Member,
        returns: &Arc<ReturnList>,
    ) -> Self {
        Self { memory: Some(memory), length, imm_data, member, returns: Arc::clone(returns) }
    }

    /// Returns the member that has received the message.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Returns the number that the peer sent with the message, if it did.
    pub fn imm_data(&self) -> Option<u32> {
        self.imm_data
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.as_ref().expect(HELD)[..self.length]
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Converts the message into [`Bytes`](https://docs.rs/bytes/1/bytes/struct.Bytes.html) without a copy.
///
/// The group receives into the buffer again when the last clone is dropped.
#[cfg(feature = "bytes")]
impl From<Message> for bytes::Bytes {
    fn from(message: Message) -> Self {
        Self::from_owner(message)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.returns.return_buffer(Returned::Receive(self.member, memory));
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("member", &self.member)
            .field("length", &self.length)
            .field("imm_data", &self.imm_data)
            .finish_non_exhaustive()
    }
}

/// A buffer for a message of one member: [bytes](Deref) of registered memory.
///
/// Created by [`PollGroup::acquire_buffer`].
///
/// Dropping the buffer returns it to the group. The buffer has [`PollGroupConfig::send_buffer_size`] bytes until
/// [`set_len`](Self::set_len) reduces them. The bytes are those of an earlier message, or zeros. The buffer
/// implements [`io::Write`]: call [`set_len(0)`](Self::set_len) before the first write.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::poll_group::{Member, PollGroup};
///
/// /// Sends `number` without copying it through another buffer.
/// fn send(group: &mut PollGroup, member: Member, number: u64) -> rdmacm::Result<()> {
///     let mut buffer = group.acquire_buffer(member)?;
///     buffer.set_len(8)?;
///     buffer.copy_from_slice(&number.to_be_bytes());
///     group.post_send(buffer)
/// }
/// ```
pub struct SendBuffer {
    memory: Option<RegisteredBuffer>,
    length: usize,
    imm_data: Option<u32>,
    number: u32,
    member: Member,
    returns: Arc<ReturnList>,
}

impl SendBuffer {
    pub(super) fn new(
        memory: RegisteredBuffer,
        number: u32,
        member: Member,
        returns: &Arc<ReturnList>,
    ) -> Self {
        let length = memory.len();
        let (memory, returns) = (Some(memory), Arc::clone(returns));
        Self { memory, length, imm_data: None, number, member, returns }
    }

    /// Returns the member that the buffer is for.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Returns the length of the longest message that fits, in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.as_ref().expect(HELD).len()
    }

    /// Sets the length of the message in bytes. The bytes stay as they are.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `length` exceeds the [`capacity`](Self::capacity).
    pub fn set_len(&mut self, length: usize) -> Result<()> {
        check_length(length, self.capacity())?;
        self.length = length;
        Ok(())
    }

    /// Copies `bytes` into the buffer and sets the length of the message to theirs.
    ///
    /// # Errors
    ///
    /// The errors of [`set_len`](Self::set_len).
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets a number that the peer gets with the message. iWARP has none: posting fails.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn set_imm_data(&mut self, imm_data: Option<u32>) {
        self.imm_data = imm_data;
    }

    pub(super) fn operation(&self) -> SendOperation<'static> {
        match self.imm_data {
            None => SendOperation::Send,
            Some(imm_data) => SendOperation::SendWithImm { imm_data },
        }
    }

    /// Takes the memory and its number among the buffers of the member.
    pub(super) fn take(&mut self) -> (RegisteredBuffer, u32) {
        (self.memory.take().expect(HELD), self.number)
    }
}

/// Checks that a message of `length` bytes fits into a buffer of `capacity` bytes.
pub(super) fn check_length(length: usize, capacity: usize) -> Result<()> {
    if length > capacity {
        return Err(Error::message_too_long(length, capacity, hint::SEND_BUFFER_SIZE));
    }
    Ok(())
}

impl Deref for SendBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.as_ref().expect(HELD)[..self.length]
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().expect(HELD)[..self.length]
    }
}

impl AsRef<[u8]> for SendBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for SendBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Appends to the message, up to the capacity of the buffer.
///
/// A new buffer is full: call [`set_len(0)`](SendBuffer::set_len) first. A write to a full buffer returns 0, so
/// `write_all` fails with [`WriteZero`](io::ErrorKind::WriteZero).
impl io::Write for SendBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let memory = self.memory.as_mut().expect(HELD);
        Ok(append(memory, &mut self.length, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.returns.return_buffer(Returned::Send(self.member, self.number, memory));
        }
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBuffer")
            .field("member", &self.member)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
