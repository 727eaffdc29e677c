//! The objects that the members of a group share, and the work queues of one member for its core.

use std::convert::Infallible;

use crate::endpoint::core::{ArmAction, NotPosted, Outgoing, Queue, QueueIo, STALE_EVENTS, Slot};
use crate::error::{Error, Result};
use crate::verbs::{
    Completion, CompletionChannel, CompletionQueue, OwnedReceives, OwnedSends, ProtectionDomain,
    RegisteredBuffer, SendOperation,
};

/// A place for a request of one member, which has memory while the request needs some.
#[derive(Debug)]
pub(super) struct MemberBuffer {
    /// Index among the places of the member.
    ///
    /// The places for sending come first, then one for receiving, and last the place of the keep-alive writes.
    pub(super) index: u32,
    pub(super) memory: Option<RegisteredBuffer>,
}

impl MemberBuffer {
    pub(super) fn new(index: u32, memory: Option<RegisteredBuffer>) -> Self {
        Self { index, memory }
    }
}

impl Slot for MemberBuffer {
    fn index(&self) -> usize {
        usize::try_from(self.index).expect("32 bits fit")
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

/// The objects that the members of a group share.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) receives: OwnedReceives,
    pub(super) recv_cq: CompletionQueue,
    pub(super) send_cq: CompletionQueue,
    pub(super) completions: CompletionChannel,
    pub(super) pd: ProtectionDomain,
    /// Buffers for sending that no member has.
    pub(super) free_sends: Vec<RegisteredBuffer>,
    /// Buffers for receiving that are not posted yet.
    pub(super) unposted: Vec<RegisteredBuffer>,
}

impl Resources {
    /// Issues the command that makes the completion queues raise events.
    pub(super) fn issue(&self, action: ArmAction) -> Result<()> {
        match action {
            ArmAction::DiscardEvents => self.completions.drop_events::<STALE_EVENTS>(),
            ArmAction::Arm { receives, sends } => {
                let queues = [(receives, &self.recv_cq), (sends, &self.send_cq)];
                let mut wanted = queues.into_iter().filter(|(is_wanted, _)| *is_wanted);
                wanted.try_for_each(|(_, queue)| queue.request_notify(false))
            }
        }
    }

    /// Posts all buffers for receiving that are not posted.
    ///
    /// # Errors
    ///
    /// The errors of posting. The buffers that are left are posted by the next call.
    pub(super) fn post_receives(&mut self) -> Result<()> {
        while let Some(buffer) = self.unposted.pop() {
            if let Err(refused) = self.receives.post(buffer) {
                self.unposted.extend(refused.buffer);
                return Err(refused.error);
            }
        }
        Ok(())
    }
}

/// The work queues of one member, for a call of its core.
#[derive(Debug)]
pub(super) struct MemberIo<'a> {
    pub(super) shared: &'a mut Resources,
    /// The send queue; `None` before the member has a queue pair.
    pub(super) sends: Option<&'a mut OwnedSends>,
    /// A completion of the member that its core has not handled.
    pub(super) completed: Option<(Queue, MemberBuffer, Completion)>,
}

const UNCONNECTED: &str = "the member is not connected";

impl MemberIo<'_> {
    fn refused(buffer: MemberBuffer, reason: &'static str) -> NotPosted<MemberBuffer> {
        NotPosted { buffer: Some(buffer), error: Error::invalid("post to", "a member", reason) }
    }
}

impl QueueIo for MemberIo<'_> {
    type Buffer = MemberBuffer;
    /// The peer is the only sender of a connection's messages.
    type Sender = Infallible;

    fn post_send(
        &mut self,
        buffer: MemberBuffer,
        length: usize,
        outgoing: Outgoing<'_>,
    ) -> Result<(), NotPosted<MemberBuffer>> {
        let Some(sends) = &mut self.sends else {
            return Err(Self::refused(buffer, UNCONNECTED));
        };
        let operation: SendOperation<'_> = match outgoing {
            Outgoing::Operation(operation) => operation,
            Outgoing::Datagram { .. } | Outgoing::Bind(_) => {
                return Err(Self::refused(buffer, "a member only sends messages"));
            }
        };
        let MemberBuffer { index, memory } = buffer;
        sends.post(index, memory, length, operation).map_err(|refused| NotPosted {
            buffer: refused.buffer.map(|memory| MemberBuffer::new(index, memory)),
            error: refused.error,
        })
    }

    /// Keeps the buffer for the next time that the group posts receives.
    fn post_recv(&mut self, buffer: MemberBuffer) -> Result<(), NotPosted<MemberBuffer>> {
        self.shared.unposted.extend(buffer.memory);
        Ok(())
    }

    /// Passes on the only completion that the group has for the member.
    ///
    /// The memory of a send returns to the group.
    fn poll(
        &mut self,
        queue: Queue,
        mut each: impl FnMut(MemberBuffer, Option<Infallible>, &Completion),
    ) -> Result<usize> {
        let is_meant = matches!(&self.completed, Some((completed, ..)) if *completed == queue);
        let Some((_, mut buffer, completion)) = self.completed.take_if(|_| is_meant) else {
            return Ok(0);
        };
        if queue == Queue::Send {
            self.shared.free_sends.extend(buffer.memory.take());
        }
        each(buffer, None, &completion);
        Ok(1)
    }

    fn outstanding(&self) -> usize {
        self.sends.as_ref().map_or(0, |sends| sends.posted())
    }
}
