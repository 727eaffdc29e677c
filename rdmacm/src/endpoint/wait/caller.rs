//! The callers of an operation, and the ways in which they wait.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::busy_poll::BusyPoll;
use super::deadline::{deadline_after, has_passed};
use crate::endpoint::core::operation::Awaited;
use crate::endpoint::core::{WaitSteps, WaiterId, WaiterKind};
#[cfg(doc)]
use crate::endpoint::shared::Shared;

/// The way in which a call waits.
#[derive(Debug, Clone, Copy)]
pub(in crate::endpoint) enum WaitMode {
    /// The caller does not wait.
    NonBlocking,
    /// The caller waits until the deadline, or without limit.
    Blocking(Option<Instant>),
}

impl WaitMode {
    pub(in crate::endpoint) const BLOCKING: Self = Self::Blocking(None);

    /// Waits for at most `timeout`.
    pub(in crate::endpoint) fn timeout(timeout: Duration) -> Self {
        Self::Blocking(deadline_after(timeout))
    }
}

/// The caller of an operation.
pub(in crate::endpoint) enum Caller<'m> {
    /// The call returns at once; the descriptor reports when it can be retried.
    EventLoop,
    /// The thread sleeps until the deadline.
    Thread(Option<Instant>),
    /// The call returns at once; the waker is called when it can be retried.
    Task(&'m mut TaskWaiter, &'m Waker),
}

impl Caller<'_> {
    pub(in crate::endpoint) fn kind(&self) -> WaiterKind {
        match self {
            Self::EventLoop => WaiterKind::EventLoop,
            Self::Thread(_) => WaiterKind::Thread,
            Self::Task(..) => WaiterKind::Task,
        }
    }

    /// Returns the time until which a thread sleeps, or `None` if there is no limit.
    pub(in crate::endpoint) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Thread(deadline) => *deadline,
            Self::EventLoop | Self::Task(..) => None,
        }
    }

    pub(in crate::endpoint) fn deadline_passed(&self) -> bool {
        has_passed(self.deadline())
    }
}

/// The waiter of a task, once it has waited. Its owner removes it: see [`Shared::forget`].
#[derive(Debug, Default)]
pub(in crate::endpoint) struct TaskWaiter(pub(in crate::endpoint) Option<WaiterId>);

/// A call that has no result yet.
pub(in crate::endpoint) struct SlowWait<'m> {
    pub(in crate::endpoint) awaited: Awaited,
    pub(in crate::endpoint) caller: Caller<'m>,
    /// The waiter of a thread, once it has slept.
    pub(in crate::endpoint) waiter: Option<WaiterId>,
    pub(in crate::endpoint) spin: BusyPoll,
    pub(in crate::endpoint) steps: WaitSteps,
}
