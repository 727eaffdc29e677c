//! Fuzzing of the core of an endpoint with arbitrary completions.
//!
//! The completions have any content, belong to any request, and arrive in either queue and at any time.

use super::operation::{Interest, Operation};
use super::{
    Core, Datagrams, EndReason, Messages, NotPosted, Outgoing, Protocol, Queue, QueueIo,
    RecoveryAction, Slot,
};
use crate::error::{Error, ErrorKind, Result};
use crate::testing::Input;
use crate::verbs::{Completion, GRH_LENGTH, SendOperation, WcStatus};

const SENDS: usize = 3;
const RECEIVES: usize = 3;
const BYTES: usize = GRH_LENGTH + 24;

/// A buffer without memory of a device.
#[derive(Debug)]
struct AnyBuffer {
    index: usize,
    bytes: [u8; BYTES],
}

impl AnyBuffer {
    fn new(index: usize) -> Self {
        Self { index, bytes: [0; BYTES] }
    }
}

impl Slot for AnyBuffer {
    fn index(&self) -> usize {
        self.index
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Queues whose kernel completes arbitrary requests.
#[derive(Debug, Default)]
struct AnyQueues {
    posted: Vec<AnyBuffer>,
    completed: Vec<(Queue, AnyBuffer, Option<u8>, Completion)>,
    /// Requests are refused: 0 none, 1 with the buffer, 2 without it, which the device keeps then.
    refuses: u8,
}

impl AnyQueues {
    fn post(&mut self, buffer: AnyBuffer) -> Result<(), NotPosted<AnyBuffer>> {
        let error = || Error::new("post", "a buffer", ErrorKind::Os(libc::ENOMEM));
        match self.refuses {
            0 => self.posted.push(buffer),
            1 => return Err(NotPosted { buffer: Some(buffer), error: error() }),
            _ => {
                self.posted.push(buffer);
                return Err(NotPosted { buffer: None, error: error() });
            }
        }
        Ok(())
    }

    /// Counts the requests over buffers that `is` selects, posted or completed and not polled.
    fn count(&self, is: impl Fn(usize) -> bool) -> usize {
        let completed = self.completed.iter().map(|(_, buffer, ..)| buffer);
        self.posted.iter().chain(completed).filter(|buffer| is(buffer.index)).count()
    }
}

impl QueueIo for AnyQueues {
    type Buffer = AnyBuffer;
    type Sender = u8;

    fn post_send(
        &mut self,
        buffer: AnyBuffer,
        _: usize,
        _: Outgoing<'_>,
    ) -> Result<(), NotPosted<AnyBuffer>> {
        self.post(buffer)
    }

    fn post_recv(&mut self, buffer: AnyBuffer) -> Result<(), NotPosted<AnyBuffer>> {
        self.post(buffer)
    }

    fn poll(
        &mut self,
        queue: Queue,
        mut each: impl FnMut(AnyBuffer, Option<u8>, &Completion),
    ) -> Result<usize> {
        let (polled, rest): (Vec<_>, _) =
            self.completed.drain(..).partition(|(completed, ..)| *completed == queue);
        self.completed = rest;
        let count = polled.len();
        polled.into_iter().for_each(|(_, buffer, sender, done)| each(buffer, sender, &done));
        Ok(count)
    }

    fn outstanding(&self) -> usize {
        self.count(|_| true)
    }
}

/// Applies the calls of a program, events and completions that `bytes` describe.
///
/// For any input, all counts stay correct, and no message is outside its buffer.
pub fn endpoint(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.byte();
    let kept_alive = (choice & 4 != 0).then(|| AnyBuffer::new(SENDS + RECEIVES));
    let protocol = match choice & 3 {
        0 => Protocol::Datagrams(Datagrams::default()),
        transport => Protocol::Messages(Messages::new(
            transport == 1,
            RECEIVES,
            WcStatus::IB_WC_LOC_LEN_ERR,
            WcStatus::IB_WC_LOC_QP_OP_ERR,
            kept_alive,
        )),
    };
    let mut core = Core::new((0..SENDS).map(AnyBuffer::new).collect(), RECEIVES, protocol);
    let receives = (SENDS..SENDS + RECEIVES).map(AnyBuffer::new).collect();
    let mut queues = AnyQueues { posted: receives, ..AnyQueues::default() };
    let mut held = Vec::new();
    while !input.is_empty() {
        step(&mut core, &mut queues, &mut held, &mut input);
        let sends = queues.count(|index| index < SENDS);
        let receives = queues.count(|index| (SENDS..SENDS + RECEIVES).contains(&index));
        assert_eq!((core.sends.in_flight(), core.receives_posted), (sends, receives));
        assert!(!(core.has_sent_all() && sends > 0));
        let end = core.end().map(EndReason::kind);
        assert!(
            end != Some(ErrorKind::WorkRequestFailed(WcStatus::IB_WC_WR_FLUSH_ERR)),
            "a flush should not be the cause"
        );
        let _ = core.take_effects();
    }
    core.abort();
    assert!(core.end().is_some());
}

/// Applies one input.
fn step(
    core: &mut Core<AnyBuffer, u8>,
    queues: &mut AnyQueues,
    held: &mut Vec<AnyBuffer>,
    input: &mut Input<'_>,
) {
    let interest = |choice: u8| match choice % 3 {
        0 => Interest::Messages,
        1 => Interest::Sends,
        _ => Interest::All,
    };
    let choice = input.byte();
    let argument = input.byte();
    let index = usize::from(argument) % SENDS;
    match choice % 14 {
        0 | 1 if !queues.posted.is_empty() => {
            let place = usize::from(argument) % queues.posted.len();
            let buffer = queues.posted.swap_remove(place);
            let queue = if choice & 16 == 0 { Queue::Receive } else { Queue::Send };
            let mut completion = Completion(input.value());
            if choice & 32 != 0 {
                completion.0.status = WcStatus::IB_WC_SUCCESS;
            } else if choice & 64 != 0 {
                completion.0.status = WcStatus::IB_WC_WR_FLUSH_ERR;
            }
            let sender = (choice & 128 != 0).then_some(argument);
            queues.completed.push((queue, buffer, sender, completion));
        }
        2 | 3 => {
            drop(core.poll(queues, interest(argument)));
            if let Some(action) = core.next_recovery(queues) {
                if action == RecoveryAction::ResetToRts {
                    assert_eq!(queues.outstanding(), 0, "requests would be lost");
                }
                core.on_recovered(action, argument & 4 != 0);
            }
        }
        4 => {
            if let Some(Ok(buffer)) = core.acquire_buffer() {
                let is_awaited = argument & 1 != 0;
                let length = buffer.bytes.len();
                let (operation, request) = (Operation::Send, SendOperation::Send);
                let posted = core.post_send(
                    queues,
                    operation,
                    buffer,
                    length,
                    Outgoing::Operation(request),
                    is_awaited,
                );
                if let Err(NotPosted { buffer: Some(buffer), .. }) = posted {
                    held.push(buffer);
                }
            }
        }
        5 => drop(core.post_bytes(
            queues,
            &[7; BYTES][..index],
            Outgoing::Operation(SendOperation::Send),
        )),
        6 => {
            if let Some(buffer) = held.pop() {
                core.return_buffer(buffer);
            } else if let Some(Ok(buffer)) = core.acquire_buffer() {
                held.push(buffer);
            }
        }
        7 => {
            if let Some(message) = core.next_message() {
                assert!(message.buffer.index >= SENDS && message.buffer.index < SENDS + RECEIVES);
                assert!(message.start + message.length <= BYTES);
                core.repost(queues, message.buffer);
            }
        }
        8 => match argument & 8 {
            0 => held.extend(core.completed_send(index).and_then(|buffer| buffer.ok())),
            _ => held.extend(core.detach_send(index)),
        },
        9 => {
            let flushed = core.flushed();
            assert!(!(matches!(flushed, Some(Ok(()))) && core.sends.in_flight() > 0));
        }
        10 => queues.refuses = argument % 3,
        11 => {
            core.on_completion_event();
            if let Some(action) = core.next_arm_action(interest(argument), argument & 4 != 0) {
                core.on_arm_action(action, argument & 8 != 0);
            }
            let _ = core.may_be_unarmed(interest(argument));
        }
        12 => drop(core.on_timer(queues)),
        13 => match argument % 8 {
            0 => core.on_device_removed(),
            1 | 2 if !core.is_datagrams() => drop(core.on_disconnected(Some(queues), None)),
            3 => core.set_end(EndReason::Local),
            _ => {
                let _ = (core.has_outcome(index), core.has_free_buffer());
                let _ =
                    (core.has_message(), core.has_no_more_events(), core.has_progress_of_close());
            }
        },
        _ => {}
    }
}
