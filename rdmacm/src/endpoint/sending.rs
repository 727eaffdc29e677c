//! Buffers for sending: taken, posted, and waited for.

use std::sync::Arc;

use super::buffer::Buffer;
use super::shared::{Locked, Operation, Patience, Shared};
use super::state::{Interest, State};
use super::traffic::{End, Sent};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{self, SendOperation, WcStatus};

/// At most so many bytes are copied while the state is locked, for which others wait.
pub(super) const AT_ONCE: usize = 4096;

const AWAY: &str = "it is taken out only when the memory is back";

/// A buffer that was posted, and that somebody waits for until this is dropped.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The buffer without its memory; absent when that is back.
    emptied: Option<Buffer>,
    pub(super) index: usize,
}

impl Wanted {
    /// The core of its connection.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.emptied.as_ref().expect(AWAY).shared()
    }

    /// The buffer, which is `memory`, is back.
    pub(super) fn back(mut self, memory: verbs::Buffer) -> Buffer {
        self.emptied.take().expect(AWAY).refilled(memory)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if let Some(emptied) = &self.emptied {
            emptied.shared().give_up(self.index);
        }
    }
}

impl Shared {
    /// A buffer for sending that nobody has.
    pub(super) fn take(self: &Arc<Self>, patience: Patience) -> Result<Buffer> {
        let memory = self.until(Operation::Take, patience, State::buffer)?;
        Ok(Buffer::new(memory, self))
    }

    /// Posts a buffer, and waits until it is back.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: SendOperation<'_>,
        patience: Patience,
    ) -> Result<Buffer> {
        let (guarded, index) = self.start_locked(what, &mut buffer, operation, true)?;
        let wanted = Wanted { emptied: Some(buffer), index };
        let memory = self.until_from(guarded, what, patience, |state| state.sent(index))?;
        Ok(wanted.back(memory))
    }

    /// Posts a buffer that somebody waits for later.
    pub(super) fn start_wanted(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: SendOperation<'_>,
    ) -> Result<Wanted> {
        let (_, index) = self.start_locked(what, &mut buffer, operation, true)?;
        Ok(Wanted { emptied: Some(buffer), index })
    }

    /// Posts a buffer that nobody waits for.
    pub(super) fn start(
        self: &Arc<Self>,
        what: Operation,
        mut buffer: Buffer,
        operation: SendOperation<'_>,
    ) -> Result<()> {
        self.start_locked(what, &mut buffer, operation, false).map(drop)
    }

    /// Posts a buffer's memory, for which somebody waits or not: its index, and the state, which is locked still. The buffer
    /// has it no more, also where that is refused.
    #[inline(always)]
    fn start_locked(
        self: &Arc<Self>,
        what: Operation,
        buffer: &mut Buffer,
        operation: SendOperation<'_>,
        is_wanted: bool,
    ) -> Result<(Locked<'_>, usize)> {
        if !buffer.is_of(self) {
            return Err(self.has_another(what));
        }
        let length = buffer.len();
        let mut guarded = self.lock_for(what)?;
        // Dropped while this is locked, the buffer itself would wait for ever.
        let memory = buffer.take_memory();
        let index = memory.index();
        if guarded.state.traffic.is_broken {
            if let Err(error) = self.mend(&mut guarded, what) {
                drop(guarded);
                self.give_back(memory);
                return Err(error);
            }
        }
        let State { parts, traffic, .. } = &mut guarded.state;
        let (Some(parts), None) = (parts.as_mut(), traffic.end) else {
            let end = traffic.end.unwrap_or(End::Here);
            // The memory may be deregistered with it, for which nobody is to wait.
            drop(guarded);
            return Err(self.error(what, end.kind()));
        };
        // First: another thread may poll its completion at once. What is not posted is wanted by nobody.
        if is_wanted {
            traffic.sends[index] = Sent::Wanted { tried: false };
        }
        let posted = traffic.post_send(&mut parts.queues, what, memory, length, operation);
        let Err(refused) = posted else { return Ok((guarded, index)) };
        // Nobody waits for it, also where it is on its way.
        traffic.sends[index] = Sent::Unwanted;
        drop(guarded);
        if let Some(memory) = refused.buffer {
            self.give_back(memory);
        }
        Err(self.not_posted(what, refused.error))
    }

    /// Posts `bytes` in a buffer that nobody has, when there is one.
    pub(super) fn post_bytes(
        self: &Arc<Self>,
        bytes: &[u8],
        operation: SendOperation<'_>,
        patience: Patience,
    ) -> Result<()> {
        self.check_length(bytes.len())?;
        if bytes.len() > AT_ONCE {
            let mut buffer = self.take(patience)?;
            buffer.copy_from(bytes)?;
            return self.start(Operation::Send, buffer, operation);
        }
        self.until(Operation::Take, patience, |state| state.post_bytes(bytes, operation))?
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
        if length > self.longest { Err(self.too_long(length)) } else { Ok(()) }
    }

    #[cold]
    fn too_long(&self, length: usize) -> Error {
        let reason = format!("it has room for {}", self.longest).into();
        let kind = ErrorKind::Invalid { errno: libc::EMSGSIZE, reason };
        Error::new("fill a buffer with", format!("{length} bytes"), kind)
    }

    #[cold]
    fn has_another(&self, what: Operation) -> Error {
        let reason = "the buffer is of another connection or socket";
        Error::invalid(what.name(), self.name.clone(), reason)
    }

    /// Has a socket work again that has failed, if it can by now.
    #[cold]
    fn mend(&self, guarded: &mut Locked<'_>, what: Operation) -> Result<()> {
        guarded.state.poll(Interest::All)?;
        self.tell_all(guarded);
        match guarded.state.traffic.is_broken {
            true => Err(self.error(what, ErrorKind::Failed(WcStatus::IB_WC_WR_FLUSH_ERR))),
            false => Ok(()),
        }
    }

    /// Waits until what was posted has been sent.
    pub(super) fn flush_with(&self, patience: Patience) -> Result<()> {
        self.until(Operation::Flush, patience, State::flushed)
    }
}
