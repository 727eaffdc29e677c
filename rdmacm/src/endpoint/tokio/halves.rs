//! The two halves of a connection of tasks.

use std::sync::Arc;

use super::Connection;
use crate::endpoint::{Buffer, Message};
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
    pub async fn buffer(&self) -> Result<Buffer> {
        self.connection.buffer().await
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
    pub async fn post_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.connection.post_bytes(bytes).await
    }

    /// [`Connection::send`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub async fn send(&self, buffer: Buffer) -> Result<Buffer> {
        self.connection.send(buffer).await
    }

    /// [`Connection::flush`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub async fn flush(&self) -> Result<()> {
        self.connection.flush().await
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
    pub async fn recv(&self) -> Result<Option<Message>> {
        self.connection.recv().await
    }
}
