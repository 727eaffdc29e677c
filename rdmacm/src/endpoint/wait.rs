//! Waiting until the state of an endpoint is as a caller wants it: one loop for threads, event loops and tasks.
//!
//! A caller polls; if it finds nothing it arms the completion queues, polls again, and only then sleeps. Of several threads
//! one sleeps on the descriptors and reads the events; the others are parked. The state wakes them when it is unlocked: see
//! [`SharedStateGuard`].

use std::hint;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use super::core::{EndReason, WaiterId};
use super::deadline::{has_passed, within};
use super::operation::{Interest, Operation};
use super::readiness::Ready;
use super::shared::{Reader, Shared, SharedStateGuard, Wake};
use super::spin::Spin;
use super::state::State;
use crate::error::{Error, ErrorKind, Result};

/// The number of times that one call reads events, if it does not wait.
const MAX_READS_PER_CALL: u32 = 4;

/// The time that a call may wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    /// It does not wait.
    None,
    /// It waits until then, or without end.
    Until(Option<Instant>),
}

impl Patience {
    pub(super) const FOREVER: Self = Self::Until(None);

    pub(super) fn within(timeout: Duration) -> Self {
        Self::Until(within(timeout))
    }
}

/// The way in which a call waits.
enum WaitMode<'m> {
    /// It returns at once; the descriptor reports when it is to try again.
    NonBlocking,
    /// The thread sleeps until the deadline.
    Blocking(Option<Instant>),
    /// It returns at once; the waker is called when it is to try again.
    Task(&'m mut TaskWaiter, &'m Waker),
}

impl WaitMode<'_> {
    fn deadline_passed(&self) -> bool {
        matches!(self, Self::Blocking(deadline) if has_passed(*deadline))
    }
}

/// The waiter of a task, once it has waited. Its owner removes it: see [`Shared::forget`].
#[derive(Debug, Default)]
pub(super) struct TaskWaiter(Option<WaiterId>);

/// The result of looking at the state once.
enum Progress<T> {
    Found(T),
    /// It is not there, but something had completed.
    Changed,
    Nothing,
}

/// A call that has looked in vain.
struct SlowWait<'m> {
    operation: Operation,
    mode: WaitMode<'m>,
    /// The waiter of a thread, once it has slept.
    waiter: Option<WaiterId>,
    spin: Spin,
    reads: u32,
}

impl Shared {
    /// Waits until `done` finds the state as it wants it, or finds that it will not be so. If the endpoint has ended, `done`
    /// has to find one or the other.
    #[inline]
    pub(super) fn until<T>(
        &self,
        operation: Operation,
        patience: Patience,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        self.until_from(self.lock_for(operation)?, operation, patience, done)
    }

    /// [`until`](Self::until) of a caller that has locked the state.
    #[inline]
    pub(super) fn until_from<T>(
        &self,
        guarded: SharedStateGuard<'_>,
        operation: Operation,
        patience: Patience,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        let mode = match patience {
            Patience::None => WaitMode::NonBlocking,
            Patience::Until(deadline) => WaitMode::Blocking(deadline),
        };
        self.wait_for(guarded, operation, mode, done)
    }

    /// [`until`](Self::until) of a task, which does not wait: on [`ErrorKind::WouldBlock`] the `waker` is called when the
    /// state has changed for it. The task has to watch the descriptor too.
    pub(super) fn until_task<T>(
        &self,
        operation: Operation,
        task: &mut TaskWaiter,
        waker: &Waker,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        let guarded = self.lock_for(operation)?;
        self.wait_for(guarded, operation, WaitMode::Task(task, waker), done)
    }

    /// Removes the waiter of a task that stops waiting. What it was woken for wakes another waiter.
    pub(super) fn forget(&self, operation: Operation, task: &mut TaskWaiter) {
        let Some(id) = task.0.take() else { return };
        if let Ok(mut guarded) = self.lock_for(operation) {
            guarded.remove_waiter(id);
        }
    }

    #[inline(always)]
    fn wait_for<T>(
        &self,
        mut guarded: SharedStateGuard<'_>,
        operation: Operation,
        mode: WaitMode<'_>,
        mut done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        let is_blocking = matches!(mode, WaitMode::Blocking(_));
        let found = match poll_ready(&mut guarded, operation.interest(), &mode, &mut done)? {
            Progress::Found(found) => {
                // What was found is not to be lost: a later call that finds nothing reports the error.
                let _ = self.has_tried(&mut guarded, operation, mode, true);
                Some(found)
            }
            Progress::Changed | Progress::Nothing => {
                let mut found = None;
                let wait =
                    SlowWait { operation, mode, waiter: None, spin: Spin::default(), reads: 0 };
                self.wait_slow(guarded, wait, &mut |state| {
                    found = done(state);
                    found.is_some().then_some(())
                })?;
                found
            }
        };
        match found {
            Some(found) => found.map_err(|end| self.error(operation, end.kind())),
            None if is_blocking => Err(self.error(operation, ErrorKind::TimedOut)),
            // Without the name of the endpoint, which would have to be copied: this error is frequent.
            None => Err(Error::would_block(operation.wait())),
        }
    }

    /// Records the result of a call. A task that has found nothing sleeps from now on.
    #[inline(always)]
    fn has_tried(
        &self,
        guarded: &mut SharedStateGuard<'_>,
        operation: Operation,
        mode: WaitMode<'_>,
        is_done: bool,
    ) -> Result<()> {
        match mode {
            WaitMode::Blocking(_) => {}
            WaitMode::NonBlocking => {
                let has_ended = guarded.state.core.end().is_some();
                if has_ended {
                    self.read_late_events(guarded);
                }
                guarded.blocked_ops.record(operation, !is_done, has_ended);
                guarded.has_event_loop |= !is_done;
                return match guarded.blocked_ops.is_empty() {
                    true => guarded.set_wakeup(self, false),
                    false => guarded.update_readiness(),
                };
            }
            WaitMode::Task(task, _) if is_done => {
                if let Some(id) = task.0.take() {
                    guarded.remove_waiter(id);
                }
            }
            WaitMode::Task(task, waker) => {
                let id = match task.0 {
                    Some(id) => id,
                    None => guarded.add_waiter(operation, false),
                };
                task.0 = Some(id);
                guarded.waiters.sleeps(id, Wake::Task(waker.clone()));
            }
        }
        Ok(())
    }

    /// Waits until `done` finds what it wants, or the call may not wait any longer.
    #[inline(never)]
    fn wait_slow(
        &self,
        guarded: SharedStateGuard<'_>,
        mut wait: SlowWait<'_>,
        done: &mut dyn FnMut(&mut State) -> Option<()>,
    ) -> Result<()> {
        let waited = self.wait_loop(guarded, &mut wait, done);
        let SlowWait { operation, mode, waiter, reads, .. } = wait;
        let (mut guarded, is_done) = match waited {
            Ok(waited) => waited,
            Err(error) => {
                if let Some(id) = waiter {
                    self.lock_here().remove_waiter(id);
                }
                return Err(error);
            }
        };
        if let Some(id) = waiter {
            guarded.remove_waiter(id);
        }
        let goes_on = match &mode {
            // There may be more events than one call reads.
            WaitMode::Task(_, waker) if !is_done && reads == MAX_READS_PER_CALL => Some(*waker),
            _ => None,
        };
        let updated = self.has_tried(&mut guarded, operation, mode, is_done);
        drop(guarded);
        if let Some(waker) = goes_on {
            waker.wake_by_ref();
        }
        // What was found is not to be lost.
        if is_done { Ok(()) } else { updated }
    }

    /// Returns the locked state, and whether `done` has found what it wants.
    fn wait_loop<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        wait: &mut SlowWait<'_>,
        done: &mut dyn FnMut(&mut State) -> Option<()>,
    ) -> Result<(SharedStateGuard<'a>, bool)> {
        let own = wait.operation.interest();
        let mut is_over = false;
        let mut armed = false;
        let mut has_read_event = false;
        let mut at_end = false;
        loop {
            // A caller that sleeps has armed for all that do.
            let interest = guarded.waiters.interest(Some(own)).unwrap_or(own);
            if busy_polls(&guarded, wait) {
                if wait.spin.looks() {
                    self.read_now(&mut guarded, &wait.mode)?;
                }
                // Other threads may want to post meanwhile.
                drop(guarded);
                hint::spin_loop();
                guarded = self.lock_here();
            } else if guarded.state.core.has_unread_event()
                && guarded.state.is_deaf(interest)
                && !has_read_event
            {
                // An event that was reported before the queues are armed does not disarm them.
                has_read_event = true;
                self.read_now(&mut guarded, &wait.mode)?;
            } else if self.arm(&mut guarded, interest)? {
                armed = true;
                has_read_event = false;
            } else {
                is_over = match wait.mode {
                    // The descriptor, which is level-triggered, reports what is left to read.
                    WaitMode::NonBlocking if armed && !guarded.state.core.has_unread_event() => {
                        true
                    }
                    WaitMode::Blocking(deadline) => {
                        guarded = self.sleep(guarded, wait, deadline)?;
                        wait.mode.deadline_passed()
                    }
                    // Nothing had completed of what the descriptor reported.
                    _ if at_end => true,
                    _ => {
                        wait.reads += 1;
                        let ready = self.read_now(&mut guarded, &wait.mode)?;
                        at_end = !ready.event;
                        at_end && !ready.completion || wait.reads == MAX_READS_PER_CALL
                    }
                };
            }
            // A call whose time is over looks once more: it may not have had the time before.
            match poll_ready(&mut guarded, interest, &wait.mode, &mut *done)? {
                Progress::Found(()) => return Ok((guarded, true)),
                Progress::Changed => {
                    at_end = false;
                    is_over |= wait.mode.deadline_passed();
                }
                Progress::Nothing => {}
            }
            if is_over {
                return Ok((guarded, false));
            }
        }
    }

    /// Makes the next completion for `interest` raise an event. Returns `true` if it might not have.
    fn arm(&self, guarded: &mut SharedStateGuard<'_>, interest: Interest) -> Result<bool> {
        let has_epoll_waiter = guarded.reader.is_some();
        guarded.state.arm(interest, has_epoll_waiter)
    }

    /// Sleeps until the state has changed for this thread, or the deadline has passed.
    fn sleep<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        wait: &mut SlowWait<'_>,
        deadline: Option<Instant>,
    ) -> Result<SharedStateGuard<'a>> {
        let id = match wait.waiter {
            Some(id) => id,
            None => guarded.add_waiter(wait.operation, true),
        };
        wait.waiter = Some(id);
        if guarded.reader.is_some() {
            guarded.waiters.sleeps(id, Wake::Thread(thread::current()));
            drop(guarded);
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
                }
            }
            let mut guarded = self.lock_here();
            guarded.waiters.is_awake(id);
            return Ok(guarded);
        }
        let is_apart = guarded.has_event_loop;
        match is_apart {
            true => self.prepare_apart(&guarded)?,
            false => guarded.set_wakeup(self, false)?,
        }
        guarded.reader = Some(Reader::new(id, is_apart));
        guarded.waiters.sleeps(id, Wake::Thread(thread::current()));
        drop(guarded);
        let ready = match is_apart {
            true => self.readiness.wait_apart(deadline),
            false => self.readiness.wait(deadline),
        };
        let mut guarded = self.lock_here();
        guarded.waiters.is_awake(id);
        guarded.reader = None;
        let silenced = match !is_apart && guarded.blocked_ops.is_empty() {
            true => guarded.set_wakeup(self, false),
            false => Ok(()),
        };
        // Events are reported once: what was reported counts also if the wakeup cannot be disabled.
        self.read(&mut guarded, ready?)?;
        silenced.map(|()| guarded)
    }

    /// Creates the epoll instance on which threads sleep while an event loop uses the descriptor of the endpoint.
    fn prepare_apart(&self, guarded: &SharedStateGuard<'_>) -> Result<()> {
        let (completions, timer) = guarded.state.event_sources();
        self.readiness.make_apart(&self.channel, completions, timer)
    }

    /// Reads what the descriptor reports, without sleeping. Returns what it reported.
    fn read_now(&self, guarded: &mut SharedStateGuard<'_>, mode: &WaitMode<'_>) -> Result<Ready> {
        let is_apart = guarded.has_event_loop && matches!(mode, WaitMode::Blocking(_));
        if guarded.reader.is_some_and(|reader| reader.is_apart == is_apart) {
            // The thread that sleeps there reads it.
            return Ok(Ready::default());
        }
        let ready = match is_apart {
            true => {
                self.prepare_apart(guarded)?;
                self.readiness.wait_apart(Some(Instant::now()))?
            }
            false => self.readiness.now()?,
        };
        self.read(guarded, ready)?;
        Ok(ready)
    }

    /// Reads what the descriptor reports after the end. Calls find the end without reading, so that otherwise an event that
    /// comes late would make the descriptor readable forever.
    #[cold]
    fn read_late_events(&self, guarded: &mut SharedStateGuard<'_>) {
        // The call returns the end in any case.
        let _ = self.read_now(guarded, &WaitMode::NonBlocking);
    }

    fn read(&self, guarded: &mut SharedStateGuard<'_>, ready: Ready) -> Result<()> {
        if ready.completion {
            guarded.state.core.on_completion_event();
        }
        if ready.gone {
            guarded.state.is_gone();
        }
        if ready.event {
            let read = guarded.state.read_events(&self.channel);
            guarded.disconnect_after_unlock();
            read?;
        }
        if ready.timer {
            guarded.state.keep_alive()?;
        }
        Ok(())
    }
}

/// Looks at the state, and at what has completed by now.
#[inline(always)]
fn poll_ready<T>(
    guarded: &mut SharedStateGuard<'_>,
    interest: Interest,
    mode: &WaitMode<'_>,
    mut done: impl FnMut(&mut State) -> Option<T>,
) -> Result<Progress<T>> {
    let mut progress = Progress::Nothing;
    loop {
        if let Some(found) = done(&mut guarded.state) {
            return Ok(Progress::Found(found));
        }
        // There may be completions for other callers without end.
        let is_over = matches!(progress, Progress::Changed) && mode.deadline_passed();
        if is_over || !guarded.state.poll(interest)? {
            return Ok(progress);
        }
        progress = Progress::Changed;
    }
}

/// Returns `true` if a thread that has found nothing polls once more instead of sleeping.
#[inline]
fn busy_polls(guarded: &SharedStateGuard<'_>, wait: &mut SlowWait<'_>) -> bool {
    match (&wait.mode, &guarded.state.parts) {
        (WaitMode::Blocking(deadline), Some(parts)) => {
            wait.spin.goes_on(parts.busy_poll, *deadline)
        }
        _ => false,
    }
}
