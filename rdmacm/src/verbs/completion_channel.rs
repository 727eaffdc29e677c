//! Completion channels ([`CompletionChannel`]) and their events.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use verbs_abi::ib_uverbs_comp_event_desc;

#[cfg(doc)]
use super::completion::CompletionQueue;
use super::context::Context;
use super::event_file::{EventFile, READ};
use super::event_source::{acknowledge_completion_event, track_completion_event};
use super::same::impl_ptr_eq;
use crate::acks::Unacknowledged;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Wait};
use crate::registry::Token;

static WAIT: Wait = Wait { operation: READ, subject: "the completion channel" };

/// A completion channel: a descriptor that is readable if an armed queue has received a completion.
///
/// A clone refers to the same channel. Several queues of a device may share a channel, and its
/// events identify the queue. [`CompletionQueue::wait`] does not support shared channels.
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
    /// Number of queues that raise their events on this channel.
    queues: AtomicUsize,
}

impl CompletionChannel {
    /// Creates a completion channel.
    ///
    /// # Errors
    ///
    /// - EMFILE if the process has no more descriptors.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL`.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(context: &Context) -> Result<Self> {
        const OPERATION: &str = "create";
        const SUBJECT: &str = "a completion channel";
        context.check_usable(OPERATION, || SUBJECT.to_owned())?;
        let created = context.file().create_comp_channel();
        let fd = created.map_err(|refused| context.refused(OPERATION, SUBJECT, refused))?;
        let file = EventFile::new(fd, &WAIT);
        let inner = Inner { context: context.clone(), file, queues: AtomicUsize::new(0) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Creates a channel whose events the test or the fuzz target writes to the socket.
    #[cfg(any(fuzzing, all(feature = "null", not(loom))))]
    pub(crate) fn on_socket(context: &Context) -> (Self, std::os::unix::net::UnixStream) {
        let (events, device) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
        let file = EventFile::new(events.into(), &WAIT);
        let inner = Inner { context: context.clone(), file, queues: AtomicUsize::new(0) };
        (Self { inner: Arc::new(inner) }, device)
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

    /// Returns the next event, and waits for one unless the descriptor is non-blocking.
    ///
    /// Reads the descriptor. Events of destroyed queues are discarded.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldBlock`] if the channel is non-blocking and there is no event.
    /// - EINTR if a signal interrupts the call. No event is lost.
    /// - [`ErrorKind::NotOwner`] in a forked child.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn get_event(&self) -> Result<CompletionEvent> {
        self.inner.file.next(self.context(), event)
    }

    /// Returns the next event, or `None` if there is none within `timeout`.
    ///
    /// The deadline holds even if other threads read the channel. To ensure that, the first call on
    /// a blocking channel makes the descriptor non-blocking. [`get_event`](Self::get_event) still
    /// blocks.
    ///
    /// # Errors
    ///
    /// The errors of [`get_event`](Self::get_event), except [`ErrorKind::WouldBlock`].
    pub fn get_event_timeout(&self, timeout: Duration) -> Result<Option<CompletionEvent>> {
        let deadline = Instant::now().checked_add(timeout);
        self.inner.file.next_before(self.context(), deadline, event)
    }

    /// Reads and acknowledges the oldest events of a non-blocking channel, up to `MOST`.
    ///
    /// There may be no event.
    pub(crate) fn drop_events<const MOST: usize>(&self) -> Result<()> {
        self.inner.file.drop_now::<ib_uverbs_comp_event_desc, MOST>(self.context(), |event| {
            acknowledge_completion_event(event.cq_handle.get());
        })
    }

    /// Reads and acknowledges one event, like [`get_event`](Self::get_event) followed by a drop.
    pub(super) fn drop_event(&self) -> Result<()> {
        self.inner.file.next(self.context(), dropped)
    }

    /// Reads and acknowledges one event, or returns `None` if there is none until `deadline`.
    pub(super) fn drop_event_before(&self, deadline: Option<Instant>) -> Result<Option<()>> {
        self.inner.file.next_before(self.context(), deadline, dropped)
    }

    /// Enables or disables non-blocking mode of [`get_event`](Self::get_event).
    ///
    /// In non-blocking mode, the call returns [`ErrorKind::WouldBlock`] instead of waiting. A
    /// descriptor that was non-blocking once stays non-blocking itself.
    ///
    /// # Errors
    ///
    /// - The errors of `fcntl`.
    /// - [`ErrorKind::NotOwner`] in a forked child, because the parent shares the mode.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.inner.file.set_nonblocking(self.context(), nonblocking)
    }
}

/// Passes an event to the program, or returns `None` if its queue no longer exists.
fn event(read: &ib_uverbs_comp_event_desc) -> Option<CompletionEvent> {
    let (token, unacknowledged) = track_completion_event(read.cq_handle.get())?;
    Some(CompletionEvent { token, _unacknowledged: unacknowledged })
}

/// Acknowledges an event, or returns `None` if its queue no longer exists.
fn dropped(read: &ib_uverbs_comp_event_desc) -> Option<()> {
    acknowledge_completion_event(read.cq_handle.get()).then_some(())
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A completion event: an armed queue has received a completion.
///
/// Dropping the event acknowledges it.
#[doc(alias = "ibv_ack_cq_events")]
#[derive(Debug)]
pub struct CompletionEvent {
    token: Token,
    _unacknowledged: Unacknowledged,
}

impl CompletionEvent {
    /// Returns the token of the queue.
    ///
    /// See [`CompletionQueue::token`].
    pub fn token(&self) -> Token {
        self.token
    }
}

impl_ptr_eq!(CompletionChannel, inner);
