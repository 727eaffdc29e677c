//! Sending and receiving messages over a connection.

use std::time::Duration;

use super::buffer::{Buffer, Message};
use super::connection::Connection;
use super::operation::Operation;
use super::remote_operation::RemoteOperation;
#[cfg(doc)]
use super::settings::Settings;
use super::state::State;
use super::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::verbs::SendOperation;

impl Connection {
    /// A buffer to send; waits until there is one.
    ///
    /// There are [`Settings::send_buffers`], which come back when their messages have been sent,
    /// and where they are dropped. What is in it is what it had last, or zero.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Failed`], [`ErrorKind::Overrun`] or
    /// [`ErrorKind::DeviceGone`] where the connection has ended; [`ErrorKind::WrongProcess`] after a fork.
    pub fn buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::BLOCKING)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer), and [`ErrorKind::TimedOut`].
    pub fn buffer_timeout(&self, timeout: Duration) -> Result<Buffer> {
        self.shared.take(WaitMode::timeout(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer), and [`ErrorKind::WouldBlock`].
    pub fn try_buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::NonBlocking)
    }

    /// Sends the message in `buffer`, without waiting until that is done.
    ///
    /// The buffer goes back to the connection when it is. That it could not be sent ends the
    /// connection, and is what later calls say; [`flush`](Self::flush) waits until it is known.
    /// There is always room for it, as there are no more buffers than that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Failed`], [`ErrorKind::Overrun`] or
    /// [`ErrorKind::DeviceGone`] where the connection has ended; [`ErrorKind::Invalid`] for a buffer of another connection;
    /// [`ErrorKind::Unsupported`] for immediate data on iWARP; [`ErrorKind::WrongProcess`] after a
    /// fork. The buffer goes back then.
    #[doc(alias = "rdma_post_send")]
    pub fn post(&self, buffer: Buffer) -> Result<()> {
        let operation = buffer.operation();
        self.shared.start(Operation::Send, buffer, operation)
    }

    /// Sends `bytes` as a message, without waiting until that is done: copies them into a
    /// [buffer](Self::buffer), waiting until there is one, and [posts](Self::post) that, which is
    /// less work than both calls. What is long is better written into a buffer in the first place.
    ///
    /// # Errors
    ///
    /// The errors of [`buffer`](Self::buffer) and [`post`](Self::post); [`ErrorKind::Invalid`] with
    /// EMSGSIZE for more than a [buffer](Settings::send_buffer_size) holds. Then, and where there is no buffer in time,
    /// nothing is sent.
    pub fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared.post_bytes(bytes, SendOperation::Send, WaitMode::BLOCKING)
    }

    /// Posts `bytes` as a message if a buffer is free.
    ///
    /// # Errors
    ///
    /// As [`post_bytes`](Self::post_bytes), and [`ErrorKind::WouldBlock`] as of
    /// [`try_buffer`](Self::try_buffer).
    pub fn try_post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.shared.post_bytes(bytes, SendOperation::Send, WaitMode::NonBlocking)
    }

    /// Sends the message in `buffer`, waits until it is sent, and returns the buffer. On InfiniBand and RoCE the peer's
    /// device has the message then; on iWARP this side's TCP.
    ///
    /// # Errors
    ///
    /// The errors of [`start_send`](Self::start_send) and [`RemoteOperation::wait`].
    pub fn send(&self, buffer: Buffer) -> Result<Buffer> {
        self.start_send(buffer)?.wait()
    }

    /// Posts the message in `buffer` and returns the operation, which returns the buffer when the message is sent. If
    /// the buffer is not needed, [`post`](Self::post) does less work.
    ///
    /// # Errors
    ///
    /// The errors of [`post`](Self::post).
    pub fn start_send(&self, buffer: Buffer) -> Result<RemoteOperation<Buffer>> {
        let (operation, length) = (buffer.operation(), buffer.capacity());
        self.start(Operation::Send, buffer, operation, length, |buffer| buffer)
    }

    /// Posts `operation` with `buffer`, which is returned with `length` bytes and made the result.
    pub(super) fn start<T>(
        &self,
        what: Operation,
        buffer: Buffer,
        operation: SendOperation<'_>,
        length: usize,
        result: fn(Buffer) -> T,
    ) -> Result<RemoteOperation<T>> {
        let wanted = self.shared.start_wanted(what, buffer, operation)?;
        Ok(RemoteOperation::posted(what, wanted, length, result))
    }

    /// Waits until what was posted has been sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Failed`], [`ErrorKind::Overrun`] or
    /// [`ErrorKind::DeviceGone`] where the connection ended before; [`ErrorKind::WrongProcess`] after a fork.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::BLOCKING)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush), and [`ErrorKind::TimedOut`].
    pub fn flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.shared.flush_with(WaitMode::timeout(timeout))
    }

    /// Whether what was posted has been sent.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush), and [`ErrorKind::WouldBlock`] where it has not.
    pub fn try_flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::NonBlocking)
    }

    /// The next message; waits for one. `None` where the peer has ended the connection, after the
    /// last message that it sent before. Its kernel does that too, when its process has died: who
    /// has to know says farewell in a message. On iWARP the side that has sent a message for which there
    /// was [no buffer](Settings::receive_buffers), or that was too long, hears of the end alone (siw).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Failed`] where the connection failed: with EMSGSIZE where the peer has sent a
    /// message longer than a [buffer](Settings::receive_buffer_size); [`ErrorKind::Overrun`] on iWARP, where
    /// there may have been [no buffer](Settings::receive_buffers) for a message, after those that had
    /// one; [`ErrorKind::DeviceGone`]; [`ErrorKind::Disconnected`] where this side has closed it first; [`ErrorKind::WrongProcess`] after
    /// a fork.
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn recv(&self) -> Result<Option<Message>> {
        self.recv_with(WaitMode::BLOCKING)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and [`ErrorKind::TimedOut`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.recv_with(WaitMode::timeout(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and [`ErrorKind::WouldBlock`].
    pub fn try_recv(&self) -> Result<Option<Message>> {
        self.recv_with(WaitMode::NonBlocking)
    }

    fn recv_with(&self, mode: WaitMode) -> Result<Option<Message>> {
        let arrived = self.shared.wait_for(Operation::Receive, mode, State::message)?;
        Ok(arrived.map(|arrived| Message::new(arrived, &self.shared)))
    }
}
