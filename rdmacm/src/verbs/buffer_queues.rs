//! Posting buffers that are handed over, and getting them back.
//!
//! # Safety
//!
//! The buffer of a request is in the table from before the request is posted until its completion has been
//! polled, or with the queue pair until that is destroyed. In neither place anybody can look at it.
//! A completion is taken for a request's by the queue pair's number and by an identifier that no other
//! request of this process has ever had, which the contract of posting by hand keeps so.
#![expect(unsafe_code, reason = "posts requests over buffers that it holds")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer::Buffer;
use super::completion::CompletionQueue;
use super::queue_pair::QueuePair;
use super::{Completion, Payload, ReceiveRequest, SendFlags, SendOperation, SendRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;

/// Bits of a request's identifier that say its place in the table; those above say whose table.
const PLACE_BITS: u32 = 24;

/// The number of the next [`BufferQueues`] of the process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// The two queues of a queue pair, to which [`Buffer`]s are posted without `unsafe`: whoever posts a buffer
/// gives it away, and has it back with its completion.
///
/// They are to be all that posts to the queue pair, and all that polls its completion queues: a completion
/// that somebody else polls keeps its buffer until the queue pair is gone. Completions of other requests that
/// are polled here are lost.
///
/// Dropped, they leave the buffers that are posted to the queue pair, which lets go of them when it is
/// destroyed itself: after its last handle, of which an id may have one.
#[derive(Debug)]
pub struct BufferQueues {
    qp: QueuePair,
    number: u64,
    /// The buffers of the requests that are posted, each at its request's place.
    posted: Vec<Option<Buffer>>,
    /// The places that are free.
    free: Vec<usize>,
}

/// A buffer that could not be posted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BufferRefused {
    /// The buffer; absent where the device may use it still, until the queue pair is destroyed.
    pub buffer: Option<Buffer>,
    /// Why.
    pub error: Error,
}

impl From<BufferRefused> for Error {
    /// Drops the buffer.
    fn from(refused: BufferRefused) -> Self {
        refused.error
    }
}

impl BufferQueues {
    /// Takes over the posting to `qp`.
    pub fn new(qp: QueuePair) -> Self {
        let caps = qp.caps();
        let places = caps.max_send_wr.saturating_add(caps.max_recv_wr).min(1 << PLACE_BITS);
        let places = usize::try_from(places).expect("24 bits fit");
        Self {
            qp,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            posted: (0..places).map(|_| None).collect(),
            free: (0..places).rev().collect(),
        }
    }

    /// The queue pair.
    pub fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// How many buffers are posted.
    pub fn outstanding(&self) -> usize {
        self.posted.len() - self.free.len()
    }

    /// Posts a send of the first `length` bytes of `buffer`, with a number for the peer's completion if there
    /// is one. A completion follows.
    ///
    /// [`QueuePair::post_send`], signalled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where `length` is more than the buffer has, where the buffer is of another protection
    /// domain, and, with ENOMEM, where the queue is full; those of [`QueuePair::post_send`].
    pub fn send(
        &mut self,
        buffer: Buffer,
        length: usize,
        imm_data: Option<u32>,
    ) -> Result<(), BufferRefused> {
        let operation = match imm_data {
            None => SendOperation::Send,
            Some(imm_data) => SendOperation::SendWithImm { imm_data },
        };
        self.post(buffer, length, |qp, wr_id, gather| {
            let (payload, flags) = (Payload::Gather(gather), SendFlags::SIGNALED);
            // SAFETY: the request names memory of the buffer, which `post` has put where it stays until the request
            // has completed or the queue pair is destroyed; the buffer keeps it allocated and registered, and
            // there nobody writes to it or reads it. The identifier is of our own.
            unsafe { qp.post_send(&SendRequest { wr_id, operation, payload, flags }) }
        })
    }

    /// Posts a receive into `buffer`. A completion follows with the message that it receives.
    ///
    /// [`QueuePair::post_recv`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the buffer is of another protection domain, and, with ENOMEM, where the queue is
    /// full; those of [`QueuePair::post_recv`].
    pub fn receive(&mut self, buffer: Buffer) -> Result<(), BufferRefused> {
        let length = buffer.len();
        self.post(buffer, length, |qp, wr_id, scatter| {
            // SAFETY: as in `send`.
            unsafe { qp.post_recv(&ReceiveRequest { wr_id, scatter }) }
        })
    }

    /// Has `post` post a request over `length` bytes of `buffer`.
    fn post(
        &mut self,
        buffer: Buffer,
        length: usize,
        post: impl FnOnce(&QueuePair, u64, &[super::Sge]) -> Result<()>,
    ) -> Result<(), BufferRefused> {
        let invalid = |errno, reason: &'static str| {
            let kind = ErrorKind::Invalid { errno, reason: reason.into() };
            Error::new("post a buffer to", format!("queue pair {}", self.qp.number()), kind)
        };
        let refused = |buffer, error| Err(BufferRefused { buffer: Some(buffer), error });
        if buffer.pd() != self.qp.pd() {
            return refused(buffer, invalid(libc::EINVAL, "it is of another protection domain"));
        }
        let Some(piece) = buffer.sge(length) else {
            return refused(buffer, invalid(libc::EINVAL, "it has fewer bytes"));
        };
        let Some(place) = self.free.pop() else {
            return refused(buffer, invalid(libc::ENOMEM, "the queues are full"));
        };
        self.posted[place] = Some(buffer);
        let place_bits = u64::try_from(place).expect("24 bits fit");
        let posted = post(&self.qp, self.number << PLACE_BITS | place_bits, &[piece]);
        posted.map_err(|error| {
            let is_posted = !matches!(
                error.kind(),
                ErrorKind::Invalid { .. }
                    | ErrorKind::Unposted { .. }
                    | ErrorKind::Unsupported(_)
                    | ErrorKind::WouldDeadlock(_)
                    | ErrorKind::WrongProcess(_)
            );
            let buffer = if is_posted { None } else { self.take(place) };
            BufferRefused { buffer, error }
        })
    }

    /// Hands over what has completed, with the buffers; how many.
    ///
    /// [`CompletionQueue::poll`].
    ///
    /// # Errors
    ///
    /// Those of [`CompletionQueue::poll`].
    pub fn poll(&mut self, mut each: impl FnMut(Buffer, &Completion)) -> Result<usize> {
        let (sends, receives) = (self.qp.send_cq().clone(), self.qp.recv_cq().clone());
        let polled = self.poll_queue(&receives, &mut each)?;
        match sends.token() == receives.token() {
            true => Ok(polled),
            false => Ok(polled + self.poll_queue(&sends, &mut each)?),
        }
    }

    fn poll_queue(
        &mut self,
        cq: &CompletionQueue,
        each: &mut impl FnMut(Buffer, &Completion),
    ) -> Result<usize> {
        let mut some = [Completion::default(); 16];
        let mut polled = 0;
        loop {
            let count = cq.poll(&mut some)?;
            for completion in &some[..count] {
                if let Some(buffer) = self.place(completion).and_then(|place| self.take(place)) {
                    polled += 1;
                    each(buffer, completion);
                }
            }
            // Others may complete meanwhile, for ever.
            if count < some.len() || polled >= self.posted.len() {
                return Ok(polled);
            }
        }
    }

    /// The place of the request that has completed, if it is of here.
    fn place(&self, completion: &Completion) -> Option<usize> {
        let wr_id = completion.wr_id();
        let is_ours = wr_id >> PLACE_BITS == self.number && completion.qp_num() == self.qp.number();
        let place = usize::try_from(wr_id & ((1 << PLACE_BITS) - 1)).expect("24 bits fit");
        Some(place).filter(|place| is_ours && *place < self.posted.len())
    }

    /// The buffer at a place, which is free then.
    fn take(&mut self, place: usize) -> Option<Buffer> {
        let buffer = self.posted[place].take();
        if buffer.is_some() {
            self.free.push(place);
        }
        buffer
    }
}

impl Drop for BufferQueues {
    fn drop(&mut self) {
        // The buffers of a forked child are memory of its own, which no device knows.
        if self.qp.inner.object.belongs_here() {
            self.leave();
        }
    }
}

impl BufferQueues {
    /// Leaves the buffers that are posted to the queue pair.
    fn leave(&mut self) {
        let left = self.posted.drain(..).flatten();
        unpoisoned(self.qp.inner.kept.lock()).extend(left);
    }
}
