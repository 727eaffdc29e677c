//! The channel that wakes who waits for completions, and its events.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use verbs_abi::ib_uverbs_comp_event_desc;

#[cfg(doc)]
use super::completion::CompletionQueue;
use super::context::Context;
use super::event_file::{EventFile, READ};
use super::reporter::{hand_out_completion, pass_completion};
use super::same::equal_if_same;
use crate::acks::Unacknowledged;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Wait};
use crate::registry::Token;

static WAIT: Wait = Wait { operation: READ, subject: "the completion channel" };

/// Wakes who waits for completions: a descriptor that is readable when an armed queue has got one.
///
/// A clone is the same channel. Several queues of a device may share one: their events say whose
/// they are, and [`CompletionQueue::wait`] is not for them.
#[doc(alias = "ibv_comp_channel")]
#[doc(alias = "ibv_destroy_comp_channel")]
#[derive(Debug, Clone)]
pub struct CompletionChannel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    file: EventFile,
    /// How many queues have their events here.
    queues: AtomicUsize,
}

impl CompletionChannel {
    /// Makes a completion channel. `IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL`.
    ///
    /// # Errors
    ///
    /// EMFILE where the process has no more descriptors; [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(context: &Context) -> Result<Self> {
        const OPERATION: &str = "create";
        const WHAT: &str = "a completion channel";
        context.check_usable(OPERATION, || WHAT.to_owned())?;
        let made = context.file().create_comp_channel();
        let fd = made.map_err(|refused| context.refused(OPERATION, WHAT, refused))?;
        let file = EventFile::new(fd, &WAIT);
        let inner = Inner { context: context.clone(), file, queues: AtomicUsize::new(0) };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(super) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(super) fn raw(&self) -> i32 {
        self.inner.file.raw()
    }

    pub(super) fn queues(&self) -> usize {
        self.inner.queues.load(Ordering::Relaxed)
    }

    pub(super) fn add_queue(&self) {
        self.inner.queues.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_queue(&self) {
        self.inner.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// The next event; waits for one unless the descriptor is non-blocking.
    ///
    /// A `read` of the descriptor. Events of queues that no longer live are dropped here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] on a non-blocking channel without events; EINTR where a signal
    /// came first, with nothing lost; [`ErrorKind::WrongProcess`] after a fork;
    /// [`ErrorKind::DeviceGone`].
    #[doc(alias = "ibv_get_cq_event")]
    pub fn get_event(&self) -> Result<CompletionEvent> {
        self.inner.file.next(self.context(), event)
    }

    /// The next event, or `None` if none came within `timeout`.
    ///
    /// Holds its deadline whoever else reads the channel. For that, the first call on a blocking
    /// channel makes the descriptor non-blocking; [`get_event`](Self::get_event) goes on
    /// blocking.
    ///
    /// # Errors
    ///
    /// As [`get_event`](Self::get_event), but never [`ErrorKind::WouldBlock`].
    pub fn get_event_timeout(&self, timeout: Duration) -> Result<Option<CompletionEvent>> {
        let deadline = Instant::now().checked_add(timeout);
        self.inner.file.next_by(self.context(), deadline, event)
    }

    /// Drops up to `MOST` events of a channel that is non-blocking, those that have come first. There may be none.
    pub(crate) fn drop_events<const MOST: usize>(&self) -> Result<()> {
        self.inner.file.drop_now::<ib_uverbs_comp_event_desc, MOST>(self.context(), |event| {
            pass_completion(event.cq_handle.get());
        })
    }

    /// [`get_event`](Self::get_event) for one who drops it at once.
    pub(super) fn drop_event(&self) -> Result<()> {
        self.inner.file.next(self.context(), dropped)
    }

    /// The same, or `None` if none came until `deadline`.
    pub(super) fn drop_event_by(&self, deadline: Option<Instant>) -> Result<Option<()>> {
        self.inner.file.next_by(self.context(), deadline, dropped)
    }

    /// Makes [`get_event`](Self::get_event) return [`ErrorKind::WouldBlock`] instead of waiting, or
    /// wait again. A descriptor that was non-blocking once stays so itself.
    ///
    /// # Errors
    ///
    /// The errors of `fcntl`; [`ErrorKind::WrongProcess`] after a fork: the mode is the parent's too.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.inner.file.set_nonblocking(self.context(), nonblocking)
    }
}

/// Makes what was read the program's; `None` where its queue is gone.
fn event(read: &ib_uverbs_comp_event_desc) -> Option<CompletionEvent> {
    let (token, unacknowledged) = hand_out_completion(read.cq_handle.get())?;
    Some(CompletionEvent { token, _unacknowledged: unacknowledged })
}

/// Acknowledges what was read; `None` where its queue is gone.
fn dropped(read: &ib_uverbs_comp_event_desc) -> Option<()> {
    pass_completion(read.cq_handle.get()).then_some(())
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

/// A completion queue has got a completion after it was armed. Dropping the event acknowledges it.
#[doc(alias = "ibv_ack_cq_events")]
#[derive(Debug)]
pub struct CompletionEvent {
    token: Token,
    _unacknowledged: Unacknowledged,
}

impl CompletionEvent {
    /// The queue, see [`CompletionQueue::token`].
    pub fn token(&self) -> Token {
        self.token
    }
}

equal_if_same!(CompletionChannel, inner);
