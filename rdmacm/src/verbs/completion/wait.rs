//! Sleeping until a completion queue has a completion.
//!
//! [`CompletionQueue::wait`] polls, arms, polls again and blocks on the completion channel. The lock
//! `sleeper` admits one thread at a time.

use std::time::{Duration, Instant};

use super::{CompletionQueue, Poller};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::HeldByThisThread;
#[cfg(doc)]
use crate::verbs::CompletionChannel;
use crate::work::Completion;

impl CompletionQueue {
    /// Takes completions from the queue, and sleeps until there is at least one.
    ///
    /// Returns the number of completions in `into`. The call polls, arms, polls again, and then
    /// reads and acknowledges an event of the channel, until there is a completion. The channel
    /// must serve no other queue, whose events would be lost.
    ///
    /// If several threads wait, one sleeps on the channel and the others block on a lock. Signals
    /// do not interrupt threads that block on the lock.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`poll`](Self::poll), [`request_notify`](Self::request_notify)
    /// and [`CompletionChannel::get_event`]:
    /// - [`ErrorKind::InvalidInput`] if the queue has no channel, if the channel serves other
    ///   queues too, or if `into` is empty.
    /// - [`ErrorKind::WouldBlock`] if the channel is non-blocking.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread already waits on the queue.
    /// - EINTR if a signal interrupts the call. No completion is lost.
    ///
    /// # Driver notes
    ///
    /// On siw, a sleeping thread does not wake for requests that the library completes if [no
    /// event](Self::request_notify) can be raised for them. The next call returns them.
    ///
    /// # Examples
    ///
    /// A function that waits until a number of posted requests is completed:
    ///
    /// ```no_run
    /// use rdmacm::verbs::{Completion, CompletionQueue};
    ///
    /// fn complete(cq: &CompletionQueue, mut posted: usize) -> rdmacm::Result<()> {
    ///     let mut done = [Completion::default(); 16];
    ///     while posted > 0 {
    ///         let count = cq.wait(&mut done)?;
    ///         for failed in done[..count].iter().filter(|completion| !completion.is_success()) {
    ///             eprintln!("request {}: {:?}", failed.wr_id(), failed.status());
    ///         }
    ///         posted = posted.saturating_sub(count);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "rdma_get_send_comp")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn wait(&self, into: &mut [Completion]) -> Result<usize> {
        self.sleep(into, None)
    }

    /// Takes completions from the queue, or returns 0 if none arrives within `timeout`.
    ///
    /// The deadline holds even if other threads wait, read the channel or hold the
    /// [poller](Self::lock_poller). See [`wait`](Self::wait) and
    /// [`CompletionChannel::get_event_timeout`].
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait), except [`ErrorKind::WouldBlock`].
    pub fn wait_timeout(&self, into: &mut [Completion], timeout: Duration) -> Result<usize> {
        self.sleep(into, Some(timeout))
    }

    fn sleep(&self, into: &mut [Completion], timeout: Option<Duration>) -> Result<usize> {
        const OPERATION: &str = "wait for";
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let invalid =
            |reason: &'static str| Error::invalid(OPERATION, self.inner.subject(), reason);
        self.context().check_process(OPERATION, || self.inner.name())?;
        let Some(channel) = &self.inner.channel else {
            return Err(invalid("the queue has no completion channel"));
        };
        if into.is_empty() {
            return Err(invalid("the slice for completions is empty"));
        }
        let mut poll = || self.poll_before(into, deadline);
        let sleeper = self.inner.sleeper.lock_until(deadline);
        let sleeper = sleeper.map_err(|HeldByThisThread| {
            let kind = ErrorKind::WouldDeadlock("this thread waits on the queue already");
            Error::new(OPERATION, self.inner.subject(), kind)
        })?;
        let Some(_sleeper) = sleeper else { return Ok(poll()?.unwrap_or(0)) };
        loop {
            if channel.queues() > 1 {
                return Err(invalid("the completion channel serves other completion queues too"));
            }
            match poll()? {
                Some(0) => self.request_notify(false)?,
                polled => return Ok(polled.unwrap_or(0)),
            }
            match poll()? {
                Some(0) => (),
                polled => return Ok(polled.unwrap_or(0)),
            }
            let event = match timeout {
                None => Some(channel.drop_event()?),
                Some(_) => channel.drop_event_before(deadline)?,
            };
            if event.is_none() {
                return Ok(poll()?.unwrap_or(0));
            }
        }
    }

    /// Polls the queue, or returns `None` if another thread holds the poller until `deadline`.
    fn poll_before(
        &self,
        into: &mut [Completion],
        deadline: Option<Instant>,
    ) -> Result<Option<usize>> {
        if deadline.is_none() {
            return self.poll(into).map(Some);
        }
        let ring = self.inner.ring.lock_until(deadline);
        let ring = ring.map_err(|HeldByThisThread| self.polled_here())?;
        ring.map(|ring| Poller { inner: &self.inner, ring }.take(into)).transpose()
    }
}
