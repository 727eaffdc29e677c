//! Posting requests, and taking back buffers.

use super::operation::Operation;
#[cfg(doc)]
use super::overrun;
use super::protocol::{Messages, Protocol};
use super::queue_io::{NotPosted, Outgoing, QueueIo, Slot};
use super::{Core, EndReason};
use crate::error::Result;

impl<B: Slot, S> Core<B, S> {
    /// Posts a request over a buffer for sending. If `is_awaited`, a caller waits for the buffer.
    #[inline(always)]
    pub(in crate::endpoint) fn post_send(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        operation: Operation,
        buffer: B,
        length: usize,
        outgoing: Outgoing<'_>,
        is_awaited: bool,
    ) -> Result<(), NotPosted<B>> {
        let index = buffer.index();
        if is_awaited {
            self.sends.set_awaited(index, true);
        }
        let posted = io.post_send(buffer, length, outgoing);
        let is_in_flight = !matches!(&posted, Err(refused) if refused.buffer.is_some());
        if is_in_flight {
            self.sends.on_posted();
            self.stats.posted(operation, length);
        }
        if posted.is_err() {
            // No caller waits for the request, even if the request is in flight.
            self.sends.set_awaited(index, false);
        }
        posted
    }

    /// Posts `bytes` in a free buffer, which must have room for them.
    #[inline(always)]
    pub(in crate::endpoint) fn post_bytes(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        bytes: &[u8],
        outgoing: Outgoing<'_>,
    ) -> Option<Result<Result<()>, EndReason>> {
        let acquired = self.acquire_buffer()?;
        Some(acquired.map(|mut buffer| {
            buffer.bytes()[..bytes.len()].copy_from_slice(bytes);
            let posted = self.post_send(io, Operation::Send, buffer, bytes.len(), outgoing, false);
            posted.map_err(|refused| {
                refused.buffer.into_iter().for_each(|buffer| self.sends.return_buffer(buffer));
                refused.error
            })
        }))
    }

    /// Takes back a buffer for sending that was not posted.
    pub(in crate::endpoint) fn return_buffer(&mut self, buffer: B) {
        self.sends.return_buffer(buffer);
    }

    /// Posts a buffer for receiving again.
    ///
    /// Returns `true` if the receives must be polled now: see [`overrun`]. The next poll also posts a buffer that was
    /// refused, and reports if that fails again.
    pub(in crate::endpoint) fn repost(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        buffer: B,
    ) -> bool {
        if self.qp_failed() {
            self.unposted_receives.push(buffer);
        } else if let Err(refused) = self.post_recv(io, buffer) {
            self.unposted_receives.extend(refused.buffer);
            return true;
        }
        match &self.protocol {
            Protocol::Messages(Messages { overrun: Some(overrun), .. }) => {
                overrun.must_poll_receives(self.receives_posted)
            }
            _ => false,
        }
    }

    pub(super) fn post_recv(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        buffer: B,
    ) -> Result<(), NotPosted<B>> {
        let posted = io.post_recv(buffer);
        if !matches!(&posted, Err(refused) if refused.buffer.is_some()) {
            self.receives_posted += 1;
            self.stats.receives_reposted += 1;
        }
        posted
    }

    /// Returns `true` if there are buffers for receiving that the next poll posts.
    pub(in crate::endpoint) fn must_post_receives(&self) -> bool {
        !self.unposted_receives.is_empty() && !self.qp_failed() && self.end().is_none()
    }
}
