//! Waiting for events and making progress.
//!
//! The module has the calls that return events, and the sources that they read.

use std::time::{Duration, Instant};

use super::descriptor::Ready;
use super::event::Event;
use super::group::PollGroup;
use crate::cm::{Event as CmEvent, EventType};
use crate::endpoint::wait::deadline::{deadline_after, has_passed};
use crate::error::{Error, ErrorKind, Result};

const WAIT_FOR: &str = "wait for";

/// The number of CM events that are read at once.
const MAX_CM_EVENTS: usize = 256;

/// The number of times that [`PollGroup::poll`] polls again for more events before it returns.
const MAX_ROUNDS: usize = 8;

/// Number of calls that find messages before a call checks CM events and timers.
///
/// The check takes a system call.
const CALLS_PER_EVENT_CHECK: u32 = 16;

impl PollGroup {
    /// Waits at most `timeout` until a member has an event, and appends the events to `events`.
    ///
    /// Returns their number, which is 0 if `timeout` elapses. `None` waits without a limit. A signal does not interrupt
    /// the wait.
    ///
    /// With a timeout of zero the call does not wait and arms no queue. A thread that polls in a loop uses this.
    ///
    /// # Errors
    ///
    /// No event is lost by an error: the call returns the events that it has found, and the next call returns the
    /// error.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed and all members have ended.
    /// - [`ErrorKind::MalformedResponse`] if the device has stored a malformed completion. All members that have a
    ///   queue pair end.
    /// - [`ErrorKind::NotOwner`] after a fork.
    /// - The errors of polling and arming the completion queues, and of reading the event channel.
    pub fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> Result<usize> {
        self.check_process(WAIT_FOR)?;
        self.check_deferred()?;
        let found = self.wait_for_event(timeout.and_then(deadline_after));
        self.return_events(found, events)
    }

    /// Waits until there is an event, until `deadline`, or until there can be no event any more.
    fn wait_for_event(&mut self, deadline: Option<Instant>) -> Result<()> {
        loop {
            self.advance_or_read()?;
            let is_over = has_passed(deadline) || self.has_no_more_events();
            if !self.events.is_empty() && self.unread_calls < CALLS_PER_EVENT_CHECK {
                self.unread_calls += 1;
                return Ok(());
            }
            if !self.events.is_empty() || is_over || self.arming.has_unread_event() {
                self.read_ready_sources(Some(Instant::now()))?;
            }
            if !self.events.is_empty() || is_over {
                self.unread_calls = 0;
                return Ok(());
            }
            if !self.arm(true)? {
                self.read_ready_sources(deadline)?;
            }
        }
    }

    /// Appends the events of the members to `events`, without waiting. Returns their number.
    ///
    /// For event loops: after the call the descriptor ([`AsFd`](std::os::fd::AsFd)) becomes readable, level-triggered,
    /// when there is an event. It may be readable without one. A task uses
    /// [`task::PollGroup`](crate::endpoint::task::PollGroup).
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait). The descriptor is then readable, so that an event loop calls again. In a
    /// forked child it does not become readable.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<usize> {
        self.check_process(WAIT_FOR)?;
        self.check_deferred()?;
        let found = self.make_progress();
        self.return_events(found, events)
    }

    /// Reads all sources, and arms the completion queues unless there is more work than a call does.
    fn make_progress(&mut self) -> Result<()> {
        self.advance_or_read()?;
        for round in 1.. {
            let ready = self.read_ready_sources(Some(Instant::now()))?;
            // Rounded up: a group without any posted receive is short of receives.
            let is_short =
                self.resources.receives.posted() < self.starvation.max_posted().div_ceil(2);
            if !self.arm(is_short || self.unwritable_members > 0)? && !ready.is_any() {
                break;
            }
            self.advance()?;
            if round == MAX_ROUNDS {
                // Returns to let the caller do other work. The queues may be unarmed, so the descriptor stays readable.
                self.returns.wake();
                break;
            }
        }
        Ok(())
    }

    /// Returns `true` if the device was removed, all members have ended, and no event is left.
    fn has_no_more_events(&self) -> bool {
        self.is_removed && self.events.is_empty() && self.members.len() == 0
    }

    /// Returns the error of an earlier call that returned events.
    fn check_deferred(&mut self) -> Result<()> {
        self.deferred_error.take().map_or(Ok(()), |error| {
            // Nothing is read in this call.
            self.returns.wake();
            Err(error)
        })
    }

    /// Appends the events of the group to `events`. Returns their number, or the error of finding them.
    fn return_events(&mut self, found: Result<()>, events: &mut Vec<Event>) -> Result<usize> {
        // The next call returns that the device was removed, and no event makes the descriptor readable any more.
        self.returns.wake_if(self.is_removed && self.members.len() == 0);
        if let Err(error) = found {
            if self.events.is_empty() {
                // Events that were read do not make the descriptor readable again, and a queue may be unarmed.
                self.returns.wake();
                return Err(error);
            }
            self.deferred_error.get_or_insert(error);
        } else if self.has_no_more_events() {
            let removed = ErrorKind::DeviceRemoved(libc::ENODEV);
            return Err(Error::new(WAIT_FOR, "a poll group", removed));
        }
        // Ending a member may have deferred an error, too.
        self.returns.wake_if(self.deferred_error.is_some());
        let count = self.events.len();
        events.extend(self.events.drain(..));
        Ok(count)
    }

    /// Takes back returned buffers, polls all completions, and ends members.
    ///
    /// It takes each of these steps even if another one fails.
    fn advance(&mut self) -> Result<()> {
        let taken = self.take_returned(false).map(drop);
        let taken = self.unless_removed(taken);
        let polled = self.poll_completions();
        let polled = self.unless_removed(polled);
        let ended = self.finish_ending();
        self.serve_waiting();
        taken.and(polled).and(ended)
    }

    /// [Advances](Self::advance) the group, and reads the sources too if that fails.
    ///
    /// Events and deadlines end members even if a queue fails each time.
    fn advance_or_read(&mut self) -> Result<()> {
        self.advance().inspect_err(|_| {
            // The first error is returned.
            let _ = self.read_ready_sources(Some(Instant::now()));
        })
    }

    /// Takes the next step of arming both completion queues.
    ///
    /// Returns `true` if one may have been unarmed, or if the program has returned a buffer. The caller then polls the
    /// queues before the next step: reading events makes the state of an armed queue unknown, and only a poll finds it
    /// out. If `wakes` is set, the next returned buffer makes the descriptor readable.
    fn arm(&mut self, wakes: bool) -> Result<bool> {
        let has_returned = match self.take_returned(wakes) {
            Ok(has_returned) => has_returned,
            Err(error) => self.unless_removed(Err(error)).map(|()| true)?,
        };
        if self.is_removed {
            return Ok(has_returned);
        }
        let Some(action) = self.arming.next_action([true; 2], false) else {
            return Ok(has_returned);
        };
        let issued = self.resources.issue(action);
        self.arming.on_action(action, issued.is_ok());
        self.unless_removed(issued)?;
        Ok(true)
    }

    /// Waits for the descriptor until `deadline`, and reads the reported events.
    fn read_ready_sources(&mut self, deadline: Option<Instant>) -> Result<Ready> {
        let ready = self.descriptor.wait(deadline)?;
        if ready.wakeup {
            self.returns.clear();
        }
        if ready.completion {
            self.arming.on_event();
        }
        if ready.device_removed {
            self.on_device_removed();
        }
        if ready.keep_alive {
            self.on_keep_alive_timer();
        }
        let (has_read_all, read) = if ready.event { self.read_events() } else { (true, Ok(())) };
        if ready.attempts {
            self.on_attempts_timer();
        }
        // An event that has arrived counts, even after the deadline. If reading fails, no event will end the attempts.
        if self.has_unchecked_deadlines && has_read_all {
            self.has_unchecked_deadlines = false;
            self.end_late_attempts();
        }
        // Deadlines of an earlier call may have ended members.
        let has_work = ready.is_any() || !self.ending.is_empty();
        let advanced = if has_work { self.advance() } else { Ok(()) };
        read.and(advanced).map(|()| ready)
    }

    /// Turns the error that the device was removed into the end of all members.
    pub(super) fn unless_removed(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::DeviceRemoved(_)) => {
                self.on_device_removed();
                Ok(())
            }
            other => other,
        }
    }

    /// Reads CM events, up to a maximum. If events are left, the channel stays readable.
    ///
    /// Returns `true` if no further event can be read. After an error of one event, the others are still read.
    pub(super) fn read_events(&mut self) -> (bool, Result<()>) {
        let mut handled = Ok(());
        for _ in 0..MAX_CM_EVENTS {
            match self.channel.get_event() {
                Ok(event) => {
                    let result = self.on_event(&event);
                    handled = handled.and(result);
                }
                Err(error) if *error.kind() == ErrorKind::WouldBlock => return (true, handled),
                Err(error) => return (true, handled.and(Err(error))),
            }
        }
        (false, handled)
    }

    pub(super) fn on_event(&mut self, event: &CmEvent) -> Result<()> {
        let Some(member) = self.members.at(event.user_data()) else { return Ok(()) };
        let Some(link) = self.members.get(member) else { return Ok(()) };
        if link.id.token() != event.token() || link.is_finished() {
            return Ok(());
        }
        link.trace.event(event);
        match event.event_type() {
            // A neighbor or an interface has changed. No member ends.
            EventType::AddrChange => {}
            // Before the member has a queue pair, its id may be over another device.
            EventType::DeviceRemoval if link.sends.is_some() => {
                if link.phase.awaited().is_some() {
                    self.on_attempt_event(member, event);
                }
                self.on_device_removed();
            }
            _ if link.phase.awaited().is_some() => self.on_attempt_event(member, event),
            // A peer that ends before it has learned that the connection is established rejects it.
            EventType::Disconnected | EventType::Rejected => {
                // The messages before the end come first.
                let polled = self.poll_completions();
                let polled = self.unless_removed(polled);
                // The kernel reports the end only once, so it counts even if polling fails.
                self.on_disconnected(member);
                polled?;
            }
            _ => {}
        }
        Ok(())
    }
}
