//! Objects for which the kernel raises events: their identity in events, and unacknowledged events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs_abi::{AlignedU64, ib_event_type};

use crate::acks::{Acks, Counted, Unacknowledged};
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::registry::{Registry, Token};
use crate::sys::per_process::PerProcess;
use crate::sys::process::Process;

/// The existing queues and queue pairs of the process, by the numbers that identify them in events.
///
/// One registry serves all kinds. An event of an unknown type then still leads to its object, whose
/// destruction waits for the event.
static EVENT_SOURCES: PerProcess<Registry<Events>> = PerProcess::new();

/// The events of one object that were passed to the program.
#[derive(Debug, Default)]
struct Events {
    asynchronous: Acks,
    /// The completion events of a completion queue; `None` for other objects, which have none.
    completions: Option<Arc<Acks>>,
    /// Number of the first asynchronous event that reported why the object failed; 0 if there was
    /// none.
    failure: AtomicU32,
}

impl Counted for Events {
    fn acks(&self) -> &Acks {
        &self.asynchronous
    }
}

/// Number of events of an object that the kernel has raised.
#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) asynchronous: u32,
    /// Number of completion events of a completion queue.
    pub(super) completions: u32,
}

/// The identity of a kernel object in events, which gives access to the counts of its events.
///
/// The identity is valid as long as this value exists.
pub(super) struct EventSource {
    token: Token,
    events: Arc<Events>,
    /// The process that owns the object.
    process: Process,
}

impl EventSource {
    /// Returns an identity for an object that is not created yet and has no completion events.
    pub(super) fn new() -> Self {
        Self::with(Events::default())
    }

    /// Returns an identity for a completion queue that is not created yet.
    ///
    /// `completions` counts its completion events.
    pub(super) fn of_completion_queue(completions: &Arc<Acks>) -> Self {
        let completions = Some(Arc::clone(completions));
        Self::with(Events { completions, ..Events::default() })
    }

    fn with(events: Events) -> Self {
        let (token, events) = (EVENT_SOURCES.reserve(), Arc::new(events));
        EVENT_SOURCES.set(token, &events);
        Self { token, events, process: Process::current() }
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// Returns the identity in the form that commands take.
    pub(super) fn user_handle(&self) -> AlignedU64 {
        self.token.get().into()
    }

    /// Returns an error if destroying `subject` could wait forever.
    ///
    /// This is the case in a forked child, which would wait for threads of its parent, and in a
    /// thread that would wait for itself.
    pub(super) fn check(&self, subject: impl FnOnce() -> String) -> Result<()> {
        const DESTROY: &str = "destroy";
        if let Err(refused) = self.process.check() {
            return Err(refused.into_error(DESTROY, subject()));
        }
        let Events { asynchronous, completions, .. } = &*self.events;
        let has_completion =
            completions.as_ref().is_some_and(|completions| completions.held_by_this_thread());
        if !asynchronous.held_by_this_thread() && !has_completion {
            return Ok(());
        }
        let kind = ErrorKind::WouldDeadlock(
            "this thread holds an event of the object; drop the event first",
        );
        Err(Error::new(DESTROY, subject(), kind))
    }

    /// Returns the asynchronous event that reported why the object failed, if it was
    /// [recorded](record_failure).
    pub(super) fn failure(&self) -> Option<ib_event_type> {
        let event_type = self.events.failure.load(Ordering::Relaxed);
        (event_type != 0).then_some(ib_event_type(event_type))
    }

    /// Waits until as many events of each kind are acknowledged as the kernel has raised.
    pub(super) fn wait(&self, reported: Reported) {
        if let Some(completions) = &self.events.completions {
            completions.wait(reported.completions);
        }
        self.events.asynchronous.wait(reported.asynchronous);
    }
}

/// Counts an asynchronous event of an object as passed to this thread.
///
/// Returns `None` if the object that the kernel names no longer exists.
pub(super) fn track(number: u64) -> Option<(Token, Unacknowledged)> {
    let (token, events) = EVENT_SOURCES.get_with_token(number)?;
    Some((token, events.track(true)))
}

/// Returns the token of the object that the kernel names, if the object exists.
pub(super) fn token(number: u64) -> Option<Token> {
    EVENT_SOURCES.get_with_token(number).map(|(token, _)| token)
}

/// Records the asynchronous event that reports why an object failed.
///
/// Only the first event is kept.
pub(super) fn record_failure(number: u64, event_type: ib_event_type) {
    if let Some(events) = EVENT_SOURCES.get(number) {
        let (none, own) = (0, event_type.0);
        let _ = events.failure.compare_exchange(none, own, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Counts an event on a completion channel as passed to this thread.
///
/// Returns `None` if its queue no longer exists, or if the object that the kernel names is not a
/// completion queue.
pub(super) fn track_completion_event(number: u64) -> Option<(Token, Unacknowledged)> {
    let (token, events) = EVENT_SOURCES.get_with_token(number)?;
    Some((token, events.completions.as_ref()?.track(true)))
}

/// Counts an event on a completion channel as acknowledged at once.
///
/// Returns `false` if its queue no longer exists.
pub(super) fn acknowledge_completion_event(number: u64) -> bool {
    let events = EVENT_SOURCES.get(number);
    let completions = events.as_ref().and_then(|events| events.completions.as_ref());
    completions.inspect(|completions| completions.acknowledge_now()).is_some()
}

impl Drop for EventSource {
    fn drop(&mut self) {
        // In a forked child, the token belongs to another object or to none.
        if self.process.is_current() {
            EVENT_SOURCES.remove(self.token);
        }
    }
}

impl fmt::Debug for EventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}

#[cfg(test)]
mod tests;
