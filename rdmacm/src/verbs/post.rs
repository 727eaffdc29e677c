//! Work requests.

use bitflags::bitflags;
pub use verbs_abi::ib_uverbs_sge as Sge;

/// A request to a send queue.
#[doc(alias = "ibv_send_wr")]
#[derive(Debug, Clone, Copy)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub operation: SendOperation,
    /// With which local memory.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
}

/// What a send request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOperation {
    /// Sends a message into the peer's next receive.
    Send,
    /// Writes to the peer's memory.
    Write {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Reads from the peer's memory.
    Read {
        /// Where, in the peer's addresses.
        remote_addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
}

/// The local memory of a request.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Registered memory, gathered (or, reading, scattered) in this order. The device uses it until
    /// the request completes.
    Gather(&'a [Sge]),
    /// Bytes that are copied into the request: free for use as soon as the post returns. Not for
    /// reads.
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
