//! Sending: buffers of the group for one member, and posting them.

use super::buffer::{SendBuffer, check_length};
#[cfg(doc)]
use super::config::PollGroupConfig;
use super::event::Event;
use super::group::PollGroup;
use super::link::{MissingResource, Phase};
use super::member_table::Member;
use super::resources::{MemberBuffer, MemberIo};
use crate::endpoint::core::operation::Operation;
use crate::error::{Error, ErrorKind, Result, Wait};
use crate::verbs::SendOperation;

const SEND: &str = "send on";

static NO_BUFFER: Wait =
    Wait { operation: "take a buffer for", subject: "a member of a poll group" };

impl PollGroup {
    /// Takes a buffer for a message to the peer of `member`.
    ///
    /// The buffer takes one of the [`send_buffers_per_member`](PollGroupConfig::send_buffers_per_member) places of the
    /// member. It returns to the group when it is dropped, or when its message has been sent.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldBlock`] if all places of the member or all buffers of the group are in use, or if the member
    ///   is not established. [`Event::Writable`] follows when the call can be retried.
    /// - [`ErrorKind::Disconnected`] if the member has ended or is closed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn acquire_buffer(&mut self, member: Member) -> Result<SendBuffer> {
        let MemberBuffer { index, memory } = self.acquire(member)?;
        let memory = memory.expect("a place was acquired with memory");
        Ok(SendBuffer::new(memory, index, member, &self.returns))
    }

    /// Posts a message. Its buffer returns to the group when it has been sent.
    ///
    /// Kernel command: the doorbell, `IB_USER_VERBS_CMD_POST_SEND`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if the member has ended or is closed.
    /// - [`ErrorKind::Unsupported`] if the buffer has immediate data and the connection is over iWARP.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn post_send(&mut self, mut buffer: SendBuffer) -> Result<()> {
        self.check_process(SEND)?;
        let member = buffer.member();
        self.check_open(member)?;
        let (length, operation) = (buffer.len(), buffer.operation());
        let (memory, index) = buffer.take();
        self.post_buffer(member, MemberBuffer::new(index, Some(memory)), length, operation)
    }

    /// Copies `bytes` into a buffer and posts it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if there are more than
    ///   [`send_buffer_size`](PollGroupConfig::send_buffer_size) bytes.
    /// - The errors of [`acquire_buffer`](Self::acquire_buffer) and [`post_send`](Self::post_send).
    pub fn post_bytes(&mut self, member: Member, bytes: &[u8]) -> Result<()> {
        check_length(bytes.len(), self.config.send_buffer_size)?;
        let mut buffer = self.acquire(member)?;
        let memory = buffer.memory.as_deref_mut().unwrap_or_default();
        memory[..bytes.len()].copy_from_slice(bytes);
        self.post_buffer(member, buffer, bytes.len(), SendOperation::Send)
    }

    /// Requests one [`Event::Sent`] when all posted messages of the member have been sent.
    ///
    /// Messages that are posted later are included.
    ///
    /// On InfiniBand and RoCE a message has been sent when the peer's device has acknowledged it, on iWARP when it was
    /// handed to TCP.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if the member has ended or is closed, or is not established.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn flush(&mut self, member: Member) -> Result<()> {
        const OPERATION: &str = "flush";
        self.check_process(OPERATION)?;
        self.check_open(member)?;
        let Some(link) = self.members.get_mut(member) else {
            return Err(ended(OPERATION, member));
        };
        if link.core.has_sent_all() {
            link.wants_sent = false;
            self.announce(Event::Sent(member));
        } else {
            link.wants_sent = true;
        }
        Ok(())
    }

    /// Takes a place of the member and a buffer of the group.
    ///
    /// After [`ErrorKind::WouldBlock`], the next buffer that the program returns makes the descriptor readable: an
    /// event loop may wait for the descriptor before it polls again.
    fn acquire(&mut self, member: Member) -> Result<MemberBuffer> {
        let acquired = self.try_acquire(member);
        if acquired.as_ref().is_err_and(|error| *error.kind() == ErrorKind::WouldBlock) {
            self.returns.wake_on_return();
        }
        acquired
    }

    fn try_acquire(&mut self, member: Member) -> Result<MemberBuffer> {
        self.check_process(SEND)?;
        let Self { members, resources, waiting, unwritable_members, .. } = self;
        let Some(link) = members.get_mut(member) else { return Err(ended(SEND, member)) };
        if link.phase.awaited().is_some() && !link.is_ending {
            *unwritable_members += usize::from(link.set_missing(MissingResource::Place));
            return Err(Error::would_block(&NO_BUFFER));
        }
        if !link.is_open() {
            return Err(link.error(SEND, ErrorKind::Disconnected));
        }
        let Some(Ok(mut place)) = link.core.acquire_buffer() else {
            if link.missing == MissingResource::None {
                *unwritable_members += usize::from(link.set_missing(MissingResource::Place));
            }
            return Err(Error::would_block(&NO_BUFFER));
        };
        match resources.free_sends.pop() {
            Some(memory) => place.memory = Some(memory),
            None => {
                link.core.return_buffer(place);
                if link.missing != MissingResource::Buffer {
                    *unwritable_members += usize::from(link.set_missing(MissingResource::Buffer));
                    waiting.push_back(member);
                }
                return Err(Error::would_block(&NO_BUFFER));
            }
        }
        Ok(place)
    }

    fn check_open(&self, member: Member) -> Result<()> {
        match self.members.get(member) {
            None => Err(ended(SEND, member)),
            Some(link) if !link.is_open() => Err(link.error(SEND, ErrorKind::Disconnected)),
            Some(_) => Ok(()),
        }
    }

    fn post_buffer(
        &mut self,
        member: Member,
        buffer: MemberBuffer,
        length: usize,
        operation: SendOperation<'_>,
    ) -> Result<()> {
        let Self { members, resources: shared, events, .. } = self;
        let Some(link) = members.get_mut(member) else { return Err(ended(SEND, member)) };
        let mut io = MemberIo { shared, sends: link.sends.as_mut(), completed: None };
        let outgoing = operation.into();
        let posted = link.core.post_send(&mut io, Operation::Send, buffer, length, outgoing, false);
        let Err(refused) = posted else {
            // If the program has not received `Sent` yet, the event is withdrawn, because it must include this message.
            let is_sent = |event: &Event| matches!(event, Event::Sent(of) if *of == member);
            if let Some(place) = events.iter().position(is_sent) {
                events.remove(place);
                link.wants_sent = true;
            }
            return Ok(());
        };
        let error = refused.error.of(SEND, link.name());
        if let Some(mut place) = refused.buffer {
            shared.free_sends.extend(place.memory.take());
            link.core.return_buffer(place);
            // This member may wait for the place, and another member for the memory.
            self.queue_for_buffer(member);
            self.wake_for_progress();
        }
        Err(error)
    }

    /// Reports the members that wait for a buffer, as far as there are buffers.
    pub(super) fn serve_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        // A buffer that an event offers is not offered again, unless that member has ended.
        let is_offer = |event: &&Event| matches!(event, Event::Writable(member) if self.members.get(*member).is_some());
        let offers = self.events.iter().filter(is_offer).count();
        let mut free = self.resources.free_sends.len().saturating_sub(offers);
        while free > 0 {
            let Some(member) = self.waiting.pop_front() else { break };
            let Some(link) = self.members.get_mut(member) else { continue };
            if link.missing == MissingResource::Buffer && link.phase == Phase::Established {
                if !link.core.has_free_buffer() {
                    // The member took its last place after the call that found no buffer.
                    link.missing = MissingResource::Place;
                    continue;
                }
                link.missing = MissingResource::None;
                self.unwritable_members -= 1;
                self.events.push_back(Event::Writable(member));
                free -= 1;
            }
        }
    }

    /// Makes the descriptor readable if the next poll has events for members, or ends some.
    pub(super) fn wake_for_progress(&self) {
        let can_send = !self.waiting.is_empty() && !self.resources.free_sends.is_empty();
        self.returns.wake_if(can_send || !self.events.is_empty() || !self.ending.is_empty());
    }

    /// Lets a member that waits for a place wait for a buffer instead, if it has a place now.
    pub(super) fn queue_for_buffer(&mut self, member: Member) {
        let Some(link) = self.members.get_mut(member) else { return };
        if link.missing == MissingResource::Place && link.is_open() && link.core.has_free_buffer() {
            link.missing = MissingResource::Buffer;
            self.waiting.push_back(member);
        }
    }
}

/// Returns the error of an operation on a member that has ended.
pub(super) fn ended(operation: &'static str, member: Member) -> Error {
    Error::new(operation, member.to_string(), ErrorKind::Disconnected)
}
