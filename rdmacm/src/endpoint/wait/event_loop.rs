//! Calls of event loops, which do not wait.
//!
//! An event loop is a waiter of the endpoint for each operation that has returned `WouldBlock`, until a call of that
//! operation has a result. While such a waiter is awake, the descriptor is readable. Every call that does not wait puts
//! waiters without a result to sleep. So the descriptor is readable without reason at most until the next call.

use super::caller::Caller;
use crate::endpoint::core::WaiterKind;
use crate::endpoint::core::operation::Awaited;
use crate::endpoint::shared::waker::Wake;
use crate::endpoint::shared::{Shared, SharedState, SharedStateGuard};
use crate::error::Result;

impl Shared {
    /// Records the result of a call that does not wait, and unlocks the state.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_ctl`. If the caller ignores them, the next change corrects the readiness of the descriptor.
    #[inline]
    pub(in crate::endpoint) fn update_loop_readiness<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        awaited: Awaited,
        is_done: bool,
    ) -> Result<()> {
        if guarded.state.core.end().is_some() {
            guarded = self.read_late_events(guarded);
        }
        if !is_done || guarded.waiters.has_loop() {
            guarded.record_try(awaited, is_done);
        }
        guarded.reports_end = false;
        guarded.update_wakeup(self)
    }

    /// Reads the events that the descriptor reports after the end.
    ///
    /// Calls find the end without reading. Otherwise a late event would make the descriptor readable forever.
    #[cold]
    fn read_late_events<'a>(&'a self, guarded: SharedStateGuard<'a>) -> SharedStateGuard<'a> {
        // The call returns the end in any case.
        match self.read_now(guarded, &Caller::EventLoop) {
            Ok((guarded, _)) => guarded,
            Err(_) => self.lock_here(),
        }
    }
}

impl SharedState {
    /// Records the result of a call of an event loop.
    fn record_try(&mut self, awaited: Awaited, is_done: bool) {
        let found = self.waiters.find_loop(awaited);
        match (is_done, found) {
            (true, Some(id)) => self.remove_waiter(id),
            (true, None) => {}
            (false, found) => {
                self.has_event_loop = true;
                let id = match found {
                    Some(id) => id,
                    None => self.add_waiter(awaited, WaiterKind::EventLoop),
                };
                self.waiters.set_asleep(id, Wake::EventLoop);
            }
        }
        let Self { waiters, state, .. } = self;
        waiters.put_loops_to_sleep(|awaited| state.is_ready(awaited), || Wake::EventLoop);
    }
}
