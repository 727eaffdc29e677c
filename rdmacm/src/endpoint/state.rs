//! The state of an endpoint that one thread at a time has: its core, and the kernel objects that the core works on.

use std::mem;

use super::core::{Available, Core, Effects, EndReason, Outgoing, ReceivedMessage};
use super::kernel_objects::{KernelObjects, NewEndpoint};
use super::operation::Interest;
use super::peer::Peer;
use super::rendezvous::Rendezvous;
use super::timer::Timer;
use super::trace::Trace;
use crate::cm::{Event, EventChannel, EventType};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{Buffer, CompletionChannel};

/// The number of events that are read at once. A socket may have events without end: each peer that resolves it causes one.
const MAX_EVENTS: usize = 16;

/// A message that was received into a buffer of the endpoint.
pub(super) type Arrived = ReceivedMessage<Buffer, Peer>;

/// The state of an endpoint.
#[derive(Debug)]
pub(super) struct State {
    /// The kernel objects; `None` once this side has aborted the endpoint.
    pub(super) parts: Option<KernelObjects>,
    pub(super) core: Core<Buffer, Peer>,
    /// The CM part of a datagram socket, until this side has aborted it.
    pub(super) rendezvous: Option<Box<Rendezvous>>,
    /// The timer of the keep-alive writes; `None` if there are none, or they are over.
    timer: Option<Timer>,
    /// The peer has ended the connection, and is to be told that this side knows.
    must_disconnect: bool,
    pub(super) trace: Trace,
}

impl State {
    pub(super) fn new(endpoint: NewEndpoint, rendezvous: Option<Box<Rendezvous>>) -> Self {
        let NewEndpoint { objects, core, timer } = endpoint;
        Self {
            parts: Some(objects),
            core,
            rendezvous,
            timer,
            must_disconnect: false,
            trace: Trace::default(),
        }
    }

    /// Returns the completion channel and the timer, if there are any.
    pub(super) fn event_sources(&self) -> (Option<&CompletionChannel>, Option<&Timer>) {
        (self.parts.as_ref().map(|parts| &parts.completions), self.timer.as_ref())
    }

    /// Returns what waiters would find, and what has changed since the last call.
    pub(super) fn available(&mut self) -> Available {
        let has_loss = self.rendezvous.as_ref().is_some_and(|cm| cm.groups.has_loss());
        let available = self.core.take_available();
        Available { messages: available.messages + usize::from(has_loss), ..available }
    }

    /// Forgets changes of which there is no waiter to be woken.
    pub(super) fn forget_changes(&mut self) {
        self.core.forget_changes();
    }

    /// Takes a free buffer for sending.
    pub(super) fn buffer(&mut self) -> Option<Result<Buffer, EndReason>> {
        self.core.acquire_buffer()
    }

    /// Posts `bytes` in a free buffer.
    pub(super) fn post_bytes(
        &mut self,
        bytes: &[u8],
        outgoing: Outgoing<'_>,
    ) -> Option<Result<Result<()>, EndReason>> {
        match &mut self.parts {
            Some(io) => self.core.post_bytes(io, bytes, outgoing),
            None => Some(Err(self.core.end().unwrap_or(EndReason::Local))),
        }
    }

    /// Takes the buffer for sending in slot `index`, if its request has completed.
    pub(super) fn sent(&mut self, index: usize) -> Option<Result<Buffer, EndReason>> {
        self.core.completed_send(index)
    }

    /// [`sent`](Self::sent) of a caller that waits on the descriptor if it is not there.
    pub(super) fn tried(&mut self, index: usize) -> Option<Result<Buffer, EndReason>> {
        self.core.try_completed_send(index)
    }

    /// Asks whether all that was posted has been sent.
    pub(super) fn flushed(&mut self) -> Option<Result<(), EndReason>> {
        self.core.flushed()
    }

    /// Takes the next message, or `None` if the peer has ended the connection after the last one.
    pub(super) fn message(&mut self) -> Option<Result<Option<Arrived>, EndReason>> {
        if let Some(arrived) = self.core.next_message() {
            return Some(Ok(Some(arrived)));
        }
        match self.core.end() {
            Some(EndReason::Remote) => Some(Ok(None)),
            end => end.map(Err),
        }
    }

    /// Takes the next datagram, or the error of a multicast group that the network has taken the socket out of.
    pub(super) fn datagram(&mut self) -> Option<Result<Result<Arrived>, EndReason>> {
        if let Some(arrived) = self.core.next_message() {
            return Some(Ok(Ok(arrived)));
        }
        let loss = self.rendezvous.as_mut().and_then(|rendezvous| rendezvous.groups.loss());
        match loss {
            Some(error) => Some(Ok(Err(error))),
            None => self.core.end().map(Err),
        }
    }

    /// Asks whether the end is complete: the peer was told, and nothing more will be reported.
    pub(super) fn closed(&mut self) -> Option<Result<(), EndReason>> {
        (self.parts.is_none() || self.core.is_settled()).then_some(Ok(()))
    }

    /// Polls the completions that a caller with `interest` waits for. Returns `true` if there was one.
    #[inline(always)]
    pub(super) fn poll(&mut self, interest: Interest) -> Result<bool> {
        let Some(io) = &mut self.parts else { return Ok(false) };
        let polled = self.core.poll(io, interest);
        if self.core.has_effects() {
            self.apply_effects();
        }
        polled
    }

    /// Carries out what the core wants done.
    #[cold]
    fn apply_effects(&mut self) {
        let effects = self.core.take_effects();
        if effects.contains(Effects::REPORT_END) {
            match self.core.end() {
                // The call that ends the endpoint reports that.
                None | Some(EndReason::Local) => {}
                Some(EndReason::Remote) => self.trace.is("disconnected"),
                Some(EndReason::DeviceRemoved) => self.trace.is("device gone"),
                Some(end @ (EndReason::Overrun | EndReason::Failed(_) | EndReason::Unreported)) => {
                    self.trace.failed(&end.kind());
                }
            }
        }
        if effects.contains(Effects::STOP_TIMER) {
            self.timer = None;
        }
    }

    /// Handles an expiration of the timer. Returns `true` if something had completed.
    pub(super) fn keep_alive(&mut self) -> Result<bool> {
        if let Some(timer) = &self.timer {
            timer.clear();
        }
        let Some(io) = &mut self.parts else { return Ok(false) };
        let polled = self.core.on_timer(io);
        self.apply_effects();
        polled
    }

    /// Returns `true` if the next completion for `interest` may raise no event.
    pub(super) fn is_deaf(&self, interest: Interest) -> bool {
        self.parts.is_some() && self.core.may_be_unarmed(interest)
    }

    /// Makes the next completion for `interest` raise an event. Returns `true` if it might not have: the caller is to poll
    /// then.
    pub(super) fn arm(&mut self, interest: Interest, has_epoll_waiter: bool) -> Result<bool> {
        let Some(io) = &mut self.parts else { return Ok(false) };
        match self.core.arm(io, interest, has_epoll_waiter) {
            Err(error) => self.unless_gone(error).map(|()| true),
            armed => armed,
        }
    }

    /// Turns the error that the device was removed into an end: the event that reports it has not been read yet.
    pub(super) fn unless_gone(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::DeviceGone(_) => {
                self.is_gone();
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Handles the removal of the device.
    pub(super) fn is_gone(&mut self) {
        self.core.on_device_removed();
        self.apply_effects();
    }

    /// Reads the CM events, or some of them: the channel stays readable then.
    pub(super) fn read_events(&mut self, channel: &EventChannel) -> Result<()> {
        for _ in 0..MAX_EVENTS {
            match channel.get_event() {
                Ok(event) => self.on_event(event)?,
                Err(error) => return nothing(error),
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<()> {
        self.trace.event(&event);
        match (event.event_type(), &mut self.rendezvous, &self.parts) {
            (EventType::DeviceRemoval, ..) => {
                let polled = self.poll(Interest::All);
                self.is_gone();
                return polled.map(drop);
            }
            (_, Some(rendezvous), Some(parts)) => {
                rendezvous.happened(parts.queues.qp().number(), event);
                self.core.on_cm_answer();
            }
            // A peer that goes before it has learned that the connection stands rejects it. The queue pair is in ERR by
            // then, so that all that is posted is flushed.
            (EventType::Disconnected | EventType::Rejected, ..) => {
                let polled = self.core.on_disconnected(self.parts.as_mut());
                self.apply_effects();
                // The peer is told that this side knows, when the state is unlocked.
                self.must_disconnect = true;
                return polled;
            }
            // Neighbors and addresses that have changed end nothing.
            _ => {}
        }
        Ok(())
    }

    /// Ends the connection for callers of this side, once all that was posted has been sent. Returns whether the peer is to be
    /// told, or the reason why something was not sent.
    ///
    /// Between the last message and the end no caller can post: both happen while the state is locked. The caller tells the
    /// peer afterwards: see [`Shared::announce_close`](super::shared::Shared::announce_close).
    pub(super) fn close(&mut self) -> Option<Result<bool, EndReason>> {
        let flushed = self.flushed()?;
        Some(flushed.map(|()| {
            let closes = self.parts.is_some() && self.core.end().is_none();
            if closes {
                self.trace.is("closing");
                self.core.set_end(EndReason::Local);
                self.apply_effects();
            }
            closes
        }))
    }

    /// Returns `true`, once, if the peer is to be told that this side knows of the end.
    #[inline(always)]
    pub(super) fn take_disconnect(&mut self) -> bool {
        mem::take(&mut self.must_disconnect)
    }

    /// Ends the endpoint at once. The kernel objects, the queue pair before the memory, are destroyed when the caller drops
    /// what is returned, without a lock that others wait for.
    #[must_use]
    pub(super) fn abort(&mut self) -> impl Sized + use<> {
        let buffers = self.core.abort();
        self.must_disconnect = false;
        self.apply_effects();
        if self.parts.is_some() {
            self.trace.is("closed");
        }
        (self.parts.take(), self.rendezvous.take(), buffers, self.timer.take())
    }
}

/// Returns an error, unless it says that there is no event to read at the moment.
fn nothing(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Os(libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}
