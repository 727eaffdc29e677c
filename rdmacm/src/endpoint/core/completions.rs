//! Polling completions, and their effects on the endpoint.

use super::effects::{Changes, Effects};
use super::operation::Interest;
use super::protocol::{Messages, Protocol, Recovery};
use super::queue_io::{Queue, QueueIo, Slot};
use super::watched_keys::WatchedKeys;
use super::{Core, EndReason, ReceivedMessage};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{Completion, GRH_LENGTH, WcOpcode, WcStatus};

impl<B: Slot, S> Core<B, S> {
    /// Polls the completions that a caller with `interest` waits for. Returns `true` if there was one.
    ///
    /// The other queue is polled too if that queue may have the reason why no completion arrives, or if its event may
    /// have been reported. Other callers may wait for that event.
    #[inline(always)]
    pub(in crate::endpoint) fn poll(
        &mut self,
        io: &mut impl QueueIo<Buffer = B, Sender = S>,
        interest: Interest,
    ) -> Result<bool> {
        let mut polled = 0;
        if self.polls_receives(interest) || self.arming.is_unknown(Queue::Receive) {
            polled = self.poll_receives(io)?;
        }
        if self.polls_sends(interest) || self.arming.is_unknown(Queue::Send) {
            polled += self.poll_queue(io, Queue::Send)?;
            if self.effects.contains(Effects::REPORT_END) {
                polled += self.poll_receives_before_end(io);
            }
        }
        if !self.unposted_receives.is_empty() {
            let posted = self.post_receives(io);
            // A caller gets the results of the poll first. The next poll without results reports the error.
            if polled == 0 {
                posted?;
            }
        }
        Ok(polled > 0)
    }

    #[inline(always)]
    fn poll_receives(&mut self, io: &mut impl QueueIo<Buffer = B, Sender = S>) -> Result<usize> {
        let before = self.stats.messages_received;
        let polled = self.poll_queue(io, Queue::Receive)?;
        let messages = self.stats.messages_received - before;
        if let Protocol::Messages(Messages { overrun: Some(overrun), .. }) = &mut self.protocol {
            overrun.on_polled(messages, self.receives_posted);
        }
        Ok(polled)
    }

    /// Polls the messages that have arrived before a failed send has ended the endpoint.
    ///
    /// A caller that finds the end polls no more.
    #[cold]
    fn poll_receives_before_end(&mut self, io: &mut impl QueueIo<Buffer = B, Sender = S>) -> usize {
        // The end is known already.
        self.poll_receives(io).unwrap_or(0)
    }

    #[inline(always)]
    fn poll_queue(
        &mut self,
        io: &mut impl QueueIo<Buffer = B, Sender = S>,
        queue: Queue,
    ) -> Result<usize> {
        // Two closures, so that each has the code of one queue.
        let polled = match queue {
            Queue::Receive => io.poll(queue, |buffer, sender, completion| {
                self.on_receive(buffer, sender, completion);
            }),
            Queue::Send => io.poll(queue, |buffer, sender, completion| {
                self.on_send(buffer, sender, completion);
            }),
        };
        match polled {
            Ok(polled) => {
                self.arming.on_polled(queue, polled);
                Ok(polled)
            }
            Err(error) => Err(self.on_failed_poll(error)),
        }
    }

    /// Ends the endpoint if a completion is malformed.
    ///
    /// The caller that polls may not be the one that waits for its request.
    #[cold]
    fn on_failed_poll(&mut self, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::MalformedResponse(_)) {
            self.set_end(EndReason::MalformedCompletion);
        }
        error
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
        // The length comes from the device and may be wrong.
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
            // An InfiniBand or RoCE device always stores a header that names the sender.
            Protocol::Datagrams(_) if sender.is_none() || length < GRH_LENGTH => {
                return self.unposted_receives.push(buffer);
            }
            Protocol::Datagrams(_) => (GRH_LENGTH, length - GRH_LENGTH),
        };
        self.stats.received(length);
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
    pub(in crate::endpoint) fn watched_keys(&mut self) -> Option<&mut WatchedKeys> {
        match &mut self.protocol {
            Protocol::Messages(messages) => Some(messages.watched_keys.get_or_insert_default()),
            Protocol::Datagrams(_) => None,
        }
    }

    /// Handles a completion from the queue for sends.
    #[inline(always)]
    pub(super) fn on_send(&mut self, buffer: B, sender: Option<S>, completion: &Completion) {
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
    /// Only a faulty kernel or device puts a completion there. The buffer shows which request has completed, so no
    /// buffer is used in the other direction, and no count falls below zero.
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
                if datagrams.recovery == Recovery::Done {
                    datagrams.recovery = Recovery::Failed;
                }
                self.stats.failures += u64::from(status != WcStatus::IB_WC_WR_FLUSH_ERR);
                return;
            }
            Protocol::Messages(messages) => {
                let flushes = [WcStatus::IB_WC_WR_FLUSH_ERR, messages.disconnect_status];
                let is_flush = flushes.contains(&status);
                self.stats.failures += u64::from(!is_flush);
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

    /// Posts the receives that are not posted, unless the queue pair has failed.
    #[cold]
    fn post_receives(&mut self, io: &mut impl QueueIo<Buffer = B>) -> Result<()> {
        while self.must_post_receives() {
            let Some(buffer) = self.unposted_receives.pop() else { break };
            self.post_recv(io, buffer).map_err(|refused| {
                self.unposted_receives.extend(refused.buffer);
                refused.error
            })?;
        }
        Ok(())
    }

    /// Returns `true` if a caller with `interest` polls receives.
    ///
    /// It polls them also if no send would show that the queue pair has failed.
    #[inline(always)]
    pub(super) fn polls_receives(&self, interest: Interest) -> bool {
        interest != Interest::Sends || self.flushes() || self.sends.in_flight() == 0
    }

    /// Returns `true` if a caller with `interest` polls sends.
    ///
    /// It polls them also if no receive would show that the queue pair has failed.
    #[inline(always)]
    pub(super) fn polls_sends(&self, interest: Interest) -> bool {
        interest != Interest::Messages || self.flushes() || self.receives_posted == 0
    }

    /// Returns `true` if all requests must complete.
    #[inline(always)]
    fn flushes(&self) -> bool {
        self.end().is_some() || self.qp_failed()
    }
}
