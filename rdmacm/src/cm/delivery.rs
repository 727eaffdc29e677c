//! Delivery of events: from the kernel's response to an [`Event`] for the program.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ucma_abi::rdma_ucm_get_event;
use verbs_abi::AlignedU64;

use super::channel::{EventChannel, destroy_id};
use super::channel_waker::WAKER_UID;
use super::event::Event;
use super::event_facts::EventFacts;
use super::group::GROUPS;
use super::id::CmId;
use super::parse::{EventType, RawEvent};
use super::record::{IDS, Inner};
use crate::acks::Counted;
use crate::error::{Error, ErrorKind, IntoError as _, Result, Wait};
use crate::sys::command::CommandError;

impl EventChannel {
    /// Returns the next event, waiting for one unless the channel is non-blocking.
    ///
    /// The library reacts to some events before it returns them:
    ///
    /// - If the peer accepts [`CmId::connect`] on an id with a queue pair, the queue pair is
    ///   brought to RTS and the connection is confirmed. The event is then `Established`, or
    ///   `ConnectError` if this fails.
    /// - With `Rejected`, the queue pair moves to ERR.
    /// - With `MulticastJoin`, the id's queue pair is attached to the group.
    ///
    /// Events of destroyed ids are discarded.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldBlock`] if the channel is non-blocking and has no event.
    /// - EINTR if a signal arrives first.
    ///
    /// No event is lost in either case.
    ///
    /// # Driver notes
    ///
    /// On siw the queue pair of an ended connection moves to ERR, too. There the kernel has moved the
    /// queue pair and does not complete work requests that are posted later.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_GET_EVENT`, then for an accepted connection
    /// `RDMA_USER_CM_CMD_INIT_QP_ATTR`, `IB_USER_VERBS_CMD_MODIFY_QP` and
    /// `RDMA_USER_CM_CMD_ACCEPT`, or for a group `IB_USER_VERBS_CMD_ATTACH_MCAST`.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn get_event(&self) -> Result<Event> {
        loop {
            let mut raw = RawEvent::blank();
            self.inner.waiting.read(self.as_fd(), || self.take(&mut raw)).map_err(failed)?;
            if let Some(event) = self.deliver(&raw) {
                return Ok(event);
            }
        }
    }

    /// Returns the next event, or `None` if no event arrives within `timeout`.
    ///
    /// The deadline holds even if other threads read the channel. For this, the first call on a
    /// blocking channel makes the descriptor non-blocking; [`get_event`](Self::get_event) still
    /// waits.
    ///
    /// # Errors
    ///
    /// The errors of [`get_event`](Self::get_event), except [`ErrorKind::WouldBlock`].
    pub fn get_event_timeout(&self, timeout: Duration) -> Result<Option<Event>> {
        let deadline = Instant::now().checked_add(timeout);
        self.inner.file.check_process().map_err(failed)?;
        // With a zero timeout, the call still looks through all pending events.
        let is_over =
            || !timeout.is_zero() && deadline.is_some_and(|deadline| Instant::now() >= deadline);
        loop {
            let mut raw = RawEvent::blank();
            let take = || self.take(&mut raw);
            let taken = self.inner.waiting.read_by(self.as_fd(), deadline, take);
            let Some(()) = taken.map_err(failed)? else { return Ok(None) };
            let event = self.deliver(&raw);
            if event.is_some() || is_over() {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event, which must be a successful `wanted`.
    ///
    /// This is for programs that take one step after the other. Any other event becomes an error:
    /// it is acknowledged and discarded, and a request in it is destroyed.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`get_event`](Self::get_event):
    ///
    /// - [`ErrorKind::Rejected`] with reason and private data, if the event is `Rejected`.
    /// - [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`] or [`ErrorKind::DeviceRemoved`], if
    ///   the event reports that.
    /// - [`ErrorKind::Disconnected`] if the peer ended the connection before.
    /// - [`ErrorKind::Os`] with the errno in the status of the event, if that is another one.
    /// - [`ErrorKind::InvalidInput`] if another event came first, of any id.
    pub fn expect_event(&self, wanted: EventType) -> Result<Event> {
        expected(self.get_event()?, wanted)
    }

    /// Waits at most `timeout` for the next event, which must be a successful `wanted`.
    ///
    /// Otherwise the call behaves like [`expect_event`](Self::expect_event). `Established` and
    /// `ConnectRequest` depend on the peer's program and may never arrive. The result of a
    /// resolution arrives within the timeout of the resolving call.
    ///
    /// # Errors
    ///
    /// The errors of [`expect_event`](Self::expect_event), except [`ErrorKind::WouldBlock`], and in
    /// addition:
    ///
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    pub fn expect_event_timeout(&self, wanted: EventType, timeout: Duration) -> Result<Event> {
        match self.get_event_timeout(timeout)? {
            Some(event) => expected(event, wanted),
            None => Err(Error::new("wait longer for", wanted.to_string(), ErrorKind::TimedOut)),
        }
    }

    /// Reads the next event from the kernel into a blank one.
    fn take(&self, event: &mut RawEvent) -> Result<(), CommandError> {
        let request = rdma_ucm_get_event { response: AlignedU64::default() };
        self.inner.run(|file| file.command_over(request, event.response_mut()))
    }

    /// Looks up the id of a raw event and builds the public [`Event`].
    ///
    /// Returns `None` if the event is internal or its id no longer exists.
    pub(super) fn deliver(&self, raw: &RawEvent) -> Option<Event> {
        match raw.event_type() {
            EventType::ConnectRequest => return self.deliver_request(raw),
            EventType::MulticastJoin | EventType::MulticastError => {
                return self.deliver_multicast(raw);
            }
            _ => {}
        }
        let id = match raw.uid() {
            WAKER_UID => {
                self.inner.on_wakeup_event();
                return None;
            }
            // The kernel's handles are unique among all channels, except for handles of destroyed
            // ids that wait for their events.
            0 => {
                let is_meant = |id: &Inner| id.handle == raw.handle();
                let living = IDS.find(|id| is_meant(id) && !id.is_destroyed());
                living.or_else(|| IDS.find(is_meant))?
            }
            uid => IDS.get(uid)?,
        };
        // The kernel should not send an event without the program's number. Old kernels send such
        // an event for an established connection, before the number that ACCEPT carries has reached
        // the id.
        let is_stray = raw.uid() == 0 && raw.event_type() != EventType::Established;
        let seen = if is_stray || id.is_destroyed() { None } else { id.react(raw) };
        // Checked again: another thread may have destroyed the id meanwhile.
        let Some((event_type, status)) = seen.filter(|_| !id.is_destroyed()) else {
            id.discard_event(&self.inner);
            return None;
        };
        let data = raw.data(id.service());
        let user_data = id.user_data.load(Ordering::Relaxed);
        let facts = EventFacts::new(event_type, status, id.token, user_data, data);
        Some(Event::new(facts, id.received(&self.inner)))
    }

    /// Returns the event of a request, which carries the listener's number and the new id's handle.
    fn deliver_request(&self, raw: &RawEvent) -> Option<Event> {
        self.inner.take_request_id(raw.handle());
        let listener = IDS.get(raw.uid());
        let Some(listener) = listener.as_ref().filter(|id| !id.is_destroyed()) else {
            // The listener was destroyed while the event was in flight. That destroyed only the
            // requests that were not reported yet. A failure has no caller to report to.
            let _ = self.inner.command(destroy_id(raw.handle()));
            if let Some(destroyed) = listener {
                destroyed.discard_event(&self.inner);
            }
            return None;
        };
        let data = raw.data(listener.service());
        let inner = Inner::requested(listener, Arc::clone(&self.inner), raw.handle(), &data);
        inner.state().remote_ece = raw.ece();
        let user_data = inner.user_data.load(Ordering::Relaxed);
        let (event_type, status) = (EventType::ConnectRequest, raw.status());
        let mut facts = EventFacts::new(event_type, status, inner.token, user_data, data);
        facts.listener = Some(listener.token);
        let request = Some(CmId::from_inner(inner));
        Some(Event { request, ..Event::new(facts, listener.received(&self.inner)) })
    }

    /// Returns the event of a multicast group, which carries the group's number.
    ///
    /// The event counts for both the group and the id.
    fn deliver_multicast(&self, raw: &RawEvent) -> Option<Event> {
        let group = GROUPS.get(raw.uid())?;
        let id = IDS.get(group.id.get())?;
        // Counted for both, even if the program does not get the event.
        let (of_id, of_group) = (id.received(&self.inner), group.track(true));
        let seen = if id.is_destroyed() { None } else { group.react(&id, raw) };
        let (event_type, status) = seen.filter(|_| !id.is_destroyed())?;
        let data = raw.data(id.service());
        let user_data = id.user_data.load(Ordering::Relaxed);
        let mut facts = EventFacts::new(event_type, status, id.token, user_data, data);
        facts.group = Some(Box::new(group.address));
        Some(Event { group_unacknowledged: Some(of_group), ..Event::new(facts, of_id) })
    }
}

/// Returns the event if it is a successful `wanted`.
fn expected(event: Event, wanted: EventType) -> Result<Event> {
    let advice = ": EventChannel::get_event takes events as they come, and Event::token names the \
                  id of each";
    event.failure_with_advice(wanted, advice).map_or(Ok(event), Err)
}

fn failed(refused: CommandError) -> Error {
    static WAIT: Wait = Wait { operation: "get an event from", subject: "the event channel" };
    refused.during_wait(&WAIT)
}

#[cfg(test)]
mod tests;
