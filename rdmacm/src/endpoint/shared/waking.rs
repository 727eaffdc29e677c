//! The waiters that are woken before the state is unlocked, and the wakeup of the descriptor.

use super::waker::{Reader, Wake};
use super::{Shared, SharedState};
use crate::endpoint::core::operation::Awaited;
use crate::endpoint::core::{WaiterId, WaiterKind};
use crate::error::Result;

impl SharedState {
    /// Wakes the waiters that can continue.
    ///
    /// It wakes one more waiter if otherwise no event would reach the sleeping waiters.
    pub(in crate::endpoint) fn wake_waiters(
        &mut self,
        shared: &Shared,
        mut wake: impl FnMut(Wake),
    ) {
        if self.waiters.is_empty() {
            return;
        }
        let available = self.state.available();
        let Self { state, waiters, reader, .. } = self;
        let mut reader_to_wake = None;
        let mut wake = |id, waker| match (*reader, waker) {
            (Some(reader), waker) if reader.id == id => reader_to_wake = Some((reader, waker)),
            // The wakeup is updated afterwards.
            (_, Wake::EventLoop) => {}
            (_, waker) => wake(waker),
        };
        let is_done = |awaited| state.has_result(awaited);
        let needs_caller = |interest| state.needs_caller(interest);
        waiters.wake(&available, reader.is_some(), is_done, needs_caller, &mut wake);
        if let Some((reader, waker)) = reader_to_wake {
            self.wake_reader(shared, reader, waker);
        }
    }

    /// Wakes the thread that sleeps in `epoll_wait`.
    fn wake_reader(&mut self, shared: &Shared, reader: Reader, waker: Wake) {
        self.reader = Some(Reader { is_woken: true, ..reader });
        let woken = match reader.uses_thread_epoll {
            true => shared.readiness.wake_thread_epoll(),
            false => self.update_wakeup(shared),
        };
        if woken.is_err() {
            // The thread still sleeps: the next change wakes it.
            self.reader = Some(reader);
            self.waiters.set_asleep(reader.id, waker);
        }
    }

    /// Enables or disables the wakeup of the descriptor, according to the state.
    ///
    /// It is enabled for event loops that must try again, and for a thread that sleeps on the descriptor and must wake.
    /// Such a thread must also wake if there is an event loop, because it would take the events of the loop. From then
    /// on it sleeps on the thread epoll instance.
    ///
    /// # Errors
    ///
    /// - The errors of `epoll_ctl`, after which the wakeup is unchanged.
    #[inline]
    pub(in crate::endpoint) fn update_wakeup(&mut self, shared: &Shared) -> Result<()> {
        let has_loop = self.waiters.has_loop();
        let wakes_reader = |reader: Reader| {
            !reader.uses_thread_epoll && (reader.is_woken || has_loop || self.reports_end)
        };
        let is_enabled = self.reports_end
            || self.waiters.has_awake_loop()
            || self.reader.is_some_and(wakes_reader);
        if self.is_wakeup_enabled != is_enabled {
            shared.readiness.set_wakeup(is_enabled)?;
            self.is_wakeup_enabled = is_enabled;
        }
        Ok(())
    }

    /// Adds a waiter for `awaited`, which is awake.
    pub(in crate::endpoint) fn add_waiter(
        &mut self,
        awaited: Awaited,
        kind: WaiterKind,
    ) -> WaiterId {
        if self.waiters.is_empty() {
            // Changes before this concern no waiter.
            self.state.forget_changes();
        }
        self.waiters.add(awaited, kind)
    }

    /// Removes a waiter that stops waiting.
    pub(in crate::endpoint) fn remove_waiter(&mut self, id: WaiterId) {
        self.waiters.remove(id);
    }
}
