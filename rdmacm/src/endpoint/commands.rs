//! Commands that are issued while the state is unlocked, and whose results are inputs of the state again.
//!
//! What can happen while a command runs, and why nothing is lost:
//! - **Arming.** Another caller takes the queue for armed and sleeps. The caller that arms polls afterwards, and wakes it: see
//!   [`arming`](super::core).
//! - **Events.** The thread that reads holds a lock of its own until it has locked the state to apply what it has read, so a
//!   second reader applies later events later. A caller that finds all requests flushed, but no reason for it, reads the
//!   events before it reports that ([`Shared::read_reason`]): the thread that has the reason in its hands is waited for.
//! - **An abort.** It waits until the command is over. The result finds a state without kernel objects, and changes nothing
//!   that callers see.
//! - **A resolution or a joining that is dropped.** Its id is shared with the command, and goes with the later of both.
//! - **An error.** It is recorded before it is returned, and the waiters are woken as by any other change: one of them tries
//!   again, and gets the error itself.

use super::core::EndReason;
use super::datagram_cm::DatagramCm;
use super::kernel_objects::KernelObjects;
use super::operation::{Interest, Operation};
use super::running_command::RunningCommand;
use super::shared::{Shared, SharedStateGuard};
use super::state::State;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;

/// The number of events that are read at once. A socket may have events without end: each peer that resolves it causes one.
const MAX_EVENTS: usize = 16;

/// The locked state after a command, and whether there was one.
pub(super) type AfterCommand<'a> = Result<(SharedStateGuard<'a>, bool)>;

impl Shared {
    /// Makes the next completion for `interest` raise an event. Returns `true` if it might not have: the caller polls then.
    pub(super) fn arm<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        interest: Interest,
    ) -> AfterCommand<'a> {
        let has_epoll_waiter = guarded.reader.is_some();
        let next = guarded.state.next_arm_commands(interest, has_epoll_waiter);
        let Some((action, commands)) = next else { return Ok((guarded, false)) };
        let running = guarded.begin_command();
        let issued = commands.issue();
        let mut guarded = running.finish();
        guarded.state.on_arm_commands(action, issued)?;
        Ok((guarded, true))
    }

    /// Takes a step of setting up a queue pair again that has failed. Returns `true` if there was one: the caller polls then.
    pub(super) fn recover<'a>(&'a self, mut guarded: SharedStateGuard<'a>) -> AfterCommand<'a> {
        let next = guarded.state.next_recovery_commands();
        let Some((action, commands)) = next else { return Ok((guarded, false)) };
        let running = guarded.begin_command();
        let issued = commands.issue();
        let mut guarded = running.finish();
        guarded.state.on_recovery_commands(action, issued)?;
        Ok((guarded, true))
    }

    /// Reads the CM events, or some of them: the channel stays readable then. The events, and the results of the commands
    /// that follow them, are recorded in the order in which the kernel reported them.
    pub(super) fn read_events<'a>(
        &'a self,
        guarded: SharedStateGuard<'a>,
    ) -> Result<SharedStateGuard<'a>> {
        let running = guarded.begin_command();
        let order = unpoisoned(self.events.lock());
        let mut read = Ok(());
        for _ in 0..MAX_EVENTS {
            match self.read_event() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    read = Err(error);
                    break;
                }
            }
        }
        let mut guarded = running.finish();
        drop(order);
        guarded.disconnect_after_unlock();
        read.map(|()| guarded)
    }

    /// Reads one event and issues the command that follows. Returns `false` if there is none at the moment.
    fn read_event(&self) -> Result<bool> {
        let mut event = match self.channel.get_event() {
            Ok(event) => event,
            Err(error) if is_nothing(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut guarded = self.lock_here();
        let (applied, command) = guarded.state.on_cm_event(&mut event);
        // The waiters are woken when all events were read: see `RunningCommand`.
        guarded.unlock_unchanged();
        // It may have a request, whose id goes with it. An id of which a command is issued waits for its events.
        drop(event);
        if let Some((token, error)) = command.and_then(|command| command.issue()) {
            let mut guarded = self.lock_here();
            guarded.state.on_cm_command_failed(token, &error);
            guarded.unlock_unchanged();
        }
        applied.map(|()| true)
    }

    /// Returns the end of the endpoint after an event was read that may give the reason, if `end` has none.
    #[cold]
    pub(super) fn read_reason(&self, end: EndReason) -> EndReason {
        if end != EndReason::Unreported {
            return end;
        }
        let read = self.read_events(self.lock_here());
        let guarded = read.unwrap_or_else(|_| self.lock_here());
        guarded.state.core.end().unwrap_or(end)
    }

    /// Calls `each` with the CM part of a datagram socket, unless the socket has ended, and begins a command.
    pub(super) fn begin_cm_command<T>(
        &self,
        operation: Operation,
        each: impl FnOnce(&mut DatagramCm, &KernelObjects) -> Result<T>,
    ) -> Result<(T, RunningCommand<'_>)> {
        let mut guarded = self.lock_for(operation)?;
        let State { parts, core, cm, .. } = &mut guarded.state;
        if parts.as_ref().is_some_and(|parts| parts.queues.qp().pd().context().is_gone()) {
            // The event that tells this socket may not have been read yet.
            core.set_end(EndReason::DeviceRemoved);
        }
        let (Some(parts), Some(cm), None) = (parts, cm, core.end()) else {
            return Err(self.error(operation, core.end().unwrap_or(EndReason::Local).kind()));
        };
        let found = each(cm, parts)?;
        Ok((found, guarded.begin_command()))
    }

    /// Calls `each` with the CM part of a datagram socket, until this side has aborted the socket.
    pub(super) fn with_cm(&self, each: impl FnOnce(&mut DatagramCm)) {
        let mut guarded = self.lock_here();
        if let Some(cm) = &mut guarded.state.cm {
            each(cm);
        }
        guarded.unlock_unchanged();
    }
}

/// Returns `true` if `error` says that there is no event to read at the moment.
fn is_nothing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Os(libc::EINTR))
}
