//! The channel that wakes who waits for completions, and its events.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use verbs_abi::ib_uverbs_comp_event_desc;
use zerocopy::{FromZeros, IntoBytes};

use super::completion::CQS;
#[cfg(doc)]
use super::completion::CompletionQueue;
use super::context::Context;
use crate::acks::Unacknowledged;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::registry::Token;
use crate::sys::command::Refused;
use crate::sys::poll::Waiting;

const READ: &str = "read";
const CHANNEL: &str = "the completion channel";

/// Wakes who waits for completions: a descriptor that is readable when an armed queue has got one.
///
/// A clone is the same channel. Several queues of a device may share one: their events say whose
/// they are, and [`CompletionQueue::wait`] is not for them.
#[doc(alias = "ibv_comp_channel")]
#[derive(Debug, Clone)]
pub struct CompletionChannel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    fd: OwnedFd,
    waiting: Waiting,
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
        let made = context.file().create_comp_channel();
        let fd =
            made.map_err(|refused| context.refused("create", "a completion channel", refused))?;
        let (waiting, queues) = (Waiting::default(), AtomicUsize::new(0));
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), fd, waiting, queues }) })
    }

    pub(super) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(super) fn raw(&self) -> i32 {
        self.inner.fd.as_raw_fd()
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
        loop {
            self.context().check_process(READ, || CHANNEL.to_owned())?;
            let read = self.inner.waiting.read(self.as_fd(), || self.read());
            if let Some(event) = self.event(read)? {
                return Ok(event);
            }
        }
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
        self.get_event_by(Instant::now().checked_add(timeout))
    }

    pub(super) fn get_event_by(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<CompletionEvent>> {
        self.context().check_process(READ, || CHANNEL.to_owned())?;
        loop {
            let read = self.inner.waiting.read_by(self.as_fd(), deadline, || self.read());
            let Some(read) = read.transpose() else { return Ok(None) };
            if let Some(event) = self.event(read)? {
                return Ok(Some(event));
            }
        }
    }

    /// Takes the next event from the kernel; how many bytes it has.
    fn read(&self) -> Result<(ib_uverbs_comp_event_desc, usize), Refused> {
        let mut event = ib_uverbs_comp_event_desc::new_zeroed();
        let length = nix::unistd::read(&self.inner.fd, event.as_mut_bytes());
        Ok((event, length.map_err(Refused::Os)?))
    }

    /// Makes what was read the program's; `None` where its queue is gone.
    fn event(
        &self,
        read: Result<(ib_uverbs_comp_event_desc, usize), Refused>,
    ) -> Result<Option<CompletionEvent>> {
        let (event, length) = read.map_err(|refused| match refused {
            Refused::Os(Errno::EAGAIN) => refused.during_wait(READ, CHANNEL),
            refused => self.context().refused(READ, CHANNEL, refused),
        })?;
        if length != size_of_val(&event) {
            let what = format!("{length} bytes where an event has {}", size_of_val(&event));
            return Err(Error::malformed(READ, CHANNEL, what));
        }
        let found = CQS.get_with_token(event.cq_handle.get());
        Ok(found
            .map(|(token, acks)| CompletionEvent { token, _unacknowledged: acks.hand_out(true) }))
    }

    /// Makes [`get_event`](Self::get_event) return [`ErrorKind::WouldBlock`] instead of waiting, or
    /// wait again.
    ///
    /// # Errors
    ///
    /// Those of `fcntl`; [`ErrorKind::WrongProcess`] after a fork: the mode is the parent's too.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        const OPERATION: &str = "set the blocking mode of";
        self.context().check_process(OPERATION, || CHANNEL.to_owned())?;
        let set = self.inner.waiting.set_nonblocking(self.as_fd(), nonblocking);
        set.map_err(|refused| self.context().refused(OPERATION, CHANNEL, refused))
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
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
