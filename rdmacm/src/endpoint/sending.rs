//! Buffers for sending: taken, posted, and waited for.

use std::sync::Arc;

use super::buffer::Buffer;
use super::core::{EndReason, Outgoing};
use super::operation::{Awaited, Interest, Operation};
use super::shared::{Shared, SharedStateGuard};
use super::state::State;
use super::wait::WaitMode;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{self, WcStatus};

/// At most so many bytes are copied while the state is locked, for which others wait.
pub(super) const AT_ONCE: usize = 4096;

const AWAY: &str = "it is taken out only when the memory is back";

/// A buffer that was posted, and that a caller waits for until this is dropped.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The buffer without its memory; absent when the memory is back.
    emptied: Option<Buffer>,
    operation: Operation,
    pub(super) index: usize,
}

impl Wanted {
    /// Waits until the request has completed, and returns the buffer.
    pub(super) fn wait(&mut self, mode: WaitMode) -> Result<Buffer> {
        let index = self.index;
        let sent = |state: &mut State| state.sent(index);
        let memory = self.shared().wait_for(self.awaited(), mode, sent)?;
        Ok(self.back(memory))
    }

    fn awaited(&self) -> Awaited {
        Awaited::request(self.operation, self.index)
    }

    /// The core of its connection.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.emptied.as_ref().expect(AWAY).shared()
    }

    /// Returns the buffer, whose memory is back.
    pub(super) fn back(&mut self, memory: verbs::Buffer) -> Buffer {
        self.emptied.take().expect(AWAY).refilled(memory)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if let Some(emptied) = &self.emptied {
            emptied.shared().give_up(self.awaited(), self.index);
        }
    }
}

impl Shared {
    /// A buffer for sending that nobody has.
    pub(super) fn take(self: &Arc<Self>, mode: WaitMode) -> Result<Buffer> {
        let memory = self.wait_for(Operation::Take, mode, State::buffer)?;
        Ok(Buffer::new(memory, self))
    }

    /// Posts a buffer that somebody waits for later.
    pub(super) fn start_wanted<'a>(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: impl Into<Outgoing<'a>>,
    ) -> Result<Wanted> {
        let (guarded, index) = self.start_locked(what, &mut buffer, operation.into(), true)?;
        guarded.unlock_unchanged();
        Ok(Wanted { emptied: Some(buffer), operation: what, index })
    }

    /// Posts a buffer that nobody waits for.
    pub(super) fn start<'a>(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: impl Into<Outgoing<'a>>,
    ) -> Result<()> {
        let (guarded, _) = self.start_locked(what, &mut buffer, operation.into(), false)?;
        guarded.unlock_unchanged();
        Ok(())
    }

    /// Posts a buffer's memory, for which somebody waits or not: its index, and the state, which is locked still. The buffer
    /// has it no more, also where that is refused.
    #[inline(always)]
    fn start_locked(
        self: &Arc<Self>,
        what: Operation,
        buffer: &mut Buffer,
        outgoing: Outgoing<'_>,
        is_wanted: bool,
    ) -> Result<(SharedStateGuard<'_>, usize)> {
        if !buffer.is_of(self) {
            return Err(self.has_another(what));
        }
        let length = buffer.len();
        let mut guarded = self.lock_for(what)?;
        // Dropped while this is locked, the buffer itself would wait for ever.
        let memory = buffer.take_memory();
        let index = memory.index();
        if guarded.state.core.qp_failed() {
            drop(guarded);
            guarded = match self.set_up_again(what) {
                Ok(guarded) => guarded,
                Err(error) => {
                    self.give_back(memory);
                    return Err(error);
                }
            };
        }
        let State { parts, core, .. } = &mut guarded.state;
        let (Some(io), None) = (parts.as_mut(), core.end()) else {
            let end = core.end().unwrap_or(EndReason::Local);
            // The memory may be deregistered with it, for which nobody is to wait.
            drop(guarded);
            return Err(self.error(what, self.read_reason(end).kind()));
        };
        let posted = core.post_send(io, what, memory, length, outgoing, is_wanted);
        let Err(refused) = posted else { return Ok((guarded, index)) };
        drop(guarded);
        if let Some(memory) = refused.buffer {
            self.give_back(memory);
        }
        Err(self.not_posted(what, refused.error))
    }

    /// Posts `bytes` in a buffer that nobody has, when there is one.
    pub(super) fn post_bytes<'a>(
        self: &Arc<Self>,
        bytes: &[u8],
        operation: impl Into<Outgoing<'a>>,
        mode: WaitMode,
    ) -> Result<()> {
        self.check_length(bytes.len())?;
        let outgoing = operation.into();
        if bytes.len() > AT_ONCE {
            let mut buffer = self.take(mode)?;
            buffer.copy_from(bytes)?;
            return self.start(Operation::Send, buffer, outgoing);
        }
        self.wait_for(Operation::Take, mode, |state| state.post_bytes(bytes, outgoing))?
            .map_err(|error| self.not_posted(Operation::Send, error))
    }

    /// Why the driver has not taken it, or the kernel.
    #[cold]
    pub(super) fn not_posted(&self, what: Operation, error: Error) -> Error {
        error.of(what.name(), self.name.clone())
    }

    /// That a buffer has room for `length` bytes.
    #[inline]
    pub(super) fn check_length(&self, length: usize) -> Result<()> {
        if length > self.max_message_len { Err(self.too_long(length)) } else { Ok(()) }
    }

    #[cold]
    fn too_long(&self, length: usize) -> Error {
        let reason = format!("it has room for {}", self.max_message_len).into();
        let kind = ErrorKind::Invalid { errno: libc::EMSGSIZE, reason };
        Error::new("fill a buffer with", format!("{length} bytes"), kind)
    }

    #[cold]
    fn has_another(&self, what: Operation) -> Error {
        let reason = "the buffer is of another connection or socket";
        Error::invalid(what.name(), self.name.clone(), reason)
    }

    /// Sets the failed queue pair of a datagram socket up again, if that is possible by now. Returns the state, locked again
    /// after the callers were woken that waited for that.
    #[cold]
    fn set_up_again(&self, what: Operation) -> Result<SharedStateGuard<'_>> {
        let mut guarded = self.lock_for(what)?;
        let mut has_issued = true;
        while has_issued {
            guarded.state.poll(Interest::All)?;
            (guarded, has_issued) = self.recover(guarded)?;
        }
        if guarded.state.core.qp_failed() {
            return Err(self.error(what, ErrorKind::Failed(WcStatus::IB_WC_WR_FLUSH_ERR)));
        }
        drop(guarded);
        self.lock_for(what)
    }

    /// Waits until what was posted has been sent.
    pub(super) fn flush_with(&self, mode: WaitMode) -> Result<()> {
        self.wait_for(Operation::Flush, mode, State::flushed)
    }

    /// Tells the peer of the end, unless it is known, when all was sent that was posted.
    pub(super) fn finish(&self, mode: WaitMode) -> Result<()> {
        let tells_peer = self.wait_for(Operation::Close, mode, State::close)?;
        if tells_peer { self.announce_close() } else { Ok(()) }
    }
}
