//! Work requests.

use bitflags::bitflags;
pub use verbs_abi::ib_uverbs_sge as Sge;

use super::{AccessFlags, Destination};

/// A request to a send queue.
#[doc(alias = "ibv_send_wr")]
#[derive(Debug, Clone, Copy)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub operation: SendOperation<'a>,
    /// With which local memory.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
}

/// The operation of a send request.
///
/// Queue pairs of reliable connections do all but [`SendTo`](Self::SendTo), those of unreliable
/// connections what needs no answer, those for datagrams only that one. What the device, its driver
/// or the kernel lacks is [`PostError::Unsupported`](crate::driver::PostError::Unsupported): siw has sends (also those that invalidate),
/// writes and reads.
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
    /// Sends a message, and takes a key away from this side that the peer has given it: see
    /// [`Completion::invalidated_rkey`](super::Completion::invalidated_rkey). On rxe the key of a
    /// memory window of type 2, on siw that of a region.
    ///
    /// On rxe the key of a window that is not bound, or not any more, stops the peer's machine: the
    /// peer's kernel crashes (Linux 6.1 and 6.12 at least), and nothing here or there can look first.
    /// Take a key away once, and never one that the peer may take back itself.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    #[doc(alias = "ibv_wr_send_inv")]
    SendWithInvalidate {
        /// The peer's key.
        rkey: u32,
    },
    /// Sends a datagram: the one operation of queue pairs for datagrams, and of no others. Its
    /// payload fits into the MTU of the port: a longer one is not sent, which its completion does not
    /// say.
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
    #[doc(alias = "ibv_wr_rdma_write")]
    Write {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Writes to the peer's memory, and completes the peer's next receive with a number. The receive's memory stays as it is.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    #[doc(alias = "ibv_wr_rdma_write_imm")]
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
    #[doc(alias = "ibv_wr_rdma_read")]
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
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    CompareSwap {
        /// Where, in the peer's addresses: a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The value that the number is compared with.
        compare: u64,
        /// The value that is stored if the comparison holds.
        swap: u64,
    },
    /// Adds `add` to eight bytes of the peer's memory, as a number of its machine that wraps around.
    /// The previous value goes to the payload, as with [`CompareSwap`](Self::CompareSwap).
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    FetchAdd {
        /// Where, in the peer's addresses: a multiple of 8.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The value that is added.
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
        /// The bytes that are written, in the order of their addresses.
        bytes: [u8; 8],
    },
    /// Completes when what was written before it to the peer's memory is visible there, or
    /// persistent. There is no payload. On rxe since Linux 6.2; persistent is refused by the peer there
    /// unless its memory is.
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
    ///
    /// On rxe a second invalidation stops the machine: the kernel crashes (Linux 6.1 and 6.12 at
    /// least) where the window is not bound any more. So the library refuses a key that no bind
    /// posted to the queue pair, or to another with its completion queue for receives, has given a
    /// window of type 2, or that was taken back since: by such a request, or by a message whose
    /// completion was polled. Of one that is under way, or not polled yet, it cannot know: where the
    /// peer may take the key back, do not.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    #[doc(alias = "ibv_wr_local_inv")]
    LocalInvalidate {
        /// The key, of this side.
        rkey: u32,
    },
    /// Binds a memory window to a part of a region. Only
    /// `bind_window` of the layer above posts this operation, because the window and
    /// its queue pair have to remember the bind.
    #[doc(hidden)]
    BindWindow(WindowBinding),
}

/// The numbers that a send queue element holds for the bind of a memory window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBinding {
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
    /// Registered memory, gathered (or, reading, scattered) in this order. The device uses it until
    /// the request completes.
    #[doc(alias = "ibv_wr_set_sge")]
    #[doc(alias = "ibv_wr_set_sge_list")]
    Gather(&'a [Sge]),
    /// Bytes that are copied into the request: free for use as soon as the post returns. Not for
    /// reads and atomics.
    #[doc(alias = "IBV_SEND_INLINE")]
    #[doc(alias = "ibv_wr_set_inline_data")]
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
    pub fn check(&self) -> Result<(), &'static str> {
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
            SendOperation::Flush { placement, .. }
                if placement.is_empty() || !FlushPlacement::all().contains(placement) =>
            {
                Err("a flush needs a placement: GLOBAL, PERSISTENT or both")
            }
            SendOperation::AtomicWrite { .. }
            | SendOperation::Flush { .. }
            | SendOperation::LocalInvalidate { .. } => self.payload.check_empty(),
            SendOperation::BindWindow(_) => {
                Err("a memory window is bound by `bind_window`, which keeps track of it")
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
