//! An endpoint on queues in memory, whose requests complete when a test decides.

use std::collections::VecDeque;
use std::mem;

use crate::endpoint::core::operation::{Interest, Operation};
use crate::endpoint::core::{
    ArmAction, Core, Datagrams, Messages, NotPosted, Outgoing, Protocol, Queue, QueueIo,
    RecoveryAction, STALE_EVENTS, Slot,
};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{Completion, SendOperation, WcOpcode, WcStatus};

pub(in crate::endpoint::core) const FLUSH: WcStatus = WcStatus::IB_WC_WR_FLUSH_ERR;
pub(in crate::endpoint::core) const NO_ACK: WcStatus = WcStatus::IB_WC_RETRY_EXC_ERR;
pub(in crate::endpoint::core) const CUT_OFF: WcStatus = WcStatus::IB_WC_LOC_QP_OP_ERR;
pub(in crate::endpoint::core) const SUCCESS: WcStatus = WcStatus::IB_WC_SUCCESS;

pub(in crate::endpoint::core) const SENDS: usize = 2;
pub(in crate::endpoint::core) const RECEIVES: usize = 2;
pub(in crate::endpoint::core) const BYTES: usize = 64;

/// A buffer without memory of a device.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::endpoint::core) struct TestBuffer(usize, Box<[u8; BYTES]>);

impl TestBuffer {
    pub(in crate::endpoint::core) fn new(index: usize) -> Self {
        Self(index, Box::new([0; BYTES]))
    }
}

impl Slot for TestBuffer {
    fn index(&self) -> usize {
        self.0
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut *self.1
    }
}

/// Queues in memory, whose requests complete when the test decides.
#[derive(Debug, Default)]
pub(in crate::endpoint::core) struct TestQueues {
    pub(in crate::endpoint::core) receives: VecDeque<TestBuffer>,
    pub(in crate::endpoint::core) sends: VecDeque<TestBuffer>,
    pub(in crate::endpoint::core) completed: [VecDeque<(TestBuffer, Option<u32>, Completion)>; 2],
    /// The queues whose next completion raises an event.
    pub(in crate::endpoint::core) is_armed: [bool; 2],
    /// `true` if an event was raised that the test has not taken.
    pub(in crate::endpoint::core) has_event: bool,
    pub(in crate::endpoint::core) armed: Vec<Queue>,
    pub(in crate::endpoint::core) discarded: usize,
    pub(in crate::endpoint::core) resets: usize,
    pub(in crate::endpoint::core) is_error: bool,
    /// `true` if posts are refused. They then return the buffer.
    pub(in crate::endpoint::core) refuses: bool,
    /// `true` if polling finds a completion that names no request.
    pub(in crate::endpoint::core) has_malformed_completion: bool,
}

fn completion(status: WcStatus, opcode: WcOpcode, bytes: usize) -> Completion {
    let mut completion = Completion::default();
    completion.0.status = status;
    completion.0.opcode = opcode;
    completion.0.byte_len = u32::try_from(bytes).expect("a test's length fits");
    completion
}

impl TestQueues {
    /// Completes the oldest receive. Returns `true` if there was one.
    pub(in crate::endpoint::core) fn receive(
        &mut self,
        status: WcStatus,
        bytes: usize,
        sender: Option<u32>,
    ) -> bool {
        let Some(buffer) = self.receives.pop_front() else { return false };
        self.complete(
            Queue::Receive,
            buffer,
            sender,
            completion(status, WcOpcode::IB_WC_RECV, bytes),
        );
        true
    }

    /// Completes the oldest send. Returns `true` if there was one.
    pub(in crate::endpoint::core) fn send(&mut self, status: WcStatus) -> bool {
        let Some(buffer) = self.sends.pop_front() else { return false };
        let completion = completion(status, WcOpcode::IB_UVERBS_WC_SEND, 0);
        self.complete(Queue::Send, buffer, None, completion);
        true
    }

    fn complete(
        &mut self,
        queue: Queue,
        buffer: TestBuffer,
        sender: Option<u32>,
        completion: Completion,
    ) {
        let place = usize::from(queue == Queue::Send);
        self.completed[place].push_back((buffer, sender, completion));
        self.has_event |= mem::take(&mut self.is_armed[place]);
    }

    pub(in crate::endpoint::core) fn flush(&mut self) {
        self.is_error = true;
        while self.receive(FLUSH, 0, None) || self.send(FLUSH) {}
    }

    /// Executes the command of `action`.
    pub(in crate::endpoint::core) fn execute_arm(&mut self, action: ArmAction) {
        match action {
            ArmAction::DiscardEvents => self.discarded += STALE_EVENTS,
            ArmAction::Arm { receives, sends } => {
                self.armed.extend(receives.then_some(Queue::Receive));
                self.armed.extend(sends.then_some(Queue::Send));
                self.is_armed[0] |= receives;
                self.is_armed[1] |= sends;
            }
        }
    }

    fn refused(&self, buffer: TestBuffer) -> NotPosted<TestBuffer> {
        let error = Error::new("post", "a test's buffer", ErrorKind::Os(libc::ENOMEM));
        NotPosted { buffer: Some(buffer), error }
    }
}

impl QueueIo for TestQueues {
    type Buffer = TestBuffer;
    type Sender = u32;

    fn post_send(
        &mut self,
        buffer: TestBuffer,
        _: usize,
        _: Outgoing<'_>,
    ) -> Result<(), NotPosted<TestBuffer>> {
        if self.refuses {
            return Err(self.refused(buffer));
        }
        self.sends.push_back(buffer);
        if self.is_error {
            self.flush();
        }
        Ok(())
    }

    fn post_recv(&mut self, buffer: TestBuffer) -> Result<(), NotPosted<TestBuffer>> {
        if self.refuses {
            return Err(self.refused(buffer));
        }
        self.receives.push_back(buffer);
        if self.is_error {
            self.flush();
        }
        Ok(())
    }

    fn poll(
        &mut self,
        queue: Queue,
        mut each: impl FnMut(TestBuffer, Option<u32>, &Completion),
    ) -> Result<usize> {
        if self.has_malformed_completion {
            return Err(Error::malformed("poll", "", "a completion"));
        }
        let completed = &mut self.completed[usize::from(queue == Queue::Send)];
        let count = completed.len();
        completed.drain(..).for_each(|(buffer, sender, done)| each(buffer, sender, &done));
        Ok(count)
    }

    fn outstanding(&self) -> usize {
        let completed: usize = self.completed.iter().map(VecDeque::len).sum();
        self.receives.len() + self.sends.len() + completed
    }
}

/// An endpoint on queues in memory.
pub(in crate::endpoint::core) struct Endpoint {
    pub(in crate::endpoint::core) core: Core<TestBuffer, u32>,
    pub(in crate::endpoint::core) queues: TestQueues,
}

impl Endpoint {
    fn new(protocol: Protocol<TestBuffer>) -> Self {
        let core = Core::new((0..SENDS).map(TestBuffer::new).collect(), RECEIVES, protocol);
        let receives = (SENDS..SENDS + RECEIVES).map(TestBuffer::new).collect();
        let is_armed = [true, false];
        Self { core, queues: TestQueues { receives, is_armed, ..TestQueues::default() } }
    }

    pub(in crate::endpoint::core) fn roce() -> Self {
        Self::new(Protocol::Messages(Messages::new(false, RECEIVES, CUT_OFF, FLUSH, None)))
    }

    pub(in crate::endpoint::core) fn iwarp() -> Self {
        Self::new(Protocol::Messages(Messages::new(
            true,
            RECEIVES,
            WcStatus::IB_WC_LOC_LEN_ERR,
            CUT_OFF,
            None,
        )))
    }

    /// Creates a connection with keep-alive writes.
    pub(in crate::endpoint::core) fn kept_alive() -> Self {
        let buffer = TestBuffer::new(SENDS + RECEIVES);
        let protocol = Messages::new(false, RECEIVES, CUT_OFF, FLUSH, Some(buffer));
        Self::new(Protocol::Messages(protocol))
    }

    pub(in crate::endpoint::core) fn datagrams() -> Self {
        Self::new(Protocol::Datagrams(Datagrams::default()))
    }

    pub(in crate::endpoint::core) fn poll(&mut self) -> bool {
        let mut polled = false;
        loop {
            polled |=
                self.core.poll(&mut self.queues, Interest::All).expect("test queues do not fail");
            if !self.recover() {
                return polled;
            }
        }
    }

    /// Executes the next step of the recovery of a failed queue pair. Returns `false` if there is none.
    fn recover(&mut self) -> bool {
        let Some(action) = self.core.next_recovery(&self.queues) else { return false };
        assert_eq!(self.core.next_recovery(&self.queues), None, "one caller should take the step");
        self.execute_recovery(action);
        true
    }

    /// Executes `action`, and records that.
    pub(in crate::endpoint::core) fn execute_recovery(&mut self, action: RecoveryAction) {
        match action {
            RecoveryAction::SetToError => self.queues.flush(),
            RecoveryAction::ResetToRts => {
                assert_eq!(self.queues.outstanding(), 0, "requests would be lost");
                self.queues.is_error = false;
                self.queues.resets += 1;
            }
        }
        self.core.on_recovered(action, true);
    }

    /// Arms the queues for `interest`. Returns `true` if one was not armed.
    pub(in crate::endpoint::core) fn arm(
        &mut self,
        interest: Interest,
        has_epoll_waiter: bool,
    ) -> bool {
        let Some(action) = self.core.next_arm_action(interest, has_epoll_waiter) else {
            return false;
        };
        self.queues.execute_arm(action);
        self.core.on_arm_action(action, true);
        true
    }

    /// Posts a send in a free buffer. Returns its slot.
    pub(in crate::endpoint::core) fn post(&mut self, is_awaited: bool) -> Option<usize> {
        let buffer = self.core.acquire_buffer()?.ok()?;
        let (index, send) = (buffer.index(), SendOperation::Send.into());
        let posted =
            self.core.post_send(&mut self.queues, Operation::Send, buffer, 1, send, is_awaited);
        posted.expect("test queues do not refuse");
        Some(index)
    }

    pub(in crate::endpoint::core) fn disconnect(&mut self) {
        self.core.on_disconnected(Some(&mut self.queues), None).expect("test queues do not fail");
    }

    /// Counts the buffers for sending and receiving that the core and the queues have.
    pub(in crate::endpoint::core) fn buffers(&mut self) -> usize {
        let posted = self.queues.outstanding();
        let (free, unposted, inbox, kept) = self.core.abort();
        let slots = (0..SENDS).filter_map(|index| self.core.detach_send(index)).count();
        posted + free.len() + unposted.len() + inbox.len() + usize::from(kept.is_some()) + slots
    }
}
