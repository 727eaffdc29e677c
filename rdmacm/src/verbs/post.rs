//! Posting work requests.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device, hence `unsafe`, with the contract at the
//! methods. Nothing else here is.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

mod receive;
mod send;
mod shared;

pub use self::receive::ReceiveQueue;
pub use self::send::SendQueue;
pub use self::shared::SharedReceives;
use super::completion::CompletionQueue;
use super::queue_pair::QueuePair;
use crate::driver::{PostError, Posted};
use crate::error::{Error, ErrorKind};

const POST_RECV: &str = "post a receive to";

impl QueuePair {
    /// Whether this thread has one of the queues.
    pub(super) fn holds_a_queue(&self) -> bool {
        self.inner.send.is_held_by_this_thread() || self.inner.receive.is_held_by_this_thread()
    }

    /// That a request to the queue pair, which is in ERR, finds a place among those that the library
    /// completes on `cq`, if it is to be one of them.
    fn check_orphans(&self, cq: &CompletionQueue) -> Posted {
        match self.inner.send_orphans.is_some() && !cq.may_flush() {
            true => Err(PostError::Unpolled),
            false => Ok(()),
        }
    }

    #[cold]
    fn held(&self, operation: &'static str, how: &'static str) -> Error {
        Error::new(operation, self.subject(), ErrorKind::WouldDeadlock(how))
    }

    #[cold]
    fn refused(&self, operation: &'static str, error: PostError) -> Error {
        self.context().not_posted(operation, self.subject(), error)
    }
}
