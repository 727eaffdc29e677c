//! Commands that are issued while the state is unlocked, and whose results change the state.
//!
//! Other callers act while a command runs. No event and no wakeup is lost in these cases:
//! - **Arming.** Another caller assumes that the queue is armed, and sleeps. The caller that arms polls afterwards and
//!   wakes the other one: see [`arming`](crate::endpoint::core).
//! - **Events.** The thread that reads holds a separate lock until it has locked the state to apply the events. So a
//!   second reader applies later events later. A caller may find all requests flushed without a reason. Before that
//!   caller reports the end, it reads the events ([`Shared::read_reason`]), and waits for a thread that has read the
//!   reason and not applied it yet.
//! - **An abort.** It waits until the command has finished. The result then finds a state without kernel objects, and
//!   has no visible effect.
//! - **A flush of requests that were posted in ERR.** The thread that flushes polls afterwards and wakes the waiters.
//!   On siw no event follows if the kernel refuses the private queue pair that would raise it.
//! - **A resolution or a joining that is dropped.** The command shares its id, and the last of both destroys it.
//! - **An error.** It is recorded before it is returned. The waiters are woken as by any other change; one of them
//!   tries again and gets the error itself.

use super::datagram_cm::DatagramCm;
use super::kernel_objects::{ArmCommands, KernelObjects, RecoveryCommands};
use super::running_command::RunningCommand;
use super::state::State;
use super::{Shared, SharedStateGuard};
use crate::cm::EventType;
use crate::endpoint::core::operation::{Interest, Operation};
use crate::endpoint::core::{ArmAction, EndReason, RecoveryAction};
use crate::error::{ErrorKind, Result};
use crate::lock::ignore_poison;
use crate::verbs::AsyncEventType;

/// Maximum number of events that are read at once.
///
/// A socket may have any number of events: each peer that resolves it causes one.
const MAX_EVENTS: usize = 16;

const DECIDED: &str = "an action should be decided while the endpoint has kernel objects";

impl Shared {
    /// Issues the commands of `action`, after which the caller polls.
    pub(in crate::endpoint) fn arm<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        action: ArmAction,
    ) -> Result<SharedStateGuard<'a>> {
        let objects = guarded.state.objects.as_ref().expect(DECIDED);
        let commands = ArmCommands::new(action, objects);
        let running = guarded.begin_command();
        let issued = commands.issue();
        guarded = running.finish();
        guarded.state.on_arm_commands(action, issued)?;
        Ok(guarded)
    }

    /// Completes requests that were posted while the queue pair was in ERR, and polls them.
    ///
    /// The flush is repeated if another thread has posted during it.
    #[cold]
    pub(in crate::endpoint) fn flush_posted(&self) {
        let mut guarded = self.lock_here();
        while guarded.state.owes_flush() {
            let Some(qp) = guarded.state.qp() else { return };
            let running = guarded.begin_command();
            let flushed = qp.flush_deferred();
            drop(qp);
            guarded = running.finish();
            // If the command is refused, the requests never complete: their buffers are freed with the queue pair.
            // Calls return the reason that moved the queue pair to ERR.
            let _ = flushed.or_else(|error| guarded.state.ignore_if_removed(error));
            // A malformed completion ends the endpoint, and the next call returns this reason.
            let _ = guarded.state.poll(Interest::All);
        }
    }

    /// Issues the commands of `action`, after which the caller polls.
    pub(in crate::endpoint) fn recover<'a>(
        &'a self,
        mut guarded: SharedStateGuard<'a>,
        action: RecoveryAction,
    ) -> Result<SharedStateGuard<'a>> {
        let objects = guarded.state.objects.as_ref().expect(DECIDED);
        let commands = RecoveryCommands::new(action, objects);
        let running = guarded.begin_command();
        let issued = commands.issue();
        guarded = running.finish();
        guarded.state.on_recovery_commands(action, issued)?;
        Ok(guarded)
    }

    /// Reads CM events, up to a maximum. If events are left, the channel stays readable.
    ///
    /// The events, and the results of the commands that follow them, are recorded in the order in which the kernel
    /// reported them.
    pub(in crate::endpoint) fn read_events<'a>(
        &'a self,
        guarded: SharedStateGuard<'a>,
    ) -> Result<SharedStateGuard<'a>> {
        let running = guarded.begin_command();
        let order = ignore_poison(self.events.lock());
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
            Err(error) if *error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let failure = match event.event_type() {
            EventType::Disconnected | EventType::Rejected => self.read_failure(true),
            _ => None,
        };
        let mut guarded = self.lock_here();
        let (applied, command) = guarded.state.on_cm_event(&mut event, failure);
        // The waiters are woken when all events were read: see `RunningCommand`.
        guarded.unlock_without_waking();
        // The event may have a request, whose id is dropped with the event. Destroying an id waits for its events.
        drop(event);
        if let Some((token, error)) = command.and_then(|command| command.issue()) {
            let mut guarded = self.lock_here();
            guarded.state.on_cm_command_failed(token, &error);
            guarded.unlock_without_waking();
        }
        applied.map(|()| true)
    }

    /// Returns the end of the endpoint after an event was read that may give the reason, if `end` has none.
    #[cold]
    pub(in crate::endpoint) fn read_reason(&self, end: EndReason) -> EndReason {
        if end != EndReason::Unreported {
            return end;
        }
        let read = self.read_events(self.lock_here());
        let guarded = read.unwrap_or_else(|_| self.lock_here());
        if guarded.state.core.end() != Some(end) {
            return guarded.state.core.end().unwrap_or(end);
        }
        let running = guarded.begin_command();
        let failure = self.read_failure(false);
        let mut guarded = running.finish();
        if let Some(event_type) = failure {
            guarded.state.core.set_end(EndReason::PeerRequestFailed(event_type));
        }
        guarded.state.core.end().unwrap_or(end)
    }

    /// Returns the asynchronous event of a request of the peer that failed on this side, if any.
    ///
    /// The call is part of a command: the queue pair is shared while the state is unlocked.
    ///
    /// If the connection `has_disconnected`, a queue pair that does not end with the connection would have flushed its
    /// requests before.
    fn read_failure(&self, has_disconnected: bool) -> Option<AsyncEventType> {
        let guarded = self.lock_here();
        let qp = guarded.state.qp();
        guarded.unlock_without_waking();
        let qp = qp.filter(|qp| !has_disconnected || qp.ends_with_connection())?;
        qp.peer_failure()
    }

    /// Calls `each` with the CM part of a live datagram socket, and begins a command.
    pub(in crate::endpoint) fn begin_cm_command<T>(
        &self,
        operation: Operation,
        each: impl FnOnce(&mut DatagramCm, &KernelObjects) -> Result<T>,
    ) -> Result<(T, RunningCommand<'_>)> {
        let mut guarded = self.lock_for(operation)?;
        let context =
            guarded.state.objects.as_ref().map(|objects| objects.queues.qp().pd().context());
        if context.is_some_and(|context| context.is_device_removed()) {
            // The event that reports the removal to the socket may not have been read yet.
            guarded.state.on_device_removed();
        }
        let State { objects, core, cm, .. } = &mut guarded.state;
        let (Some(objects), Some(cm), None) = (objects, cm, core.end()) else {
            return Err(self.error_after(operation, core.end().unwrap_or(EndReason::Local)));
        };
        let found = each(cm, objects)?;
        Ok((found, guarded.begin_command()))
    }

    /// Calls `each` with the CM part of a datagram socket, until this side has aborted the socket.
    pub(in crate::endpoint) fn with_cm(&self, each: impl FnOnce(&mut DatagramCm)) {
        let mut guarded = self.lock_here();
        if let Some(cm) = &mut guarded.state.cm {
            each(cm);
        }
        guarded.unlock_without_waking();
    }
}
