//! The state of an endpoint, to which one thread at a time has access.
//!
//! It has the core, and the kernel objects that the core uses.

use std::mem;
use std::time::Duration;

use super::datagram_cm::{CmCommand, DatagramCm};
use super::datagram_peer::Sender;
use super::kernel_objects::{KernelObjects, NewEndpoint};
use super::timer::Timer;
use super::trace::{DeferredTrace, Reports, Trace};
use crate::cm::{Event, EventType};
use crate::endpoint::core::operation::{Awaited, Interest, Operation};
use crate::endpoint::core::{ArmAction, Others, RecoveryAction, WaitStep, WaitSteps};
use crate::endpoint::core::{Available, Core, Effects, EndReason, Outgoing, ReceivedMessage};
use crate::error::{Error, ErrorKind, Result};
use crate::registry::Token;
use crate::verbs::{AsyncEventType, CompletionChannel, QueuePair, RegisteredBuffer, Released};

/// A message that was received into a buffer of the endpoint.
pub(in crate::endpoint) type BufferedMessage = ReceivedMessage<RegisteredBuffer, Sender>;

/// The state of an endpoint.
#[derive(Debug)]
pub(in crate::endpoint) struct State {
    /// The kernel objects; `None` once this side has aborted the endpoint.
    pub(in crate::endpoint) objects: Option<KernelObjects>,
    pub(in crate::endpoint) core: Core<RegisteredBuffer, Sender>,
    /// The CM part of a datagram socket, until this side has aborted it.
    pub(in crate::endpoint) cm: Option<Box<DatagramCm>>,
    /// The timer of the keep-alive writes; `None` if there are none, or they are over.
    timer: Option<Timer>,
    /// `true` if the peer has ended the connection, and this side must confirm that.
    must_disconnect: bool,
    /// A timer that is not needed any more.
    stopped_timer: Option<Timer>,
    /// `true` if there is [deferred work](DeferredWork).
    pub(in crate::endpoint) has_deferred: bool,
    trace: DeferredTrace,
}

/// Work that is done after the state is unlocked.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct DeferredWork {
    /// Reports for a subscriber, which may call the endpoint.
    pub(in crate::endpoint) reports: Option<Reports>,
    /// Objects that no request uses any more, to be dropped.
    pub(in crate::endpoint) objects: Vec<Released>,
    /// A timer that is not needed any more, to be dropped.
    pub(in crate::endpoint) timer: Option<Timer>,
}

impl State {
    pub(in crate::endpoint) fn new(endpoint: NewEndpoint, cm: Option<Box<DatagramCm>>) -> Self {
        let NewEndpoint { objects, core, timer } = endpoint;
        Self {
            objects: Some(objects),
            core,
            cm,
            timer,
            must_disconnect: false,
            stopped_timer: None,
            has_deferred: false,
            trace: DeferredTrace::default(),
        }
    }

    /// Returns the completion channel and the timer, if there are any.
    pub(in crate::endpoint) fn event_sources(
        &self,
    ) -> (Option<&CompletionChannel>, Option<&Timer>) {
        (self.objects.as_ref().map(|objects| &objects.completions), self.timer.as_ref())
    }

    /// Returns the resources that waiters would find, and the changes since the last call.
    pub(in crate::endpoint) fn available(&mut self) -> Available {
        let has_loss = self.cm.as_ref().is_some_and(|cm| cm.groups.has_loss());
        let available = self.core.take_available();
        Available { messages: available.messages + usize::from(has_loss), ..available }
    }

    /// Returns `true` if the operation `awaited`, one of several with its name, has its result.
    pub(in crate::endpoint) fn has_result(&self, awaited: Awaited) -> bool {
        let Awaited { operation, target: Some(target) } = awaited else { return false };
        let cm = self.cm.as_ref();
        match operation {
            Operation::Resolve => cm.is_some_and(|cm| cm.is_resolved(target)),
            Operation::Join => cm.is_some_and(|cm| cm.groups.is_answered(target)),
            _ => usize::try_from(target).is_ok_and(|slot| self.core.has_outcome(slot)),
        }
    }

    /// Returns `true` if a call of `awaited` would have a result now.
    pub(in crate::endpoint) fn is_ready(&self, awaited: Awaited) -> bool {
        let Self { core, cm, .. } = self;
        let has_loss = || cm.as_ref().is_some_and(|cm| cm.groups.has_loss());
        match core.is_ready(awaited.operation) {
            Some(is_ready) => is_ready || awaited.operation == Operation::Receive && has_loss(),
            None => self.has_result(awaited),
        }
    }

    /// Returns `true` if a caller must arm a queue for `interest`, post receives or recover the queue pair.
    ///
    /// Possibly no event arrives before that.
    pub(in crate::endpoint) fn needs_caller(&self, interest: Interest) -> bool {
        self.objects.as_ref().is_some_and(|io| self.core.needs_caller(io, interest))
    }

    /// Forgets changes, if no waiter waits for them.
    pub(in crate::endpoint) fn forget_changes(&mut self) {
        self.core.forget_changes();
    }

    /// Takes a free buffer for sending.
    pub(in crate::endpoint) fn buffer(&mut self) -> Option<Result<RegisteredBuffer, EndReason>> {
        self.core.acquire_buffer()
    }

    /// Posts `bytes` in a free buffer.
    pub(in crate::endpoint) fn post_bytes(
        &mut self,
        bytes: &[u8],
        outgoing: Outgoing<'_>,
    ) -> Option<Result<Result<()>, EndReason>> {
        match &mut self.objects {
            Some(io) => self.core.post_bytes(io, bytes, outgoing),
            None => Some(Err(self.core.end().unwrap_or(EndReason::Local))),
        }
    }

    /// Takes the buffer for sending in slot `index`, if its request has completed.
    pub(in crate::endpoint) fn sent(
        &mut self,
        index: usize,
    ) -> Option<Result<RegisteredBuffer, EndReason>> {
        self.core.completed_send(index)
    }

    /// Returns the outcome of all posted requests, once it is known.
    pub(in crate::endpoint) fn flushed(&mut self) -> Option<Result<(), EndReason>> {
        self.core.flushed()
    }

    /// Takes the next message, or `None` if the peer has ended the connection after the last one.
    pub(in crate::endpoint) fn message(
        &mut self,
    ) -> Option<Result<Option<BufferedMessage>, EndReason>> {
        if let Some(arrived) = self.core.next_message() {
            return Some(Ok(Some(arrived)));
        }
        match self.core.end()? {
            EndReason::Remote => Some(Ok(None)),
            EndReason::Local => Some(self.message_after_local_end()),
            end => Some(Err(end)),
        }
    }

    /// Takes a message of a peer that has not answered the end yet.
    #[cold]
    fn message_after_local_end(&mut self) -> Result<Option<BufferedMessage>, EndReason> {
        // An error of the poll is discarded: the caller gets the end by this side as the reason.
        let _ = self.poll(Interest::Messages);
        self.core.next_message().map(Some).ok_or(EndReason::Local)
    }

    /// Takes the next datagram, or the error of a multicast group.
    ///
    /// The error reports that the network has removed the socket from the group.
    pub(in crate::endpoint) fn datagram(
        &mut self,
    ) -> Option<Result<Result<BufferedMessage>, EndReason>> {
        if let Some(arrived) = self.core.next_message() {
            return Some(Ok(Ok(arrived)));
        }
        let loss = self.cm.as_mut().and_then(|cm| cm.groups.loss());
        match loss {
            Some(error) => Some(Ok(Err(error))),
            None => self.core.end().map(Err),
        }
    }

    /// Returns the outcome if the end is complete: the peer is disconnected, and no event follows.
    pub(in crate::endpoint) fn closed(&mut self) -> Option<Result<(), EndReason>> {
        (self.objects.is_none() || self.core.has_no_more_events()).then_some(Ok(()))
    }

    /// Polls the completions that a caller with `interest` waits for. Returns `true` if there was one.
    #[inline(always)]
    pub(in crate::endpoint) fn poll(&mut self, interest: Interest) -> Result<bool> {
        let Some(io) = &mut self.objects else { return Ok(false) };
        let polled = self.core.poll(io, interest);
        if matches!(polled, Ok(true)) {
            self.has_deferred |= io.queues.has_released();
        }
        if self.core.has_effects() {
            self.apply_effects();
        }
        polled.or_else(|error| self.on_failed_poll(error))
    }

    /// Handles an error of polling. Returns `true` if it has ended the endpoint.
    #[cold]
    fn on_failed_poll(&mut self, error: Error) -> Result<bool> {
        self.note_released();
        self.ignore_if_removed(error).map(|()| true)
    }

    /// Records that there are objects that no request uses any more, if a poll has found some.
    #[cold]
    fn note_released(&mut self) {
        self.has_deferred |= self.objects.as_ref().is_some_and(|io| io.queues.has_released());
    }

    /// Applies the effects that the core requests.
    #[cold]
    fn apply_effects(&mut self) {
        let effects = self.core.take_effects();
        if effects.contains(Effects::REPORT_END) {
            match self.core.end() {
                // The call that ends the endpoint reports that.
                None | Some(EndReason::Local) => {}
                Some(EndReason::Remote) => self.trace.set_state("disconnected"),
                Some(EndReason::DeviceRemoved) => self.trace.set_state("device removed"),
                Some(end) => self.trace.failed(&end.kind()),
            }
        }
        if effects.contains(Effects::STOP_TIMER) {
            self.stopped_timer = self.timer.take();
            self.has_deferred |= self.stopped_timer.is_some();
        }
        self.note_reports();
    }

    /// Makes `trace` report the events of the endpoint.
    pub(in crate::endpoint) fn set_trace(&mut self, trace: Trace) {
        self.trace = DeferredTrace::new(trace);
    }

    fn note_reports(&mut self) {
        self.has_deferred |= self.trace.has_reports();
    }

    /// Handles an expiration of the timer. Returns `true` if a request had completed.
    pub(in crate::endpoint) fn keep_alive(&mut self) -> Result<bool> {
        if !self.timer.as_ref().is_some_and(Timer::clear) {
            return Ok(false);
        }
        let Some(io) = &mut self.objects else { return Ok(false) };
        let polled = self.core.on_timer(io);
        self.note_released();
        self.apply_effects();
        polled
    }

    /// Returns the next step of a call without a result.
    pub(in crate::endpoint) fn next_step<W>(
        &mut self,
        steps: &mut WaitSteps,
        interest: Interest,
        others: &Others<'_, W>,
        polls_again: impl FnOnce(Duration) -> bool,
    ) -> WaitStep {
        let busy_poll = self.objects.as_ref().map(|objects| objects.busy_poll);
        let polls_again = || busy_poll.is_some_and(polls_again);
        steps.next(&mut self.core, self.objects.as_ref(), interest, others, polls_again)
    }

    /// Records the result of the commands of `action`.
    pub(in crate::endpoint) fn on_arm_commands(
        &mut self,
        action: ArmAction,
        issued: Result<()>,
    ) -> Result<()> {
        self.core.on_arm_action(action, issued.is_ok());
        issued.or_else(|error| self.ignore_if_removed(error))
    }

    /// Returns the next step of setting up a failed queue pair again, if there is one.
    pub(in crate::endpoint) fn next_recovery(&mut self) -> Option<RecoveryAction> {
        self.core.next_recovery(self.objects.as_ref()?)
    }

    /// Records the result of the commands of `action`.
    pub(in crate::endpoint) fn on_recovery_commands(
        &mut self,
        action: RecoveryAction,
        issued: Result<()>,
    ) -> Result<()> {
        self.core.on_recovered(action, issued.is_ok());
        issued.or_else(|error| self.ignore_if_removed(error))
    }

    /// Converts the error that the device was removed into an end.
    ///
    /// The event that reports the removal has not been read yet.
    pub(in crate::endpoint) fn ignore_if_removed(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::DeviceRemoved(_) => {
                self.on_device_removed();
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Handles the removal of the device, after the completions that have arrived.
    pub(in crate::endpoint) fn on_device_removed(&mut self) {
        if let (Some(io), None) = (&mut self.objects, self.core.end()) {
            // An error of the poll is discarded: the removal is the reason of the end.
            let _ = self.core.poll(io, Interest::All);
            self.note_released();
        }
        self.core.on_device_removed();
        self.apply_effects();
    }

    /// Handles a CM event.
    ///
    /// Returns the next command, if any. `failure` is the asynchronous event with the reason of the end, if any.
    pub(in crate::endpoint) fn on_cm_event(
        &mut self,
        event: &mut Event,
        failure: Option<AsyncEventType>,
    ) -> (Result<()>, Option<CmCommand>) {
        self.trace.event(event);
        self.note_reports();
        match (event.event_type(), &mut self.cm, &self.objects) {
            (EventType::DeviceRemoval, ..) => {
                let polled = self.poll(Interest::All);
                self.on_device_removed();
                return (polled.map(drop), None);
            }
            (_, Some(cm), Some(objects)) => {
                let command = cm.handle_event(objects.queues.qp().number(), event);
                self.core.on_cm_answer();
                return (Ok(()), command);
            }
            // A peer that ends before it has learned that the connection is established rejects it. The queue pair is
            // in ERR by then, so that all that is posted is flushed.
            (EventType::Disconnected | EventType::Rejected, ..) => {
                let polled = self.core.on_disconnected(self.objects.as_mut(), failure);
                self.note_released();
                self.apply_effects();
                // The end is confirmed to the peer after the state is unlocked.
                self.must_disconnect = true;
                return (polled, None);
            }
            // Neighbors and addresses that have changed end nothing.
            _ => {}
        }
        (Ok(()), None)
    }

    /// Returns a share of the queue pair, until this side has aborted the endpoint.
    pub(in crate::endpoint) fn qp(&self) -> Option<QueuePair> {
        self.objects.as_ref().map(|objects| objects.queues.qp().clone())
    }

    /// Records that the resolution `token` has failed by the command that followed an event.
    pub(in crate::endpoint) fn on_cm_command_failed(&mut self, token: Token, error: &Error) {
        if let Some(cm) = &mut self.cm {
            cm.on_failed(token, error);
            self.core.on_cm_answer();
        }
    }

    /// Ends the connection for callers of this side, after all posted requests have been sent.
    ///
    /// Returns `true` if the peer must be notified, or the reason why a request was not sent.
    ///
    /// Between the last message and the end no caller can post, because both happen while the state is locked. The
    /// caller notifies the peer afterwards: see [`Shared::announce_close`](super::Shared::announce_close).
    pub(in crate::endpoint) fn close(&mut self) -> Option<Result<bool, EndReason>> {
        let flushed = self.flushed()?;
        Some(flushed.map(|()| {
            let closes = self.objects.is_some() && self.core.end().is_none();
            if closes {
                self.trace.set_state("closing");
                self.core.set_end(EndReason::Local);
                self.apply_effects();
            }
            closes
        }))
    }

    /// Returns `true` if the end must be confirmed to the peer. Only the first call returns `true`.
    #[inline(always)]
    pub(in crate::endpoint) fn take_disconnect(&mut self) -> bool {
        mem::take(&mut self.must_disconnect)
    }

    /// Returns `true` if requests were posted in ERR that only a command completes.
    #[inline(always)]
    pub(in crate::endpoint) fn owes_flush(&self) -> bool {
        self.objects.as_ref().is_some_and(|objects| objects.queues.owes_flush())
    }

    /// Takes the work for the time after the state is unlocked.
    pub(in crate::endpoint) fn take_deferred(&mut self) -> DeferredWork {
        if !mem::take(&mut self.has_deferred) {
            return DeferredWork::default();
        }
        let objects = self.objects.as_mut().map(|objects| objects.queues.take_released());
        let (reports, timer) = (self.trace.take(), self.stopped_timer.take());
        DeferredWork { reports, objects: objects.unwrap_or_default(), timer }
    }

    /// Ends the endpoint at once.
    ///
    /// The kernel objects are destroyed when the caller drops the returned value, the queue pair before the memory. The
    /// caller must not hold a lock for which others wait.
    #[must_use]
    pub(in crate::endpoint) fn abort(&mut self) -> impl Sized + use<> {
        let buffers = self.core.abort();
        self.must_disconnect = false;
        self.apply_effects();
        if self.objects.is_some() {
            self.trace.set_state("closed");
            self.note_reports();
        }
        (self.objects.take(), self.cm.take(), buffers, self.timer.take())
    }
}
