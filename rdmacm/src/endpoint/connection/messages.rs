//! Sending and receiving messages over a connection.

use std::iter;
use std::time::Duration;

use super::handle::Connection;
#[cfg(doc)]
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::core::operation::Operation;
use crate::endpoint::memory::buffer::{Buffer, Message};
use crate::endpoint::operations::remote_operation::RemoteOperation;
use crate::endpoint::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::verbs::SendOperation;

/// Sending and receiving messages.
impl Connection {
    /// Copies `bytes` into a send buffer and posts them as a message, waiting until a buffer is free.
    ///
    /// This is less work than [`acquire_buffer`](Self::acquire_buffer) followed by [`post_send`](Self::post_send).
    /// Write a long message into a buffer directly, which saves the copy.
    ///
    /// The message must also fit into a [receive buffer](ConnectionConfig::receive_buffer_size) of the peer. If it
    /// cannot be sent, the connection ends, and later calls return the reason.
    ///
    /// # Errors
    ///
    /// If the call fails, nothing was sent. In addition to the errors of [`acquire_buffer`](Self::acquire_buffer) and
    /// [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `bytes` exceed a [buffer](ConnectionConfig::send_buffer_size).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// connection.post_bytes(b"first")?;
    /// connection.post_bytes(b"second")?;
    /// // Waits until both messages are sent.
    /// connection.flush()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared.post_bytes(bytes, SendOperation::Send, WaitMode::BLOCKING)
    }

    /// Posts `bytes` as a message if a buffer is free.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_bytes`](Self::post_bytes):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::{ErrorKind, endpoint::Connection};
    ///
    /// /// Returns `false` if the message has to wait until the descriptor is readable.
    /// fn offer(connection: &Connection, message: &[u8]) -> rdmacm::Result<bool> {
    ///     match connection.try_post_bytes(message) {
    ///         Ok(()) => Ok(true),
    ///         Err(error) if *error.kind() == ErrorKind::WouldBlock => Ok(false),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    pub fn try_post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared.post_bytes(bytes, SendOperation::Send, WaitMode::NonBlocking)
    }

    /// Waits for the next message, and returns `None` if the peer has ended the connection.
    ///
    /// The peer ends it if it closes or drops the connection, or if its process dies.
    ///
    /// A message is delivered in the buffer to which the device has written it. Dropping it posts the buffer again. A
    /// program that holds as many messages as there are [receive buffers](ConnectionConfig::receive_buffers) receives
    /// no more.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WorkRequestFailed`] if the connection failed: with EMSGSIZE if the peer has sent a message longer
    ///   than a [buffer](ConnectionConfig::receive_buffer_size).
    /// - [`ErrorKind::PeerRequestFailed`] if the device refused an access of the peer to memory of this side, and
    ///   reports it.
    /// - [`ErrorKind::UnreportedCause`] if the device does not report why the connection failed.
    /// - [`ErrorKind::ReceiveOverrun`] on iWARP if there may have been [no buffer](ConnectionConfig::receive_buffers)
    ///   for a message. Messages that found a buffer are received first.
    /// - [`ErrorKind::MalformedResponse`] if the device has stored a malformed completion.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::Disconnected`] if this side has closed the connection first.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// while let Some(message) = connection.recv()? {
    ///     println!("{} bytes: {:?}", message.len(), &message[..]);
    /// }
    /// println!("the peer has closed the connection");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Driver notes
    ///
    /// On siw, this call also returns `None` if the peer's device has refused a request of this side. The message was
    /// too long or found no buffer, or the memory is not exported. The kernel of this side does not report the reason.
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn recv(&self) -> Result<Option<Message>> {
        self.recv_with(WaitMode::BLOCKING)
    }

    /// Waits at most `timeout` for the next message.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`recv`](Self::recv):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::ErrorKind;
    ///
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// match connection.recv_timeout(Duration::from_secs(1)) {
    ///     Ok(Some(message)) => println!("{} bytes", message.len()),
    ///     Ok(None) => println!("the peer has closed the connection"),
    ///     Err(error) if *error.kind() == ErrorKind::TimedOut => println!("no message yet"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.recv_with(WaitMode::timeout(timeout))
    }

    /// Returns the next message if it has arrived.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`recv`](Self::recv):
    /// - [`ErrorKind::WouldBlock`] if no message has arrived.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::{ErrorKind, endpoint::Connection};
    ///
    /// /// Receives all messages that have arrived, when the descriptor is readable.
    /// ///
    /// /// Returns `false` if the peer has closed the connection.
    /// fn on_readable(connection: &Connection) -> rdmacm::Result<bool> {
    ///     loop {
    ///         match connection.try_recv() {
    ///             Ok(Some(message)) => println!("{} bytes", message.len()),
    ///             Ok(None) => return Ok(false),
    ///             Err(error) if *error.kind() == ErrorKind::WouldBlock => return Ok(true),
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn try_recv(&self) -> Result<Option<Message>> {
        self.recv_with(WaitMode::NonBlocking)
    }

    /// Returns an iterator over the messages, which waits for each.
    ///
    /// It ends when the peer has closed the connection.
    ///
    /// # Errors
    ///
    /// An item is an error of [`recv`](Self::recv). No item follows it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn echo(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// for message in connection.messages() {
    ///     connection.post_bytes(&message?)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn messages(&self) -> impl Iterator<Item = Result<Message>> + '_ {
        let mut has_failed = false;
        iter::from_fn(move || {
            let received = (!has_failed).then(|| self.recv().transpose()).flatten();
            has_failed = matches!(received, Some(Err(_)));
            received
        })
    }

    fn recv_with(&self, mode: WaitMode) -> Result<Option<Message>> {
        // The message is kept outside of the result, because every step of waiting copies the result.
        let mut arrived = None;
        self.shared.wait_for(Operation::Receive, mode, |state| {
            state.message().map(|found| found.map(|message| arrived = message))
        })?;
        Ok(arrived.map(|arrived| Message::new(arrived, &self.shared)))
    }

    /// Takes a send buffer, waiting until one is free.
    ///
    /// There are [`ConnectionConfig::send_buffers`] of them. A buffer is free again when its message is sent, or when
    /// it is dropped. The result of a [`RemoteOperation`] that sends, writes or reads is its buffer, which stays in use
    /// until it is dropped or posted. A buffer holds the bytes of its last use, or zeros.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures).
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer()?;
    /// buffer.set_len(8)?;
    /// buffer.copy_from_slice(&7_u64.to_be_bytes());
    /// connection.post_send(buffer)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::BLOCKING)
    }

    /// Takes a send buffer, waiting at most `timeout` until one is free.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`acquire_buffer`](Self::acquire_buffer):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    pub fn acquire_buffer_timeout(&self, timeout: Duration) -> Result<Buffer> {
        self.shared.take(WaitMode::timeout(timeout))
    }

    /// Takes a send buffer if one is free.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`acquire_buffer`](Self::acquire_buffer):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free.
    pub fn try_acquire_buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::NonBlocking)
    }

    /// Posts the message in `buffer` without waiting until it is sent.
    ///
    /// The buffer returns to the connection when the message is sent. There is always room for the message, because the
    /// connection has no more buffers than its send queue has entries. If the message cannot be sent, the connection
    /// ends, and later calls return the reason; [`flush`](Self::flush) waits until it is known.
    ///
    /// # Errors
    ///
    /// If the call fails, the buffer returns to the connection too.
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures).
    /// - [`ErrorKind::InvalidInput`] if `buffer` belongs to another connection.
    /// - [`ErrorKind::Unsupported`] if it has immediate data and the connection is over iWARP.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer()?;
    /// buffer.copy_from(b"written in place")?;
    /// connection.post_send(buffer)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_post_send")]
    pub fn post_send(&self, buffer: Buffer) -> Result<()> {
        let operation = buffer.operation();
        self.shared.start(Operation::Send, buffer, operation)
    }

    /// Starts to send the message in `buffer`; the operation returns the buffer when it is sent.
    ///
    /// [`post_send`](Self::post_send) does less work, if the caller does not need the buffer back.
    ///
    /// # Errors
    ///
    /// The errors of [`post_send`](Self::post_send).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer()?;
    /// for part in ["one", "two"] {
    ///     buffer.copy_from(part.as_bytes())?;
    ///     buffer = connection.start_send(buffer)?.wait()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_send(&self, buffer: Buffer) -> Result<RemoteOperation<Buffer>> {
        let (operation, length) = (buffer.operation(), buffer.capacity());
        self.start(Operation::Send, buffer, operation, length, |buffer| buffer)
    }

    /// Posts `operation` with `buffer`, which is returned with `length` bytes and made the result.
    pub(in crate::endpoint) fn start<T>(
        &self,
        what: Operation,
        buffer: Buffer,
        operation: SendOperation<'_>,
        length: usize,
        result: fn(Buffer) -> T,
    ) -> Result<RemoteOperation<T>> {
        let awaited_send = self.shared.post_awaited(what, buffer, operation)?;
        Ok(RemoteOperation::posted(what, awaited_send, length, result))
    }

    /// Waits until every posted request is completed: messages, writes, reads and atomic operations.
    ///
    /// A message is completed when it is sent. On InfiniBand and RoCE the peer's device has received it. On iWARP, TCP
    /// on this side has accepted it. Only a response shows that the peer's program has handled it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection has
    ///   [ended](Self#closing-and-failures) before the requests were completed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(connection: &rdmacm::endpoint::Connection) -> rdmacm::Result<()> {
    /// for part in ["one", "two"] {
    ///     connection.post_bytes(part.as_bytes())?;
    /// }
    /// connection.flush()?;
    /// println!("both are sent");
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::BLOCKING)
    }

    /// Waits at most `timeout` until every posted request is completed.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`flush`](Self::flush):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    pub fn flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.shared.flush_with(WaitMode::timeout(timeout))
    }

    /// Returns `Ok` if every posted request is completed.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`flush`](Self::flush):
    /// - [`ErrorKind::WouldBlock`] if a request is in flight.
    pub fn try_flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::NonBlocking)
    }
}
