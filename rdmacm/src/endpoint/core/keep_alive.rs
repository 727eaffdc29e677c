//! Keep-alive writes: empty RDMA writes on an idle connection.
//!
//! They show that the peer still exists, or make the peer's kernel process the connection.

use std::time::Duration;

use super::queue_io::QueueIo;
#[cfg(doc)]
use crate::cm::CmId;
use crate::verbs::SendOperation;

/// Interval of the writes that make the peer's kernel process a first message, and their number.
pub(in crate::endpoint) const FIRST_WRITE_INTERVAL: Duration = Duration::from_millis(100);
const FIRST_WRITE_COUNT: u32 = 8;

/// An RDMA write without bytes.
///
/// The peer's device acknowledges it, and the peer's program does not notice it.
const EMPTY_WRITE: SendOperation<'static> = SendOperation::Write { remote_addr: 0, rkey: 0 };

/// The keep-alive writes of a connection, one at a time.
#[derive(Debug)]
pub(super) struct KeepAlive<B> {
    /// The buffer of the write, as each request has one; `None` while the write is in flight.
    buffer: Option<B>,
    /// The number of writes that are left, if they end by themselves.
    left: Option<u32>,
    is_over: bool,
}

impl<B> KeepAlive<B> {
    pub(super) fn new(buffer: B) -> Self {
        Self { buffer: Some(buffer), left: None, is_over: false }
    }

    /// Limits the writes to a few, and ends them with the first message that arrives.
    ///
    /// They make the peer's kernel process the data of a side that has just connected. If a first message arrives while
    /// the peer accepts, siw does not deliver it until other data arrives: see [`CmId::accept`].
    pub(super) fn end_soon(&mut self) {
        self.left = Some(FIRST_WRITE_COUNT);
    }

    /// Records that the peer has sent a message. Returns `true` if this ends the writes.
    #[inline(always)]
    pub(super) fn on_message(&mut self) -> bool {
        self.left.is_some() && self.stop()
    }

    /// Posts a write, unless the last one is still in flight. Returns `true` if the writes are over.
    pub(super) fn on_timer(&mut self, io: &mut impl QueueIo<Buffer = B>) -> bool {
        if self.is_over {
            return true;
        }
        if let Some(buffer) = self.buffer.take() {
            // Refused only if the connection is about to end.
            if let Err(refused) = io.post_send(buffer, 0, EMPTY_WRITE.into()) {
                self.buffer = refused.buffer;
            }
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.is_over = true;
            }
        }
        self.is_over
    }

    /// Takes the buffer back after its write has completed.
    pub(super) fn on_completion(&mut self, buffer: B) {
        self.buffer = Some(buffer);
    }

    /// Ends the writes. Returns `true` if they were not over before.
    pub(super) fn stop(&mut self) -> bool {
        !std::mem::replace(&mut self.is_over, true)
    }

    /// Takes the buffer, if no write is in flight.
    pub(super) fn take_buffer(&mut self) -> Option<B> {
        self.buffer.take()
    }
}
