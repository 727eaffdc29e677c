//! Buffers that the program has dropped and their group has not taken back yet.

use std::mem;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::member_table::Member;
use crate::error::{Error, Result};
use crate::lock::ignore_poison;
use crate::sync::Mutex;
use crate::sys::process::Process;
use crate::verbs::RegisteredBuffer;

/// A buffer that the program has dropped.
#[derive(Debug)]
pub(super) enum Returned<B = RegisteredBuffer> {
    /// The buffer of a message.
    Receive(Member, B),
    /// A buffer for sending that was not posted, with its number within the member.
    Send(Member, u32, B),
}

/// The list, which a group shares with its messages and buffers.
///
/// Its lock is held for a few instructions. The group contends for it only with threads that drop messages and buffers.
#[derive(Debug)]
pub(super) struct ReturnList<B = RegisteredBuffer> {
    process: Process,
    state: Mutex<State<B>>,
    /// Wakes the thread or event loop that waits for the group.
    wakeup: EventFd,
}

#[derive(Debug)]
struct State<B> {
    /// `None` after the group is dropped.
    returned: Option<Vec<Returned<B>>>,
    /// `true` if the group may sleep and needs a returned buffer to continue.
    wakes: bool,
    /// `true` if a buffer for sending is on the list.
    has_send: bool,
}

impl<B> ReturnList<B> {
    pub(super) fn new() -> Result<Arc<Self>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let failed = |errno| Error::os("create", "the eventfd of a poll group", errno);
        let wakeup = EventFd::from_value_and_flags(0, flags).map_err(failed)?;
        let state = State { returned: Some(Vec::new()), wakes: false, has_send: false };
        let (process, state) = (Process::current(), Mutex::new(state));
        Ok(Arc::new(Self { process, state, wakeup }))
    }

    /// Returns a buffer to the group. If the group was dropped, the buffer is dropped too.
    pub(super) fn return_buffer(&self, returned: Returned<B>) {
        // Checked first: in a forked child the lock may never be released.
        if !self.process.is_current() {
            return;
        }
        let mut state = ignore_poison(self.state.lock());
        let Some(list) = &mut state.returned else {
            // Memory is deregistered with the last buffer, and no thread should wait for that.
            drop(state);
            drop(returned);
            return;
        };
        let is_send = matches!(returned, Returned::Send(..));
        list.push(returned);
        state.has_send |= is_send;
        let wakes = mem::take(&mut state.wakes);
        drop(state);
        if wakes {
            self.wake();
        }
    }

    /// Exchanges the list with `into`, which is empty.
    ///
    /// If the list is empty and `wakes` is set, the next returned buffer wakes the group.
    pub(super) fn take(&self, into: &mut Vec<Returned<B>>, wakes: bool) {
        let mut state = ignore_poison(self.state.lock());
        let State { returned, wakes: next, has_send } = &mut *state;
        *next = wakes;
        *has_send = false;
        if let Some(returned) = returned {
            mem::swap(returned, into);
            *next &= into.is_empty();
        }
    }

    /// Makes the next returned buffer wake the group.
    ///
    /// If a buffer for sending is on the list, the group is woken now.
    pub(super) fn wake_on_return(&self) {
        let mut state = ignore_poison(self.state.lock());
        let has_send = state.has_send;
        state.wakes |= !has_send;
        drop(state);
        self.wake_if(has_send);
    }

    /// Makes the descriptor readable.
    pub(super) fn wake(&self) {
        // Refused only if the counter is at its maximum: the descriptor is readable then.
        let _ = self.wakeup.write(1);
    }

    /// Makes the descriptor readable if there is a reason.
    pub(super) fn wake_if(&self, is_needed: bool) {
        if is_needed {
            self.wake();
        }
    }

    /// Makes the descriptor unreadable.
    pub(super) fn clear(&self) {
        let _ = self.wakeup.read();
    }

    /// Returns `true` if a buffer for sending is on the list.
    #[cfg(fuzzing)]
    pub(super) fn has_send(&self) -> bool {
        ignore_poison(self.state.lock()).has_send
    }

    pub(super) fn wakeup(&self) -> &EventFd {
        &self.wakeup
    }

    /// Drops the buffers on the list, and buffers that are returned later.
    pub(super) fn close(&self) {
        if self.process.is_current() {
            let list = ignore_poison(self.state.lock()).returned.take();
            drop(list);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
