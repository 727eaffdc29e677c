//! The two halves of a connection.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::buffer::{Buffer, Message};
use super::connection::Connection;
use crate::error::Result;

/// The half of a connection that sends: of [`Connection::split`].
///
/// Dropping it leaves the connection to the [other half](ReceiveHalf); with the last of them it
/// ends, as one that is dropped.
#[derive(Debug)]
pub struct SendHalf {
    connection: Arc<Connection>,
}

impl SendHalf {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// The connection, of which this is a half.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// [`Connection::buffer`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn buffer(&self) -> Result<Buffer> {
        self.connection.buffer()
    }

    /// [`Connection::buffer_timeout`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn buffer_timeout(&self, timeout: Duration) -> Result<Buffer> {
        self.connection.buffer_timeout(timeout)
    }

    /// [`Connection::try_buffer`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn try_buffer(&self) -> Result<Buffer> {
        self.connection.try_buffer()
    }

    /// [`Connection::post`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn post(&self, buffer: Buffer) -> Result<()> {
        self.connection.post(buffer)
    }

    /// [`Connection::post_bytes`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.connection.post_bytes(bytes)
    }

    /// [`Connection::post_bytes_timeout`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn post_bytes_timeout(&self, bytes: &[u8], timeout: Duration) -> Result<()> {
        self.connection.post_bytes_timeout(bytes, timeout)
    }

    /// [`Connection::try_post_bytes`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn try_post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.connection.try_post_bytes(bytes)
    }

    /// [`Connection::send`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn send(&self, buffer: Buffer) -> Result<Buffer> {
        self.connection.send(buffer)
    }

    /// [`Connection::send_timeout`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn send_timeout(&self, buffer: Buffer, timeout: Duration) -> Result<Buffer> {
        self.connection.send_timeout(buffer, timeout)
    }

    /// [`Connection::flush`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn flush(&self) -> Result<()> {
        self.connection.flush()
    }

    /// [`Connection::flush_timeout`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.connection.flush_timeout(timeout)
    }

    /// [`Connection::try_flush`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn try_flush(&self) -> Result<()> {
        self.connection.try_flush()
    }
}

impl AsFd for SendHalf {
    /// The connection's, which both halves share.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// The half of a connection that receives: of [`Connection::split`].
///
/// Dropping it leaves the connection to the [other half](SendHalf); with the last of them it ends,
/// as one that is dropped.
#[derive(Debug)]
pub struct ReceiveHalf {
    connection: Arc<Connection>,
}

impl ReceiveHalf {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// The connection, of which this is a half.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// [`Connection::recv`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn recv(&self) -> Result<Option<Message>> {
        self.connection.recv()
    }

    /// [`Connection::recv_timeout`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.connection.recv_timeout(timeout)
    }

    /// [`Connection::try_recv`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn try_recv(&self) -> Result<Option<Message>> {
        self.connection.try_recv()
    }
}

impl AsFd for ReceiveHalf {
    /// The connection's, which both halves share.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
