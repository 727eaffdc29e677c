//! The handle of an endpoint: its state behind one lock, and all that is woken when the state is unlocked.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::thread::Thread;

use super::blocked_ops::BlockedOps;
use super::core::{EndReason, WaiterId, WaiterList, WatchedKeys};
use super::counters::Counters;
use super::kernel_objects::KernelObjects;
use super::operation::Interest;
pub(super) use super::operation::Operation;
use super::readiness::Readiness;
use super::rendezvous::Rendezvous;
use super::state::State;
use super::trace::Trace;
use crate::cm::EventChannel;
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::process::Process;
use crate::verbs::{Buffer, ProtectionDomain};

/// The state of an endpoint, which its public handle, its buffers and its messages share.
///
/// The event channel and the epoll instances stay open as long as this: a thread may sleep on them while another one ends
/// the endpoint.
#[derive(Debug)]
pub(super) struct Shared {
    process: Process,
    /// Serializes destruction of the kernel objects with commands that are issued while the state is unlocked. Locked before
    /// the state.
    teardown: Mutex<()>,
    locked: Mutex<SharedState>,
    pub(super) channel: EventChannel,
    /// The descriptor of the endpoint. Threads sleep on it too, unless an event loop uses it: a thread would take the events
    /// that the loop waits for, and could not sleep while the loop has not handled what it was told. They sleep apart then, on
    /// a second epoll instance, which reports each event too.
    pub(super) readiness: Arc<Readiness>,
    /// The name of the endpoint in errors.
    pub(super) name: String,
    /// The length of the longest message in bytes.
    pub(super) longest: usize,
}

/// The state of an endpoint, which one thread at a time has.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) state: State,
    pub(super) waiters: WaiterList<Wake>,
    /// The waiter that sleeps in `epoll_wait` and will read the events: no other thread does.
    pub(super) reader: Option<Reader>,
    /// The operations that event loops have tried in vain.
    pub(super) blocked_ops: BlockedOps,
    /// An event loop uses the descriptor of the endpoint.
    pub(super) has_event_loop: bool,
    /// The wakeup eventfd makes the descriptor of the endpoint readable.
    is_wakeup_enabled: bool,
}

/// The thread that sleeps in `epoll_wait`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) id: WaiterId,
    /// It sleeps apart from the descriptor of the endpoint.
    pub(super) is_apart: bool,
    /// The wakeup eventfd of the descriptor is to wake it, and stays enabled until then.
    is_woken: bool,
}

impl Reader {
    pub(super) fn new(id: WaiterId, is_apart: bool) -> Self {
        Self { id, is_apart, is_woken: false }
    }
}

/// The way to wake a waiter.
#[derive(Debug)]
pub(super) enum Wake {
    /// A thread that is parked or sleeps in `epoll_wait`.
    Thread(Thread),
    Task(Waker),
}

impl Wake {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// The locked state. When it is dropped, all waiters are woken that can go on, after the lock is released: a waker may call
/// the endpoint.
#[derive(Debug)]
pub(super) struct SharedStateGuard<'a> {
    shared: &'a Shared,
    // Declared before the actions: fields drop in order.
    guard: MutexGuard<'a, SharedState>,
    after: AfterUnlock<'a>,
    /// The readiness of the descriptor is as the state wants it.
    is_updated: bool,
    /// Nothing has changed that a waiter or an event loop waits for.
    is_unchanged: bool,
}

/// Actions for the time after the state is unlocked, which are carried out when this is dropped.
#[derive(Debug, Default)]
struct AfterUnlock<'a>(Vec<Deferred<'a>>);

/// An action that is carried out after the state is unlocked.
#[derive(Debug)]
enum Deferred<'a> {
    /// Wakes a waiter.
    Wake(Wake),
    /// Tells the peer of the endpoint that this side knows of the end.
    Disconnect(&'a Shared),
}

impl Drop for AfterUnlock<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.carry_out();
        }
    }
}

impl AfterUnlock<'_> {
    #[inline(never)]
    fn carry_out(&mut self) {
        let mut disconnects = None;
        for action in self.0.drain(..) {
            match action {
                Deferred::Wake(wake) => wake.wake(),
                // Last: the kernel takes its time.
                Deferred::Disconnect(shared) => disconnects = Some(shared),
            }
        }
        if let Some(shared) = disconnects {
            // If that fails, the connection has ended all the same.
            let _ = shared.disconnect_peer();
        }
    }
}

impl Deref for SharedStateGuard<'_> {
    type Target = SharedState;

    #[inline(always)]
    fn deref(&self) -> &SharedState {
        &self.guard
    }
}

impl DerefMut for SharedStateGuard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut SharedState {
        &mut self.guard
    }
}

impl Drop for SharedStateGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let has_waiters = !(self.guard.waiters.is_empty() && self.guard.blocked_ops.is_empty());
        if has_waiters && !self.is_unchanged {
            self.settle();
        }
    }
}

impl<'a> SharedStateGuard<'a> {
    /// Updates the readiness of the descriptor at the end of a call.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl`. If nothing is done about them, the readiness is updated with the next change.
    pub(super) fn update_readiness(&mut self) -> Result<()> {
        self.is_updated = true;
        self.guard.update_readiness(self.shared)
    }

    /// Tells the peer, when the state is unlocked, that this side knows of the end, if an event has reported that.
    pub(super) fn disconnect_after_unlock(&mut self) {
        if self.guard.state.take_disconnect() {
            self.after.0.push(Deferred::Disconnect(self.shared));
        }
    }

    /// Unlocks the state after a call that has changed nothing for waiters, such as one that posts a request.
    #[inline(always)]
    pub(super) fn unlock_unchanged(mut self) {
        self.is_unchanged = true;
    }

    /// Unlocks the state. Dropping what is returned wakes the waiters.
    fn unlock(mut self) -> AfterUnlock<'a> {
        self.settle();
        self.is_unchanged = true;
        mem::take(&mut self.after)
    }

    /// Wakes all that can go on with the state as it is.
    #[inline(never)]
    fn settle(&mut self) {
        let Self { shared, guard, after, is_updated, .. } = self;
        if !*is_updated {
            // A call that finds nothing reports the error, and a destructor cannot: the next change tries again.
            let _ = guard.update_readiness(shared);
        }
        guard.wake_waiters(shared, |wake| after.0.push(Deferred::Wake(wake)));
    }
}

impl SharedState {
    fn new(state: State) -> Self {
        Self {
            state,
            waiters: WaiterList::default(),
            reader: None,
            blocked_ops: BlockedOps::empty(),
            has_event_loop: false,
            is_wakeup_enabled: false,
        }
    }

    /// Makes the descriptor readable if an operation that was tried in vain can go on, whichever call has polled the
    /// completions. Otherwise makes sure that the descriptor will become readable.
    fn update_readiness(&mut self, shared: &Shared) -> Result<()> {
        if self.blocked_ops.is_empty() {
            return Ok(());
        }
        let mut is_ready = self.blocked_ops.is_ready(&self.state);
        if let (false, Some(interest)) =
            (is_ready, self.blocked_ops.unreported_interest(&self.state))
        {
            is_ready = self.rearm(interest);
        }
        // A thread that sleeps on the descriptor would take the events: it wakes, and sleeps apart from then on.
        let is_taken = self.reader.is_some_and(|reader| !reader.is_apart);
        self.set_wakeup(shared, is_ready || is_taken)
    }

    /// Arms the queues of `interest` for the operations that were tried in vain. Returns `true` if one of them may succeed
    /// now.
    #[cold]
    fn rearm(&mut self, interest: Interest) -> bool {
        let has_epoll_waiter = self.reader.is_some();
        let mut again = || -> Result<()> {
            // The first poll takes what was reported, the second one what completed before the queues were armed.
            self.state.poll(interest)?;
            if self.state.arm(interest, has_epoll_waiter)? {
                self.state.poll(interest)?;
            }
            Ok(())
        };
        // A caller that tries again gets the error.
        let has_failed = again().is_err();
        let Self { blocked_ops, state, .. } = self;
        has_failed
            || blocked_ops.is_ready(state)
            || blocked_ops.unreported_interest(state).is_some()
    }

    /// Wakes the waiters that can go on, and one more if otherwise no event would reach those that sleep.
    fn wake_waiters(&mut self, shared: &Shared, mut wake: impl FnMut(Wake)) {
        if self.waiters.is_empty() {
            return;
        }
        let available = self.state.available();
        let all = self.waiters.interest(None);
        let Self { state, waiters, reader, .. } = self;
        let mut reader_to_wake = None;
        let mut wake = |id, waker| match *reader {
            Some(reader) if reader.id == id => reader_to_wake = Some((reader, waker)),
            _ => wake(waker),
        };
        waiters.wake_ready(&available, &mut wake);
        // An event that has not been reported yet will wake those that sleep on the descriptors.
        let is_unarmed = || {
            all.is_some_and(|interest| state.is_deaf(interest)) && !state.core.has_unread_event()
        };
        waiters.wake_successor(reader.is_some(), is_unarmed, &mut wake);
        let Some((reader, waker)) = reader_to_wake else { return };
        let woken = match reader.is_apart {
            true => shared.readiness.wake_apart(),
            false => self.set_wakeup(shared, true),
        };
        match woken {
            Ok(()) => self.reader = Some(Reader { is_woken: true, ..reader }),
            // It still sleeps: the next change wakes it.
            Err(_) => self.waiters.sleeps(reader.id, waker),
        }
    }

    /// Enables or disables the wakeup eventfd of the descriptor. Disabling waits while a thread that was woken by it has not
    /// left `epoll_wait`, so that the wakeup is not lost.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl`; nothing has changed then.
    pub(super) fn set_wakeup(&mut self, shared: &Shared, is_enabled: bool) -> Result<()> {
        let is_needed = self.reader.is_some_and(|reader| reader.is_woken && !reader.is_apart);
        let is_enabled = is_enabled || is_needed;
        if self.is_wakeup_enabled != is_enabled {
            shared.readiness.ring(is_enabled)?;
            self.is_wakeup_enabled = is_enabled;
        }
        Ok(())
    }

    /// Removes a waiter that stops waiting.
    pub(super) fn remove_waiter(&mut self, id: WaiterId) {
        self.waiters.remove(id);
    }

    /// Adds a waiter for `operation`, which is awake.
    pub(super) fn add_waiter(&mut self, operation: Operation, is_thread: bool) -> WaiterId {
        if self.waiters.is_empty() {
            // Changes before this concern no waiter.
            self.state.forget_changes();
        }
        self.waiters.add(operation, is_thread)
    }
}

impl Shared {
    pub(super) fn new(
        state: State,
        channel: EventChannel,
        readiness: Arc<Readiness>,
        mut name: String,
        longest: usize,
    ) -> Result<Self> {
        // Formatting reserves more than the name takes, which an idle connection would keep.
        name.shrink_to_fit();
        let (completions, timer) = state.event_sources();
        completions.map_or(Ok(()), |completions| readiness.add_completions(completions))?;
        timer.map_or(Ok(()), |timer| readiness.add_timer(timer))?;
        Ok(Self {
            process: Process::current(),
            teardown: Mutex::default(),
            locked: Mutex::new(SharedState::new(state)),
            channel,
            readiness,
            name,
            longest,
        })
    }

    /// Makes `trace` report what becomes of the endpoint.
    pub(super) fn traced(mut self, trace: Trace) -> Self {
        unpoisoned(self.locked.get_mut()).state.trace = trace;
        self
    }

    /// Locks the state for `operation`. Fails in a forked child, where the lock may never be released.
    #[inline(always)]
    pub(super) fn lock(&self, operation: &'static str) -> Result<SharedStateGuard<'_>> {
        self.lock_named(|| operation)
    }

    /// [`lock`](Self::lock) for an operation whose name is needed only if it fails.
    #[inline(always)]
    pub(super) fn lock_for(&self, operation: Operation) -> Result<SharedStateGuard<'_>> {
        self.lock_named(|| operation.name())
    }

    #[inline(always)]
    fn lock_named(&self, name: impl FnOnce() -> &'static str) -> Result<SharedStateGuard<'_>> {
        match self.process.check() {
            Ok(()) => Ok(self.lock_here()),
            Err(refused) => Err(self.refused(name(), refused)),
        }
    }

    #[cold]
    fn refused(&self, operation: &'static str, refused: Refused) -> Error {
        refused.during(operation, self.name.clone())
    }

    /// Locks the state in the process that the endpoint belongs to.
    #[inline(always)]
    pub(super) fn lock_here(&self) -> SharedStateGuard<'_> {
        let guard = unpoisoned(self.locked.lock());
        SharedStateGuard {
            shared: self,
            guard,
            after: AfterUnlock::default(),
            is_updated: false,
            is_unchanged: false,
        }
    }

    /// Returns the error of `operation` on this endpoint.
    #[cold]
    pub(super) fn error(&self, operation: Operation, kind: ErrorKind) -> Error {
        Error::new(operation.name(), self.name.clone(), kind)
    }

    /// Returns a buffer for sending that was not posted.
    pub(super) fn give_back(&self, memory: Buffer) {
        let Ok(mut guarded) = self.lock(GIVE_BACK) else { return };
        // After the end the memory is freed when this returns and nothing is locked.
        if guarded.state.parts.is_some() {
            guarded.state.core.give_back(memory);
        }
    }

    /// Posts a buffer for receiving again.
    pub(super) fn receive(&self, memory: Buffer) {
        let Ok(mut guarded) = self.lock(GIVE_BACK) else { return };
        let State { parts, core, .. } = &mut guarded.state;
        if let (Some(io), None) = (parts, core.end()) {
            if core.repost(io, memory) {
                // A caller that waits or tries again gets the error.
                let _ = guarded.state.poll(Interest::Messages);
                return;
            }
            guarded.unlock_unchanged();
        }
    }

    /// Records that no caller waits any more for the buffer of a request.
    pub(super) fn give_up(&self, index: usize) {
        let Ok(mut guarded) = self.lock(GIVE_BACK) else { return };
        let done = guarded.state.core.detach_send(index);
        drop(guarded);
        if let Some(memory) = done {
            self.give_back(memory);
        }
    }

    /// Returns what the endpoint has done so far.
    pub(super) fn counters(&self) -> Result<Counters> {
        let guarded = self.lock("count what was done over")?;
        Ok(*guarded.state.core.counters())
    }

    /// Calls `each` with the keys of the exports of a connection; `None` of a process that has forked.
    pub(super) fn watched_keys<T>(&self, each: impl FnOnce(&mut WatchedKeys) -> T) -> Option<T> {
        let mut guarded = self.lock(EXPORTS).ok()?;
        let found = guarded.state.core.watched_keys().map(each);
        guarded.unlock_unchanged();
        found
    }

    /// Returns the protection domain, until this side ends the connection.
    pub(super) fn pd(&self) -> Result<ProtectionDomain> {
        const OPERATION: &str = "use the protection domain of";
        let guarded = self.lock(OPERATION)?;
        match &guarded.state.parts {
            Some(parts) => Ok(parts.queues.qp().pd().clone()),
            None => Err(Error::new(OPERATION, self.name.clone(), ErrorKind::Disconnected)),
        }
    }

    /// Calls `each` with the CM part of a datagram socket, unless the socket has ended.
    pub(super) fn rendezvous<T>(
        &self,
        operation: Operation,
        each: impl FnOnce(&mut Rendezvous, &KernelObjects) -> Result<T>,
    ) -> Result<T> {
        let mut guarded = self.lock_for(operation)?;
        let State { parts, core, rendezvous, .. } = &mut guarded.state;
        if parts.as_ref().is_some_and(|parts| parts.queues.qp().pd().context().is_gone()) {
            // The event that tells this socket may not have been read yet.
            core.set_end(EndReason::DeviceRemoved);
        }
        let (Some(parts), Some(rendezvous), None) = (parts, rendezvous, core.end()) else {
            return Err(self.error(operation, core.end().unwrap_or(EndReason::Local).kind()));
        };
        each(rendezvous, parts)
    }

    /// Tells the peer that this side [closes](State::close) the connection, and then event loops, also those that have tried
    /// nothing in vain.
    pub(super) fn announce_close(&self) -> Result<()> {
        self.disconnect_peer()?;
        self.lock_for(Operation::Close)?.set_wakeup(self, true)
    }

    /// Issues the command that tells the peer of the end, unless this side has aborted the connection. The state is unlocked
    /// meanwhile: other callers do not wait for the kernel.
    fn disconnect_peer(&self) -> Result<()> {
        // An abort waits until the id is not used here any more.
        let teardown = unpoisoned(self.teardown.lock());
        let guarded = self.lock_for(Operation::Close)?;
        let id = guarded.state.parts.as_ref().map(|parts| Arc::clone(&parts.id));
        guarded.unlock_unchanged();
        let told = id.as_ref().map_or(Ok(()), |id| id.disconnect());
        drop(id);
        // Released before anything else: a waker may call the endpoint.
        drop(teardown);
        told.or_else(|error| self.lock_for(Operation::Close)?.state.unless_gone(error))
    }

    /// Ends the endpoint at once, for all callers. Only those that end it wait until the kernel objects are destroyed.
    pub(super) fn abort(&self) {
        if self.process.check().is_err() {
            return;
        }
        let teardown = unpoisoned(self.teardown.lock());
        let mut guarded = self.lock_here();
        let released = guarded.state.abort();
        // The endpoint ends all the same. If the wakeup is refused, a thread that sleeps wakes with the next change, or at its
        // deadline.
        let _ = guarded.set_wakeup(self, true);
        let after = guarded.unlock();
        drop(released);
        drop(teardown);
        // Last: a waker may call the endpoint.
        drop(after);
    }
}

/// The operation of a destructor that returns a buffer; its error is discarded.
const GIVE_BACK: &str = "give back to";

/// Operation name used when an export looks at its key; the error is discarded.
const EXPORTS: &str = "look at the exports of";
