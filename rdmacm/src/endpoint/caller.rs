//! The callers of an operation, and the ways in which they wait.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::busy_poll::BusyPoll;
use super::core::{WaitSteps, WaiterId, WaiterKind};
use super::deadline::{deadline_after, has_passed};
use super::operation::Awaited;
#[cfg(doc)]
use super::shared::Shared;

/// The way in which a call waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum WaitMode {
    /// The caller does not wait.
    NonBlocking,
    /// The caller waits until the deadline, or without limit.
    Blocking(Option<Instant>),
}

impl WaitMode {
    pub(super) const BLOCKING: Self = Self::Blocking(None);

    /// Waits for at most `timeout`.
    pub(super) fn timeout(timeout: Duration) -> Self {
        Self::Blocking(deadline_after(timeout))
    }
}

/// The caller of an operation.
pub(super) enum Caller<'m> {
    /// The call returns at once; the descriptor reports when it can be retried.
    EventLoop,
    /// The thread sleeps until the deadline.
    Thread(Option<Instant>),
    /// The call returns at once; the waker is called when it can be retried.
    Task(&'m mut TaskWaiter, &'m Waker),
}

impl Caller<'_> {
    pub(super) fn kind(&self) -> WaiterKind {
        match self {
            Self::EventLoop => WaiterKind::EventLoop,
            Self::Thread(_) => WaiterKind::Thread,
            Self::Task(..) => WaiterKind::Task,
        }
    }

    /// Returns the time until which a thread sleeps, or `None` if there is no limit.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Thread(deadline) => *deadline,
            Self::EventLoop | Self::Task(..) => None,
        }
    }

    pub(super) fn deadline_passed(&self) -> bool {
        has_passed(self.deadline())
    }
}

/// The waiter of a task, once it has waited. Its owner removes it: see [`Shared::forget`].
#[derive(Debug, Default)]
pub(super) struct TaskWaiter(pub(super) Option<WaiterId>);

/// A call that has no result yet.
pub(super) struct SlowWait<'m> {
    pub(super) awaited: Awaited,
    pub(super) caller: Caller<'m>,
    /// The waiter of a thread, once it has slept.
    pub(super) waiter: Option<WaiterId>,
    pub(super) spin: BusyPoll,
    pub(super) steps: WaitSteps,
}
