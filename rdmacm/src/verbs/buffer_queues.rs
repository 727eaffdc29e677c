//! Posting buffers that are handed over, and getting them back.
//!
//! # Safety
//!
//! The buffer of a request is in the table from before the request is posted until its completion
//! has been polled, or with the queue pair until that is destroyed. In neither place anybody can
//! look at it. It comes back without a completion only where the request did not get into the
//! queue, or was taken back from there. A completion is taken for a request's by the queue pair's
//! number and by an identifier that no other request of this process has ever had, which the
//! contract of posting by hand keeps so.
#![expect(unsafe_code, reason = "posts requests over buffers that it holds")]

use std::collections::VecDeque;
use std::fmt::Debug;
use std::mem;

use super::address_handle::AddressHandle;
use super::buffer::Buffer;
use super::memory_window::{BindRequest, MemoryWindow};
use super::outstanding::Outstanding;
use super::post::OwnedRings;
use super::queue_pair::QueuePair;
use super::{
    Completion, Destination, Payload, QpType, QueuePairCaps, ReceiveRequest, SendFlags,
    SendOperation, SendRequest, Sge,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;

/// The two queues of a queue pair, to which [`Buffer`]s are posted without `unsafe`: a post takes a buffer, and its completion
/// gives it back.
///
/// They own the queues, and those that the requests complete on: until they are dropped, posting to the queue pair and polling
/// its completion queues by other means are errors ([`ErrorKind::Invalid`]). No lock is taken for a post or a poll. Completions
/// of requests that were posted before, or by another queue pair on the completion queues, are lost.
///
/// When they are dropped, the buffers that are posted stay with the queue pair until that is destroyed: after its last handle,
/// of which an id may have one.
#[derive(Debug)]
pub struct BufferQueues {
    rings: OwnedRings,
    /// The buffers of the requests that are posted.
    posted: Outstanding<Buffer>,
    companions: Companions,
    /// Room for what is polled at once.
    done: [Completion; FEW],
}

/// A buffer that could not be posted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BufferRefused {
    /// The buffer; absent where the request stands in the queue still, and the device may come to
    /// it: until its completion is polled, or the queue pair destroyed.
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
    /// Takes the queues of `qp`, and its completion queues.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] if another `BufferQueues` has one of the queues.
    /// - [`ErrorKind::WouldDeadlock`] if this thread holds one of the queues.
    /// - [`ErrorKind::WrongProcess`] after a fork.
    pub fn new(qp: QueuePair) -> Result<Self> {
        let (posted, companions) = tables(qp.qp_type(), qp.caps());
        let rings = OwnedRings::take(qp)?;
        Ok(Self { rings, posted, companions, done: Default::default() })
    }

    /// Allocates what it takes to have `buffers` posted at once, or as many as there may be. Without this that is
    /// allocated when there first are as many.
    pub fn reserve(&mut self, buffers: usize) {
        self.posted.reserve(buffers);
    }

    /// The queue pair.
    pub fn qp(&self) -> &QueuePair {
        self.rings.qp()
    }

    /// Leaves it to the caller to destroy the objects of which requests have had the last handle, because polls are not to issue
    /// commands: see [`take_released`](Self::take_released).
    pub(crate) fn defer_destruction(&mut self) {
        self.companions.released = Some(Vec::new());
    }

    /// Returns `true` if [`take_released`](Self::take_released) returns objects.
    #[inline(always)]
    pub(crate) fn has_released(&self) -> bool {
        self.companions.released.as_ref().is_some_and(|released| !released.is_empty())
    }

    /// Takes the objects that requests have used which have completed, and which are destroyed when they are dropped.
    pub(crate) fn take_released(&mut self) -> Vec<Released> {
        self.companions.released.as_mut().map(mem::take).unwrap_or_default()
    }

    /// How many buffers are posted.
    pub fn outstanding(&self) -> usize {
        self.posted.len()
    }

    /// Posts a request that sends or writes the first `length` bytes of `buffer`, or reads into
    /// them. A completion follows.
    ///
    /// [`QueuePair::post_send`], signalled. An atomic has 8 bytes, for what was there before. Datagrams
    /// are for [`send_to`](Self::send_to).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where `length` is more than the buffer has, where the buffer is of
    /// another protection domain, where the operation is another one, and, with ENOMEM, where the
    /// queue is full; those of [`QueuePair::post_send`].
    #[inline(always)]
    pub fn send(
        &mut self,
        buffer: Buffer,
        length: usize,
        operation: SendOperation<'_>,
    ) -> Result<(), BufferRefused> {
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
            let reason = "the operation is not one over a buffer alone";
            return Err(self.unfit(buffer, libc::EINVAL, reason));
        }
        let (wr_id, piece) = self.put(buffer, length)?;
        self.post(wr_id, piece, operation)
    }

    /// Posts a request that sends the first `length` bytes of `buffer` as a datagram to queue pair
    /// `qp_num`, which has `qkey`, at `address`. A completion follows; the address handle is held until
    /// then.
    ///
    /// [`SendOperation::SendTo`], signaled.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Self::send), and [`ErrorKind::Invalid`] if the address handle belongs to
    /// another protection domain or the queue pair has no datagrams.
    #[inline(always)]
    pub fn send_to(
        &mut self,
        buffer: Buffer,
        length: usize,
        address: &AddressHandle,
        qp_num: u32,
        qkey: u32,
        imm_data: Option<u32>,
    ) -> Result<(), BufferRefused> {
        let (wr_id, piece) = self.put(buffer, length)?;
        self.companions.in_use.push_back((wr_id, Companion::Address(address.clone())));
        let destination = Destination { address, qp_num, qkey };
        self.post(wr_id, piece, SendOperation::SendTo { destination, imm_data })
    }

    /// Posts a request that binds a memory window: `request`, signaled and with an identifier of these queues. A completion
    /// follows, with `buffer`, which the request does not use; the window is held until then.
    ///
    /// Kernel command: the doorbell, `IB_USER_VERBS_CMD_POST_SEND`.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`SendQueue::bind_window`](super::SendQueue::bind_window):
    /// - [`ErrorKind::Invalid`] if the region is over memory of the program's
    ///   ([`MemoryRegion::register`](super::MemoryRegion::register)), to which the program may have references.
    pub fn bind_window(
        &mut self,
        buffer: Buffer,
        request: &BindRequest<'_>,
    ) -> Result<(), BufferRefused> {
        if !request.region.is_over_memory() {
            let reason = "the memory region is over memory of the program's";
            return Err(self.unfit(buffer, libc::EINVAL, reason));
        }
        let (wr_id, _) = self.put(buffer, 0)?;
        self.companions
            .in_use
            .push_back((wr_id, Companion::Window { _held: request.window.clone() }));
        let request = BindRequest { wr_id, flags: request.flags | SendFlags::SIGNALED, ..*request };
        // SAFETY: the registration stays until the bind has completed, or the kernel refuses the bind: the window holds it.
        // The memory is a `Memory`, so that any access is as if the region had been registered with it. The identifier is of
        // our own.
        let posted = unsafe { bind_with_care(&mut self.rings, &request) };
        posted.map_err(|failure| self.refused(wr_id, failure))
    }

    /// Posts request `wr_id`, whose buffer is where [`put`](Self::put) has put it, over `piece` of that.
    #[inline(always)]
    fn post(
        &mut self,
        wr_id: u64,
        piece: Sge,
        operation: SendOperation<'_>,
    ) -> Result<(), BufferRefused> {
        // A piece of length 0 is one of 2 GiB to some hardware.
        let gather: &[Sge] = if piece.length == 0 { &[] } else { &[piece] };
        let (payload, flags) = (Payload::Gather(gather), SendFlags::SIGNALED);
        let request = SendRequest { wr_id, operation, payload, flags };
        // SAFETY: the request names no memory but that of the buffer, which `put` has put where it
        // stays until the request has completed or the queue pair is destroyed, unless it is not
        // posted; the buffer keeps it allocated and registered, and there nobody writes to it or
        // reads it. The identifier is of our own.
        let posted = match unsafe { self.rings.try_post_send(&request) } {
            Some(rung) => rung.map_err(Failure::of_ringing),
            // SAFETY: as above.
            None => unsafe { send_with_care(&mut self.rings, &request) },
        };
        posted.map_err(|failure| self.refused(wr_id, failure))
    }

    /// Posts a receive into `buffer`. A completion follows with the message that it receives.
    ///
    /// [`QueuePair::post_recv`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the buffer is of another protection domain, and, with ENOMEM,
    /// where the queue is full; those of [`QueuePair::post_recv`].
    #[inline(always)]
    pub fn receive(&mut self, buffer: Buffer) -> Result<(), BufferRefused> {
        let length = buffer.len();
        let (wr_id, piece) = self.put(buffer, length)?;
        let request = ReceiveRequest { wr_id, scatter: &[piece] };
        // SAFETY: as in `send`.
        let posted = match unsafe { self.rings.try_post_recv(&request) } {
            Some(rung) => rung.map_err(Failure::of_ringing),
            // SAFETY: as in `send`.
            None => unsafe { receive_with_care(&mut self.rings, &request) },
        };
        posted.map_err(|failure| self.refused(wr_id, failure))
    }

    /// Puts a buffer where it stays while a request over its first `length` bytes is posted: the
    /// identifier of that, and the bytes.
    #[inline(always)]
    fn put(&mut self, buffer: Buffer, length: usize) -> Result<(u64, Sge), BufferRefused> {
        if buffer.pd() != self.qp().pd() {
            return Err(self.unfit(buffer, libc::EINVAL, "it is of another protection domain"));
        }
        let Some(piece) = buffer.sge(length) else {
            return Err(self.unfit(buffer, libc::EINVAL, "it has fewer bytes"));
        };
        match self.posted.put(buffer) {
            Ok(wr_id) => Ok((wr_id, piece)),
            Err(buffer) => Err(self.unfit(buffer, libc::ENOMEM, "the queues are full")),
        }
    }

    #[cold]
    fn unfit(&self, buffer: Buffer, errno: i32, reason: &'static str) -> BufferRefused {
        let kind = ErrorKind::Invalid { errno, reason: reason.into() };
        let subject = format!("queue pair {}", self.qp().number());
        BufferRefused { buffer: Some(buffer), error: Error::new("post a buffer to", subject, kind) }
    }

    /// That the request could not be posted, with its buffer unless it is posted all the same.
    #[cold]
    fn refused(&mut self, wr_id: u64, Failure { error, is_posted }: Failure) -> BufferRefused {
        if is_posted {
            return BufferRefused { buffer: None, error };
        }
        // It is the last one, if it has any.
        let in_use = &mut self.companions.in_use;
        if in_use.back().is_some_and(|(id, _)| *id == wr_id) {
            in_use.pop_back();
        }
        BufferRefused { buffer: self.posted.take(wr_id), error }
    }

    /// Hands over what has completed, with the buffers; how many.
    ///
    /// [`CompletionQueue::poll`](super::CompletionQueue::poll).
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`](super::CompletionQueue::poll).
    pub fn poll(&mut self, mut each: impl FnMut(Buffer, &Completion)) -> Result<usize> {
        Ok(self.poll_received(&mut each)? + self.poll_sent(each)?)
    }

    /// The same for receives alone, unless one completion queue has both.
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`](super::CompletionQueue::poll).
    pub fn poll_received(&mut self, each: impl FnMut(Buffer, &Completion)) -> Result<usize> {
        let Self { rings, posted, companions, done } = self;
        let number = rings.qp().number();
        poll(done, number, posted, companions, |done| rings.poll_recv(done), each)
    }

    /// Passes completions of sends, with their buffers, to `each`. Returns their number: 0 if one completion queue has all,
    /// which [`poll_received`](Self::poll_received) polls.
    ///
    /// # Errors
    ///
    /// The errors of [`CompletionQueue::poll`](super::CompletionQueue::poll).
    pub fn poll_sent(&mut self, each: impl FnMut(Buffer, &Completion)) -> Result<usize> {
        let Self { rings, posted, companions, done } = self;
        let number = rings.qp().number();
        let poll_ring = |done: &mut [Completion]| rings.poll_send(done).unwrap_or(Ok(0));
        poll(done, number, posted, companions, poll_ring, each)
    }
}

/// Posts a request of any kind, in any state of the queue pair.
///
/// # Safety
///
/// The caller keeps the contract of [`SendQueue::push`](super::SendQueue::push).
#[cold]
unsafe fn send_with_care(rings: &mut OwnedRings, request: &SendRequest<'_>) -> Result<(), Failure> {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { rings.store_send(request) }.map_err(Failure::unposted)?;
    rings.ring_send().map_err(Failure::of_ringing)
}

/// Posts a bind, in any state of the queue pair.
///
/// # Safety
///
/// The caller keeps the contract of [`SendQueue::bind_window`](super::SendQueue::bind_window).
unsafe fn bind_with_care(rings: &mut OwnedRings, request: &BindRequest<'_>) -> Result<(), Failure> {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { rings.store_bind(request) }.map_err(Failure::unposted)?;
    rings.ring_send().map_err(Failure::of_ringing)
}

/// Posts a receive request, in any state of the queue pair.
///
/// # Safety
///
/// The caller keeps the contract of [`ReceiveQueue::push`](super::ReceiveQueue::push).
#[cold]
unsafe fn receive_with_care(
    rings: &mut OwnedRings,
    request: &ReceiveRequest<'_>,
) -> Result<(), Failure> {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { rings.store_recv(request) }.map_err(Failure::unposted)?;
    rings.ring_recv().map_err(Failure::of_ringing)
}

/// What is to hold the buffers of a queue pair, and the address handles: with room for those of a whole
/// queue, so that posting allocates nothing, but for no more than there are in earnest. How many the queue
/// holds is the kernel's word alone.
fn tables(qp_type: QpType, caps: QueuePairCaps) -> (Outstanding<Buffer>, Companions) {
    let posted = Outstanding::new(caps.max_send_wr.saturating_add(caps.max_recv_wr));
    let datagrams = match qp_type {
        QpType::IB_UVERBS_QPT_UD => caps.max_send_wr.min(MOST_DATAGRAMS),
        _ => 0,
    };
    let room = usize::try_from(datagrams).expect("17 bits fit");
    (posted, Companions::with_capacity(room))
}

/// So many address handles have room from the beginning, in a megabyte.
const MOST_DATAGRAMS: u32 = 1 << 16;

/// An object that a request uses, and that is held until the request has completed.
#[derive(Debug)]
pub(super) enum Companion {
    Address(AddressHandle),
    Window { _held: MemoryWindow },
}

impl Companion {
    /// Returns the object itself if this is its last handle.
    fn into_last(self) -> Option<Released> {
        match self {
            Self::Address(address) => address.into_last(),
            Self::Window { _held } => _held.into_last(),
        }
    }
}

/// An object of the kernel whose last handle is dropped with this.
pub(crate) type Released = Box<dyn Debug + Send + Sync>;

/// The objects that posted requests use.
#[derive(Debug)]
struct Companions {
    /// With the identifiers of their requests, which ascend.
    in_use: VecDeque<(u64, Companion)>,
    /// Absent if objects are destroyed by the poll that finds them unused.
    released: Option<Vec<Released>>,
}

impl Companions {
    fn with_capacity(room: usize) -> Self {
        Self { in_use: VecDeque::with_capacity(room), released: None }
    }

    /// Lets go of the object of request `wr_id`, if it uses one, and of those before it: sends complete in the order in which
    /// they were posted.
    #[inline(never)]
    fn let_go(&mut self, wr_id: u64) {
        let found = self.in_use.binary_search_by_key(&wr_id, |(id, _)| *id);
        let unused = self.in_use.drain(..found.map_or(0, |place| place + 1));
        match &mut self.released {
            Some(released) => {
                released.extend(unused.filter_map(|(_, companion)| companion.into_last()));
            }
            None => drop(unused),
        }
    }
}

/// How many completions there is always room for.
const FEW: usize = 2;

/// How many are taken at once where those were not all.
const MANY: usize = 32;

/// Passes the completions that `poll_ring` takes off a queue, and that are those of queue pair `number`, to `each`.
#[inline(always)]
fn poll(
    done: &mut [Completion],
    number: u32,
    posted: &mut Outstanding<Buffer>,
    companions: &mut Companions,
    mut poll_ring: impl FnMut(&mut [Completion]) -> Result<usize>,
    mut each: impl FnMut(Buffer, &Completion),
) -> Result<usize> {
    let mut polled = 0;
    let count = poll_ring(done)?;
    for completion in done[..count].iter().filter(|completion| completion.qp_num() == number) {
        polled += usize::from(hand_over(completion, posted, companions, &mut each));
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
    posted: &mut Outstanding<Buffer>,
    companions: &mut Companions,
    poll_ring: &mut impl FnMut(&mut [Completion]) -> Result<usize>,
    each: &mut impl FnMut(Buffer, &Completion),
) -> Result<usize> {
    let mut done = [Completion::default(); MANY];
    let mut polled = 0;
    // Requests may complete as fast as they are polled: those that are posted bound the loop.
    while posted.len() > 0 {
        let count = poll_ring(&mut done)?;
        for completion in done[..count].iter().filter(|completion| completion.qp_num() == number) {
            polled += usize::from(hand_over(completion, posted, companions, each));
        }
        if count < done.len() {
            break;
        }
    }
    Ok(polled)
}

/// Hands over the buffer of what is done, if it is here. Not inlined: a poll that finds nothing, as most do of one who
/// waits, is not to prepare for it.
#[inline(never)]
fn hand_over(
    completion: &Completion,
    posted: &mut Outstanding<Buffer>,
    companions: &mut Companions,
    each: &mut impl FnMut(Buffer, &Completion),
) -> bool {
    let Some(buffer) = posted.take(completion.wr_id()) else { return false };
    if !companions.in_use.is_empty() {
        companions.let_go(completion.wr_id());
    }
    each(buffer, completion);
    true
}

/// Why a request could not be posted, and whether it is all the same.
struct Failure {
    error: Error,
    is_posted: bool,
}

impl Failure {
    /// It did not get into the queue.
    fn unposted(error: Error) -> Self {
        Self { error, is_posted: false }
    }

    /// It is the last one in the queue, and ringing for it failed: only these two say that it was
    /// taken back.
    fn of_ringing(error: Error) -> Self {
        let taken_back =
            matches!(error.kind(), ErrorKind::Invalid { .. } | ErrorKind::Unposted { .. });
        Self { error, is_posted: !taken_back }
    }
}

impl Drop for BufferQueues {
    fn drop(&mut self) {
        // Before any lock. The buffers of a forked child are memory of its own, which no device
        // knows.
        let qp = self.rings.qp();
        if qp.inner.object.belongs_here() {
            if self.posted.len() == 0 {
                return;
            }
            let mut kept = unpoisoned(qp.inner.kept.lock());
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
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_said_to_be_endless_takes_little_memory() {
        let most = u32::MAX;
        let caps =
            QueuePairCaps { max_send_wr: most, max_recv_wr: most, ..QueuePairCaps::default() };
        let (posted, companions) = tables(QpType::IB_UVERBS_QPT_UD, caps);
        assert_eq!(posted.len(), 0);
        assert!(companions.in_use.capacity() < 1 << 17, "{}", companions.in_use.capacity());
    }
}
