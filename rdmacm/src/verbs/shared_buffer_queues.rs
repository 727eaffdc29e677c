//! Posting of buffers to queues that many queue pairs share, without `unsafe` in the caller.
//!
//! # Safety
//!
//! The buffer of a request enters the table of its queue before the request is posted. It stays
//! there until its completion has been polled, or until the queue has been destroyed. No code in
//! this process reads or writes the buffer while it is in the table. The buffer leaves the table
//! without a completion only if the request did not enter the queue. If the kernel refuses to
//! destroy the queue, the remaining buffers are leaked, because the device may use them.
//!
//! A completion is matched to a request by an identifier that no other request of this process has
//! ever had. It is accepted only from a [`Batch`] that has polled it. A late completion of a
//! destroyed queue pair matches nothing, even if another queue pair has the same number by then.
#![expect(unsafe_code, reason = "posts requests over buffers that it holds")]

use std::borrow::Cow;
use std::mem;

use super::buffer::RegisteredBuffer;
use super::completion::CompletionQueue;
use super::outstanding::InFlightTable;
use super::queue_pair::QueuePair;
use super::srq::SharedReceiveQueue;
use super::{Completion, Payload, ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge};
use crate::error::{Error, ErrorKind, Result};

/// Number of completions that one poll takes from a completion queue.
const BATCH: usize = 32;

/// Completions that were polled from a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    done: [Completion; BATCH],
    count: usize,
}

/// A completion that was polled from a completion queue.
#[derive(Debug)]
pub(crate) struct Polled<'a>(&'a Completion);

impl Polled<'_> {
    pub(crate) fn completion(&self) -> &Completion {
        self.0
    }
}

impl Batch {
    /// Polls up to 32 completions from `cq`, which replace those of the previous poll.
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`].
    pub(crate) fn poll(&mut self, cq: &CompletionQueue) -> Result<()> {
        self.count = 0;
        self.count = cq.poll(&mut self.done)?;
        Ok(())
    }

    /// Returns the number of completions.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns `true` if there was room for more completions, so that the completion queue was
    /// empty.
    pub(crate) fn has_room(&self) -> bool {
        self.count < BATCH
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Polled<'_>> {
        self.done[..self.count].iter().map(Polled)
    }
}

/// The error of a request that could not be posted.
#[derive(Debug)]
pub(crate) struct NotQueued<T> {
    /// The buffer; `None` if the device may still execute the request.
    pub(crate) buffer: Option<T>,
    pub(crate) error: Error,
}

/// A shared receive queue and the buffers that are posted to it.
#[derive(Debug)]
pub(crate) struct OwnedReceives {
    /// `None` while the value is being dropped.
    srq: Option<SharedReceiveQueue>,
    posted: InFlightTable<RegisteredBuffer>,
}

impl OwnedReceives {
    /// Takes over posting to `srq`, and allocates memory to have `buffers` buffers posted at once.
    pub(crate) fn new(srq: SharedReceiveQueue, buffers: usize) -> Self {
        let mut posted = InFlightTable::new(srq.attributes().max_wr);
        posted.reserve(buffers);
        Self { srq: Some(srq), posted }
    }

    pub(crate) fn srq(&self) -> &SharedReceiveQueue {
        self.srq.as_ref().expect("only dropping takes the queue")
    }

    /// Returns the number of posted buffers.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Posts a receive into `buffer`, which completes on the completion queue of the receiving
    /// queue pair.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`SharedReceiveQueue::post_recv`]:
    /// - [`ErrorKind::InvalidInput`] if `buffer` belongs to another protection domain.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    pub(crate) fn post(
        &mut self,
        buffer: RegisteredBuffer,
    ) -> Result<(), NotQueued<RegisteredBuffer>> {
        let srq = self.srq.as_ref().expect("only dropping takes the queue");
        let subject = || "a shared receive queue";
        let Some(entry) = entry(&buffer, buffer.len(), srq.pd()) else {
            let reason = refusal_reason(&buffer, buffer.len(), srq.pd());
            return Err(refused_post(buffer, subject(), libc::EINVAL, reason));
        };
        let wr_id = match self.posted.put(buffer) {
            Ok(wr_id) => wr_id,
            Err(buffer) => {
                return Err(refused_post(buffer, subject(), libc::ENOMEM, "the queue is full"));
            }
        };
        let request = ReceiveRequest { wr_id, scatter: &[entry] };
        // SAFETY: the request names no memory except the buffer's. The buffer is in the table,
        // where no code reads or writes it, until the request has completed or the queue is
        // destroyed. The buffer keeps its memory allocated and registered. The identifier is from
        // the table and therefore unique.
        let posted = unsafe { srq.post_recv(&request) };
        posted.map_err(|error| refused(&mut self.posted, wr_id, error))
    }

    /// Takes the buffer of the completed request, if the request was posted here.
    pub(crate) fn take(&mut self, polled: &Polled<'_>) -> Option<RegisteredBuffer> {
        self.posted.take(polled.completion().wr_id())
    }
}

impl Drop for OwnedReceives {
    fn drop(&mut self) {
        let destroyed = self.srq.take().map(SharedReceiveQueue::destroy);
        if !matches!(destroyed, Some(Ok(()))) {
            self.posted.drain().for_each(mem::forget);
        }
    }
}

/// The send queue of a queue pair, and the buffers that are posted to it.
///
/// Each buffer has a number that the caller chooses.
#[derive(Debug)]
pub(crate) struct OwnedSends {
    /// `None` while the value is being dropped.
    qp: Option<QueuePair>,
    posted: InFlightTable<(u32, Option<RegisteredBuffer>)>,
}

impl OwnedSends {
    /// Takes over posting to the send queue of `qp`.
    pub(crate) fn new(qp: QueuePair) -> Self {
        Self { posted: InFlightTable::new(qp.caps().max_send_wr), qp: Some(qp) }
    }

    pub(crate) fn qp(&self) -> &QueuePair {
        self.qp.as_ref().expect("only destroying takes the queue pair")
    }

    /// Posts a signaled request over the first `length` bytes of `buffer`, which completes with
    /// `number`.
    ///
    /// A request over no bytes needs no buffer.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`QueuePair::post_send`]:
    /// - [`ErrorKind::InvalidInput`] if `buffer` is shorter or belongs to another protection
    ///   domain.
    /// - [`ErrorKind::InvalidInput`] if `operation` is not a send, a write or a read over a buffer alone.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    pub(crate) fn post(
        &mut self,
        number: u32,
        buffer: Option<RegisteredBuffer>,
        length: usize,
        operation: SendOperation<'_>,
    ) -> Result<(), NotQueued<Option<RegisteredBuffer>>> {
        let qp = self.qp.as_ref().expect("only destroying takes the queue pair");
        let subject = || format!("queue pair {}", qp.number());
        let is_over_buffer = matches!(
            operation,
            SendOperation::Send
                | SendOperation::SendWithImm { .. }
                | SendOperation::SendWithInvalidate { .. }
                | SendOperation::Write { .. }
                | SendOperation::WriteWithImm { .. }
                | SendOperation::Read { .. }
        );
        let entry = match &buffer {
            _ if !is_over_buffer => None,
            None => (length == 0).then_some(None),
            Some(buffer) => entry(buffer, length, qp.pd()).map(Some),
        };
        let Some(entry) = entry else {
            let reason: Cow<'static, str> = match &buffer {
                _ if !is_over_buffer => "only sends, writes and reads use a buffer".into(),
                None => format!("a request over {length} bytes needs a buffer").into(),
                Some(buffer) => refusal_reason(buffer, length, qp.pd()),
            };
            return Err(refused_post(buffer, subject(), libc::EINVAL, reason));
        };
        let wr_id = match self.posted.put((number, buffer)) {
            Ok(wr_id) => wr_id,
            Err((_, buffer)) => {
                return Err(refused_post(buffer, subject(), libc::ENOMEM, "the queue is full"));
            }
        };
        // Some hardware takes an entry of length 0 for one of 2 GiB.
        let entry = entry.filter(|entry| entry.length > 0);
        let payload = Payload::Gather(entry.as_slice());
        let request = SendRequest { wr_id, operation, payload, flags: SendFlags::SIGNALED };
        // SAFETY: the request names no memory of this process except the buffer's. The buffer is in
        // the table, where no code reads or writes it, until the request has completed or the queue
        // pair is destroyed. The buffer keeps its memory allocated and registered. The identifier
        // is from the table and therefore unique.
        let posted = unsafe { qp.post_send(&request) };
        posted.map_err(|error| {
            let NotQueued { buffer, error } = refused(&mut self.posted, wr_id, error);
            NotQueued { buffer: buffer.map(|(_, buffer)| buffer), error }
        })
    }

    /// Returns the number of posted requests.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Takes the number and the buffer of the completed request, if the request was posted here.
    pub(crate) fn take(&mut self, polled: &Polled<'_>) -> Option<(u32, Option<RegisteredBuffer>)> {
        self.posted.take(polled.completion().wr_id())
    }

    /// Destroys the queue pair and returns the posted buffers.
    ///
    /// If the kernel refuses, the buffers are leaked and the result is empty.
    pub(crate) fn destroy(mut self) -> Vec<RegisteredBuffer> {
        self.release()
    }

    fn release(&mut self) -> Vec<RegisteredBuffer> {
        let destroyed = self.qp.take().map(QueuePair::destroy);
        let posted = self.posted.drain().filter_map(|(_, buffer)| buffer);
        match destroyed {
            Some(Ok(())) => posted.collect(),
            _ => {
                posted.for_each(mem::forget);
                Vec::new()
            }
        }
    }
}

impl Drop for OwnedSends {
    fn drop(&mut self) {
        drop(self.release());
    }
}

/// Returns the scatter/gather entry of the first `length` bytes of `buffer`.
///
/// Returns `None` if the buffer is shorter or belongs to another protection domain than `pd`.
fn entry(buffer: &RegisteredBuffer, length: usize, pd: &super::ProtectionDomain) -> Option<Sge> {
    if buffer.pd() == pd { buffer.sge(length) } else { None }
}

/// Returns the reason why `buffer` has no [`entry`].
#[cold]
fn refusal_reason(
    buffer: &RegisteredBuffer,
    length: usize,
    pd: &super::ProtectionDomain,
) -> Cow<'static, str> {
    if buffer.pd() == pd {
        format!("length {length} exceeds the {} bytes of the buffer", buffer.len()).into()
    } else {
        "the buffer belongs to another protection domain".into()
    }
}

#[cold]
fn refused_post<T>(
    buffer: T,
    subject: impl Into<Cow<'static, str>>,
    errno: i32,
    reason: impl Into<Cow<'static, str>>,
) -> NotQueued<T> {
    let kind = ErrorKind::InvalidInput { errno, reason: reason.into() };
    NotQueued { buffer: Some(buffer), error: Error::new("post a buffer to", subject, kind) }
}

/// Takes the buffer of a refused request from the table, unless the device may still execute it.
///
/// Only [`ErrorKind::InvalidInput`] and [`ErrorKind::PartiallyPosted`] mean that the request is not
/// in the queue.
#[cold]
fn refused<T>(posted: &mut InFlightTable<T>, wr_id: u64, error: Error) -> NotQueued<T> {
    let is_out =
        matches!(error.kind(), ErrorKind::InvalidInput { .. } | ErrorKind::PartiallyPosted { .. });
    NotQueued { buffer: if is_out { posted.take(wr_id) } else { None }, error }
}
