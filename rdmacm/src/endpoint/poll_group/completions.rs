//! Completions of all members, and buffers that the program returns.

use super::buffer::Message;
use super::event::Event;
use super::group::PollGroup;
use super::link::Phase;
use super::member_table::Member;
use super::resources::{MemberBuffer, MemberIo};
use super::return_list::Returned;
use crate::endpoint::core::{EndReason, Queue};
use crate::error::{ErrorKind, Result};
use crate::verbs::{Batch, Polled, RegisteredBuffer};

impl PollGroup {
    /// Takes back the buffers that the program has dropped, and posts those for receiving.
    ///
    /// Returns `true` if there was a buffer. If there was none and `wakes` is set, the next returned buffer makes the
    /// descriptor readable.
    pub(super) fn take_returned(&mut self, wakes: bool) -> Result<bool> {
        let mut returned = std::mem::take(&mut self.returned);
        self.returns.take(&mut returned, wakes);
        let has_returned = !returned.is_empty();
        for one in returned.drain(..) {
            match one {
                Returned::Receive(member, memory) => self.on_message_dropped(member, memory),
                Returned::Send(member, index, memory) => {
                    self.resources.free_sends.push(memory);
                    if let Some(link) = self.members.get_mut(member) {
                        link.core.return_buffer(MemberBuffer::new(index, None));
                    }
                    self.queue_for_buffer(member);
                }
            }
        }
        self.returned = returned;
        self.post_receives()?;
        Ok(has_returned)
    }

    fn on_message_dropped(&mut self, member: Member, memory: RegisteredBuffer) {
        let Self { members, resources: shared, .. } = self;
        let Some(link) = members.get_mut(member) else {
            shared.unposted.push(memory);
            return;
        };
        link.held = link.held.saturating_sub(1);
        let buffer = MemberBuffer::new(link.receive_index, Some(memory));
        let mut io = MemberIo { shared, sends: link.sends.as_mut(), completed: None };
        link.core.repost(&mut io, buffer);
    }

    /// Polls the completion queues until they are empty.
    ///
    /// It stops at the capacity of a queue, so that new completions cannot keep it busy. If a queue fails, the other
    /// one is polled nevertheless.
    pub(super) fn poll_completions(&mut self) -> Result<()> {
        let mut batch = Batch::default();
        let mut received = self.poll_queue(Queue::Receive, &mut batch);
        let ending = self.ending.len();
        let sent = self.poll_queue(Queue::Send, &mut batch);
        if self.ending.len() > ending {
            // A failed send has ended a member. Messages that arrived before the end are polled now, because a later
            // poll would not find the member.
            let polled = self.poll_queue(Queue::Receive, &mut batch);
            received = received.and(polled);
        }
        let posted = self.post_receives();
        received.and(sent).and(posted)
    }

    fn poll_queue(&mut self, queue: Queue, batch: &mut Batch) -> Result<()> {
        // After an error of one member, the completions of others are still handled: they have left the queue.
        let mut handled = Ok(());
        let mut count = 0;
        loop {
            let cq = match queue {
                Queue::Receive => &self.resources.recv_cq,
                Queue::Send => &self.resources.send_cq,
            };
            let capacity = usize::try_from(cq.capacity()).expect("32 bits fit");
            if let Err(error) = batch.poll(cq) {
                if matches!(error.kind(), ErrorKind::MalformedResponse(_)) {
                    self.end_all(EndReason::MalformedCompletion);
                }
                return handled.and(Err(error));
            }
            for polled in batch.iter() {
                let result = match queue {
                    Queue::Receive => self.on_receive(&polled),
                    Queue::Send => self.on_send(&polled),
                };
                handled = handled.and(result);
            }
            count += batch.len();
            if batch.has_room() || count >= capacity {
                break;
            }
        }
        self.arming.on_polled(queue, count);
        if queue == Queue::Receive && self.is_iwarp {
            self.starvation.on_polled(count, self.resources.receives.posted());
        }
        handled
    }

    fn post_receives(&mut self) -> Result<()> {
        if self.is_removed { Ok(()) } else { self.resources.post_receives() }
    }

    /// Polls the completions that destroyed queue pairs have left.
    ///
    /// This must happen before a new queue pair can get the number of a destroyed one, because a completion of a
    /// receive finds its member by that number. It must also happen before another queue pair is destroyed, because the
    /// completion queue has room for the late completions of one.
    pub(super) fn poll_late_completions(&mut self) -> Result<()> {
        if !self.has_late_completions {
            return Ok(());
        }
        // The messages that the program has dropped no longer count as held. The last poll may have promised that the
        // next returned buffer makes the descriptor readable.
        let taken = self.take_returned(true);
        self.returns.wake_if(!matches!(taken, Ok(false)));
        taken?;
        self.poll_completions()?;
        self.has_late_completions = false;
        Ok(())
    }

    fn on_receive(&mut self, polled: &Polled<'_>) -> Result<()> {
        let Self { members, resources: shared, starvation, config, .. } = self;
        let Some(memory) = shared.receives.take(polled) else { return Ok(()) };
        let completion = polled.completion();
        let Some((member, link)) = members.by_qp(completion.qp_num()) else {
            // The member has ended.
            shared.unposted.push(memory);
            return Ok(());
        };
        let mut buffer = MemberBuffer::new(link.receive_index, None);
        if !completion.is_success() {
            // The core needs no memory to see why the receive has failed.
            shared.unposted.push(memory);
        } else if link.held >= config.max_held {
            // The member would take the buffers of others.
            shared.unposted.push(memory);
            link.core.set_end(EndReason::Overrun);
            self.report_changes(member);
            return Ok(());
        } else {
            buffer.memory = Some(memory);
            link.held += 1;
            link.last_poll = starvation.current_poll();
        }
        link.complete(shared, Queue::Receive, buffer, completion)?;
        if !completion.is_success() {
            // The core counts the receive as posted again, as its buffer will be.
            let buffer = MemberBuffer::new(link.receive_index, None);
            let mut io = MemberIo { shared, sends: link.sends.as_mut(), completed: None };
            link.core.repost(&mut io, buffer);
        }
        self.report_changes(member);
        Ok(())
    }

    fn on_send(&mut self, polled: &Polled<'_>) -> Result<()> {
        let Self { members, resources: shared, .. } = self;
        let completion = polled.completion();
        let Some((member, link)) = members.by_qp(completion.qp_num()) else { return Ok(()) };
        // A late completion of another queue pair with the number finds no request.
        let Some(sends) = &mut link.sends else { return Ok(()) };
        let Some((index, memory)) = sends.take(polled) else { return Ok(()) };
        link.complete(shared, Queue::Send, MemberBuffer::new(index, memory), completion)?;
        self.report_changes(member);
        self.queue_for_buffer(member);
        Ok(())
    }

    /// Reports the changes of a member: received messages, sent messages, and its end.
    pub(super) fn report_changes(&mut self, member: Member) {
        let Self { members, events, returns, ending, .. } = self;
        let Some(link) = members.get_mut(member) else { return };
        if link.phase.awaited().is_none() {
            while let Some(message) = link.core.next_message() {
                let Some(memory) = message.buffer.memory else { continue };
                let (length, imm_data) = (message.length, message.imm_data);
                let message = Message::new(memory, length, imm_data, member, returns);
                events.push_back(Event::Message(member, message));
            }
        }
        if link.wants_sent && link.core.has_sent_all() {
            link.wants_sent = false;
            events.push_back(Event::Sent(member));
        }
        let has_ended = link.core.end().is_some_and(|end| end != EndReason::Local);
        if (has_ended || link.core.has_no_more_events()) && !link.is_ending {
            link.mark_ending(member, ending);
        } else if link.phase == Phase::Closing && link.core.end().is_none() {
            self.close_if_sent(member);
        }
    }
}
