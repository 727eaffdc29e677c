//! Posting of owned buffers, and their return on completion ([`BufferedQueuePair`]).
//!
//! # Safety
//!
//! The buffer of a request is in the table from before the request is posted until its completion
//! has been polled. If the queues are dropped earlier, the buffer moves to the queue pair until the
//! queue pair is destroyed. In neither place can other code access the buffer.
//!
//! The buffer returns without a completion only if the request did not enter the queue, or was
//! removed from it. A completion is matched to a request by the queue pair number and by the
//! identifier. No other request of this process has ever had that identifier. The contract of
//! posting by hand keeps identifiers distinct.
#![expect(unsafe_code, reason = "posts requests over buffers that it holds")]

use std::borrow::Cow;
use std::{mem, slice};

use super::address_handle::AddressHandle;
use super::buffer::RegisteredBuffer;
use super::companion::{Companion, Companions, Released};
use super::memory_window::BindRequest;
use super::outstanding::InFlightTable;
use super::post::OwnedRings;
use super::queue_pair::QueuePair;
use super::{
    Completion, Destination, Payload, QpType, QueuePairCaps, ReceiveRequest, SendFlags,
    SendOperation, SendRequest, Sge,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::ignore_poison;

/// The two queues of a queue pair, to which [`RegisteredBuffer`]s are posted without `unsafe`.
///
/// A post takes a buffer, and its completion returns the buffer.
///
/// The value owns both queues and the completion queues that they use. Until it is dropped, posting
/// to the queue pair and polling its completion queues by other means fail with
/// [`ErrorKind::InvalidInput`]. Posting and polling take no lock. Completions of requests that were
/// posted earlier, or by another queue pair on the completion queues, are lost.
///
/// When the value is dropped, posted buffers stay with the queue pair until it is destroyed. The
/// queue pair is destroyed when its last handle is dropped, and an id may hold a handle.
///
/// # Examples
///
/// A thread that sleeps arms the completion queue and polls again first. Here sends and receives
/// share one completion queue, which was created with a channel:
///
/// ```no_run
/// use rdmacm::verbs::{BufferedQueuePair, RegisteredBuffer};
///
/// /// Waits until requests have completed, and takes their buffers.
/// fn wait(queues: &mut BufferedQueuePair, done: &mut Vec<RegisteredBuffer>) -> rdmacm::Result<()> {
///     let cq = queues.qp().send_cq().clone();
///     let channel = cq.channel().expect("a channel");
///     while queues.poll(|buffer, _| done.push(buffer))? == 0 {
///         cq.request_notify(false)?;
///         if queues.poll(|buffer, _| done.push(buffer))? > 0 {
///             break;
///         }
///         channel.get_event()?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct BufferedQueuePair {
    rings: OwnedRings,
    /// The buffers of the posted requests.
    posted: InFlightTable<RegisteredBuffer>,
    companions: Companions,
    /// Storage for the completions of one poll.
    done: [Completion; SMALL_BATCH],
}

/// The error of a failed post, with the buffer that could not be posted.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PostBufferError {
    /// The buffer, or `None` if the request is still in the queue.
    ///
    /// The device may then still process the request. It keeps the buffer until its completion is
    /// polled or the queue pair is destroyed.
    pub buffer: Option<RegisteredBuffer>,
    /// The cause.
    pub error: Error,
}

impl From<PostBufferError> for Error {
    /// Returns the error and drops the buffer.
    fn from(refused: PostBufferError) -> Self {
        refused.error
    }
}

impl BufferedQueuePair {
    /// Takes the queues of `qp` and its completion queues.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if another `BufferedQueuePair` owns one of the queues.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread holds one of the queues.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    pub fn new(qp: QueuePair) -> Result<Self> {
        let (posted, companions) = tables(qp.qp_type(), qp.caps());
        let rings = OwnedRings::take(qp)?;
        Ok(Self { rings, posted, companions, done: Default::default() })
    }

    /// Allocates memory to have `buffers` buffers posted at once, up to the capacity of the queues.
    ///
    /// Without this call, the memory is allocated when that number is reached for the first time.
    pub fn reserve(&mut self, buffers: usize) {
        self.posted.reserve(buffers);
    }

    /// Returns the queue pair.
    pub fn qp(&self) -> &QueuePair {
        self.rings.qp()
    }

    /// Leaves all commands to the caller, except those that post and poll.
    ///
    /// The caller destroys objects whose last handles belonged to requests: see
    /// [`take_released`](Self::take_released). It flushes requests that are posted in ERR: see
    /// [`owes_flush`](Self::owes_flush).
    pub(crate) fn defer_commands(&mut self) {
        self.companions.released = Some(Vec::new());
        let qp = self.qp();
        qp.engine().defer_flush();
        qp.recv_cq().engine().defer_commands();
        qp.send_cq().engine().defer_commands();
    }

    /// Returns `true` if a request was posted in ERR and not flushed.
    ///
    /// [`flush_deferred`](QueuePair::flush_deferred) flushes it.
    #[inline(always)]
    pub(crate) fn owes_flush(&self) -> bool {
        self.qp().engine().owes_flush()
    }

    /// Returns `true` if [`take_released`](Self::take_released) returns objects.
    #[inline(always)]
    pub(crate) fn has_released(&self) -> bool {
        self.companions.released.as_ref().is_some_and(|released| !released.is_empty())
    }

    /// Takes the objects that completed requests have used, which are destroyed when dropped.
    pub(crate) fn take_released(&mut self) -> Vec<Released> {
        self.companions.released.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Returns the number of posted buffers.
    pub fn outstanding(&self) -> usize {
        self.posted.len()
    }

    /// Posts a request that sends or writes the first `length` bytes of `buffer`, or reads into
    /// them.
    ///
    /// The request is signaled, and its completion returns the buffer. An atomic uses 8 bytes,
    /// which receive the previous value. For datagrams, use [`post_send_to`](Self::post_send_to).
    /// See also [`QueuePair::post_send`].
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`QueuePair::post_send`]:
    /// - [`ErrorKind::InvalidInput`] if `length` exceeds the buffer, or if the buffer belongs to
    ///   another protection domain.
    /// - [`ErrorKind::InvalidInput`] if the operation is not a send, a write, a read, `CompareSwap`
    ///   or `FetchAdd`.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    #[inline(always)]
    pub fn post_send(
        &mut self,
        buffer: RegisteredBuffer,
        length: usize,
        operation: SendOperation<'_>,
    ) -> Result<(), PostBufferError> {
        let is_over_the_buffer = matches!(
            operation,
            SendOperation::Send
                | SendOperation::SendWithImm { .. }
                | SendOperation::SendWithInvalidate { .. }
                | SendOperation::Write { .. }
                | SendOperation::WriteWithImm { .. }
                | SendOperation::Read { .. }
                | SendOperation::CompareSwap { .. }
                | SendOperation::FetchAdd { .. }
        );
        if !is_over_the_buffer {
            let reason = "only sends, writes, reads, `CompareSwap` and `FetchAdd` use a buffer; post datagrams with `post_send_to`";
            return Err(self.refused_post(buffer, libc::EINVAL, reason));
        }
        let (wr_id, sge) = self.put(buffer, length)?;
        self.post(wr_id, sge, operation)
    }

    /// Posts a request that sends the first `length` bytes of `buffer` as a datagram.
    ///
    /// The receiver is the queue pair `qp_num` with the Q_Key `qkey` at `address`. The request is a
    /// signaled [`SendOperation::SendTo`], and its completion returns the buffer. The address
    /// handle is held until then.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the address handle belongs to another protection domain, or
    ///   if the queue pair is not a datagram queue pair.
    #[inline(always)]
    pub fn post_send_to(
        &mut self,
        buffer: RegisteredBuffer,
        length: usize,
        address: &AddressHandle,
        qp_num: u32,
        qkey: u32,
        imm_data: Option<u32>,
    ) -> Result<(), PostBufferError> {
        let (wr_id, sge) = self.put(buffer, length)?;
        self.companions.in_use.push_back((wr_id, Companion::Address(address.clone())));
        let destination = Destination { address, qp_num, qkey };
        self.post(wr_id, sge, SendOperation::SendTo { destination, imm_data })
    }

    /// Posts a request that binds a memory window.
    ///
    /// `request` is posted signaled and with an identifier of these queues. The completion returns
    /// `buffer`, which the request does not use. The window is held until then.
    ///
    /// # Errors
    ///
    /// In addition to the errors of
    /// [`SendQueueGuard::bind_window`](super::SendQueueGuard::bind_window):
    /// - [`ErrorKind::InvalidInput`] if the region covers memory of the program
    ///   ([`MemoryRegion::register`](super::MemoryRegion::register)), to which the program may hold
    ///   references.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_POST_SEND`, as the doorbell.
    pub fn bind_window(
        &mut self,
        buffer: RegisteredBuffer,
        request: &BindRequest<'_>,
    ) -> Result<(), PostBufferError> {
        if !request.region.is_over_memory() {
            let reason = "the memory region must be over a `DmaMemory`";
            return Err(self.refused_post(buffer, libc::EINVAL, reason));
        }
        let (wr_id, _) = self.put(buffer, 0)?;
        self.companions
            .in_use
            .push_back((wr_id, Companion::Window { _held: request.window.clone() }));
        let request = BindRequest { wr_id, flags: request.flags | SendFlags::SIGNALED, ..*request };
        // SAFETY: the window holds the registration, so it stays until the bind has completed or is
        // refused by the kernel. The memory is a `DmaMemory`, so any access is as if the region had
        // been registered with it. The identifier is from the table of these queues.
        let posted = unsafe { bind_slow(&mut self.rings, &request) };
        posted.map_err(|failure| self.refused(wr_id, failure))
    }

    /// Posts request `wr_id` over `sge` of the buffer that [`put`](Self::put) has stored.
    #[inline(always)]
    fn post(
        &mut self,
        wr_id: u64,
        sge: Sge,
        operation: SendOperation<'_>,
    ) -> Result<(), PostBufferError> {
        let payload = Payload::Gather(slice::from_ref(&sge));
        let request = SendRequest { wr_id, operation, payload, flags: SendFlags::SIGNALED };
        let tried = match sge.length {
            0 => None,
            // SAFETY: the request names no memory except the buffer's. `put` has moved the buffer
            // into a table. It stays there until the request has completed or the queue pair is
            // destroyed, unless the request is not posted. The buffer keeps its memory allocated
            // and registered. While it is stored there, no code writes or reads the memory. The
            // identifier is from the table of these queues.
            _ => unsafe { self.rings.try_post_send(&request) },
        };
        let posted = match tried {
            Some(rung) => rung.map_err(Failure::of_doorbell),
            // SAFETY: as above.
            None => unsafe { send_slow(&mut self.rings, &request) },
        };
        posted.map_err(|failure| self.refused(wr_id, failure))
    }

    /// Posts a receive into `buffer`.
    ///
    /// The completion of the received message returns the buffer. See also
    /// [`QueuePair::post_recv`].
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`QueuePair::post_recv`]:
    /// - [`ErrorKind::InvalidInput`] if the buffer belongs to another protection domain.
    /// - [`ErrorKind::InvalidInput`] with ENOMEM if the queue is full.
    #[inline(always)]
    pub fn post_recv(&mut self, buffer: RegisteredBuffer) -> Result<(), PostBufferError> {
        let length = buffer.len();
        let (wr_id, sge) = self.put(buffer, length)?;
        let request = ReceiveRequest { wr_id, scatter: &[sge] };
        // SAFETY: as in `post`.
        let posted = match unsafe { self.rings.try_post_recv(&request) } {
            Some(rung) => rung.map_err(Failure::of_doorbell),
            // SAFETY: as in `post`.
            None => unsafe { receive_slow(&mut self.rings, wr_id, sge) },
        };
        posted.map_err(|failure| self.refused(wr_id, failure))
    }

    /// Stores a buffer in the table for a request over its first `length` bytes.
    ///
    /// Returns the identifier of the request and the scatter/gather entry.
    #[inline(always)]
    fn put(
        &mut self,
        buffer: RegisteredBuffer,
        length: usize,
    ) -> Result<(u64, Sge), PostBufferError> {
        if buffer.pd() != self.qp().pd() {
            return Err(self.refused_post(
                buffer,
                libc::EINVAL,
                "the buffer belongs to another protection domain",
            ));
        }
        let Some(sge) = buffer.sge(length) else {
            return Err(self.too_long(buffer, length));
        };
        match self.posted.put(buffer) {
            Ok(wr_id) => Ok((wr_id, sge)),
            Err(buffer) => Err(self.refused_post(buffer, libc::ENOMEM, "the queues are full")),
        }
    }

    /// Returns the error of a request over more bytes than `buffer` has.
    #[cold]
    fn too_long(&self, buffer: RegisteredBuffer, length: usize) -> PostBufferError {
        let reason = format!("length {length} exceeds the {} bytes of the buffer", buffer.len());
        self.refused_post(buffer, libc::EINVAL, reason)
    }

    #[cold]
    fn refused_post(
        &self,
        buffer: RegisteredBuffer,
        errno: i32,
        reason: impl Into<Cow<'static, str>>,
    ) -> PostBufferError {
        let kind = ErrorKind::InvalidInput { errno, reason: reason.into() };
        let subject = format!("queue pair {}", self.qp().number());
        PostBufferError {
            buffer: Some(buffer),
            error: Error::new("post a buffer to", subject, kind),
        }
    }

    /// Builds the error of a post.
    ///
    /// The error contains the buffer unless the request is in the queue.
    #[cold]
    fn refused(&mut self, wr_id: u64, Failure { error, is_posted }: Failure) -> PostBufferError {
        if is_posted {
            return PostBufferError { buffer: None, error };
        }
        // The object of this request, if any, is the last one.
        let in_use = &mut self.companions.in_use;
        if in_use.back().is_some_and(|(id, _)| *id == wr_id) {
            in_use.pop_back();
        }
        PostBufferError { buffer: self.posted.take(wr_id), error }
    }

    /// Passes completions and their buffers to `each`, and returns their number.
    ///
    /// See also [`CompletionQueue::poll`](super::CompletionQueue::poll).
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`](super::CompletionQueue::poll).
    pub fn poll(&mut self, mut each: impl FnMut(RegisteredBuffer, &Completion)) -> Result<usize> {
        Ok(self.poll_recv(&mut each)? + self.poll_send(each)?)
    }

    /// Passes completions of receives, with their buffers, to `each`, and returns their number.
    ///
    /// If sends and receives share one completion queue, completions of sends are included.
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`](super::CompletionQueue::poll).
    pub fn poll_recv(&mut self, each: impl FnMut(RegisteredBuffer, &Completion)) -> Result<usize> {
        let Self { rings, posted, companions, done } = self;
        let number = rings.qp().number();
        poll(done, number, posted, companions, |done| rings.poll_recv(done), each)
    }

    /// Passes completions of sends, with their buffers, to `each`, and returns their number.
    ///
    /// If sends and receives share one completion queue, the function returns 0, and
    /// [`poll_recv`](Self::poll_recv) polls both.
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`](super::CompletionQueue::poll).
    pub fn poll_send(&mut self, each: impl FnMut(RegisteredBuffer, &Completion)) -> Result<usize> {
        let Self { rings, posted, companions, done } = self;
        let number = rings.qp().number();
        let poll_ring = |done: &mut [Completion]| rings.poll_send(done).unwrap_or(Ok(0));
        poll(done, number, posted, companions, poll_ring, each)
    }
}

/// Posts a request of any kind, in any state of the queue pair.
///
/// Its payload may be a scatter/gather entry without bytes.
///
/// # Safety
///
/// The caller fulfills the contract of [`SendQueueGuard::push`](super::SendQueueGuard::push).
#[cold]
unsafe fn send_slow(rings: &mut OwnedRings, request: &SendRequest<'_>) -> Result<(), Failure> {
    let mut request = *request;
    if matches!(request.payload, Payload::Gather([Sge { length: 0, .. }])) {
        // Some hardware takes an entry of length 0 for one of 2 GiB.
        request.payload = Payload::Gather(&[]);
    }
    // SAFETY: the contract of this function is the contract of the callee.
    unsafe { rings.store_send(&request) }.map_err(Failure::unposted)?;
    rings.ring_send().map_err(Failure::of_doorbell)
}

/// Posts a bind, in any state of the queue pair.
///
/// # Safety
///
/// The caller fulfills the contract of
/// [`SendQueueGuard::bind_window`](super::SendQueueGuard::bind_window).
unsafe fn bind_slow(rings: &mut OwnedRings, request: &BindRequest<'_>) -> Result<(), Failure> {
    // SAFETY: the contract of this function is the contract of the callee.
    unsafe { rings.store_bind(request) }.map_err(Failure::unposted)?;
    rings.ring_send().map_err(Failure::of_doorbell)
}

/// Posts a receive request, in any state of the queue pair.
///
/// # Safety
///
/// The caller fulfills the contract of [`ReceiveQueueGuard::push`](super::ReceiveQueueGuard::push).
#[cold]
unsafe fn receive_slow(rings: &mut OwnedRings, wr_id: u64, sge: Sge) -> Result<(), Failure> {
    let request = ReceiveRequest { wr_id, scatter: &[sge] };
    // SAFETY: the contract of this function is the contract of the callee.
    unsafe { rings.store_recv(&request) }.map_err(Failure::unposted)?;
    rings.ring_recv().map_err(Failure::of_doorbell)
}

/// Returns empty tables for the posted buffers and address handles of a queue pair.
///
/// There is room for the buffers and address handles of a whole queue, so that posting allocates
/// nothing. Room for buffers is not allocated before it is used, because the reported capacity is
/// the kernel's claim alone.
fn tables(qp_type: QpType, caps: QueuePairCaps) -> (InFlightTable<RegisteredBuffer>, Companions) {
    let posted = InFlightTable::new(caps.max_send_wr.saturating_add(caps.max_recv_wr));
    let datagrams = match qp_type {
        QpType::IB_UVERBS_QPT_UD => caps.max_send_wr.min(MOST_DATAGRAMS),
        _ => 0,
    };
    let room = usize::try_from(datagrams).expect("17 bits fit");
    (posted, Companions::with_capacity(room))
}

/// Maximum number of address handles for which there is room from the start, in one megabyte.
const MOST_DATAGRAMS: u32 = 1 << 16;

/// Number of completions for which there is always room.
const SMALL_BATCH: usize = 2;

/// Number of completions that are polled at once if there are more.
const LARGE_BATCH: usize = 32;

/// Passes completions of queue pair `number`, polled by `poll_ring`, to `each`.
#[inline(always)]
fn poll(
    done: &mut [Completion],
    number: u32,
    posted: &mut InFlightTable<RegisteredBuffer>,
    companions: &mut Companions,
    mut poll_ring: impl FnMut(&mut [Completion]) -> Result<usize>,
    mut each: impl FnMut(RegisteredBuffer, &Completion),
) -> Result<usize> {
    let mut polled = 0;
    let count = poll_ring(done)?;
    for completion in done[..count].iter().filter(|completion| completion.qp_num() == number) {
        polled += usize::from(return_buffer(completion, posted, companions, &mut each));
    }
    if count == done.len() {
        polled += poll_many(number, posted, companions, &mut poll_ring, &mut each)?;
    }
    Ok(polled)
}

/// Continues a poll that has found as many completions as there was room for.
#[inline(never)]
fn poll_many(
    number: u32,
    posted: &mut InFlightTable<RegisteredBuffer>,
    companions: &mut Companions,
    poll_ring: &mut impl FnMut(&mut [Completion]) -> Result<usize>,
    each: &mut impl FnMut(RegisteredBuffer, &Completion),
) -> Result<usize> {
    let mut done = [Completion::default(); LARGE_BATCH];
    let mut polled = 0;
    // Requests may complete as fast as they are polled, so the number of posted requests bounds the
    // loop.
    while posted.len() > 0 {
        let count = poll_ring(&mut done)?;
        for completion in done[..count].iter().filter(|completion| completion.qp_num() == number) {
            polled += usize::from(return_buffer(completion, posted, companions, each));
        }
        if count < done.len() {
            break;
        }
    }
    Ok(polled)
}

/// Passes the buffer of a completed request to `each`.
///
/// Returns `false` if the buffer is not in the table.
///
/// Not inlined: most polls of a waiting thread find nothing, and should not prepare for this call.
#[inline(never)]
fn return_buffer(
    completion: &Completion,
    posted: &mut InFlightTable<RegisteredBuffer>,
    companions: &mut Companions,
    each: &mut impl FnMut(RegisteredBuffer, &Completion),
) -> bool {
    let Some(buffer) = posted.take(completion.wr_id()) else { return false };
    if !companions.in_use.is_empty() {
        companions.release(completion.wr_id());
    }
    each(buffer, completion);
    true
}

/// The error of a failed post. The request may be posted nevertheless.
struct Failure {
    error: Error,
    is_posted: bool,
}

impl Failure {
    /// Creates the error of a request that did not enter the queue.
    fn unposted(error: Error) -> Self {
        Self { error, is_posted: false }
    }

    /// Creates the error of the last request in the queue, whose doorbell failed.
    fn of_doorbell(error: Error) -> Self {
        let taken_back = matches!(
            error.kind(),
            ErrorKind::InvalidInput { .. } | ErrorKind::PartiallyPosted { .. }
        );
        Self { error, is_posted: !taken_back }
    }
}

impl Drop for BufferedQueuePair {
    fn drop(&mut self) {
        // Checked before any lock is taken. The buffers of a forked child are memory of its own,
        // which no device accesses.
        let qp = self.rings.qp();
        if qp.inner.object.is_owner() {
            if self.posted.len() == 0 {
                return;
            }
            let mut kept = ignore_poison(qp.inner.kept.lock());
            let kept = kept.get_or_insert_default();
            kept.buffers.extend(self.posted.drain());
            // A window is not kept: it holds the queue pair.
            kept.addresses.extend(self.companions.in_use.drain(..).filter_map(|(_, companion)| {
                match companion {
                    Companion::Address(address) => Some(address),
                    Companion::Window { .. } => None,
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests;
