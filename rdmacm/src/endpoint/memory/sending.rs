//! Buffers for sending: taken, posted, and waited for.

use std::sync::Arc;

use super::buffer::Buffer;
use crate::endpoint::core::operation::{Awaited, Interest, Operation};
use crate::endpoint::core::{EndReason, Outgoing};
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::{Shared, SharedStateGuard};
use crate::endpoint::wait::WaitMode;
use crate::error::{Error, ErrorKind, Result, hint};
use crate::verbs::{RegisteredBuffer, WcStatus};

/// Maximum number of bytes that are copied to a buffer while the state is locked.
///
/// Other callers wait meanwhile.
pub(in crate::endpoint) const MAX_COPY_WHILE_LOCKED: usize = 4096;

const BUFFER_TAKEN: &str = "the buffer is taken out only when its request has completed";

/// A buffer that was posted, and that a caller waits for until this is dropped.
#[derive(Debug)]
pub(in crate::endpoint) struct AwaitedSend {
    /// The buffer without its memory; absent when the buffer was taken.
    buffer: Option<Buffer>,
    operation: Operation,
    pub(in crate::endpoint) index: usize,
}

impl AwaitedSend {
    /// Waits until the request has completed, and returns the buffer.
    pub(in crate::endpoint) fn wait(&mut self, mode: WaitMode) -> Result<Buffer> {
        let index = self.index;
        let sent = |state: &mut State| state.sent(index);
        let memory = self.shared().wait_for(self.awaited(), mode, sent)?;
        Ok(self.take_buffer(memory))
    }

    pub(in crate::endpoint) fn awaited(&self) -> Awaited {
        Awaited::request(self.operation, self.index)
    }

    /// Returns the shared state of its connection.
    pub(in crate::endpoint) fn shared(&self) -> &Arc<Shared> {
        self.buffer.as_ref().expect(BUFFER_TAKEN).shared()
    }

    /// Returns the buffer with its memory, whose request has completed.
    pub(in crate::endpoint) fn take_buffer(&mut self, memory: RegisteredBuffer) -> Buffer {
        self.buffer.take().expect(BUFFER_TAKEN).with_memory(memory)
    }
}

impl Drop for AwaitedSend {
    fn drop(&mut self) {
        if let Some(buffer) = &self.buffer {
            buffer.shared().detach_request(self.awaited(), self.index);
        }
    }
}

impl Shared {
    /// Takes a free send buffer.
    pub(in crate::endpoint) fn take(self: &Arc<Self>, mode: WaitMode) -> Result<Buffer> {
        let memory = self.wait_for(Operation::AcquireBuffer, mode, State::buffer)?;
        Ok(Buffer::new(memory, self))
    }

    /// Posts a buffer whose completion the caller will wait for.
    pub(in crate::endpoint) fn post_awaited<'a>(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: impl Into<Outgoing<'a>>,
    ) -> Result<AwaitedSend> {
        let (guarded, index) = self.start_locked(what, &mut buffer, operation.into(), true)?;
        guarded.unlock_unchanged();
        Ok(AwaitedSend { buffer: Some(buffer), operation: what, index })
    }

    /// Posts a buffer whose completion no caller waits for.
    pub(in crate::endpoint) fn start<'a>(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: impl Into<Outgoing<'a>>,
    ) -> Result<()> {
        let (guarded, _) = self.start_locked(what, &mut buffer, operation.into(), false)?;
        guarded.unlock_unchanged();
        Ok(())
    }

    /// Posts the memory of `buffer`, which has none afterwards, also if posting fails.
    ///
    /// Returns the index of the memory and the state, which is still locked. `is_wanted` means that the caller will
    /// wait for the completion.
    #[inline(always)]
    fn start_locked(
        self: &Arc<Self>,
        what: Operation,
        buffer: &mut Buffer,
        outgoing: Outgoing<'_>,
        is_wanted: bool,
    ) -> Result<(SharedStateGuard<'_>, usize)> {
        if !buffer.belongs_to(self) {
            return Err(self.foreign_buffer_error(what));
        }
        let length = buffer.len();
        let mut guarded = self.lock_for(what)?;
        // Dropping the buffer itself while the state is locked would deadlock.
        let memory = buffer.take_memory();
        let index = memory.index();
        // Another thread may use the queue pair between its recovery and the next lock.
        while guarded.state.core.qp_failed() {
            drop(guarded);
            guarded = match self.recover_for_send(what) {
                Ok(guarded) => guarded,
                Err(error) => {
                    self.return_buffer(memory);
                    return Err(error);
                }
            };
        }
        let State { objects, core, .. } = &mut guarded.state;
        let (Some(io), None) = (objects.as_mut(), core.end()) else {
            let end = core.end().unwrap_or(EndReason::Local);
            // Dropping the memory may deregister it, which is not done under the lock.
            drop(guarded);
            return Err(self.error_after(what, self.read_reason(end)));
        };
        let posted = core.post_send(io, what, memory, length, outgoing, is_wanted);
        let Err(refused) = posted else { return Ok((guarded, index)) };
        drop(guarded);
        if let Some(memory) = refused.buffer {
            self.return_buffer(memory);
        }
        Err(self.not_posted(what, refused.error))
    }

    /// Copies `bytes` into a free buffer and posts it.
    pub(in crate::endpoint) fn post_bytes<'a>(
        self: &Arc<Self>,
        bytes: &[u8],
        operation: impl Into<Outgoing<'a>>,
        mode: WaitMode,
    ) -> Result<()> {
        self.check_length(bytes.len())?;
        let outgoing = operation.into();
        if bytes.len() > MAX_COPY_WHILE_LOCKED {
            let memory = self
                .wait_for(Operation::AcquireBuffer, mode, State::buffer)
                .map_err(|error| self.not_sent(error))?;
            return self.post_copy(memory, bytes, outgoing);
        }
        self.wait_for(Operation::AcquireBuffer, mode, |state| state.post_bytes(bytes, outgoing))
            .map_err(|error| self.not_sent(error))?
            .map_err(|error| self.not_posted(Operation::Send, error))
    }

    /// Copies `bytes` into `memory`, which was taken, and posts it.
    pub(in crate::endpoint) fn post_copy(
        self: &Arc<Self>,
        memory: RegisteredBuffer,
        bytes: &[u8],
        outgoing: Outgoing<'_>,
    ) -> Result<()> {
        let mut buffer = Buffer::new(memory, self);
        buffer.copy_from(bytes)?;
        self.start(Operation::Send, buffer, outgoing)
    }

    /// Returns the error of a request that the driver or the kernel has refused.
    #[cold]
    pub(in crate::endpoint) fn not_posted(&self, what: Operation, error: Error) -> Error {
        error.of(what.name(), self.name.clone())
    }

    /// Converts an error of taking a buffer into an error of sending, which the caller requested.
    #[cold]
    pub(in crate::endpoint) fn not_sent(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock => Error::would_block(Operation::Send.wait()),
            _ if error.operation() == Operation::AcquireBuffer.name() => {
                self.not_posted(Operation::Send, error)
            }
            _ => error,
        }
    }

    /// Returns an error if a buffer has no room for `length` bytes.
    #[inline]
    pub(in crate::endpoint) fn check_length(&self, length: usize) -> Result<()> {
        if length > self.max_message_len { Err(self.too_long(length)) } else { Ok(()) }
    }

    #[cold]
    fn too_long(&self, length: usize) -> Error {
        let hint = if self.is_socket { hint::DATAGRAM_SIZE } else { hint::SEND_BUFFER_SIZE };
        Error::message_too_long(length, self.max_message_len, hint)
    }

    #[cold]
    fn foreign_buffer_error(&self, what: Operation) -> Error {
        let reason = "the buffer is of another connection or socket";
        Error::invalid(what.name(), self.name.clone(), reason)
    }

    /// Recovers the failed queue pair of a datagram socket, if that is possible already.
    ///
    /// Returns the state, which is locked again after the waiting callers were woken.
    #[cold]
    fn recover_for_send(&self, what: Operation) -> Result<SharedStateGuard<'_>> {
        let mut guarded = self.lock_for(what)?;
        loop {
            guarded.state.poll(Interest::All)?;
            match guarded.state.next_recovery() {
                Some(action) => guarded = self.recover(guarded, action)?,
                None => break,
            }
        }
        if guarded.state.core.qp_failed() {
            return Err(
                self.error(what, ErrorKind::WorkRequestFailed(WcStatus::IB_WC_WR_FLUSH_ERR))
            );
        }
        drop(guarded);
        self.lock_for(what)
    }

    /// Waits until all posted requests have been sent.
    pub(in crate::endpoint) fn flush_with(&self, mode: WaitMode) -> Result<()> {
        self.wait_for(Operation::Flush, mode, State::flushed)
    }

    /// Disconnects the peer after all posted requests were sent, unless it is disconnected already.
    pub(in crate::endpoint) fn finish(&self, mode: WaitMode) -> Result<()> {
        let must_notify_peer = self.wait_for(Operation::Close, mode, State::close)?;
        if must_notify_peer { self.announce_close() } else { Ok(()) }
    }
}
