//! The interface through which the core reaches the work queues of its endpoint.

use crate::error::{Error, Result};
use crate::verbs::{AddressHandle, BindRequest, Completion, SendOperation};

/// A work queue with its completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum Queue {
    Receive,
    Send,
}

/// Memory for one message.
pub(in crate::endpoint) trait Slot {
    /// Returns the index of the buffer among the buffers of its endpoint.
    ///
    /// The buffers for sending come first, then the buffers for receiving, and last the buffer of the keep-alive
    /// writes.
    fn index(&self) -> usize;

    fn bytes(&mut self) -> &mut [u8];
}

/// The request that a buffer is posted with.
#[derive(Debug, Clone, Copy)]
pub(in crate::endpoint) enum Outgoing<'a> {
    /// An operation of a connection.
    Operation(SendOperation<'a>),
    /// A datagram to queue pair `qp_num`, which has `qkey`, at `address`.
    Datagram { address: &'a AddressHandle, qp_num: u32, qkey: u32, imm_data: Option<u32> },
    /// The bind of a memory window, which leaves the buffer as it is.
    Bind(&'a BindRequest<'a>),
}

impl<'a> From<SendOperation<'a>> for Outgoing<'a> {
    fn from(operation: SendOperation<'a>) -> Self {
        Self::Operation(operation)
    }
}

impl<'a> From<&'a BindRequest<'a>> for Outgoing<'a> {
    fn from(request: &'a BindRequest<'a>) -> Self {
        Self::Bind(request)
    }
}

/// A request that could not be posted.
#[derive(Debug)]
pub(in crate::endpoint) struct NotPosted<B> {
    /// The buffer; `None` if the device may still execute the request.
    pub(in crate::endpoint) buffer: Option<B>,
    pub(in crate::endpoint) error: Error,
}

/// The work queues of an endpoint: its data path. The caller of the core owns them while it calls.
///
/// Every other command that the core needs is an action that the caller carries out while the endpoint is unlocked.
pub(in crate::endpoint) trait QueueIo {
    type Buffer: Slot;
    /// The sender of a datagram.
    type Sender;

    /// Posts a request over the first `length` bytes of `buffer`.
    fn post_send(
        &mut self,
        buffer: Self::Buffer,
        length: usize,
        outgoing: Outgoing<'_>,
    ) -> Result<(), NotPosted<Self::Buffer>>;

    /// Posts a receive into `buffer`.
    fn post_recv(&mut self, buffer: Self::Buffer) -> Result<(), NotPosted<Self::Buffer>>;

    /// Polls the completion queue of `queue` until it is empty.
    ///
    /// Each completion is passed to `each`, with the buffer of the request and, for a datagram, its sender. Returns the
    /// number of completions.
    fn poll(
        &mut self,
        queue: Queue,
        each: impl FnMut(Self::Buffer, Option<Self::Sender>, &Completion),
    ) -> Result<usize>;

    /// Returns the number of requests that are posted and not polled.
    fn outstanding(&self) -> usize;
}
