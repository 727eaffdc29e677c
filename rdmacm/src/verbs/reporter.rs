//! Objects that the kernel reports events of: how it names them, and which of their events are out.

use std::fmt;
use std::sync::Arc;

use verbs_abi::AlignedU64;

use crate::acks::{Acks, Counted, Unacknowledged};
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::registry::{Registry, Token};
use crate::sys::per_process::PerProcess;
use crate::sys::process::Process;

/// The process's living queues and queue pairs, by the number that the kernel knows each by in
/// events.
///
/// One for all kinds: an event of a type that is not known here still leads to its object, whose
/// destruction waits for it.
static REPORTERS: PerProcess<Registry<Events>> = PerProcess::new();

/// The events of one object that were handed to the program.
#[derive(Debug, Default)]
struct Events {
    asynchronous: Acks,
    /// The completion events of a completion queue; `None` for other objects, which have none.
    completions: Option<Arc<Acks>>,
}

impl Counted for Events {
    fn acks(&self) -> &Acks {
        &self.asynchronous
    }
}

/// How many events of an object the kernel has reported.
#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) asynchronous: u32,
    /// Of a completion queue.
    pub(super) completions: u32,
}

/// A kernel object's name in events, which leads to the counts of those as long as this lives.
pub(super) struct Reporter {
    token: Token,
    events: Arc<Events>,
    /// The process that the object belongs to.
    process: Process,
}

impl Reporter {
    /// Names an object that is not created yet and has no completion events.
    pub(super) fn new() -> Self {
        Self::with(Events::default())
    }

    /// Names a completion queue that is not created yet, whose completion events `completions` counts.
    pub(super) fn of_completion_queue(completions: &Arc<Acks>) -> Self {
        let completions = Some(Arc::clone(completions));
        Self::with(Events { completions, ..Events::default() })
    }

    fn with(events: Events) -> Self {
        let (token, events) = (REPORTERS.reserve(), Arc::new(events));
        REPORTERS.set(token, &events);
        Self { token, events, process: Process::current() }
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// The name as commands take it.
    pub(super) fn user_handle(&self) -> AlignedU64 {
        self.token.get().into()
    }

    /// Refuses to destroy `subject` in a forked child, which would wait for threads of its parent, and
    /// in a thread that would wait for itself.
    pub(super) fn check(&self, subject: impl FnOnce() -> String) -> Result<()> {
        const DESTROY: &str = "destroy";
        if let Err(refused) = self.process.check() {
            return Err(refused.during(DESTROY, subject()));
        }
        let Events { asynchronous, completions } = &*self.events;
        let has_completion =
            completions.as_ref().is_some_and(|completions| completions.held_by_this_thread());
        if !asynchronous.held_by_this_thread() && !has_completion {
            return Ok(());
        }
        let kind = ErrorKind::WouldDeadlock("it holds an event of the object; drop it first");
        Err(Error::new(DESTROY, subject(), kind))
    }

    /// Waits until as many events of each kind are acknowledged as the kernel has reported.
    pub(super) fn wait(&self, reported: Reported) {
        if let Some(completions) = &self.events.completions {
            completions.wait(reported.completions);
        }
        self.events.asynchronous.wait(reported.asynchronous);
    }
}

/// Counts an asynchronous event of the object that the kernel names as handed to this thread. Returns `None` if the
/// object is gone.
pub(super) fn hand_out(number: u64) -> Option<(Token, Unacknowledged)> {
    let (token, events) = REPORTERS.get_with_token(number)?;
    Some((token, events.hand_out(true)))
}

/// Counts an event on a completion channel as handed to this thread. Returns `None` if its queue is gone, or if the kernel
/// names an object that is no completion queue.
pub(super) fn hand_out_completion(number: u64) -> Option<(Token, Unacknowledged)> {
    let (token, events) = REPORTERS.get_with_token(number)?;
    Some((token, events.completions.as_ref()?.hand_out(true)))
}

/// Counts an event on a completion channel as acknowledged at once. Returns `false` if its queue is gone.
pub(super) fn pass_completion(number: u64) -> bool {
    let events = REPORTERS.get(number);
    let completions = events.as_ref().and_then(|events| events.completions.as_ref());
    completions.inspect(|completions| completions.pass()).is_some()
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // In a child the name is another object's, or nobody's.
        if self.process.is_current() {
            REPORTERS.remove(self.token);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::error::WrongProcess;
    use crate::sys::process::in_child;

    #[test]
    fn events_lead_to_their_object_while_it_lives() {
        let completions = Arc::default();
        let reporter = Reporter::of_completion_queue(&completions);
        let number = reporter.user_handle().get();
        let subject = || "queue 7".to_owned();
        reporter.check(subject).expect("no event is out");
        for hand_out in [hand_out, hand_out_completion] {
            let (token, event) = hand_out(number).expect("it lives");
            assert_eq!(token, reporter.token());
            let error = reporter.check(subject).expect_err("an event is out");
            assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
            drop(event);
            reporter.check(subject).expect("it is acknowledged");
        }
        assert!(pass_completion(number));
        reporter.check(subject).expect("it is acknowledged");
        assert_eq!(completions.handed_out().load(Ordering::Relaxed), 2);
        reporter.wait(Reported { asynchronous: 1, completions: 2 });
        drop(reporter);
        assert!(hand_out(number).is_none());
        assert!(hand_out_completion(number).is_none());
        assert!(!pass_completion(number));
    }

    #[test]
    fn completion_event_of_other_object_is_ignored() {
        let reporter = Reporter::new();
        let number = reporter.user_handle().get();
        assert!(hand_out_completion(number).is_none());
        assert!(!pass_completion(number));
        assert!(hand_out(number).is_some(), "the object should be known");
    }

    #[test]
    fn a_child_is_refused_whoever_of_its_parent_counts() {
        let completions = Arc::default();
        let reporter = Reporter::of_completion_queue(&completions);
        let _held = (reporter.events.asynchronous.hold(), completions.hold());
        assert!(in_child(|| {
            let error = reporter.check(String::new).expect_err("it is the parent's");
            matches!(error.kind(), ErrorKind::WrongProcess(WrongProcess::Forked))
        }));
    }
}
