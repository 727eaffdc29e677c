//! The handle of an endpoint: its state behind one lock, and all that is done when the state is unlocked.
//!
//! # Commands
//!
//! No command of the kernel is issued while the state is locked, because other callers would wait for the kernel. There are
//! three ways around it:
//! - A caller that needs a command for itself [begins a command](SharedStateGuard::begin_command), which unlocks the state,
//!   issues the command, and locks the state again to record the result: see [`commands`](super::commands).
//! - [Waking waiters and telling the peer of the end](Deferred) is left to the moment after the state is unlocked.
//! - Objects are dropped after the state is unlocked, also those of which a request had the last handle.
//!
//! An abort waits until no command runs, before it destroys the kernel objects. So a command may share an object, and the
//! objects are gone when the abort returns. No waker is called between the beginning and the end of a command: a waker may
//! abort the endpoint, and would wait for its own thread.
//!
//! Posting and polling are the data path and stay under the lock, also where they are commands: the doorbell of rxe, and
//! the queues of drivers that keep them in the kernel. Two callers that posted unlocked would need a second lock to keep
//! the order. `epoll_ctl` of the wakeup stays under the lock too: it waits for no device, and the order of two changes by
//! two threads is that of the states that they follow from. Builds with debug assertions check the rule: see
//! [`lock`](crate::lock).

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::core::WaiterList;
use super::operation::Awaited;
pub(super) use super::operation::Operation;
use super::readiness::Readiness;
use super::state::State;
use super::trace::Trace;
use super::waker::{Reader, Wake};
use crate::cm::EventChannel;
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::lock::{NoCommands, unpoisoned};
use crate::sys::command::Refused;
use crate::sys::process::Process;
use crate::verbs::Released;

/// The state of an endpoint, which its public handle, its buffers and its messages share.
///
/// The event channel and the epoll instances stay open as long as this: a thread may sleep on them while another one ends
/// the endpoint.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) process: Process,
    /// Held while the kernel objects are destroyed: a second caller that ends the endpoint waits for that. Locked before
    /// the state.
    pub(super) teardown: Mutex<()>,
    /// Held by the thread that reads CM events, until it has locked the state to apply them: so they are applied in their
    /// order. Locked before the state.
    pub(super) events: Mutex<()>,
    pub(super) locked: Mutex<SharedState>,
    /// Notified when the last command ends that runs while the state is unlocked.
    pub(super) commands_done: Condvar,
    pub(super) channel: EventChannel,
    /// The descriptor of the endpoint. Threads sleep on it too, unless an event loop uses it: a thread would take the events
    /// that the loop waits for, and could not sleep while the loop has not handled what it was told. They sleep apart then, on
    /// a second epoll instance, which reports each event too.
    pub(super) readiness: Arc<Readiness>,
    /// The name of the endpoint in errors.
    pub(super) name: String,
    /// The length of the max_message_len message in bytes.
    pub(super) max_message_len: usize,
}

/// The state of an endpoint, which one thread at a time has.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) state: State,
    pub(super) waiters: WaiterList<Wake>,
    /// The waiter that sleeps in `epoll_wait` and will read the events: no other thread does.
    pub(super) reader: Option<Reader>,
    /// An event loop uses the descriptor of the endpoint.
    pub(super) has_event_loop: bool,
    /// The descriptor reports that this side has ended the endpoint, until a call that does not wait has found out.
    pub(super) reports_end: bool,
    /// The wakeup of the descriptor is enabled.
    pub(super) is_wakeup_enabled: bool,
    /// The number of commands that run while the state is unlocked.
    pub(super) running_commands: u32,
    /// A thread that aborts waits, or has waited, until no command runs.
    pub(super) waits_for_commands: bool,
}

/// The locked state. When it is dropped, all waiters are woken that can go on, after the lock is released: a waker may call
/// the endpoint.
#[derive(Debug)]
pub(super) struct SharedStateGuard<'a> {
    pub(super) shared: &'a Shared,
    // Declared before the actions: fields drop in order.
    pub(super) guard: MutexGuard<'a, SharedState>,
    _no_commands: NoCommands,
    pub(super) after: AfterUnlock<'a>,
    /// Nothing has changed that a waiter waits for.
    pub(super) is_unchanged: bool,
}

/// Actions for the time after the state is unlocked, which are carried out when this is dropped.
#[derive(Debug, Default)]
pub(super) struct AfterUnlock<'a>(Vec<Deferred<'a>>);

/// An action that is carried out after the state is unlocked.
#[derive(Debug)]
enum Deferred<'a> {
    /// Wakes a waiter.
    Wake(Wake),
    /// Destroys an object that no request uses any more.
    Destroy(Released),
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
                // After the wakeups: the kernel takes its time.
                Deferred::Destroy(object) => drop(object),
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
        let SharedState { waiters, is_wakeup_enabled, state, .. } = &*self.guard;
        let has_work = !waiters.is_empty() || *is_wakeup_enabled || state.has_released;
        if has_work && !self.is_unchanged {
            self.settle();
        }
    }
}

impl<'a> SharedStateGuard<'a> {
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
    pub(super) fn unlock(mut self) -> AfterUnlock<'a> {
        self.settle();
        self.is_unchanged = true;
        mem::take(&mut self.after)
    }

    /// Removes the waiter of an event loop that has tried `awaited`, and will not try again.
    pub(super) fn forget_loop(&mut self, awaited: Awaited) {
        if let Some(id) = self.guard.waiters.find_loop(awaited) {
            self.guard.waiters.remove(id);
        }
    }

    /// Wakes all that can go on with the state as it is.
    #[inline(never)]
    fn settle(&mut self) {
        let Self { shared, guard, after, .. } = self;
        guard.wake_waiters(shared, |wake| after.0.push(Deferred::Wake(wake)));
        // A call that finds nothing reports the error, and a destructor cannot: the next change tries again.
        let _ = guard.update_wakeup(shared);
        if guard.state.has_released {
            after.0.extend(guard.state.take_released().into_iter().map(Deferred::Destroy));
        }
    }
}

impl Shared {
    pub(super) fn new(
        state: State,
        channel: EventChannel,
        readiness: Arc<Readiness>,
        mut name: String,
        max_message_len: usize,
    ) -> Result<Self> {
        // Formatting reserves more than the name takes, which an idle connection would keep.
        name.shrink_to_fit();
        let (completions, timer) = state.event_sources();
        completions.map_or(Ok(()), |completions| readiness.add_completions(completions))?;
        timer.map_or(Ok(()), |timer| readiness.add_timer(timer))?;
        let locked = SharedState {
            state,
            waiters: WaiterList::default(),
            reader: None,
            has_event_loop: false,
            reports_end: false,
            is_wakeup_enabled: false,
            running_commands: 0,
            waits_for_commands: false,
        };
        Ok(Self {
            process: Process::current(),
            teardown: Mutex::default(),
            events: Mutex::default(),
            locked: Mutex::new(locked),
            commands_done: Condvar::new(),
            channel,
            readiness,
            name,
            max_message_len,
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
        SharedStateGuard {
            shared: self,
            guard: unpoisoned(self.locked.lock()),
            _no_commands: NoCommands::begin(),
            after: AfterUnlock::default(),
            is_unchanged: false,
        }
    }

    /// Returns the error of `operation` on this endpoint.
    #[cold]
    pub(super) fn error(&self, operation: Operation, kind: ErrorKind) -> Error {
        Error::new(operation.name(), self.name.clone(), kind)
    }
}
