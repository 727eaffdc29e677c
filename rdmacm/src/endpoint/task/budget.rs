//! The budget of tasks: a task that never has to wait lets other tasks run from time to time.

use std::cell::Cell;
use std::task::{Context, Poll};

/// Maximum number of calls that succeed on a thread without a pause for other tasks.
///
/// Tokio's budget has the same size.
const MAX_CALLS: u32 = 128;

thread_local! {
    /// The calls on this thread since a task last had to wait here.
    ///
    /// A task that never waits has the thread to itself, so all of these calls are its own.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Returns pending and wakes the task again, if other tasks should run first.
pub(super) fn poll_budget(context: &Context<'_>) -> Poll<()> {
    let calls = CALLS.get();
    if calls < MAX_CALLS {
        CALLS.set(calls + 1);
        return Poll::Ready(());
    }
    CALLS.set(0);
    context.waker().wake_by_ref();
    Poll::Pending
}

/// Records that the task waits, so that others run.
pub(super) fn reset_budget() {
    CALLS.set(0);
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn task_that_never_waits_yields_regularly() {
        let context = Context::from_waker(Waker::noop());
        reset_budget();
        for _ in 0..3 {
            assert!((0..MAX_CALLS).all(|_| poll_budget(&context).is_ready()));
            assert!(poll_budget(&context).is_pending());
        }
    }

    #[test]
    fn waiting_resets_budget() {
        let context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            reset_budget();
            assert!((0..MAX_CALLS).all(|_| poll_budget(&context).is_ready()));
        }
    }
}
