//! Work requests, and posting them.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device, hence `unsafe`, with the contract at the
//! methods. Nothing else here is.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

mod shared;

pub use self::shared::SharedReceives;
use bitflags::bitflags;
use verbs_abi::ib_mw_type;
pub use verbs_abi::ib_uverbs_sge as Sge;

use super::address_handle::Destination;
use super::completion::CompletionQueue;
use super::exclusive::{Held, HeldHere};
use super::queue_pair::QueuePair;
use super::{AccessFlags, MemoryRegion, MemoryWindow, QpState, QpType};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{PostError, ReceiveRing, SendRing};

/// A request to a send queue.
#[doc(alias = "ibv_send_wr")]
#[derive(Debug, Clone, Copy)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub operation: SendOperation<'a>,
    /// With which local memory.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
}

/// What a send request does.
///
/// Queue pairs of reliable connections do all but [`SendTo`](Self::SendTo), those of unreliable
/// connections what needs no answer, those for datagrams only that one. What the device, its driver
/// or the kernel lacks is [`ErrorKind::Unsupported`]: siw has sends (also those that invalidate),
/// writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOperation<'a> {
    /// Sends a message into the peer's next receive.
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// The same with a number for the peer's completion.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendWithImm {
        /// See [`Completion::imm_data`](super::Completion::imm_data).
        imm_data: u32,
    },
    /// Sends a message, and takes a key away from this side that the peer has given it: see
    /// [`Completion::invalidated_rkey`](super::Completion::invalidated_rkey). On rxe the key of a
    /// memory window of type 2, on siw that of a region.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendWithInvalidate {
        /// The peer's key.
        rkey: u32,
    },
    /// Sends a datagram: the one operation of queue pairs for datagrams, and of no others. Its
    /// payload fits into the MTU of the path.
    #[doc(alias = "IBV_WR_SEND")]
    SendTo {
        /// To whom.
        destination: Destination<'a>,
        /// A number that comes with the peer's completion.
        #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
        imm_data: Option<u32>,
    },
    /// Writes to the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// The same, and completes the peer's next receive, into whose memory nothing goes.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteWithImm {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// A number for the peer's completion.
        imm_data: u32,
    },
    /// Reads from the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Compares eight bytes of the peer's memory, as a number of its machine, with `compare`, and
    /// stores `swap` there if they are equal. What was there before goes to the payload, eight bytes
    /// of registered memory, as a number of this machine.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// Where, in the peer's addresses: a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// What it is compared with.
        compare: u64,
        /// What is stored if it is equal.
        swap: u64,
    },
    /// Adds `add` to eight bytes of the peer's memory, as a number of its machine that wraps around.
    /// What was there before goes to the payload, as with [`CompareSwap`](Self::CompareSwap).
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// Where, in the peer's addresses: a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// What is added.
        add: u64,
    },
    /// Writes eight bytes to the peer's memory at once, after all writes before it. There is no
    /// payload besides. On rxe since Linux 6.2.
    #[doc(alias = "ibv_wr_atomic_write")]
    AtomicWrite {
        /// Where, in the peer's addresses: a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// What is written, in the order of its addresses.
        bytes: [u8; 8],
    },
    /// Completes when what was written before it to the peer's memory is visible there, or
    /// persistent. There is no payload. On rxe since Linux 6.2.
    #[doc(alias = "ibv_wr_flush")]
    Flush {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// How many bytes; `None` for the whole region.
        length: Option<u32>,
        /// How.
        placement: FlushPlacement,
    },
    /// Takes back a key that peers were given, after all requests before it have completed. There is
    /// no payload. On rxe the key of a memory window of type 2.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    LocalInvalidate {
        /// The key, of this side.
        rkey: u32,
    },
    /// Gives peers a part of a region by the key of a window, which is a new one: the window
    /// [has](MemoryWindow::rkey) it once this is posted. There is no payload.
    #[doc(alias = "IBV_WR_BIND_MW")]
    #[doc(alias = "ibv_bind_mw")]
    BindWindow {
        /// The window, of the protection domain of the queue pair.
        window: &'a MemoryWindow,
        /// The region, of that protection domain too, with the right `IB_UVERBS_ACCESS_MW_BIND`.
        region: &'a MemoryRegion,
        /// Where in the region the part begins, in bytes.
        offset: usize,
        /// How many bytes it has. Without any a window of type 1 is bound to nothing.
        length: usize,
        /// What the peers may do: `IB_UVERBS_ACCESS_REMOTE_*`.
        access: AccessFlags,
    },
}

bitflags! {
    /// What a [`SendOperation::Flush`] brings about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct FlushPlacement: u8 {
        /// What was written is visible to whoever reads the memory.
        #[doc(alias = "IBV_FLUSH_GLOBAL")]
        const GLOBAL = 1;
        /// What was written outlasts a loss of power.
        #[doc(alias = "IBV_FLUSH_PERSISTENT")]
        const PERSISTENT = 1 << 1;
    }
}

/// The local memory of a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Payload<'a> {
    /// Registered memory, gathered (or, reading, scattered) in this order. The device uses it until
    /// the request completes.
    Gather(&'a [Sge]),
    /// Bytes that are copied into the request: free for use as soon as the post returns. Not for
    /// reads and atomics.
    #[doc(alias = "IBV_SEND_INLINE")]
    Inline(&'a [u8]),
}

/// A request to a receive queue.
#[doc(alias = "ibv_recv_wr")]
#[derive(Debug, Clone, Copy)]
pub struct ReceiveRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Registered memory that the message is scattered to, in this order.
    pub scatter: &'a [Sge],
}

bitflags! {
    /// How to carry out a send request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Not before the reads and atomics ahead of it are done.
        #[doc(alias = "IBV_SEND_FENCE")]
        const FENCE = 1;
        /// Success makes a completion too; without it only failure does.
        #[doc(alias = "IBV_SEND_SIGNALED")]
        const SIGNALED = 1 << 1;
        /// The peer's completion is one that its arming for solicited ones sees.
        #[doc(alias = "IBV_SEND_SOLICITED")]
        const SOLICITED = 1 << 2;
    }
}

impl SendRequest<'_> {
    /// That the payload is one for the operation, what is to be aligned is so, and the flags are
    /// those that are known: another bit would be the kernel's word for an inline payload.
    #[inline]
    fn check(&self) -> Result<(), &'static str> {
        if !SendFlags::all().contains(self.flags) {
            return Err("flags that are not known");
        }
        let aligned = |address: u64| address % 8 == 0;
        match self.operation {
            SendOperation::Send
            | SendOperation::SendWithImm { .. }
            | SendOperation::SendWithInvalidate { .. }
            | SendOperation::SendTo { .. }
            | SendOperation::Write { .. }
            | SendOperation::WriteWithImm { .. } => Ok(()),
            SendOperation::Read { .. } => match self.payload {
                Payload::Gather(_) => Ok(()),
                Payload::Inline(_) => Err("a read needs registered memory"),
            },
            SendOperation::CompareSwap { remote_addr, .. }
            | SendOperation::FetchAdd { remote_addr, .. } => match self.payload {
                _ if !aligned(remote_addr) => Err(UNALIGNED),
                Payload::Gather(pieces)
                    if pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>() == 8 =>
                {
                    Ok(())
                }
                _ => Err("an atomic needs eight bytes of registered memory for what was there"),
            },
            SendOperation::AtomicWrite { remote_addr, .. } if !aligned(remote_addr) => {
                Err(UNALIGNED)
            }
            SendOperation::AtomicWrite { .. }
            | SendOperation::Flush { .. }
            | SendOperation::LocalInvalidate { .. } => self.payload.check_empty(),
            SendOperation::BindWindow { window, region, offset, length, .. } => {
                if length == 0 && window.mw_type() == ib_mw_type::IB_MW_TYPE_2 {
                    return Err("a window of type 2 is bound to something, and invalidated");
                }
                match offset.checked_add(length) {
                    Some(end) if end <= region.len() => self.payload.check_empty(),
                    _ => Err("the part is not within the memory region"),
                }
            }
        }
    }
}

const UNALIGNED: &str = "the peer's address is no multiple of 8, which atomics need";

impl Payload<'_> {
    fn check_empty(self) -> Result<(), &'static str> {
        match self {
            Payload::Gather([]) => Ok(()),
            _ => Err("the operation has no payload"),
        }
    }
}

/// The send queue of a queue pair, for one thread until it is dropped: for many posts with one lock,
/// and for lists of them with one doorbell.
///
/// Of [`QueuePair::send_queue`]. Threads that post to the same queue meanwhile wait for it, and have
/// their turn whenever this one rings. Nothing else waits: the state of the queue pair can be
/// changed and its completions polled. It cannot leave the thread that took it.
///
/// # Several at a time
///
/// A thread may have several of these: send and receive queues, those of other queue pairs,
/// [`Poller`](super::Poller)s. Posting and polling take one too, for as long as they last. As with
/// locks, all threads are to take those that they have together in one order: where one posts while it
/// has the poller, and another polls while it has the send queue, both may wait for ever. Only waiting
/// for what the same thread has is told, as [`ErrorKind::WouldDeadlock`].
///
/// Dropping it rings for what was pushed, where an error would be lost.
#[derive(Debug)]
pub struct SendQueue<'a> {
    qp: &'a QueuePair,
    ring: Held<'a, SendRing>,
}

/// The receive queue of a queue pair, for one thread until it is dropped: as [`SendQueue`].
///
/// Of [`QueuePair::receive_queue`]. The device may fill what is pushed at once;
/// [`ring`](Self::ring) is for a queue pair that went to ERR meanwhile.
#[derive(Debug)]
pub struct ReceiveQueue<'a> {
    qp: &'a QueuePair,
    ring: Held<'a, ReceiveRing>,
    /// Something was pushed since it was last rung for.
    pushed: bool,
}

const POST_SEND: &str = "post a send to";
const POST_RECV: &str = "post a receive to";

impl QueuePair {
    /// The send queue, for this thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where this thread has it already; [`ErrorKind::DeviceGone`];
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn send_queue(&self) -> Result<SendQueue<'_>> {
        self.context().check_usable(POST_SEND, || self.subject())?;
        match self.inner.send.hold() {
            Ok(ring) => Ok(SendQueue { qp: self, ring }),
            Err(HeldHere) => Err(self.held(POST_SEND, "it has the send queue; drop that first")),
        }
    }

    /// The receive queue, for this thread.
    ///
    /// # Errors
    ///
    /// Those of [`send_queue`](Self::send_queue).
    pub fn receive_queue(&self) -> Result<ReceiveQueue<'_>> {
        self.context().check_usable(POST_RECV, || self.subject())?;
        match self.inner.receive.hold() {
            Ok(ring) => Ok(ReceiveQueue { qp: self, ring, pushed: false }),
            Err(HeldHere) => Err(self.held(POST_RECV, "it has the receive queue; drop that first")),
        }
    }

    /// Whether this thread has one of the queues.
    pub(super) fn holds_a_queue(&self) -> bool {
        self.inner.send.is_held_here() || self.inner.receive.is_held_here()
    }

    /// The send queue, if no thread has it.
    pub(super) fn free_send_queue(&self) -> Option<SendQueue<'_>> {
        self.inner.send.hold_if_free().map(|ring| SendQueue { qp: self, ring })
    }

    /// The receive queue, if no thread has it.
    pub(super) fn free_receive_queue(&self) -> Option<ReceiveQueue<'_>> {
        let ring = self.inner.receive.hold_if_free();
        ring.map(|ring| ReceiveQueue { qp: self, ring, pushed: false })
    }

    /// Posts a send request: [`SendQueue::post`] on a [`send_queue`](Self::send_queue) of its own.
    ///
    /// # Safety
    ///
    /// That of [`SendQueue::push`].
    ///
    /// # Errors
    ///
    /// Those of [`send_queue`](Self::send_queue), [`SendQueue::push`] and [`SendQueue::ring`].
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "rdma_post_send")]
    #[doc(alias = "rdma_post_sendv")]
    #[doc(alias = "rdma_post_ud_send")]
    #[doc(alias = "rdma_post_read")]
    #[doc(alias = "rdma_post_readv")]
    #[doc(alias = "rdma_post_write")]
    #[doc(alias = "rdma_post_writev")]
    pub unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<()> {
        let mut queue = self.send_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.post(request) }
    }

    /// Posts a receive request to the queue pair's own receive queue: [`ReceiveQueue::post`] on a
    /// [`receive_queue`](Self::receive_queue) of its own. What is for a [shared](QueuePair::srq) one
    /// is [posted to that](super::SharedReceiveQueue::post_recv).
    ///
    /// # Safety
    ///
    /// That of [`ReceiveQueue::push`].
    ///
    /// # Errors
    ///
    /// Those of [`receive_queue`](Self::receive_queue), [`ReceiveQueue::push`] and
    /// [`ReceiveQueue::ring`].
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_post_recvv")]
    pub unsafe fn post_recv(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        let mut queue = self.receive_queue()?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { queue.post(request) }
    }

    /// That the queue pair is one for the operation: the kernel finds out only when it carries the
    /// request out, and ends the queue pair.
    #[inline]
    fn check_operation(&self, operation: &SendOperation<'_>) -> Result<(), &'static str> {
        match (self.qp_type(), operation) {
            (QpType::IB_UVERBS_QPT_UD, SendOperation::SendTo { destination, .. }) => {
                match destination.address.pd() == self.pd() {
                    true => Ok(()),
                    false => Err("the address handle is of another protection domain"),
                }
            }
            (QpType::IB_UVERBS_QPT_UD, _) => Err("it is for datagrams, which need a destination"),
            (_, SendOperation::SendTo { .. }) => Err("it is connected, and sends to its peer only"),
            (
                QpType::IB_UVERBS_QPT_UC,
                SendOperation::Read { .. }
                | SendOperation::CompareSwap { .. }
                | SendOperation::FetchAdd { .. }
                | SendOperation::AtomicWrite { .. }
                | SendOperation::Flush { .. },
            ) => Err("its connection is unreliable, and the peer answers nothing"),
            (_, SendOperation::BindWindow { window, .. }) if window.pd() != self.pd() => {
                Err("the memory window is of another protection domain")
            }
            (_, SendOperation::BindWindow { region, .. }) if region.pd() != self.pd() => {
                Err("the memory region is of another protection domain")
            }
            _ => Ok(()),
        }
    }

    /// That a request to a queue pair in `state` finds a place among those that the library
    /// completes on `cq`, if it is to be one of them.
    #[inline]
    fn check_leftovers(&self, state: QpState, cq: &CompletionQueue) -> Result<(), PostError> {
        let left = state == QpState::IB_QPS_ERR && self.inner.send_leftovers.is_some();
        match left && !cq.may_flush() {
            true => Err(PostError::Unpolled),
            false => Ok(()),
        }
    }

    #[cold]
    fn held(&self, operation: &'static str, how: &'static str) -> Error {
        Error::new(operation, self.subject(), ErrorKind::WouldDeadlock(how))
    }

    #[cold]
    fn refused(&self, operation: &'static str, error: PostError) -> Error {
        error.during(self.context(), operation, self.subject())
    }
}

impl SendQueue<'_> {
    /// Puts a send request into the queue. The device may look at it at once, and does after
    /// [`ring`](Self::ring). A completion follows if the request is signalled or fails.
    ///
    /// Stores the request in the ring that the kernel shares.
    ///
    /// On siw it may take a while where the kernel has moved the queue pair to ERR by itself, as it
    /// does when the peer ends the connection: it takes the doorbell and does nothing, as it does
    /// while it is busy, and the library cannot tell which. The request comes back when the event
    /// that tells of the end of the connection is read from the id's channel, and one that is posted
    /// later comes back at once. So while a thread waits for a completion, another one reads the
    /// channel; of a synchronous id, whose events nobody reads, the request comes back with
    /// [`disconnect`](crate::cm::CmId::disconnect), and of a queue pair that is no id's own with a
    /// [`modify`](QueuePair::modify) to ERR.
    ///
    /// # Safety
    ///
    /// Until the request has completed (an unsignalled one: until a later one of the queue has), or
    /// the queue pair is destroyed, the memory that a [`Payload::Gather`] names by its addresses and
    /// keys
    /// - stays allocated and registered;
    /// - is not written, and for a read neither written nor read, except in ways that cope with a
    ///   device doing the same.
    ///
    /// A [`Payload::Inline`] asks for nothing. Memory of peers is what the rights that they granted
    /// protect. The region of a [`SendOperation::BindWindow`] stays registered until that has
    /// completed; what the bind lets peers do is as if the region had been
    /// [registered](super::MemoryRegion::register) for it, until the window is bound anew,
    /// invalidated or destroyed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold or has no way to carry out, or in a state before RTS;
    /// [`ErrorKind::WrongProcess`] after a fork. This request is not posted then; those pushed
    /// before it are.
    #[inline]
    pub unsafe fn push(&mut self, request: &SendRequest<'_>) -> Result<()> {
        let QueuePair { inner } = self.qp;
        self.qp.context().check_usable(POST_SEND, || self.qp.subject())?;
        let state = self.qp.state();
        let binding = match request.operation {
            SendOperation::BindWindow { window, region, .. } => Some(window.binding(region)),
            _ => None,
        };
        let stored = self
            .qp
            .check_operation(&request.operation)
            .and_then(|()| request.check())
            .map_err(|reason| PostError::Invalid(reason.into()))
            .and_then(|()| self.qp.check_leftovers(state, &inner.send_cq))
            .and_then(|()| {
                // SAFETY: the contract of this function is that of the callee.
                unsafe { self.ring.get().store(self.qp.doorbell(), state, request) }
            });
        stored.map_err(|error| self.qp.refused(POST_SEND, error))?;
        if let Some(binding) = binding {
            binding.posted(self.qp);
        }
        Ok(())
    }

    /// Has the device look at what was pushed since the last time.
    ///
    /// `IB_USER_VERBS_CMD_POST_SEND` as a doorbell; on siw not where the kernel is on its way. Where
    /// the driver keeps its queues in the kernel, the command posts what was pushed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unposted`] where the driver keeps its queues in the kernel, for whatever reason the
    /// command fails: with ENOMEM for a full queue, with EIO where the device is gone.
    /// [`ErrorKind::WrongProcess`] after a fork. On siw [`ErrorKind::Invalid`] for a read on a
    /// connection that was made without, which only the doorbell tells: it and those pushed behind
    /// it, of which the error says the number, are not posted. Any other error is that of the
    /// doorbell (ENOMEM from the kernel, [`ErrorKind::DeviceGone`]): what was pushed stands in the
    /// queue and may be carried out with what comes next, so that the obligations of
    /// [`push`](Self::push) hold.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_SEND, || self.qp.subject())?;
        self.send_off()?;
        self.ring.give_way();
        Ok(())
    }

    #[inline]
    fn send_off(&mut self) -> Result<()> {
        let QueuePair { inner } = self.qp;
        let rung = self.ring.get().ring(self.qp.doorbell());
        rung.map_err(|error| self.qp.refused(POST_SEND, error))?;
        // The doorbell flushes where the driver does.
        if inner.send_leftovers.is_some() { self.qp.settle() } else { Ok(()) }
    }

    /// Posts a send request: [`push`](Self::push) and [`ring`](Self::ring).
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// Those of [`push`](Self::push) and [`ring`](Self::ring).
    #[inline]
    pub unsafe fn post(&mut self, request: &SendRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.push(request) }?;
        self.ring()
    }
}

impl SendQueue<'_> {
    /// Posts a request that does nothing, to a queue pair in ERR of whatever type.
    pub(super) fn mark(&mut self, wr_id: u64) -> Result<(), PostError> {
        let operation = match self.qp.qp_type() {
            // A send would have to say to which of the peer's queues.
            QpType::IB_UVERBS_QPT_XRC_INI => SendOperation::Write { remote_addr: 0, rkey: 0 },
            _ => SendOperation::Send,
        };
        let payload = Payload::Gather(&[]);
        let request = SendRequest { wr_id, operation, payload, flags: SendFlags::SIGNALED };
        let (ring, doorbell) = (self.ring.get(), self.qp.doorbell());
        // SAFETY: the request names no memory.
        unsafe { ring.store(doorbell, QpState::IB_QPS_ERR, &request) }?;
        ring.ring(doorbell)
    }
}

impl Drop for SendQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.send_off();
        }
    }
}

impl ReceiveQueue<'_> {
    /// Puts a receive request into the queue. The device may take it for the next message at once.
    /// A completion follows with the message that the request receives, or when the queue pair goes
    /// to ERR.
    ///
    /// Stores the request in the ring that the kernel shares; no system call.
    ///
    /// # Safety
    ///
    /// Until the request has completed, or the queue pair is destroyed, the memory that it names by
    /// its addresses and keys
    /// - stays allocated and registered;
    /// - is neither written nor read, except in ways that cope with a device writing to it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with ENOMEM where the queue is full, with EINVAL for a request that
    /// the queue pair does not hold; [`ErrorKind::WrongProcess`] after a fork. This request is not
    /// posted then; those pushed before it are.
    #[inline]
    pub unsafe fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        self.qp.context().check_usable(POST_RECV, || self.qp.subject())?;
        let state = self.qp.state();
        let ring = self.ring.get();
        let stored = ring
            .check(state)
            .and_then(|()| self.qp.check_leftovers(state, &self.qp.inner.recv_cq))
            .and_then(|()| {
                // SAFETY: the contract of this function is that of the callee.
                unsafe { ring.store(request) }
            });
        stored.map_err(|error| self.qp.refused(POST_RECV, error))?;
        self.pushed = true;
        Ok(())
    }

    /// Sees to what was pushed since the last time.
    ///
    /// No system call while receives are to be had, but where the driver keeps its queues in the
    /// kernel: there `IB_USER_VERBS_CMD_POST_RECV` posts what was pushed. Of a request to a queue pair that is in ERR rxe
    /// must be told (`IB_USER_VERBS_CMD_MODIFY_QP`) for it to come back, and on siw the library
    /// completes it; of one that failed by itself the library knows only after a
    /// [`disconnect`](crate::cm::CmId::disconnect) or [`modify`](QueuePair::modify), and on siw after
    /// the event that tells of the end of the connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unposted`] where the driver keeps its queues in the kernel, for whatever reason the
    /// command fails: with ENOMEM for a full queue, with EIO where the device is gone.
    /// [`ErrorKind::WrongProcess`] after a fork. Any other error is that of telling rxe
    /// ([`ErrorKind::DeviceGone`]): the requests stand in the queue, so that the obligations of
    /// [`push`](Self::push) hold.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        self.qp.context().check_process(POST_RECV, || self.qp.subject())?;
        self.settle()?;
        self.ring.give_way();
        Ok(())
    }

    #[inline]
    fn settle(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.pushed) {
            return Ok(());
        }
        let rung = self.ring.get().ring(self.qp.context(), self.qp.inner.object.handle());
        rung.map_err(|error| self.qp.refused(POST_RECV, error))?;
        self.qp.settle()
    }

    /// Posts a receive request: [`push`](Self::push) and [`ring`](Self::ring).
    ///
    /// # Safety
    ///
    /// That of [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// Those of [`push`](Self::push) and [`ring`](Self::ring).
    #[inline]
    pub unsafe fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.push(request) }?;
        self.ring()
    }
}

impl ReceiveQueue<'_> {
    /// Posts a request without memory to a queue pair in ERR.
    pub(super) fn mark(&mut self, wr_id: u64) -> Result<(), PostError> {
        let ring = self.ring.get();
        ring.store_nothing(wr_id)?;
        ring.ring(self.qp.context(), self.qp.inner.object.handle())?;
        self.pushed = true;
        Ok(())
    }
}

impl Drop for ReceiveQueue<'_> {
    fn drop(&mut self) {
        if self.qp.inner.object.belongs_here() {
            let _ = self.settle();
        }
    }
}
