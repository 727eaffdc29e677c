//! Synchronous ids: calls that wait until what they start is done.

use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::channel::EventChannel;
use super::event::Event;
use super::id::CmId;
use super::mode::{Awaited, SyncMode, busy, decides};
use super::parse::EventType;
use super::record::Inner;
use crate::addr::port_space::PortSpace;
use crate::concurrent::HeldByThisThread;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::QpType;

/// # Synchronous ids
///
/// An id without a channel of the program's is synchronous: a call that would be followed by an
/// event waits for that event and returns the error that it is. Made by [`new_sync`](Self::new_sync)
/// or [`create_ep`](Self::create_ep), brought by [`get_request`](Self::get_request), or turned into
/// one by [`migrate_to_sync`](Self::migrate_to_sync); [`migrate`](Self::migrate) turns it back.
///
/// | call | event | errors besides the call's own |
/// |---|---|---|
/// | [`resolve_addrinfo`](Self::resolve_addrinfo) | `AddrinfoResolved` | the status of `AddrinfoError` |
/// | [`resolve_addr`](Self::resolve_addr) | `AddrResolved` | the status of `AddrError` |
/// | [`resolve_route`](Self::resolve_route), [`set_ib_path`](Self::set_ib_path) | `RouteResolved` | the status of `RouteError` |
/// | [`connect`](Self::connect) | `Established`; `ConnectResponse` without a queue pair of its own | [`ErrorKind::Rejected`], [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], the status of `ConnectError` |
/// | [`accept`](Self::accept), not for datagrams | `Established` | as above |
/// | [`join_multicast`](Self::join_multicast) | `MulticastJoin` | the status of `MulticastError`; the id is in the group until it [leaves](Self::leave_multicast) |
/// | [`disconnect`](Self::disconnect), where the connection is established and its `Established` was read | `Disconnected` | [`ErrorKind::TimedOut`] where the peer does not answer |
///
/// Each also fails with [`ErrorKind::DeviceGone`] when the device is removed, with EINVAL where
/// `Disconnected` comes in place of what it waits for, and with EINTR when a signal interrupts it.
/// Events that no call waits for are dropped when the next call comes across them.
///
/// One thread at a time waits in such a call; another one's has EBUSY meanwhile, and so have
/// [`migrate`](Self::migrate) and [`leave_multicast`](Self::leave_multicast).
///
/// A call can be given a deadline, see [`set_timeout`](Self::set_timeout).
impl CmId {
    /// Makes a synchronous id, for datagrams in the port spaces UDP and IPoIB, for reliable
    /// connections in the others.
    ///
    /// `RDMA_USER_CM_CMD_CREATE_ID`, on a channel of its own.
    ///
    /// # Errors
    ///
    /// The errors of [`EventChannel::new`] and [`CmId::new`].
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

    /// Makes the id synchronous: moves it, with its events that were not read yet, to a channel of
    /// its own.
    ///
    /// `RDMA_USER_CM_CMD_MIGRATE_ID`. Waits for the events of the old channel as
    /// [`migrate`](Self::migrate) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where it is synchronous already, with EBUSY where another thread has
    /// made it so just now; those of [`EventChannel::new`] and of
    /// [`migrate`](Self::migrate).
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate_to_sync(&self) -> Result<()> {
        self.inner.check_process("migrate")?;
        if self.is_sync() {
            let reason = "it is synchronous already";
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

    /// Limits how long calls of this id wait when it is synchronous; `None`, as it is in the
    /// beginning, for as long as it takes. The ids of its requests have the same limit.
    ///
    /// A call whose time is over returns [`ErrorKind::TimedOut`], and what it started goes on in the
    /// kernel: [`finish`](Self::finish) waits on for its outcome, and until that is known every
    /// other call that waits is refused with EALREADY. ([`leave_multicast`](Self::leave_multicast)
    /// gives up joining the group.) [`unfinished`](Self::unfinished) tells this case from the one
    /// where the kernel has given up, which is the same error. The id can be destroyed at any time, and an id
    /// that [migrates](Self::migrate) to a channel has the event there. (The time-outs that
    /// [`resolve_addr`](Self::resolve_addr) and [`resolve_route`](Self::resolve_route) take are the
    /// kernel's: after one of those the call is over.) Whatever the limit, on iWARP the command that
    /// connects takes as long as TCP takes and the one that disconnects up to ten seconds, and
    /// [`resolve_addrinfo`](Self::resolve_addrinfo) as long as the host takes for the names. A
    /// [`get_request`](Self::get_request) leaves nothing unfinished.
    ///
    /// Of the calls that wait for the program itself, to acknowledge an event by dropping it, none
    /// has a limit: [`destroy`](Self::destroy), [`migrate`](Self::migrate),
    /// [`migrate_to_sync`](Self::migrate_to_sync), [`leave_multicast`](Self::leave_multicast), and
    /// the `destroy` of queues and queue pairs. Where it is their own thread that holds the event,
    /// they do not wait: that is an error at once.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        if self.inner.process.is_current() {
            self.inner.state().timeout = timeout;
        }
    }

    /// The limit that [`set_timeout`](Self::set_timeout) has set.
    pub fn timeout(&self) -> Option<Duration> {
        if self.inner.process.is_current() { self.inner.state().timeout } else { None }
    }

    /// The event that [`finish`](Self::finish) would wait for: that of a call of this synchronous id
    /// whose time was over, or which a signal interrupted. `None` where every call is done.
    pub fn unfinished(&self) -> Option<EventType> {
        self.inner.synchronous()?.unfinished().map(|awaited| awaited.event)
    }

    /// Waits on for the outcome of a call of this synchronous id whose time was over, or which a
    /// signal interrupted.
    ///
    /// # Errors
    ///
    /// The errors of that call; [`ErrorKind::Invalid`] where there is none.
    pub fn finish(&self) -> Result<()> {
        let mode = self.inner.expect_synchronous("wait for")?;
        let _turn = mode.turn(&self.inner)?;
        let unfinished = *mode.unfinished();
        match unfinished {
            Some(awaited) => mode.finish(&self.inner, awaited),
            None => {
                let reason = "no call of it is unfinished";
                Err(Error::invalid("wait for", self.inner.to_string(), reason))
            }
        }
    }

    /// The event that the last call that waited ended with, of a synchronous id: it has the
    /// [private data](Event::private_data) of the peer. On an id from
    /// [`get_request`](Self::get_request) it is, at first, the `ConnectRequest`. Gone when the next
    /// call that waits begins.
    ///
    /// It is acknowledged, so that destroying the id, or the listener, never waits for it.
    #[doc(alias = "event")]
    pub fn last_event(&self) -> Option<Arc<Event>> {
        let mode = self.inner.synchronous()?;
        let facts = mode.last_event().clone()?;
        Some(Arc::new(Event::acknowledged(facts)))
    }

    /// Waits for a peer that wants to connect to this synchronous listener: the id of the new
    /// connection, which is synchronous too.
    ///
    /// `RDMA_USER_CM_CMD_GET_EVENT`, and `RDMA_USER_CM_CMD_MIGRATE_ID` to a channel of the new id's
    /// own. [`last_event`](Self::last_event) of the new id is the request. Where the listener is from
    /// [`create_ep`](Self::create_ep) with a queue pair, the new id has one. Several threads may
    /// wait; each request goes to one of them. One of them sleeps on the channel, and the others wait
    /// for their turn, where no signal reaches them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id is not synchronous or does not listen; [`ErrorKind::TimedOut`] when its
    /// [time](Self::set_timeout) is over; EINTR for the one that sleeps on the channel, with nothing
    /// lost; [`ErrorKind::DeviceGone`], from then
    /// on for every thread. Those of [`EventChannel::new`] and of making the queue pair, the peer being
    /// rejected then.
    #[doc(alias = "rdma_get_request")]
    pub fn get_request(&self) -> Result<Self> {
        const OPERATION: &str = "wait for a request to";
        let mode = self.inner.expect_synchronous(OPERATION)?;
        if !self.inner.listens.load(Ordering::Relaxed) {
            let reason = "the id does not listen";
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        let _turn = mode.check(mode.turn.try_read(), OPERATION, &self.inner)?;
        let mut event = mode.next_request(OPERATION, &self.inner)?;
        let id = event.take_request().expect("a request brings an id");
        let event = event.into_facts();
        id.migrate_to_sync()?;
        id.set_timeout(self.timeout());
        let qp = self.inner.state().request_qp.clone();
        if let Some(qp) = qp {
            id.create_ep_qp(&qp)?;
        }
        if let Some(mode) = id.inner.synchronous() {
            *mode.last_event() = Some(event);
        }
        Ok(id)
    }
}

impl SyncMode {
    /// Lets this thread, and no other, make `id` wait.
    pub(super) fn turn(&self, id: &Inner) -> Result<impl Drop + '_> {
        self.check(self.turn.try_write(), "wait for", id)
    }

    /// Checks that `turn` was free, and that the mode is still that of `id`, which it stays as long as the
    /// turn is held: another thread may have moved the id to a channel before.
    fn check<G>(&self, turn: TryLockResult<G>, operation: &'static str, id: &Inner) -> Result<G> {
        let turn = match turn {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let is_current = id.synchronous().is_some_and(|mode| ptr::eq(Arc::as_ptr(&mode), self));
        turn.filter(|_| is_current).ok_or_else(|| busy(operation, id))
    }

    /// Waits until an event says how the call went that is followed by `awaited`.
    fn finish(&self, id: &Inner, awaited: Awaited) -> Result<()> {
        *self.unfinished() = Some(awaited);
        let deadline = id.deadline();
        loop {
            let Some(event) = self.next_event(deadline)? else {
                let subject = format!("{awaited} on {id} (call CmId::finish to wait on)");
                return Err(Error::new("wait longer for", subject, ErrorKind::TimedOut));
            };
            if !awaited.is_decided_by(event.event_type(), event.multicast()) {
                continue;
            }
            *self.unfinished() = None;
            let wanted = match event.event_type() {
                // What the program sees where it has a queue pair of its own to care for.
                EventType::ConnectResponse => EventType::ConnectResponse,
                // What is left of a connection that is no more.
                EventType::TimewaitExit => EventType::TimewaitExit,
                _ => awaited.event,
            };
            let failure = event.failure(wanted);
            *self.last_event() = Some(event.into_facts());
            return failure.map_or(Ok(()), Err);
        }
    }

    /// The next request to `id`.
    fn next_request(&self, operation: &'static str, id: &Inner) -> Result<Event> {
        let failed = |kind| Err(Error::new(operation, id.to_string(), kind));
        let deadline = id.deadline();
        let reader = match self.request_reader.lock_until(deadline) {
            Ok(reader) => reader,
            Err(HeldByThisThread) => {
                return failed(ErrorKind::WouldDeadlock("this thread waits on it already"));
            }
        };
        let Some(_reader) = reader else { return failed(ErrorKind::TimedOut) };
        loop {
            // No request comes any more, nor another event that says why.
            if id.state().removed {
                return failed(ErrorKind::DeviceGone(Errno::ENODEV as i32));
            }
            let awaited = EventType::ConnectRequest;
            match self.next_event(deadline)? {
                Some(event) if decides(event.event_type(), awaited) => {
                    return event.failure(awaited).map_or(Ok(event), Err);
                }
                Some(_) => {}
                None => return failed(ErrorKind::TimedOut),
            }
        }
    }

    /// The next event, or `None` where none came before the deadline.
    fn next_event(&self, deadline: Option<Instant>) -> Result<Option<Event>> {
        let Some(deadline) = deadline else { return self.channel.get_event().map(Some) };
        self.channel.get_event_timeout(deadline.saturating_duration_since(Instant::now()))
    }
}

impl Inner {
    /// Does `start`, which is followed by the event `awaited`; waits for it if the id is synchronous.
    pub(super) fn complete(
        &self,
        awaited: impl Into<Awaited>,
        start: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let awaited = awaited.into();
        let Some(mode) = self.synchronous() else { return start() };
        let _turn = mode.turn(self)?;
        let unfinished = *mode.unfinished();
        if let Some(unfinished) = unfinished {
            let reason = format!("it still waits for {unfinished}, see CmId::finish");
            let kind = ErrorKind::Invalid { errno: Errno::EALREADY as i32, reason: reason.into() };
            return Err(Error::new("use", self.to_string(), kind));
        }
        *mode.last_event() = None;
        start()?;
        if awaited.event == EventType::Disconnected && !self.state().established {
            return Ok(());
        }
        mode.finish(self, awaited)
    }

    /// Returns the additional state of a synchronous id. In a forked child no id has it: nothing waits there.
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

    /// When a call that begins now has to end.
    fn deadline(&self) -> Option<Instant> {
        self.state().timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::cm::id::tests::{commands, fake_channel, fake_id};

    /// A synchronous id that no kernel knows, its mode, and what stands for the kernel.
    fn synchronous() -> (CmId, Arc<SyncMode>, UnixStream) {
        let (channel, kernel) = fake_channel();
        let id = fake_id(&channel, PortSpace::Tcp);
        let mode = Arc::new(SyncMode::new(channel));
        id.binding_mut().sync = Some(Arc::clone(&mode));
        (CmId::from_inner(id), mode, kernel)
    }

    #[track_caller]
    fn busy<T>(result: Result<T>) {
        assert_eq!(result.map(drop).expect_err("it is busy").errno(), libc::EBUSY);
    }

    #[test]
    fn a_turn_is_one_of_the_mode_that_the_id_is_in() {
        let (id, mode, _kernel) = synchronous();
        drop(mode.turn(&id.inner).expect("nobody waits"));
        // As another thread does, which was faster.
        id.inner.binding_mut().sync = None;
        busy(mode.turn(&id.inner));
    }

    #[test]
    fn an_id_that_waits_does_not_move() {
        let (id, mode, kernel) = synchronous();
        let (channel, others_kernel) = fake_channel();
        let turn = mode.turn(&id.inner).expect("nobody waits");
        busy(id.migrate(&channel));
        drop(turn);
        // Nor does one that another thread has made synchronous, or has moved, meanwhile.
        let to = &channel.inner;
        busy(id.inner.migrate(to, None, None));
        busy(id.inner.migrate(to, Some(&Arc::new(SyncMode::new(fake_channel().0))), None));
        id.inner.binding_mut().sync = None;
        busy(id.inner.migrate(to, Some(&mode), None));
        drop((id, mode, channel));
        assert_eq!(commands(others_kernel), [0; 0]);
        assert_eq!(commands(kernel), [1], "DESTROY_ID");
    }
}
