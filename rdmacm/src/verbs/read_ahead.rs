//! Asynchronous events that the library has read before the program has requested any.

use std::collections::VecDeque;
use std::sync::Arc;

use verbs_abi::ib_uverbs_async_event_desc;

/// Maximum number of events that are kept for the program.
pub(super) const MAX_EVENTS: usize = 64;

/// A program that may read the events of a context.
///
/// While it exists, the library must not read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reader(Arc<()>);

/// The asynchronous events that the library has read, and the readers that prevent further reads.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Shared with each [`Reader`], so that the reference count is the number of readers plus one.
    readers: Arc<()>,
    /// Events that were read.
    ///
    /// All of them have been acknowledged.
    events: VecDeque<ib_uverbs_async_event_desc>,
}

impl ReadAhead {
    /// Returns a reader.
    ///
    /// While it exists, reading is left to the program.
    pub(super) fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.readers))
    }

    /// Returns `true` if a reader exists.
    pub(super) fn is_read_by_program(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    /// Keeps an event for the program.
    ///
    /// It replaces the oldest one if there are [`MAX_EVENTS`].
    pub(super) fn push(&mut self, event: ib_uverbs_async_event_desc) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Takes the oldest event.
    pub(super) fn pop(&mut self) -> Option<ib_uverbs_async_event_desc> {
        self.events.pop_front()
    }
}
