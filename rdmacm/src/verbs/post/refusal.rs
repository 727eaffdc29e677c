//! Errors of posting to a queue pair.

use crate::driver::PostError;
use crate::error::{Error, ErrorKind};
use crate::verbs::queue_pair::QueuePair;

pub(super) const POST_RECV: &str = "post a receive to";

impl QueuePair {
    /// Returns `true` if the calling thread holds one of the queues.
    pub(in crate::verbs) fn holds_a_queue(&self) -> bool {
        self.inner.send.is_held_by_this_thread() || self.inner.receive.is_held_by_this_thread()
    }

    #[cold]
    pub(super) fn deadlock_error(&self, operation: &'static str, reason: &'static str) -> Error {
        Error::new(operation, self.subject(), ErrorKind::WouldDeadlock(reason))
    }

    #[cold]
    pub(super) fn refused(&self, operation: &'static str, error: PostError) -> Error {
        self.context().not_posted(operation, self.subject(), error)
    }
}
