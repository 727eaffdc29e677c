//! The handle of an endpoint: its state behind one lock, and the work after the state is unlocked.
//!
//! # Commands
//!
//! No command of the kernel is issued while the state is locked, because other callers would wait for the kernel.
//! There are these alternatives:
//! - A caller that needs the result of a command [begins a command](SharedStateGuard::begin_command), which unlocks the
//!   state. It issues the command, and locks the state again to record the result: see [`commands`].
//! - [Waking waiters and disconnecting the peer](Deferred) is deferred until the state is unlocked.
//! - Objects are dropped after the state is unlocked, also objects whose last handle a request had.
//! - A subscriber of `tracing` gets the reports after the state is unlocked, because it may call the endpoint.
//! - A request that is posted in ERR may need a command to complete, which is deferred too.
//!
//! An abort waits until no command runs, before it destroys the kernel objects. So a command may share an object, and
//! the objects are destroyed when the abort returns. No waker is called between the beginning and the end of a command:
//! a waker may abort the endpoint, and would wait for its own thread.
//!
//! Posting and polling are the data path and stay under the lock. This holds even if they are commands: the doorbell of
//! rxe, and the queues of drivers that keep them in the kernel. Two callers that posted unlocked would need a second
//! lock to keep the order. If siw refuses a doorbell because another thread changes the queue pair, the caller waits
//! for that change. `epoll_ctl` of the wakeup stays under the lock too. It waits for no device, and two changes by two
//! threads must have the order of the states that cause them. Builds with debug assertions check the rule: see
//! [`lock`](crate::lock).

pub(super) mod access;
pub(super) mod commands;
pub(super) mod datagram_cm;
pub(super) mod datagram_peer;
pub(super) mod ending;
pub(super) mod groups;
pub(super) mod kernel_objects;
pub(super) mod readiness;
pub(super) mod running_command;
pub(super) mod state;
pub(super) mod timer;
pub(super) mod trace;
pub(super) mod waker;
pub(super) mod waking;

use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use self::readiness::Readiness;
use self::state::{DeferredWork, State};
use self::timer::Timer;
use self::trace::{Reports, Trace};
use self::waker::{Reader, Wake};
use crate::cm::EventChannel;
use crate::endpoint::core::operation::Awaited;
pub(super) use crate::endpoint::core::operation::Operation;
use crate::endpoint::core::{EndReason, WaiterList};
use crate::error::{Error, ErrorKind, IntoError as _, Result, hint};
use crate::lock::{NoCommands, ignore_poison};
use crate::sys::command::CommandError;
use crate::sys::process::Process;
use crate::verbs::Released;

/// The state of an endpoint, which its public handle, its buffers and its messages share.
///
/// The event channel and the epoll instances stay open as long as this value exists, because a thread may sleep on them
/// while another one ends the endpoint.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) process: Process,
    /// Held while the kernel objects are destroyed. A second caller that ends the endpoint waits for it.
    ///
    /// Locked before the state.
    pub(super) teardown: Mutex<()>,
    /// Held by the thread that reads CM events, until it has locked the state to apply them.
    ///
    /// So the events are applied in their order.
    ///
    /// Locked before the state.
    pub(super) events: Mutex<()>,
    pub(super) locked: Mutex<SharedState>,
    /// Notified when the last command ends that runs while the state is unlocked.
    pub(super) commands_done: Condvar,
    pub(super) channel: EventChannel,
    /// The descriptor of the endpoint.
    ///
    /// Threads sleep on it too, unless an event loop uses it. In that case a thread would take the events for which the
    /// loop waits, and could not sleep until the loop has handled reported events. Threads then sleep on a second epoll
    /// instance, which reports each event too.
    pub(super) readiness: Arc<Readiness>,
    /// The name of the endpoint in errors.
    pub(super) name: String,
    /// The maximum length of a message in bytes.
    pub(super) max_message_len: usize,
    /// `true` if the endpoint is a datagram socket.
    pub(super) is_socket: bool,
}

/// The state of an endpoint, which one thread at a time has.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) state: State,
    pub(super) waiters: WaiterList<Wake>,
    /// The waiter that sleeps in `epoll_wait` and will read the events: no other thread does.
    pub(super) reader: Option<Reader>,
    /// `true` if an event loop uses the descriptor of the endpoint.
    pub(super) has_event_loop: bool,
    /// `true` if the descriptor reports that this side has ended the endpoint.
    ///
    /// It does so until a call that does not wait has returned the end.
    pub(super) reports_end: bool,
    /// `true` if the wakeup of the descriptor is enabled.
    pub(super) is_wakeup_enabled: bool,
    /// The number of commands that run while the state is unlocked.
    pub(super) running_commands: u32,
    /// `true` if a thread that aborts waits, or has waited, until no command runs.
    pub(super) waits_for_commands: bool,
}

/// The locked state.
///
/// Dropping it wakes all waiters that can continue. They are woken after the lock is released, because a waker may call
/// the endpoint.
#[derive(Debug)]
pub(super) struct SharedStateGuard<'a> {
    pub(super) shared: &'a Shared,
    // Declared before the actions: fields drop in order.
    pub(super) guard: MutexGuard<'a, SharedState>,
    _no_commands: NoCommands,
    pub(super) after: AfterUnlock<'a>,
    /// `true` if there is no change for a waiter.
    pub(super) is_unchanged: bool,
    /// `true` if dropping the guard wakes no waiter.
    ///
    /// A command or the caller wakes them later, or there is no change for them.
    pub(super) wakes_no_waiter: bool,
}

/// Actions for the time after the state is unlocked, which are carried out when this is dropped.
///
/// It is `None` if there are none, as in most calls: dropping `None` takes one comparison, and dropping an empty list
/// takes several.
#[derive(Debug, Default)]
pub(super) struct AfterUnlock<'a>(Option<Vec<Deferred<'a>>>);

/// An action that is carried out after the state is unlocked.
#[derive(Debug)]
enum Deferred<'a> {
    /// Wakes a waiter.
    Wake(Wake),
    /// Makes reports.
    Report(Reports),
    /// Destroys objects that no request uses any more, and a timer.
    Destroy(Vec<Released>, Option<Timer>),
    /// Completes requests that were posted in ERR.
    Flush(&'a Shared),
    /// Confirms the end of the connection to the peer.
    Disconnect(&'a Shared),
}

impl Drop for AfterUnlock<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(actions) = self.0.take() {
            Self::run(actions);
        }
    }
}

impl<'a> AfterUnlock<'a> {
    fn push(&mut self, action: Deferred<'a>) {
        self.0.get_or_insert_default().push(action);
    }

    #[inline(never)]
    fn run(actions: Vec<Deferred<'_>>) {
        let (mut flushes, mut disconnects) = (None, None);
        for action in actions {
            match action {
                // A waker belongs to an executor, and a subscriber to the program. The panic hook has reported their
                // panics. A panic must neither keep the other waiters asleep nor end the call of this thread, which may
                // read the events for all waiters.
                Deferred::Wake(wake) => drop(catch_unwind(AssertUnwindSafe(|| wake.wake()))),
                Deferred::Report(reports) => {
                    drop(catch_unwind(AssertUnwindSafe(|| reports.make())));
                }
                // Destroyed after the wakeups, because the kernel may take long.
                Deferred::Destroy(objects, timer) => drop((objects, timer)),
                Deferred::Flush(shared) => flushes = Some(shared),
                Deferred::Disconnect(shared) => disconnects = Some(shared),
            }
        }
        if let Some(shared) = flushes {
            shared.flush_posted();
        }
        if let Some(shared) = disconnects {
            // If that fails, the connection has ended anyway.
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
        if self.wakes_no_waiter {
            return;
        }
        let SharedState { waiters, is_wakeup_enabled, state, .. } = &*self.guard;
        let has_work = !waiters.is_empty() || *is_wakeup_enabled || state.has_deferred;
        if has_work && !self.is_unchanged {
            self.handle_changes();
        } else if state.owes_flush() {
            self.defer_flush();
        }
    }
}

impl<'a> SharedStateGuard<'a> {
    /// Confirms an end that an event has reported to the peer, after the state is unlocked.
    pub(super) fn disconnect_after_unlock(&mut self) {
        if self.guard.state.take_disconnect() {
            self.after.push(Deferred::Disconnect(self.shared));
        }
    }

    /// Unlocks the state after a call without changes for waiters, such as posting a request.
    #[inline(always)]
    pub(super) fn unlock_unchanged(mut self) {
        self.is_unchanged = true;
    }

    /// Unlocks the state without waking waiters.
    #[inline(always)]
    pub(super) fn unlock_without_waking(mut self) {
        self.wakes_no_waiter = true;
    }

    /// Unlocks the state. Dropping the returned value wakes the waiters.
    pub(super) fn unlock(mut self) -> AfterUnlock<'a> {
        self.handle_changes();
        self.wakes_no_waiter = true;
        mem::take(&mut self.after)
    }

    /// Removes the waiter of an event loop that has tried `awaited`, and will not try again.
    pub(super) fn forget_loop(&mut self, awaited: Awaited) {
        if let Some(id) = self.guard.waiters.find_loop(awaited) {
            self.guard.waiters.remove(id);
        }
    }

    /// Wakes all waiters that can continue with the current state, and defers destructions and flushes.
    #[inline(never)]
    fn handle_changes(&mut self) {
        let Self { shared, guard, after, .. } = self;
        let DeferredWork { reports, objects, timer } = guard.state.take_deferred();
        if let Some(reports) = reports {
            after.push(Deferred::Report(reports));
        }
        guard.wake_waiters(shared, |wake| after.push(Deferred::Wake(wake)));
        // A call without a result reports the error, and a destructor cannot: the next change tries again.
        let _ = guard.update_wakeup(shared);
        if timer.is_some() || !objects.is_empty() {
            after.push(Deferred::Destroy(objects, timer));
        }
        if guard.state.owes_flush() {
            self.defer_flush();
        }
    }

    #[cold]
    fn defer_flush(&mut self) {
        self.after.push(Deferred::Flush(self.shared));
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
        let is_socket = state.cm.is_some();
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
            is_socket,
        })
    }

    /// Makes `trace` report the events of the endpoint.
    pub(super) fn traced(mut self, trace: Trace) -> Self {
        ignore_poison(self.locked.get_mut()).state.set_trace(trace);
        self
    }

    /// Locks the state for `operation`. Fails in a forked child, in which the lock may never be released.
    #[inline(always)]
    pub(super) fn lock(&self, operation: &'static str) -> Result<SharedStateGuard<'_>> {
        self.lock_named(|| operation)
    }

    /// Locks the state for an operation whose name is needed only if locking fails.
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
    fn refused(&self, operation: &'static str, refused: CommandError) -> Error {
        refused.into_error(operation, self.name.clone())
    }

    /// Locks the state in the process that the endpoint belongs to.
    #[inline(always)]
    pub(super) fn lock_here(&self) -> SharedStateGuard<'_> {
        SharedStateGuard {
            shared: self,
            guard: ignore_poison(self.locked.lock()),
            _no_commands: NoCommands::begin(),
            after: AfterUnlock::default(),
            is_unchanged: false,
            wakes_no_waiter: false,
        }
    }

    /// Returns the error of `operation` on this endpoint.
    #[cold]
    pub(super) fn error(&self, operation: Operation, kind: ErrorKind) -> Error {
        let hint = match (operation, &kind) {
            // The end alone is no failure of a flush or a close: see `State::flushed`.
            (Operation::Flush | Operation::Close, ErrorKind::Disconnected) => {
                Some(hint::NOT_COMPLETED)
            }
            (Operation::AcquireBuffer, ErrorKind::TimedOut) => Some(hint::SEND_BUFFERS),
            _ => hint::of_failure(&kind),
        };
        Error::new(operation.name(), self.name.clone(), kind).with_optional_hint(hint)
    }

    /// Returns the error of `operation` after `end`.
    #[cold]
    pub(super) fn error_after(&self, operation: Operation, end: EndReason) -> Error {
        self.error(operation, end.kind()).with_optional_hint(end.hint())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{self, Waker};

    use super::*;

    struct CountingWaker {
        wakeups: AtomicUsize,
        panics: bool,
    }

    impl task::Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.wakeups.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "the waker panics");
        }
    }

    #[test]
    fn panicking_waker_stops_no_other_wakeup() {
        let wakers = [false, true, true, false]
            .map(|panics| Arc::new(CountingWaker { wakeups: AtomicUsize::new(0), panics }));
        let wake =
            |waker: &Arc<CountingWaker>| Deferred::Wake(Wake::Task(Waker::from(Arc::clone(waker))));
        drop(AfterUnlock(Some(wakers.iter().map(wake).collect())));
        for waker in wakers {
            assert_eq!(waker.wakeups.load(Ordering::Relaxed), 1);
        }
    }
}
