//! Synchronous ids, whose calls wait until the operation has finished.

use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::channel::EventChannel;
use super::event::Event;
use super::id::CmId;
use super::mode::{Awaited, SyncMode, busy_error, ends_call};
use super::parse::EventType;
use super::record::Inner;
use crate::addr::port_space::PortSpace;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::HeldByThisThread;
use crate::verbs::QpType;

/// # Synchronous ids
///
/// A synchronous id has a private channel. A call that an event follows waits for that event. If the event reports an
/// error, the call returns the error. [`new_sync`](Self::new_sync) and [`create_ep`](Self::create_ep) create
/// synchronous ids, and [`get_request`](Self::get_request) returns them. [`migrate_to_sync`](Self::migrate_to_sync)
/// makes an id synchronous, and [`migrate`](Self::migrate) ends that.
///
/// | call | event | errors besides the call's own |
/// |---|---|---|
/// | [`resolve_addrinfo`](Self::resolve_addrinfo) | `AddrinfoResolved` | the status of `AddrinfoError` |
/// | [`resolve_addr`](Self::resolve_addr) | `AddrResolved` | the status of `AddrError` |
/// | [`resolve_route`](Self::resolve_route), [`set_ib_path`](Self::set_ib_path) | `RouteResolved` | the status of `RouteError` |
/// | [`connect`](Self::connect) | `Established`; `ConnectResponse` if the id has no queue pair | [`ErrorKind::Rejected`], [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], the status of `ConnectError` |
/// | [`accept`](Self::accept), not for datagrams | `Established` | as for `connect` |
/// | [`join_multicast`](Self::join_multicast) | `MulticastJoin` | the status of `MulticastError`; the id is in the group until it [leaves](Self::leave_multicast) |
/// | [`disconnect`](Self::disconnect), if the connection is established and its `Established` was read | `Disconnected` | [`ErrorKind::TimedOut`] if the peer does not answer |
///
/// Each call also fails in these cases:
///
/// - [`ErrorKind::DeviceRemoved`] if the device is removed.
/// - [`ErrorKind::Disconnected`] if `Disconnected` arrives instead of the expected event.
/// - EINTR if a signal interrupts the call.
///
/// An event for which no call waits is discarded when the next call reads it.
///
/// Only one thread at a time waits in such a call. A call of another thread meanwhile fails with
/// [`ErrorKind::InvalidInput`] and EBUSY, and so do [`migrate`](Self::migrate) and
/// [`leave_multicast`](Self::leave_multicast).
///
/// A call can have a deadline: see [`set_timeout`](Self::set_timeout).
impl CmId {
    /// Creates a synchronous id with a private channel.
    ///
    /// The id is for datagrams in the port spaces UDP and IPoIB, and for reliable connections in the others.
    ///
    /// # Errors
    ///
    /// - The errors of [`EventChannel::new`] and [`CmId::new`].
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_CREATE_ID`.
    #[doc(alias = "rdma_create_id")]
    pub fn new_sync(port_space: PortSpace) -> Result<Self> {
        Self::new_sync_with_qp_type(port_space, port_space.qp_types()[0])
    }

    pub(super) fn new_sync_with_qp_type(port_space: PortSpace, qp_type: QpType) -> Result<Self> {
        let channel = EventChannel::new()?;
        let id = Self::with_qp_type(&channel, port_space, qp_type)?;
        id.inner.binding_mut().sync = Some(Arc::new(SyncMode::new(channel)));
        Ok(id)
    }

    /// Makes the id synchronous by moving it to a private channel, with its unread events.
    ///
    /// The call waits for the events of the old channel, like [`migrate`](Self::migrate).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`EventChannel::new`] and [`migrate`](Self::migrate):
    ///
    /// - [`ErrorKind::InvalidInput`] if the id is synchronous already.
    /// - [`ErrorKind::InvalidInput`] with EBUSY if another thread makes the id synchronous at the same time.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_MIGRATE_ID`.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate_to_sync(&self) -> Result<()> {
        self.inner.check_process("migrate")?;
        if self.is_sync() {
            let reason = "the id is synchronous already";
            return Err(Error::invalid("migrate", self.inner.to_string(), reason));
        }
        let channel = EventChannel::new()?;
        let inner = Arc::clone(&channel.inner);
        self.inner.migrate(&inner, None, Some(Arc::new(SyncMode::new(channel))))
    }

    /// Returns `true` if the id is synchronous.
    pub fn is_sync(&self) -> bool {
        self.inner.synchronous().is_some()
    }

    /// Limits how long the calls of this id wait when it is synchronous.
    ///
    /// `None` is the default and means no limit. The ids of its requests have the same limit.
    ///
    /// A call that times out returns [`ErrorKind::TimedOut`], and the kernel continues the operation.
    /// [`wait_pending`](Self::wait_pending) waits for the outcome. Until the outcome is known, every other call that
    /// waits fails with [`ErrorKind::InvalidInput`] and EALREADY, except that
    /// [`leave_multicast`](Self::leave_multicast) cancels joining the group. If the kernel gives up, it may report
    /// EALREADY too, as [`ErrorKind::Os`]; [`pending_event`](Self::pending_event) distinguishes the two cases. The id can
    /// be destroyed at any time. If the id [migrates](Self::migrate) to a channel, the event arrives there.
    ///
    /// The limit does not apply to the following waits:
    ///
    /// - The timeouts of [`resolve_addr`](Self::resolve_addr) and [`resolve_route`](Self::resolve_route) are those of
    ///   the kernel. When one of them elapses, the call has finished.
    /// - On iWARP the command that connects takes as long as TCP takes, and the one that disconnects takes up to ten
    ///   seconds.
    /// - [`resolve_addrinfo`](Self::resolve_addrinfo) takes as long as the host takes to look up the names.
    /// - Some calls wait until the program acknowledges an event by dropping it: [`destroy`](Self::destroy),
    ///   [`migrate`](Self::migrate), [`migrate_to_sync`](Self::migrate_to_sync),
    ///   [`leave_multicast`](Self::leave_multicast), and the `destroy` of queues and queue pairs. If the calling thread
    ///   itself holds the event, the call fails at once.
    ///
    /// A [`get_request`](Self::get_request) that times out leaves no pending operation.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        if self.inner.process.is_current() {
            self.inner.state().timeout = timeout;
        }
    }

    /// Returns the limit that [`set_timeout`](Self::set_timeout) has set.
    pub fn timeout(&self) -> Option<Duration> {
        if self.inner.process.is_current() { self.inner.state().timeout } else { None }
    }

    /// Returns the event for which [`wait_pending`](Self::wait_pending) would wait.
    ///
    /// It belongs to a call of this synchronous id that timed out or that a signal interrupted. Returns `None` if no
    /// call is pending.
    pub fn pending_event(&self) -> Option<EventType> {
        self.inner.synchronous()?.pending_call().map(|awaited| awaited.event)
    }

    /// Waits for the outcome of a call of this synchronous id that timed out or was interrupted.
    ///
    /// # Errors
    ///
    /// In addition to the errors of that call:
    ///
    /// - [`ErrorKind::InvalidInput`] if no call is pending.
    pub fn wait_pending(&self) -> Result<()> {
        let mode = self.inner.expect_synchronous("wait for")?;
        let _call = mode.lock_call(&self.inner)?;
        let pending_call = *mode.pending_call();
        match pending_call {
            Some(awaited) => mode.wait_for_outcome(&self.inner, awaited),
            None => {
                let reason = "no call of the id is pending";
                Err(Error::invalid("wait for", self.inner.to_string(), reason))
            }
        }
    }

    /// Returns the event that ended the last waiting call of a synchronous id.
    ///
    /// The event has the [private data](Event::private_data) of the peer. On an id from
    /// [`get_request`](Self::get_request), it is at first the `ConnectRequest`. The next call that waits discards the
    /// event. The event is already acknowledged, so destroying the id or the listener never waits for it.
    #[doc(alias = "event")]
    pub fn last_event(&self) -> Option<Arc<Event>> {
        let mode = self.inner.synchronous()?;
        let facts = mode.last_event().clone()?;
        Some(Arc::new(Event::acknowledged(facts)))
    }

    /// Waits for a connection request to this synchronous listener, and returns its id.
    ///
    /// The new id is synchronous too; its [`last_event`](Self::last_event) is the request. If
    /// [`create_ep`](Self::create_ep) created the listener with the attributes of a queue pair, the new id has a queue
    /// pair. If the listener is for XRC targets, the new id has a target instead. Several threads may wait; each
    /// request is delivered to one of them. One thread waits on the channel. The other threads wait for that thread,
    /// and no signal interrupts them.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`EventChannel::new`], and to those of creating the queue pair, after which the
    /// peer is rejected:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id is not synchronous or does not listen.
    /// - [`ErrorKind::TimedOut`] if the [timeout](Self::set_timeout) elapses.
    /// - EINTR if a signal interrupts the thread that waits on the channel. No request is lost.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed; then for every thread and every later call.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_GET_EVENT`, and `RDMA_USER_CM_CMD_MIGRATE_ID` to the private channel of the
    /// new id.
    #[doc(alias = "rdma_get_request")]
    pub fn get_request(&self) -> Result<Self> {
        const OPERATION: &str = "wait for a request to";
        let mode = self.inner.expect_synchronous(OPERATION)?;
        if !self.inner.listens.load(Ordering::Relaxed) {
            let reason = "the id does not listen";
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        let _call = mode.check(mode.call_lock.try_read(), OPERATION, &self.inner)?;
        let mut event = mode.next_request(OPERATION, &self.inner)?;
        let id = event.take_request().expect("a request brings an id");
        let event = event.into_facts();
        id.migrate_to_sync()?;
        id.set_timeout(self.timeout());
        let qp = self.inner.state().request_qp.clone();
        if let Some(qp) = qp {
            id.create_endpoint_qp(&qp)?;
        }
        if let Some(mode) = id.inner.synchronous() {
            *mode.last_event() = Some(event);
        }
        Ok(id)
    }
}

impl SyncMode {
    /// Takes the exclusive right to wait for an outcome on `id`.
    pub(super) fn lock_call(&self, id: &Inner) -> Result<impl Drop + '_> {
        self.check(self.call_lock.try_write(), "wait for", id)
    }

    /// Returns an error unless the call lock was free and this is still the mode of `id`.
    ///
    /// The mode stays that of `id` as long as the guard is held. Another thread may have moved the id to a channel
    /// before.
    fn check<G>(&self, result: TryLockResult<G>, operation: &'static str, id: &Inner) -> Result<G> {
        let guard = match result {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let is_current = id.synchronous().is_some_and(|mode| ptr::eq(Arc::as_ptr(&mode), self));
        guard.filter(|_| is_current).ok_or_else(|| busy_error(operation, id))
    }

    /// Waits for the event that decides the outcome of a call that awaits `awaited`.
    fn wait_for_outcome(&self, id: &Inner, awaited: Awaited) -> Result<()> {
        *self.pending_call() = Some(awaited);
        let deadline = id.deadline();
        loop {
            let Some(event) = self.next_event(deadline)? else {
                let subject = format!("{awaited} on {id} (call CmId::wait_pending to wait on)");
                return Err(Error::new("wait longer for", subject, ErrorKind::TimedOut));
            };
            if !awaited.is_ended_by(event.event_type(), event.multicast()) {
                continue;
            }
            *self.pending_call() = None;
            let wanted = match event.event_type() {
                // The program sees this event if it manages a queue pair itself.
                EventType::ConnectResponse => EventType::ConnectResponse,
                // This is the last event of an ended connection.
                EventType::TimewaitExit => EventType::TimewaitExit,
                _ => awaited.event,
            };
            let failure = event.error_for(wanted);
            *self.last_event() = Some(event.into_facts());
            return failure.map_or(Ok(()), Err);
        }
    }

    /// Waits for the next request to `id`.
    fn next_request(&self, operation: &'static str, id: &Inner) -> Result<Event> {
        let failed = |kind| Err(Error::new(operation, id.to_string(), kind));
        let deadline = id.deadline();
        let reader = match self.request_reader.lock_until(deadline) {
            Ok(reader) => reader,
            Err(HeldByThisThread) => {
                return failed(ErrorKind::WouldDeadlock("this thread waits on the id already"));
            }
        };
        let Some(_reader) = reader else { return failed(ErrorKind::TimedOut) };
        loop {
            // No further request arrives, nor another event that reports the removal.
            if id.state().removed {
                return failed(ErrorKind::DeviceRemoved(Errno::ENODEV as i32));
            }
            let awaited = EventType::ConnectRequest;
            match self.next_event(deadline)? {
                Some(event) if ends_call(event.event_type(), awaited) => {
                    return event.error_for(awaited).map_or(Ok(event), Err);
                }
                Some(_) => {}
                None => return failed(ErrorKind::TimedOut),
            }
        }
    }

    /// Returns the next event, or `None` if none arrives before the deadline.
    fn next_event(&self, deadline: Option<Instant>) -> Result<Option<Event>> {
        let Some(deadline) = deadline else { return self.channel.get_event().map(Some) };
        self.channel.get_event_timeout(deadline.saturating_duration_since(Instant::now()))
    }
}

impl Inner {
    /// Calls `start`, which the event `awaited` follows, and waits for the event if the id is synchronous.
    pub(super) fn start_and_wait(
        &self,
        awaited: impl Into<Awaited>,
        start: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let awaited = awaited.into();
        let Some(mode) = self.synchronous() else { return start() };
        let _call = mode.lock_call(self)?;
        let pending_call = *mode.pending_call();
        if let Some(pending_call) = pending_call {
            let reason = format!("the id still waits for {pending_call}: see CmId::wait_pending");
            let kind =
                ErrorKind::InvalidInput { errno: Errno::EALREADY as i32, reason: reason.into() };
            return Err(Error::new("use", self.to_string(), kind));
        }
        *mode.last_event() = None;
        start()?;
        if awaited.event == EventType::Disconnected && !self.state().established {
            return Ok(());
        }
        mode.wait_for_outcome(self, awaited)
    }

    /// Returns the additional state of a synchronous id.
    ///
    /// Returns `None` in a forked child, because no call waits there.
    pub(super) fn synchronous(&self) -> Option<Arc<SyncMode>> {
        if self.process.is_current() { self.binding().sync.clone() } else { None }
    }

    fn expect_synchronous(&self, operation: &'static str) -> Result<Arc<SyncMode>> {
        self.check_process(operation)?;
        self.synchronous().ok_or_else(|| {
            let reason = "the id is not synchronous: its events are on its channel";
            Error::invalid(operation, self.to_string(), reason)
        })
    }

    /// Returns the deadline of a call that begins now.
    fn deadline(&self) -> Option<Instant> {
        self.state().timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }
}

#[cfg(test)]
mod tests;
