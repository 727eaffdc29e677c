//! Posting buffers to queues that many queue pairs share, without `unsafe` in the caller.
//!
//! # Safety
//!
//! The buffer of a request is in the table of its queue from before the request is posted until its completion has been
//! polled, or the queue was destroyed. Nothing in this process reads or writes the buffer in the table. It leaves the table
//! without a completion only if the request did not get into the queue. A table that still has buffers when the kernel
//! refuses to destroy the queue is leaked: the device may use the buffers.
//!
//! A completion is taken for that of a request by an identifier that no other request of this process has ever had, and only
//! after a [`Batch`] has taken it off a completion queue: a late completion of a queue pair that was destroyed finds nothing,
//! also if another queue pair has the same number by then.
#![expect(unsafe_code, reason = "posts requests over buffers that it holds")]

use std::mem;

use super::buffer::Buffer;
use super::completion::CompletionQueue;
use super::outstanding::Outstanding;
use super::queue_pair::QueuePair;
use super::srq::SharedReceiveQueue;
use super::{Completion, Payload, ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge};
use crate::error::{Error, ErrorKind, Result};

/// The number of completions that one poll takes off a completion queue.
const BATCH: usize = 32;

/// Completions that were taken off a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    done: [Completion; BATCH],
    count: usize,
}

/// A completion that was taken off a completion queue.
#[derive(Debug)]
pub(crate) struct Polled<'a>(&'a Completion);

impl Polled<'_> {
    pub(crate) fn completion(&self) -> &Completion {
        self.0
    }
}

impl Batch {
    /// Takes up to 32 completions off `cq`, in place of those that were taken before.
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

    /// Returns `true` if there was room for more completions: the completion queue was empty then.
    pub(crate) fn has_room(&self) -> bool {
        self.count < BATCH
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Polled<'_>> {
        self.done[..self.count].iter().map(Polled)
    }
}

/// A request that could not be posted.
#[derive(Debug)]
pub(crate) struct NotQueued<T> {
    /// The buffer; `None` if the device may still execute the request.
    pub(crate) buffer: Option<T>,
    pub(crate) error: Error,
}

/// A shared receive queue, and the buffers that are posted to it.
#[derive(Debug)]
pub(crate) struct OwnedReceives {
    /// Absent while it is dropped.
    srq: Option<SharedReceiveQueue>,
    posted: Outstanding<Buffer>,
}

impl OwnedReceives {
    /// Takes over the posting to `srq`, and allocates what it takes to have `buffers` posted at once.
    pub(crate) fn new(srq: SharedReceiveQueue, buffers: usize) -> Self {
        let mut posted = Outstanding::new(srq.attributes().max_wr);
        posted.reserve(buffers);
        Self { srq: Some(srq), posted }
    }

    pub(crate) fn srq(&self) -> &SharedReceiveQueue {
        self.srq.as_ref().expect("only dropping takes the queue")
    }

    /// Returns the number of buffers that are posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Posts a receive into `buffer`. A completion on the completion queue of the receiving queue pair follows.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] if `buffer` belongs to another protection domain, or, with ENOMEM, if the queue is full.
    /// - Those of [`SharedReceiveQueue::post_recv`].
    pub(crate) fn post(&mut self, buffer: Buffer) -> Result<(), NotQueued<Buffer>> {
        let srq = self.srq.as_ref().expect("only dropping takes the queue");
        let subject = || "a shared receive queue";
        let Some(entry) = entry(&buffer, buffer.len(), srq.pd()) else {
            return Err(unfit(buffer, subject(), libc::EINVAL, UNFIT));
        };
        let wr_id = match self.posted.put(buffer) {
            Ok(wr_id) => wr_id,
            Err(buffer) => return Err(unfit(buffer, subject(), libc::ENOMEM, "the queue is full")),
        };
        let request = ReceiveRequest { wr_id, scatter: &[entry] };
        // SAFETY: the request names no memory but that of the buffer, which is in the table, where nothing reads or writes it,
        // until the request has completed or the queue is destroyed; the buffer keeps the memory allocated and registered. The
        // identifier comes from the table, and so is no other's.
        let posted = unsafe { srq.post_recv(&request) };
        posted.map_err(|error| refused(&mut self.posted, wr_id, error))
    }

    /// Takes the buffer of the request that has completed, if it was posted here.
    pub(crate) fn take(&mut self, polled: &Polled<'_>) -> Option<Buffer> {
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

/// The send queue of a queue pair, and the buffers that are posted to it, each with a number that the caller chooses.
#[derive(Debug)]
pub(crate) struct OwnedSends {
    /// Absent while it is dropped.
    qp: Option<QueuePair>,
    posted: Outstanding<(u32, Option<Buffer>)>,
}

impl OwnedSends {
    /// Takes over the posting to the send queue of `qp`.
    pub(crate) fn new(qp: QueuePair) -> Self {
        Self { posted: Outstanding::new(qp.caps().max_send_wr), qp: Some(qp) }
    }

    pub(crate) fn qp(&self) -> &QueuePair {
        self.qp.as_ref().expect("only destroying takes the queue pair")
    }

    /// Posts a request over the first `length` bytes of `buffer`, signaled, which completes with `number`. A request over
    /// no bytes needs no buffer.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] if `buffer` is shorter or belongs to another protection domain, if `operation` is not one
    ///   over a buffer alone, or, with ENOMEM, if the queue is full.
    /// - Those of [`QueuePair::post_send`].
    pub(crate) fn post(
        &mut self,
        number: u32,
        buffer: Option<Buffer>,
        length: usize,
        operation: SendOperation<'_>,
    ) -> Result<(), NotQueued<Option<Buffer>>> {
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
            return Err(unfit(buffer, subject(), libc::EINVAL, UNFIT));
        };
        let wr_id = match self.posted.put((number, buffer)) {
            Ok(wr_id) => wr_id,
            Err((_, buffer)) => {
                return Err(unfit(buffer, subject(), libc::ENOMEM, "the queue is full"));
            }
        };
        // Some hardware takes an entry of length 0 for one of 2 GiB.
        let entry = entry.filter(|entry| entry.length > 0);
        let payload = Payload::Gather(entry.as_slice());
        let request = SendRequest { wr_id, operation, payload, flags: SendFlags::SIGNALED };
        // SAFETY: the request names no memory of this process but that of the buffer, which is in the table, where nothing
        // reads or writes it, until the request has completed or the queue pair is destroyed; the buffer keeps the memory
        // allocated and registered. The identifier comes from the table, and so is no other's.
        let posted = unsafe { qp.post_send(&request) };
        posted.map_err(|error| {
            let NotQueued { buffer, error } = refused(&mut self.posted, wr_id, error);
            NotQueued { buffer: buffer.map(|(_, buffer)| buffer), error }
        })
    }

    /// Returns the number of requests that are posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Takes the number and the buffer of the request that has completed, if it was posted here.
    pub(crate) fn take(&mut self, polled: &Polled<'_>) -> Option<(u32, Option<Buffer>)> {
        self.posted.take(polled.completion().wr_id())
    }

    /// Destroys the queue pair. Returns the buffers that were posted; none if the kernel refuses: they are leaked then.
    pub(crate) fn destroy(mut self) -> Vec<Buffer> {
        self.release()
    }

    fn release(&mut self) -> Vec<Buffer> {
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

const UNFIT: &str = "the buffer is too short or of another protection domain, or the operation is not one over a buffer";

/// Returns the scatter/gather entry of the first `length` bytes of `buffer`.
fn entry(buffer: &Buffer, length: usize, pd: &super::ProtectionDomain) -> Option<Sge> {
    if buffer.pd() == pd { buffer.sge(length) } else { None }
}

#[cold]
fn unfit<T>(
    buffer: T,
    subject: impl Into<std::borrow::Cow<'static, str>>,
    errno: i32,
    reason: &'static str,
) -> NotQueued<T> {
    let kind = ErrorKind::Invalid { errno, reason: reason.into() };
    NotQueued { buffer: Some(buffer), error: Error::new("post a buffer to", subject, kind) }
}

/// Takes the buffer of a request that was refused out of the table, unless the device may still execute the request.
///
/// Only these two kinds say that the request is not in the queue.
#[cold]
fn refused<T>(posted: &mut Outstanding<T>, wr_id: u64, error: Error) -> NotQueued<T> {
    let is_out = matches!(error.kind(), ErrorKind::Invalid { .. } | ErrorKind::Unposted { .. });
    NotQueued { buffer: if is_out { posted.take(wr_id) } else { None }, error }
}
