//! Messages of a connection, for tasks.

#[cfg(feature = "futures-core")]
use futures_core::FusedStream;

use super::connection::Connection;
use super::sending::{complete, post_bytes};
#[cfg(feature = "futures-core")]
use super::stream::Repeat;
use crate::endpoint::RemoteOperation;
use crate::endpoint::memory::buffer::{Buffer, Message};
use crate::endpoint::shared::Operation;
use crate::endpoint::shared::state::State;
#[cfg(doc)]
use crate::endpoint::{self, ConnectionConfig};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::verbs::SendOperation;

/// Sending and receiving messages.
impl Connection {
    /// Posts a copy of `bytes` as a message, waiting until a buffer is free.
    ///
    /// `bytes` must fit into a send buffer of this side, and into a receive buffer of the peer. The call does not wait
    /// until the message is sent: [`flush`](Self::flush) does. If the message cannot be sent, the connection ends, and
    /// later calls return the reason.
    ///
    /// # Errors
    ///
    /// If the call fails, nothing was sent.
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `bytes` exceed a [send
    ///   buffer](ConnectionConfig::send_buffer_size).
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures).
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, nothing was posted.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// connection.post_bytes(b"first").await?;
    /// connection.post_bytes(b"second").await?;
    /// // Waits until both messages are sent.
    /// connection.flush().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared().check_length(bytes.len())?;
        let operation = SendOperation::Send.into();
        post_bytes(self.shared(), self.watch(), bytes, operation).await
    }

    /// Waits for the next message and returns it, or `None` if the peer has ended the connection.
    ///
    /// A message is delivered in the buffer to which the device has written it. Dropping it posts the buffer again. A
    /// program that holds as many messages as there are [receive buffers](ConnectionConfig::receive_buffers) receives
    /// no more.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WorkRequestFailed`] if the connection failed: with EMSGSIZE if the peer has sent a message longer
    ///   than a [receive buffer](ConnectionConfig::receive_buffer_size).
    /// - [`ErrorKind::ReceiveOverrun`] on iWARP if there may have been no buffer for a message. Messages that found a
    ///   buffer are received first.
    /// - [`ErrorKind::Disconnected`] if this side has closed the connection first.
    /// - The other errors of [`endpoint::Connection::recv`], for a device that fails or was removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no message was taken.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// while let Some(message) = connection.recv().await? {
    ///     println!("{} bytes: {:?}", message.len(), &message[..]);
    /// }
    /// println!("the peer has closed the connection");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub async fn recv(&self) -> Result<Option<Message>> {
        let arrived = self.wait_for(Operation::Receive, State::message).await?;
        Ok(arrived.map(|arrived| Message::new(arrived, self.shared())))
    }

    /// Returns a stream of the messages (feature `futures-core`).
    ///
    /// It ends when the peer has closed the connection.
    ///
    /// # Errors
    ///
    /// An item is an error of [`recv`](Self::recv). The stream does not end with it: the next item is the error again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the stream is dropped, no message was taken that it has not returned.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::pin::pin;
    ///
    /// // The crates `futures` and `tokio-stream` have the trait too.
    /// use smol::stream::StreamExt;
    ///
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// let mut messages = pin!(connection.messages());
    /// while let Some(message) = messages.next().await {
    ///     println!("{} bytes", message?.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "futures-core")]
    pub fn messages(&self) -> impl FusedStream<Item = Result<Message>> + Send + '_ {
        Repeat::new(|| async { self.recv().await.transpose() })
    }

    /// Takes a send buffer, waiting until one is free.
    ///
    /// There are [`ConnectionConfig::send_buffers`] of them, each of [`ConnectionConfig::send_buffer_size`] bytes. A
    /// buffer is free again when its message is sent, or when it is dropped. It holds the bytes of its last use, or
    /// zeros, and its length is its capacity until [`Buffer::set_len`] or [`Buffer::copy_from`] changes it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures).
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no buffer was taken.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer().await?;
    /// buffer.set_len(8)?;
    /// buffer.copy_from_slice(&7_u64.to_be_bytes());
    /// connection.post_send(buffer)?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_buffer(&self) -> Result<Buffer> {
        let memory = self.wait_for(Operation::AcquireBuffer, State::buffer).await?;
        Ok(Buffer::new(memory, self.shared()))
    }

    /// Posts the message in `buffer` without waiting until it is sent.
    ///
    /// The buffer returns to the connection when the message is sent. There is always room in the send queue, which has
    /// an entry for each buffer. If the message cannot be sent, the connection ends, and later calls return the reason;
    /// [`flush`](Self::flush) waits until it is known.
    ///
    /// # Errors
    ///
    /// If the call fails, the buffer returns to the connection too.
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures).
    /// - [`ErrorKind::InvalidInput`] if `buffer` belongs to another connection.
    /// - [`ErrorKind::Unsupported`] if `buffer` has [immediate data](Buffer::set_imm_data) and the connection is over
    ///   iWARP.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer().await?;
    /// buffer.copy_from(b"written in place")?;
    /// connection.post_send(buffer)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_post_send")]
    pub fn post_send(&self, buffer: Buffer) -> Result<()> {
        self.blocking().post_send(buffer)
    }

    /// Sends the message in `buffer`, waits until it is sent, and returns the buffer.
    ///
    /// The length of the returned buffer is its capacity.
    ///
    /// On InfiniBand and RoCE the peer's device has received the message then; on iWARP, TCP on this side has accepted
    /// it. [`post_send`](Self::post_send) does less work, if the caller does not need the buffer back.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::WorkRequestFailed`] or another [reason](Self#closing-and-failures) if the connection ends before
    ///   the message is sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing is sent. If it is dropped later, the message is in flight,
    /// as one that was [posted](Self::post_send). The buffer returns to the connection in both cases.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer().await?;
    /// for part in ["one", "two"] {
    ///     buffer.copy_from(part.as_bytes())?;
    ///     buffer = connection.send(buffer).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send(&self, buffer: Buffer) -> Result<Buffer> {
        self.complete(self.blocking().start_send(buffer)?).await
    }

    /// Waits for the result of an operation that posted a request.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the buffer returns to the connection when the request has completed.
    pub(super) async fn complete<T>(&self, operation: RemoteOperation<T>) -> Result<T> {
        complete(self.shared(), self.watch(), operation).await
    }

    /// Waits until all posted requests are completed: messages, writes, reads and atomic operations.
    ///
    /// A message is completed when it is sent. On InfiniBand and RoCE the peer's device has received it. On iWARP, TCP
    /// on this side has accepted it. Only a response shows that the peer's program has handled it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WorkRequestFailed`], [`ErrorKind::Disconnected`] or another [reason](Self#closing-and-failures)
    ///   if the connection ended before the requests were completed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: &rdmacm::endpoint::task::Connection) -> rdmacm::Result<()> {
    /// for part in ["one", "two"] {
    ///     connection.post_bytes(part.as_bytes()).await?;
    /// }
    /// connection.flush().await?;
    /// println!("both are sent");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) -> Result<()> {
        self.wait_for(Operation::Flush, State::flushed).await
    }
}
