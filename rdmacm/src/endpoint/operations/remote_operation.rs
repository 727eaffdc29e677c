//! [`RemoteOperation`], an operation that was started and whose result is fetched later.

use std::fmt;
use std::time::Duration;

use super::multicast_group::{Joining, MulticastGroup};
use super::resolving::Resolving;
#[cfg(doc)]
use crate::endpoint::connection::handle::Connection;
use crate::endpoint::core::EndReason;
use crate::endpoint::core::operation::{Awaited, Operation};
#[cfg(doc)]
use crate::endpoint::datagrams::socket::DatagramSocket;
use crate::endpoint::memory::buffer::Buffer;
use crate::endpoint::memory::exported_memory::{ExportedMemory, Exporting};
use crate::endpoint::memory::sending::AwaitedSend;
use crate::endpoint::shared::datagram_peer::DatagramPeer;
use crate::endpoint::shared::state::State;
use crate::endpoint::wait::WaitMode;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::RegisteredBuffer;

/// An operation with a peer or a group that was started and has not returned its result.
///
/// Created by the methods of [`Connection`] and [`DatagramSocket`] whose names begin with `start_`. They do not wait
/// for the peer. A thread starts several operations and then waits for each. An event loop calls
/// [`try_wait`](Self::try_wait) whenever the [descriptor](Connection#waiting) of the connection or socket is readable.
///
/// Dropping a send, a write, a read or an atomic operation detaches it: the device still performs it, and its buffer
/// returns to the connection afterwards. Dropping the export of a window revokes it. Dropping the resolution of a peer
/// or the joining of a group cancels it. Until it has returned its result, an operation keeps the descriptors of its
/// connection open, as a [`Buffer`] does.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::{Connection, RemoteMemory};
///
/// /// Reads both halves of 128 bytes of the peer's memory at the same time.
/// fn read_both(connection: &Connection, memory: &RemoteMemory) -> rdmacm::Result<[u8; 128]> {
///     let mut both = [0; 128];
///     let mut reads = Vec::new();
///     for offset in [0, 64] {
///         let mut buffer = connection.acquire_buffer()?;
///         buffer.set_len(64)?;
///         reads.push(connection.start_read(buffer, memory, offset)?);
///     }
///     for (half, read) in both.chunks_mut(64).zip(reads) {
///         half.copy_from_slice(&read.wait()?);
///     }
///     Ok(both)
/// }
/// ```
#[must_use = "dropping an operation discards its result"]
pub struct RemoteOperation<T> {
    /// Absent after the result was returned.
    started: Option<Started<T>>,
}

/// The operation, and the function that turns its outcome into the result.
enum Started<T> {
    Posted(Posted, fn(Buffer) -> T),
    Resolving(Resolving, fn(DatagramPeer) -> T),
    Joining(Joining, fn(MulticastGroup) -> T),
    Exporting(Exporting, fn(ExportedMemory) -> T),
}

/// A posted work request, whose outcome is its buffer.
pub(in crate::endpoint) struct Posted {
    what: Operation,
    awaited_send: AwaitedSend,
    /// Bytes of the buffer that is returned.
    length: usize,
}

impl<T> RemoteOperation<T> {
    /// Creates the operation `what`, which was posted with `awaited_send`.
    ///
    /// Its buffer is returned with `length` bytes.
    pub(in crate::endpoint) fn posted(
        what: Operation,
        awaited_send: AwaitedSend,
        length: usize,
        result: fn(Buffer) -> T,
    ) -> Self {
        Self { started: Some(Started::Posted(Posted { what, awaited_send, length }, result)) }
    }

    /// Waits until the operation completes and returns its result.
    ///
    /// The result of a send or a write is the buffer, whose length is its capacity again. The result of a read is the
    /// buffer with the bytes. The result of an atomic operation is the previous value of the number. The result of
    /// other operations is the exported window, the peer or the group.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] and the other reasons for which the connection or socket has
    ///   [ended](crate::endpoint::Connection#closing-and-failures) before the operation completed. If the peer's
    ///   device refuses access to its memory, the connection ends with [`ErrorKind::WorkRequestFailed`]. Operations
    ///   after the refused one fail for the same reason.
    /// - The errors of the method that started the operation, if they are detected later: see its documentation.
    /// - [`ErrorKind::InvalidInput`] if the result was returned already.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Driver notes
    ///
    /// siw does not report that the peer's device refused an operation: the error is [`ErrorKind::Disconnected`].
    pub fn wait(mut self) -> Result<T> {
        self.wait_with(WaitMode::BLOCKING)
    }

    /// Waits at most `timeout` until the operation completes.
    ///
    /// If `timeout` elapses, the operation is dropped, which detaches or cancels it.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`wait`](Self::wait):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    pub fn wait_timeout(mut self, timeout: Duration) -> Result<T> {
        self.wait_with(WaitMode::timeout(timeout))
    }

    /// Returns the result if the operation has completed.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`wait`](Self::wait):
    /// - [`ErrorKind::WouldBlock`] if the operation has not completed. Retry when the [descriptor](Connection#waiting)
    ///   of the connection or socket is readable.
    pub fn try_wait(&mut self) -> Result<T> {
        self.wait_with(WaitMode::NonBlocking)
    }

    /// Returns the posted request of a task, and the function that converts its buffer into the result.
    pub(in crate::endpoint) fn into_posted(self) -> (Posted, fn(Buffer) -> T) {
        match self.started {
            Some(Started::Posted(posted, result)) => (posted, result),
            _ => unreachable!("a task starts only posted requests with this function"),
        }
    }

    fn wait_with(&mut self, mode: WaitMode) -> Result<T> {
        let Some(started) = &mut self.started else {
            let reason = "the result was returned already";
            return Err(Error::invalid("wait for", "a remote operation", reason));
        };
        let result = match started {
            Started::Posted(posted, result) => posted.wait(mode).map(*result),
            Started::Resolving(resolving, result) => resolving.wait(mode).map(*result),
            Started::Joining(joining, result) => joining.wait(mode).map(*result),
            Started::Exporting(exporting, result) => exporting.wait(mode).map(*result),
        };
        if !matches!(&result, Err(error) if *error.kind() == ErrorKind::WouldBlock) {
            self.started = None;
        }
        result
    }
}

impl From<Resolving> for RemoteOperation<DatagramPeer> {
    fn from(resolving: Resolving) -> Self {
        Self { started: Some(Started::Resolving(resolving, |peer| peer)) }
    }
}

impl From<Joining> for RemoteOperation<MulticastGroup> {
    fn from(joining: Joining) -> Self {
        Self { started: Some(Started::Joining(joining, |group| group)) }
    }
}

impl From<Exporting> for RemoteOperation<ExportedMemory> {
    fn from(exporting: Exporting) -> Self {
        Self { started: Some(Started::Exporting(exporting, |export| export)) }
    }
}

impl Posted {
    fn wait(&mut self, mode: WaitMode) -> Result<Buffer> {
        let buffer = self.awaited_send.wait(mode)?;
        self.with_length(buffer)
    }

    /// Returns the operation and its request, for the waiter of a task.
    pub(in crate::endpoint) fn awaited(&self) -> Awaited {
        self.awaited_send.awaited()
    }

    /// Takes the memory of the request, if it has completed.
    pub(in crate::endpoint) fn completed(
        &self,
        state: &mut State,
    ) -> Option<Result<RegisteredBuffer, EndReason>> {
        state.sent(self.awaited_send.index)
    }

    /// Returns the buffer of the request, whose memory was taken.
    pub(in crate::endpoint) fn into_buffer(mut self, memory: RegisteredBuffer) -> Result<Buffer> {
        let buffer = self.awaited_send.take_buffer(memory);
        self.with_length(buffer)
    }

    fn with_length(&self, mut buffer: Buffer) -> Result<Buffer> {
        buffer.set_len(self.length)?;
        Ok(buffer)
    }
}

impl<T> fmt::Debug for RemoteOperation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.started.as_ref().map(|started| match started {
            Started::Posted(posted, _) => posted.what,
            Started::Resolving(..) => Operation::Resolve,
            Started::Joining(..) => Operation::Join,
            Started::Exporting(..) => Operation::Export,
        });
        f.debug_struct("RemoteOperation").field("operation", &operation).finish_non_exhaustive()
    }
}
