//! Work requests.

use bitflags::bitflags;
use verbs_abi::ib_mw_type;
pub use verbs_abi::ib_uverbs_sge as Sge;

use super::{AccessFlags, Destination};

/// A request to a send queue.
#[doc(alias = "ibv_send_wr")]
#[derive(Debug, Clone, Copy)]
pub struct SendRequest<'a> {
    /// Identifier of the request, which the completion returns.
    pub wr_id: u64,
    /// The operation.
    pub operation: SendOperation<'a>,
    /// The local memory.
    pub payload: Payload<'a>,
    /// Flags of the request.
    pub flags: SendFlags,
}

/// The operation of a send request.
///
/// Queue pairs of reliable connections support all operations except [`SendTo`](Self::SendTo). Queue pairs of
/// unreliable connections support the operations without an answer. Queue pairs for datagrams support only `SendTo`.
/// Posting an operation that the device, its driver or the kernel lacks fails as unsupported. The error is
/// `ErrorKind::Unsupported` in `rdmacm`, and [`PostError::Unsupported`](crate::driver::PostError::Unsupported) in
/// this crate. siw has sends (including sends that invalidate), writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOperation<'a> {
    /// Sends a message into the peer's next receive.
    #[doc(alias = "IBV_WR_SEND")]
    #[doc(alias = "ibv_wr_send")]
    Send,
    /// Sends a message with a number, which the peer's completion has.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[doc(alias = "ibv_wr_send_imm")]
    SendWithImm {
        /// See [`Completion::imm_data`](super::Completion::imm_data).
        imm_data: u32,
    },
    /// Sends a message, and invalidates a key that the peer has granted to this side.
    ///
    /// See [`Completion::invalidated_rkey`](super::Completion::invalidated_rkey).
    ///
    /// # Driver notes
    ///
    /// - On rxe it is the key of a memory window of type 2, on siw that of a region.
    /// - On rxe the key of a window that is not bound, or not bound any more, crashes the peer's kernel (Linux 6.1 and
    ///   6.12 at least). Neither side can check it before. Invalidate a key once, and never one that the peer may
    ///   invalidate itself.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    #[doc(alias = "ibv_wr_send_inv")]
    SendWithInvalidate {
        /// The peer's key.
        rkey: u32,
    },
    /// Sends a datagram: the only operation of queue pairs for datagrams, and of no others.
    ///
    /// Its payload must fit into the MTU of the port. A longer one is not sent, and its completion does not report
    /// that.
    #[doc(alias = "IBV_WR_SEND")]
    SendTo {
        /// The destination.
        destination: Destination<'a>,
        /// A number that the peer's completion carries.
        #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
        imm_data: Option<u32>,
    },
    /// Carries out an operation of an XRC initiator at a shared receive queue of the peer.
    ///
    /// A message takes a receive of that queue. Memory of the peer is accessed in the protection domain of that queue.
    /// The operation is a send other than [`SendTo`](Self::SendTo), a write, a read, or an atomic operation.
    #[doc(alias = "xrc_remote_srq_num")]
    #[doc(alias = "remote_srqn")]
    #[doc(alias = "ibv_wr_set_xrc_srqn")]
    AtSharedQueue {
        /// The number of the queue, as the peer reports it.
        srq_number: u32,
        /// The operation.
        operation: &'a Self,
    },
    /// Writes to the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    #[doc(alias = "ibv_wr_rdma_write")]
    Write {
        /// Address in the memory of the peer.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Writes to the peer's memory, and completes the peer's next receive with a number.
    ///
    /// The receive's memory stays as it is.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    WriteWithImm {
        /// Address in the memory of the peer.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// A number for the peer's completion.
        imm_data: u32,
    },
    /// Reads from the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    #[doc(alias = "ibv_wr_rdma_read")]
    Read {
        /// Address in the memory of the peer.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Compares eight bytes of the peer's memory with `compare`, and stores `swap` if they are equal.
    ///
    /// The bytes are a number of the peer's machine. The previous value is stored into the payload, eight bytes of
    /// registered memory, as a number of this machine.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    CompareSwap {
        /// Address in the memory of the peer, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The value that the number is compared with.
        compare: u64,
        /// The value that is stored if the comparison holds.
        swap: u64,
    },
    /// Adds `add` to eight bytes of the peer's memory, as a number of its machine that wraps around.
    ///
    /// The previous value goes to the payload, as with [`CompareSwap`](Self::CompareSwap).
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    FetchAdd {
        /// Address in the memory of the peer, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The value that is added.
        add: u64,
    },
    /// Atomically writes eight bytes to the peer's memory, after all earlier writes.
    ///
    /// The request has no other payload.
    ///
    /// # Driver notes
    ///
    /// rxe supports it since Linux 6.2, on 64-bit machines.
    #[doc(alias = "ibv_wr_atomic_write")]
    AtomicWrite {
        /// Address in the memory of the peer, a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The bytes that are written, in the order of their addresses.
        bytes: [u8; 8],
    },
    /// Completes when earlier writes to the peer's memory are visible there, or persistent.
    ///
    /// There is no payload.
    ///
    /// # Driver notes
    ///
    /// rxe supports it since Linux 6.2. There the peer refuses persistent placement unless its memory is persistent.
    #[doc(alias = "ibv_wr_flush")]
    Flush {
        /// Address in the memory of the peer.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// Number of bytes; `None` for the whole region.
        length: Option<u32>,
        /// The placement.
        placement: FlushPlacement,
    },
    /// Invalidates a key of this side, after all earlier requests have completed.
    ///
    /// There is no payload. On rxe it is the key of a memory window of type 2.
    ///
    /// # Driver notes
    ///
    /// On rxe a second invalidation crashes the kernel (Linux 6.1 and 6.12 at least), because the window is not bound
    /// any more. So the library refuses two kinds of keys:
    ///
    /// - A key that no bind has given to a window of type 2, on this queue pair or on another one with the same
    ///   completion queue for receives.
    /// - A key that was invalidated since, by such a request, or by a message whose completion was polled.
    ///
    /// The library cannot detect a message in flight, or one whose completion was not polled. So do not use this for
    /// keys that the peer may invalidate.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    #[doc(alias = "ibv_wr_local_inv")]
    LocalInvalidate {
        /// The key, of this side.
        rkey: u32,
    },
    /// Binds a memory window to a part of a region.
    ///
    /// Only `bind_window` of the layer above posts this operation, because the window and its queue pair have to
    /// record the bind.
    #[doc(hidden)]
    BindWindow(WindowBinding),
}

/// The numbers that a send queue element holds for the bind of a memory window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBinding {
    /// The type of the window.
    pub mw_type: ib_mw_type,
    /// The key that the window has until the bind completes.
    pub rkey: u32,
    /// The key that the bind gives the window.
    pub new_rkey: u32,
    /// The local key of the region.
    pub lkey: u32,
    /// The access that peers get.
    pub access: AccessFlags,
    /// The first address of the part.
    pub addr: u64,
    /// The length of the part in bytes.
    pub length: u64,
}

bitflags! {
    /// The effect of a [`SendOperation::Flush`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct FlushPlacement: u8 {
        /// Bytes that were written are visible to all readers of the memory.
        #[doc(alias = "IBV_FLUSH_GLOBAL")]
        const GLOBAL = 1;
        /// Bytes that were written outlast a loss of power.
        #[doc(alias = "IBV_FLUSH_PERSISTENT")]
        const PERSISTENT = 1 << 1;
    }
}

/// The local memory of a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Payload<'a> {
    /// Registered memory, gathered (or, reading, scattered) in this order.
    ///
    /// The device uses it until the request completes.
    #[doc(alias = "ibv_wr_set_sge")]
    #[doc(alias = "ibv_wr_set_sge_list")]
    Gather(&'a [Sge]),
    /// Bytes that are copied into the request. The caller may reuse them as soon as the post returns.
    ///
    /// Reads and atomics do not support it.
    #[doc(alias = "IBV_SEND_INLINE")]
    #[doc(alias = "ibv_wr_set_inline_data")]
    Inline(&'a [u8]),
}

/// A request to a receive queue.
#[doc(alias = "ibv_recv_wr")]
#[derive(Debug, Clone, Copy)]
pub struct ReceiveRequest<'a> {
    /// Identifier of the request, which the completion returns.
    pub wr_id: u64,
    /// Registered memory that the message is scattered to, in this order.
    pub scatter: &'a [Sge],
}

bitflags! {
    /// The flags of a send request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Delays the request until all earlier reads and atomics have completed.
        #[doc(alias = "IBV_SEND_FENCE")]
        const FENCE = 1;
        /// Creates a completion on success too.
        ///
        /// Without it, only a failure creates one.
        #[doc(alias = "IBV_SEND_SIGNALED")]
        const SIGNALED = 1 << 1;
        /// Marks the peer's completion as solicited, which counts for arming for solicited completions only.
        #[doc(alias = "IBV_SEND_SOLICITED")]
        const SOLICITED = 1 << 2;
    }
}

impl SendRequest<'_> {
    /// Returns an error if the payload, an alignment or the flags are invalid for the operation.
    ///
    /// An unknown bit in the flags would be the kernel's bit for an inline payload.
    pub fn check(&self) -> Result<(), &'static str> {
        if !SendFlags::all().contains(self.flags) {
            return Err("unknown send flags");
        }
        self.check_payload(&self.operation)
    }

    fn check_payload(&self, operation: &SendOperation<'_>) -> Result<(), &'static str> {
        let aligned = |address: u64| address % 8 == 0;
        match *operation {
            SendOperation::Send
            | SendOperation::SendWithImm { .. }
            | SendOperation::SendWithInvalidate { .. }
            | SendOperation::SendTo { .. }
            | SendOperation::Write { .. }
            | SendOperation::WriteWithImm { .. } => Ok(()),
            SendOperation::AtSharedQueue {
                operation: SendOperation::AtSharedQueue { .. } | SendOperation::SendTo { .. },
                ..
            } => Err("`AtSharedQueue` cannot contain `SendTo` or another `AtSharedQueue`"),
            SendOperation::AtSharedQueue {
                operation:
                    SendOperation::BindWindow(_)
                    | SendOperation::LocalInvalidate { .. }
                    | SendOperation::AtomicWrite { .. }
                    | SendOperation::Flush { .. },
                ..
            } => Err(
                "`AtSharedQueue` supports only sends, writes, reads, `CompareSwap` and `FetchAdd`",
            ),
            SendOperation::AtSharedQueue { operation, .. } => self.check_payload(operation),
            SendOperation::Read { .. } => match self.payload {
                Payload::Gather(_) => Ok(()),
                Payload::Inline(_) => Err("a read needs registered memory, not inline data"),
            },
            SendOperation::CompareSwap { remote_addr, .. }
            | SendOperation::FetchAdd { remote_addr, .. } => match self.payload {
                _ if !aligned(remote_addr) => Err(UNALIGNED),
                Payload::Gather(sges)
                    if sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>() == 8 =>
                {
                    Ok(())
                }
                _ => Err(
                    "an atomic needs exactly eight bytes of registered memory for the previous value",
                ),
            },
            SendOperation::AtomicWrite { remote_addr, .. } if !aligned(remote_addr) => {
                Err(UNALIGNED)
            }
            SendOperation::Flush { placement, .. }
                if placement.is_empty() || !FlushPlacement::all().contains(placement) =>
            {
                Err("a flush needs a placement: GLOBAL, PERSISTENT or both")
            }
            SendOperation::AtomicWrite { .. }
            | SendOperation::Flush { .. }
            | SendOperation::LocalInvalidate { .. } => self.payload.check_empty(),
            SendOperation::BindWindow(_) => {
                Err("a request cannot contain `BindWindow`; use `bind_window`")
            }
        }
    }
}

const UNALIGNED: &str = "the remote address of an atomic must be a multiple of 8";

impl Payload<'_> {
    fn check_empty(self) -> Result<(), &'static str> {
        match self {
            Payload::Gather([]) => Ok(()),
            _ => Err("the operation has no payload"),
        }
    }
}

#[cfg(test)]
mod tests;
