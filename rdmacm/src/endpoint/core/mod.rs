//! The core of an endpoint: a state machine without descriptors, clock, locks or `unsafe` code.
//!
//! Its inputs are completions, which it polls through [`QueueIo`], and ends that events report. Its outputs are requests,
//! which it posts through [`QueueIo`], and [`Effects`], which the caller carries out. A call that asks for something returns
//! `None` if that is neither there nor known to fail: the caller waits and asks again.

mod arming;
mod effects;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod keep_alive;
mod lifecycle;
mod overrun;
mod protocol;
mod queue_io;
mod send_slots;
#[cfg(test)]
mod tests;
mod waiters;
mod watched_keys;

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

pub(super) use self::arming::Arming;
use self::effects::Changes;
pub(super) use self::effects::Effects;
pub(super) use self::keep_alive::FIRST;
pub(super) use self::lifecycle::EndReason;
use self::lifecycle::Lifecycle;
pub(super) use self::overrun::RESERVED_RECEIVES;
pub(super) use self::protocol::{Datagrams, Messages, Protocol};
pub(super) use self::queue_io::{NotPosted, Outgoing, Queue, QueueIo, Slot};
use self::send_slots::SendSlots;
pub(super) use self::waiters::{Available, WaiterId, WaiterList};
pub(super) use self::watched_keys::WatchedKeys;
use super::counters::Counters;
use super::operation::{Interest, Operation};
use crate::error::Result;
use crate::verbs::{Completion, GRH_LENGTH, WcOpcode, WcStatus};

pub(super) use self::arming::STALE_EVENTS;

/// The state of an endpoint, with buffers of type `B` and, of datagrams, senders of type `S`.
#[derive(Debug)]
pub(super) struct Core<B, S> {
    lifecycle: Lifecycle,
    arming: Arming,
    sends: SendSlots<B>,
    /// The indices of the buffers for receiving.
    receive_buffers: Range<usize>,
    receives_posted: usize,
    /// Buffers for receiving that could not be posted, or wait until the queue pair is set up again.
    unposted_receives: Vec<B>,
    /// Messages that no caller has taken.
    inbox: VecDeque<ReceivedMessage<B, S>>,
    protocol: Protocol<B>,
    effects: Effects,
    changes: Changes,
    counters: Counters,
}

/// A message that was received.
#[derive(Debug)]
pub(super) struct ReceivedMessage<B, S> {
    pub(super) buffer: B,
    /// The offset of its first byte in the buffer.
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) imm_data: Option<u32>,
    /// The key of this side that the message took back.
    pub(super) invalidated_key: Option<u32>,
    /// The sender of a datagram.
    pub(super) sender: Option<S>,
}

/// Buffers that go when the caller has unlocked the endpoint.
pub(super) type Released<B, S> = (Vec<B>, Vec<B>, VecDeque<ReceivedMessage<B, S>>, Option<B>);

impl<B: Slot, S> Core<B, S> {
    /// A new endpoint: `free` are the buffers for sending, and `receives` buffers are posted, whose indices come next. The
    /// completion queue for receives is armed.
    pub(super) fn new(free: Vec<B>, receives: usize, protocol: Protocol<B>) -> Self {
        let first = free.len();
        Self {
            lifecycle: Lifecycle::default(),
            arming: Arming::new(),
            sends: SendSlots::new(free),
            receive_buffers: first..first.saturating_add(receives),
            receives_posted: receives,
            unposted_receives: Vec::new(),
            inbox: VecDeque::new(),
            protocol,
            effects: Effects::empty(),
            changes: Changes::empty(),
            counters: Counters::default(),
        }
    }

    /// Returns the reason of the end, if the endpoint has ended.
    #[inline(always)]
    pub(super) fn end(&self) -> Option<EndReason> {
        self.lifecycle.end()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes the actions that the caller is to carry out.
    pub(super) fn take_effects(&mut self) -> Effects {
        mem::replace(&mut self.effects, Effects::empty())
    }

    #[inline(always)]
    pub(super) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    // What a caller asks for.

    /// Takes a free buffer for sending.
    #[inline(always)]
    pub(super) fn acquire_buffer(&mut self) -> Option<Result<B, EndReason>> {
        match self.end() {
            None if self.loses_sends() => None,
            None => self.sends.take_free().map(Ok),
            Some(end) => Some(Err(end)),
        }
    }

    /// Takes the buffer for sending in slot `index`, if its request has completed.
    pub(super) fn completed_send(&mut self, index: usize) -> Option<Result<B, EndReason>> {
        match self.sends.status(index) {
            Some(WcStatus::IB_WC_SUCCESS) => self.sends.detach(index).map(Ok),
            // The buffer stays there until the caller detaches the slot.
            Some(status) if self.is_datagrams() => Some(Err(EndReason::Failed(status))),
            _ => self.end().map(Err),
        }
    }

    /// [`completed_send`](Self::completed_send) of a caller that waits on the descriptor if it is not there.
    pub(super) fn try_completed_send(&mut self, index: usize) -> Option<Result<B, EndReason>> {
        let found = self.completed_send(index);
        self.sends.set_tried(index, found.is_none());
        found
    }

    /// Records that no caller waits for slot `index` any more. Returns its buffer if the request has completed.
    pub(super) fn detach_send(&mut self, index: usize) -> Option<B> {
        self.sends.detach(index)
    }

    /// Asks whether all that was posted has been sent.
    pub(super) fn flushed(&mut self) -> Option<Result<(), EndReason>> {
        if !self.has_sent_all() {
            return self.end().map(Err);
        }
        Some(self.sends.take_error().map_or(Ok(()), |status| Err(EndReason::Failed(status))))
    }

    /// Takes the next message.
    #[inline(always)]
    pub(super) fn next_message(&mut self) -> Option<ReceivedMessage<B, S>> {
        self.inbox.pop_front()
    }

    /// Returns `true` if neither the peer nor the kernel will report anything more.
    pub(super) fn is_settled(&self) -> bool {
        self.lifecycle.is_settled()
    }

    // Whether a caller would find what it asks for.

    /// Returns what waiters would find, and what has changed since the last call.
    pub(super) fn take_available(&mut self) -> Available {
        let changes = self.forget_changes();
        Available {
            messages: self.inbox.len(),
            buffers: if self.loses_sends() { 0 } else { self.sends.free_count() },
            is_flushed: self.has_sent_all(),
            closes: self.has_progress_of_close(),
            has_completed: changes.contains(Changes::COMPLETED),
            has_answer: changes.contains(Changes::ANSWER),
            has_ended: changes.contains(Changes::END),
        }
    }

    /// Forgets what has changed, of which there is no waiter to be woken.
    pub(super) fn forget_changes(&mut self) -> Changes {
        mem::replace(&mut self.changes, Changes::empty())
    }

    /// Records that a peer may have answered.
    pub(super) fn on_cm_answer(&mut self) {
        self.changes |= Changes::ANSWER;
    }

    pub(super) fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(super) fn has_free_buffer(&self) -> bool {
        self.sends.free_count() > 0 && !self.loses_sends()
    }

    /// Returns `true` if all that was posted has been sent, or it is known that something was not.
    pub(super) fn has_sent_all(&self) -> bool {
        self.sends.in_flight() == 0 && !self.is_ending()
    }

    /// Returns `true` if [`flushed`](Self::flushed) or [`is_settled`](Self::is_settled) says more to a caller that closes.
    pub(super) fn has_progress_of_close(&self) -> bool {
        if self.end().is_none() { self.has_sent_all() } else { self.lifecycle.has_closed() }
    }

    /// Returns `true` if a caller of [`try_completed_send`](Self::try_completed_send) would succeed now.
    pub(super) fn has_outcome(&self) -> bool {
        let is_datagrams = self.is_datagrams();
        // The end of a connection says why one of its requests has failed.
        let is_final = |status| status == WcStatus::IB_WC_SUCCESS || is_datagrams;
        self.sends.has_outcome(self.end().is_some(), is_final)
    }

    /// Returns `true` if a caller of [`try_completed_send`](Self::try_completed_send) waits for a completion.
    pub(super) fn awaits_outcome(&self) -> bool {
        self.sends.awaits_outcome()
    }

    /// Returns `true` if the queue pair has failed and is to be set up again.
    #[inline(always)]
    pub(super) fn qp_failed(&self) -> bool {
        matches!(self.protocol, Protocol::Datagrams(Datagrams { qp_failed: true, .. }))
    }

    #[inline(always)]
    fn is_datagrams(&self) -> bool {
        matches!(self.protocol, Protocol::Datagrams(_))
    }

    /// Returns `true` if a request of a connection has failed, for which its end will give the reason.
    fn is_ending(&self) -> bool {
        self.sends.has_error() && !self.is_datagrams()
    }

    /// Returns `true` if a message that was posted now would be lost.
    #[inline(always)]
    fn loses_sends(&self) -> bool {
        match &self.protocol {
            Protocol::Messages(_) => self.sends.has_error(),
            Protocol::Datagrams(datagrams) => datagrams.qp_failed,
        }
    }

    // Posting.

    /// Posts a request over a buffer for sending. If `is_awaited`, a caller waits for the buffer.
    #[inline(always)]
    pub(super) fn post_send(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        operation: Operation,
        buffer: B,
        length: usize,
        outgoing: Outgoing<'_>,
        is_awaited: bool,
    ) -> Result<(), NotPosted<B>> {
        let index = buffer.index();
        if is_awaited {
            self.sends.set_awaited(index, true);
        }
        let posted = io.post_send(buffer, length, outgoing);
        let is_in_flight = !matches!(&posted, Err(refused) if refused.buffer.is_some());
        if is_in_flight {
            self.sends.has_posted();
            self.counters.posted(operation, length);
        }
        if posted.is_err() {
            // No caller waits for it, even if it is in flight.
            self.sends.set_awaited(index, false);
        }
        posted
    }

    /// Posts `bytes` in a free buffer, which must have room for them.
    #[inline(always)]
    pub(super) fn post_bytes(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        bytes: &[u8],
        outgoing: Outgoing<'_>,
    ) -> Option<Result<Result<()>, EndReason>> {
        let acquired = self.acquire_buffer()?;
        Some(acquired.map(|mut buffer| {
            buffer.bytes()[..bytes.len()].copy_from_slice(bytes);
            let posted = self.post_send(io, Operation::Send, buffer, bytes.len(), outgoing, false);
            posted.map_err(|refused| {
                refused.buffer.into_iter().for_each(|buffer| self.sends.give_back(buffer));
                refused.error
            })
        }))
    }

    /// Takes back a buffer for sending that was not posted.
    pub(super) fn give_back(&mut self, buffer: B) {
        self.sends.give_back(buffer);
    }

    /// Posts a buffer for receiving again. Returns `true` if receives are to be polled now: see [`overrun`].
    pub(super) fn repost(&mut self, io: &mut impl QueueIo<Buffer = B>, buffer: B) -> bool {
        if self.qp_failed() {
            self.unposted_receives.push(buffer);
        } else {
            match self.post_recv(io, buffer) {
                Ok(()) => self.counters.receives_reposted += 1,
                // The next poll posts it, and reports if that fails again.
                Err(refused) => self.unposted_receives.extend(refused.buffer),
            }
        }
        match &self.protocol {
            Protocol::Messages(Messages { overrun: Some(overrun), .. }) => {
                overrun.is_behind(self.receives_posted)
            }
            _ => false,
        }
    }

    fn post_recv(
        &mut self,
        io: &mut impl QueueIo<Buffer = B>,
        buffer: B,
    ) -> Result<(), NotPosted<B>> {
        let posted = io.post_recv(buffer);
        if !matches!(&posted, Err(refused) if refused.buffer.is_some()) {
            self.receives_posted += 1;
        }
        posted
    }

    // Completions.

    /// Polls the completions that a caller with `interest` waits for. Returns `true` if there was one.
    ///
    /// The other queue is polled too if it may say why nothing comes, or if the completion channel may have reported an
    /// event of it, for which others may wait.
    #[inline(always)]
    pub(super) fn poll(
        &mut self,
        io: &mut impl QueueIo<Buffer = B, Sender = S>,
        interest: Interest,
    ) -> Result<bool> {
        let mut polled = 0;
        if self.polls_receives(interest) || self.arming.is_unknown(Queue::Receive) {
            let before = self.counters.messages_received;
            polled = self.poll_queue(io, Queue::Receive)?;
            let messages = self.counters.messages_received - before;
            if let Protocol::Messages(Messages { overrun: Some(overrun), .. }) = &mut self.protocol
            {
                overrun.has_polled(messages, self.receives_posted);
            }
        }
        if self.polls_sends(interest) || self.arming.is_unknown(Queue::Send) {
            polled += self.poll_queue(io, Queue::Send)?;
        }
        if self.qp_failed() || !self.unposted_receives.is_empty() {
            self.recover(io)?;
        }
        Ok(polled > 0)
    }

    #[inline(always)]
    fn poll_queue(
        &mut self,
        io: &mut impl QueueIo<Buffer = B, Sender = S>,
        queue: Queue,
    ) -> Result<usize> {
        let polled = io.poll(queue, |buffer, sender, completion| match queue {
            Queue::Receive => self.on_receive(buffer, sender, completion),
            Queue::Send => self.on_send(buffer, sender, completion),
        })?;
        self.arming.has_polled(queue, polled);
        Ok(polled)
    }

    /// Handles a completion from the queue for receives.
    #[inline(always)]
    fn on_receive(&mut self, buffer: B, sender: Option<S>, completion: &Completion) {
        if !self.receive_buffers.contains(&buffer.index()) {
            return self.on_misplaced(buffer, sender, completion);
        }
        self.receives_posted -= 1;
        if !completion.is_success() {
            return self.on_failed_receive(buffer, completion.status());
        }
        let length = match completion.opcode() {
            // The data was written elsewhere: the buffer has none.
            WcOpcode::IB_WC_RECV_RDMA_WITH_IMM => 0,
            _ => usize::try_from(completion.byte_len()).unwrap_or(usize::MAX),
        };
        self.on_message(buffer, sender, length, completion);
    }

    #[inline(always)]
    fn on_message(
        &mut self,
        mut buffer: B,
        sender: Option<S>,
        length: usize,
        completion: &Completion,
    ) {
        // The device says how long the message is, and could be wrong.
        let length = length.min(buffer.bytes().len());
        let (start, length) = match &mut self.protocol {
            Protocol::Messages(messages) => {
                if let Some(keep_alive) = &mut messages.keep_alive {
                    if keep_alive.on_message() {
                        self.effects |= Effects::STOP_TIMER;
                    }
                }
                (0, length)
            }
            // No device of InfiniBand or RoCE leaves a header without a sender.
            Protocol::Datagrams(_) if sender.is_none() || length < GRH_LENGTH => {
                return self.unposted_receives.push(buffer);
            }
            Protocol::Datagrams(_) => (GRH_LENGTH, length - GRH_LENGTH),
        };
        self.counters.received(length);
        let (imm_data, invalidated_key) = (completion.imm_data(), completion.invalidated_rkey());
        if let Some(key) = invalidated_key {
            self.on_invalidated(key);
        }
        let message = ReceivedMessage { buffer, start, length, imm_data, invalidated_key, sender };
        self.inbox.push_back(message);
    }

    /// Records that a message has taken `key` back.
    #[cold]
    fn on_invalidated(&mut self, key: u32) {
        if let Protocol::Messages(Messages { watched_keys: Some(keys), .. }) = &mut self.protocol {
            keys.on_invalidated(key);
        }
    }

    /// Returns the keys of exports of a connection.
    pub(super) fn watched_keys(&mut self) -> Option<&mut WatchedKeys> {
        match &mut self.protocol {
            Protocol::Messages(messages) => Some(messages.watched_keys.get_or_insert_default()),
            Protocol::Datagrams(_) => None,
        }
    }

    /// Handles a completion from the queue for sends.
    #[inline(always)]
    fn on_send(&mut self, buffer: B, sender: Option<S>, completion: &Completion) {
        if buffer.index() >= self.sends.len() {
            return self.on_misplaced(buffer, sender, completion);
        }
        let status = completion.status();
        let is_awaited = self.sends.complete(buffer, status);
        if is_awaited {
            self.changes |= Changes::COMPLETED;
        }
        if !completion.is_success() {
            if !is_awaited || !self.is_datagrams() {
                self.sends.set_error(status);
            }
            self.fail(status);
        }
    }

    /// Handles a completion of a keep-alive write, or one that is in the wrong queue.
    ///
    /// Only a faulty kernel or device puts a completion there. The buffer shows which request has completed, so no buffer is
    /// used in the other direction, and no count falls below zero.
    #[cold]
    fn on_misplaced(&mut self, buffer: B, sender: Option<S>, completion: &Completion) {
        if buffer.index() < self.sends.len() {
            return self.on_send(buffer, sender, completion);
        }
        if self.receive_buffers.contains(&buffer.index()) {
            return self.on_receive(buffer, sender, completion);
        }
        let status = completion.status();
        let Protocol::Messages(messages) = &mut self.protocol else { return };
        if let Some(keep_alive) = &mut messages.keep_alive {
            keep_alive.on_completion(buffer);
        }
        // The peer may just have ended the connection in good order, which the event reports.
        if status != WcStatus::IB_WC_SUCCESS && !messages.qp_follows_connection {
            self.fail(status);
        }
    }

    #[cold]
    fn on_failed_receive(&mut self, buffer: B, status: WcStatus) {
        match &self.protocol {
            Protocol::Datagrams(_) => {
                self.unposted_receives.push(buffer);
                self.fail(status);
            }
            Protocol::Messages(messages) if status == messages.oversize_status => {
                self.fail(WcStatus::IB_WC_LOC_LEN_ERR);
            }
            Protocol::Messages(_) => self.fail(status),
        }
    }

    /// Records that a request has failed with `status`.
    #[cold]
    fn fail(&mut self, status: WcStatus) {
        let end = match &mut self.protocol {
            Protocol::Datagrams(datagrams) => {
                datagrams.qp_failed = true;
                self.counters.failures += u64::from(status != WcStatus::IB_WC_WR_FLUSH_ERR);
                return;
            }
            Protocol::Messages(messages) => {
                let flushes = [WcStatus::IB_WC_WR_FLUSH_ERR, messages.disconnect_status];
                let is_flush = flushes.contains(&status);
                self.counters.failures += u64::from(!is_flush);
                match (is_flush, messages.qp_follows_connection) {
                    (false, _) => EndReason::Failed(status),
                    (true, false) => EndReason::Unreported,
                    // An event reports the end.
                    (true, true) => return,
                }
            }
        };
        self.set_end(end);
    }

    /// Sets up a failed queue pair again once all its requests have come back, and posts the receives that are not posted.
    #[cold]
    fn recover(&mut self, io: &mut impl QueueIo<Buffer = B>) -> Result<()> {
        if self.end().is_some() {
            return Ok(());
        }
        if let Protocol::Datagrams(datagrams) = &mut self.protocol {
            if datagrams.qp_failed && !datagrams.qp_flushing {
                // All that is posted comes back then, also what was posted after the failure.
                io.set_to_error()?;
                datagrams.qp_flushing = true;
            }
            if datagrams.qp_failed && io.outstanding() == 0 {
                io.reset_to_rts()?;
                *datagrams = Datagrams::default();
            }
        }
        while !self.qp_failed() {
            let Some(buffer) = self.unposted_receives.pop() else { break };
            self.post_recv(io, buffer).map_err(|refused| {
                self.unposted_receives.extend(refused.buffer);
                refused.error
            })?;
        }
        Ok(())
    }

    /// Returns `true` if a caller with `interest` is to poll receives: also if no send would show that the queue pair has
    /// failed.
    #[inline(always)]
    fn polls_receives(&self, interest: Interest) -> bool {
        interest != Interest::Sends || self.flushes() || self.sends.in_flight() == 0
    }

    /// Returns `true` if a caller with `interest` is to poll sends: also if no receive would show that the queue pair has
    /// failed.
    #[inline(always)]
    fn polls_sends(&self, interest: Interest) -> bool {
        interest != Interest::Messages || self.flushes() || self.receives_posted == 0
    }

    /// Returns `true` if all requests are to come back.
    #[inline(always)]
    fn flushes(&self) -> bool {
        self.end().is_some() || self.qp_failed()
    }

    // Events and time.

    fn queues(&self, interest: Interest) -> [bool; 2] {
        [self.polls_receives(interest), self.polls_sends(interest)]
    }

    /// Records that the completion channel has reported an event.
    pub(super) fn on_completion_event(&mut self) {
        self.arming.on_event();
    }

    /// Returns `true` if the completion channel may still report an event whose completion has been polled.
    pub(super) fn has_unread_event(&self) -> bool {
        self.arming.has_unread_event()
    }

    /// Returns `true` if the next completion for `interest` may raise no event.
    pub(super) fn may_be_unarmed(&self, interest: Interest) -> bool {
        self.arming.may_be_unarmed(self.queues(interest))
    }

    /// Makes the next completion for `interest` raise an event. Returns `true` if it might not have: the caller is to poll
    /// then.
    pub(super) fn arm(
        &mut self,
        io: &mut impl QueueIo,
        interest: Interest,
        has_epoll_waiter: bool,
    ) -> Result<bool> {
        let queues = self.queues(interest);
        self.arming.arm(io, queues, has_epoll_waiter)
    }

    /// Makes the keep-alive writes end after a few: see [`FIRST`].
    pub(super) fn end_keep_alive_soon(&mut self) {
        if let Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) =
            &mut self.protocol
        {
            keep_alive.end_soon();
        }
    }

    /// Handles the time of a keep-alive write. Returns `true` if something had completed.
    pub(super) fn on_timer(
        &mut self,
        io: &mut impl QueueIo<Buffer = B, Sender = S>,
    ) -> Result<bool> {
        // The last write may have completed.
        let polled = self.poll(io, Interest::All)?;
        if let Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) =
            &mut self.protocol
        {
            if keep_alive.on_timer(io) {
                self.effects |= Effects::STOP_TIMER;
            }
        }
        Ok(polled)
    }

    /// Handles the event that the peer, or this side's kernel, has ended the connection. All completions before it are
    /// polled first, so that messages come before the end, and no flush is taken for a failure. An error of that poll is
    /// returned; the connection has ended in any case.
    pub(super) fn on_disconnected(
        &mut self,
        io: Option<&mut impl QueueIo<Buffer = B, Sender = S>>,
    ) -> Result<()> {
        let polled = io.map_or(Ok(false), |io| self.poll(io, Interest::All));
        let end = match &self.protocol {
            Protocol::Messages(Messages { overrun: Some(overrun), .. })
                if overrun.is_suspected() =>
            {
                EndReason::Overrun
            }
            _ => EndReason::Remote,
        };
        self.set_end(end);
        self.lifecycle.set_settled();
        polled.map(drop)
    }

    /// Handles the removal of the device: the kernel reports nothing more.
    pub(super) fn on_device_removed(&mut self) {
        self.set_end(EndReason::DeviceRemoved);
        self.lifecycle.set_settled();
    }

    /// Records an end, unless a better reason is known.
    pub(super) fn set_end(&mut self, end: EndReason) {
        if self.lifecycle.set_end(end) {
            self.effects |= Effects::REPORT_END;
            self.changes |= Changes::END;
            if let Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) =
                &mut self.protocol
            {
                if keep_alive.stop() {
                    self.effects |= Effects::STOP_TIMER;
                }
            }
        }
    }

    /// Ends the endpoint and gives up its buffers.
    pub(super) fn abort(&mut self) -> Released<B, S> {
        self.set_end(EndReason::Local);
        self.lifecycle.set_settled();
        // Also callers that wait for the answer of the peer.
        self.changes |= Changes::END;
        let keep_alive = match &mut self.protocol {
            Protocol::Messages(Messages { keep_alive: Some(keep_alive), .. }) => {
                keep_alive.take_buffer()
            }
            _ => None,
        };
        let receives = mem::take(&mut self.unposted_receives);
        (self.sends.take_all_free(), receives, mem::take(&mut self.inbox), keep_alive)
    }
}
