//! The sleep of a thread that waits.
//!
//! One thread sleeps on the descriptors and reads the events; the others are parked. When that thread stops waiting,
//! another one is woken and takes its place: see [`WaiterList::wake`](crate::endpoint::core::WaiterList::wake). If the
//! first thread waits again meanwhile, it leaves the place to the woken one.

use std::thread;
use std::time::Instant;

use super::caller::SlowWait;
use crate::endpoint::core::WaiterKind;
use crate::endpoint::shared::waker::{Reader, Wake};
use crate::endpoint::shared::{Shared, SharedStateGuard};
use crate::error::Result;

impl Shared {
    /// Sleeps until the state has changed for this thread, or the deadline has passed.
    pub(in crate::endpoint) fn sleep<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        wait: &mut SlowWait<'_>,
    ) -> Result<SharedStateGuard<'a>> {
        let deadline = wait.caller.deadline();
        let is_parked = guarded.waiters.parks(wait.waiter, guarded.reader.is_some());
        let id = match wait.waiter {
            Some(id) => id,
            None => guarded.add_waiter(wait.awaited, WaiterKind::Thread),
        };
        wait.waiter = Some(id);
        if is_parked {
            guarded.waiters.set_asleep(id, Wake::Thread(thread::current()));
            drop(guarded);
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
                }
            }
            let mut guarded = self.lock_here();
            guarded.waiters.set_awake(id);
            return Ok(guarded);
        }
        let uses_thread_epoll = guarded.has_event_loop;
        if uses_thread_epoll {
            self.prepare_thread_epoll(&guarded)?;
        } else {
            guarded.reports_end = false;
            guarded.update_wakeup(self)?;
        }
        guarded.reader = Some(Reader::new(id, uses_thread_epoll));
        guarded.waiters.set_asleep(id, Wake::Thread(thread::current()));
        // This thread has checked the state without unlocking it since. If it is the only waiter, there is no change
        // for another one.
        guarded.is_unchanged =
            !uses_thread_epoll && guarded.waiters.is_single() && !guarded.state.has_deferred;
        drop(guarded);
        let ready = match uses_thread_epoll {
            true => self.readiness.wait_on_thread_epoll(deadline),
            false => self.readiness.wait(deadline),
        };
        let mut guarded = self.lock_here();
        guarded.waiters.set_awake(id);
        guarded.reader = None;
        let updated = guarded.update_wakeup(self);
        // Events are reported once, so a reported event counts even if the wakeup cannot be disabled.
        let guarded = self.apply(guarded, ready?)?;
        updated.map(|()| guarded)
    }

    /// Creates the epoll instance for threads that sleep while an event loop uses the descriptor.
    pub(in crate::endpoint) fn prepare_thread_epoll(
        &self,
        guarded: &SharedStateGuard<'_>,
    ) -> Result<()> {
        let (completions, timer) = guarded.state.event_sources();
        self.readiness.create_thread_epoll(&self.channel, completions, timer)
    }
}
