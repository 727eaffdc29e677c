//! The one-sided operations of a connection, for tasks.

use std::ops::RangeBounds;

use super::blocking_pool::DropOnBlockingPool;
use super::connection::Connection;
use super::exported_memory::ExportedMemory;
use super::failure::canceled;
use crate::endpoint::memory::buffer::Buffer;
use crate::endpoint::memory::exported_memory::bytes_within;
use crate::endpoint::memory::remote_memory::AtomicOperation;
#[cfg(doc)]
use crate::endpoint::{self, ConnectionConfig};
use crate::endpoint::{DmaMemory, ExportedMemory as Blocking, RemoteAccess, RemoteMemory};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
#[cfg(doc)]
use crate::verbs::MemoryRegion;

/// Exporting memory to the peer, and access to memory of the peer.
impl Connection {
    /// Registers `part` of `memory` and lets the peer access it with the given `rights`.
    ///
    /// A `part` of `..` is all of the memory. The offset 0 of the peer's [`RemoteMemory`] is the first byte of the
    /// part. The access lasts as long as the [`ExportedMemory`] and the connection. The peer needs the
    /// [descriptor](endpoint::RemoteMemory::to_bytes) of the export, which the program sends in a message. Registering
    /// pins the pages and may take a while, so it runs on a thread that may block. See [`endpoint::Connection::export`]
    /// for details.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has ended the connection.
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory.
    /// - ENOMEM or EPERM if the user may not pin as much memory (`RLIMIT_MEMLOCK`), with a [hint](crate::Error::hint).
    /// - The other errors of [`MemoryRegion::register_shared`].
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the memory is not exported.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{DmaMemory, RemoteAccess, task::Connection};
    ///
    /// /// Lets the peer write to 4096 bytes, and returns them when the peer has sent a message.
    /// async fn receive(connection: &Connection) -> rdmacm::Result<DmaMemory> {
    ///     let memory = DmaMemory::new(4096)?;
    ///     let exported = connection.export(&memory, .., RemoteAccess::WRITE).await?;
    ///     connection.post_bytes(&exported.remote_memory().to_bytes()).await?;
    ///     connection.recv().await?;
    ///     exported.revoke().await?;
    ///     Ok(memory)
    /// }
    /// ```
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub async fn export(
        &self,
        memory: &DmaMemory,
        part: impl RangeBounds<usize>,
        rights: RemoteAccess,
    ) -> Result<ExportedMemory> {
        let part = bytes_within(part, memory.len())?;
        let (pd, memory) = (self.shared().pd()?, memory.clone_handle());
        let runtime = self.runtime();
        let owner = runtime.clone();
        let register = move || {
            let exported = Blocking::new(&pd, &memory, part, rights);
            // If the call is dropped meanwhile, the export is dropped on this thread or another one that may block.
            exported.map(|exported| DropOnBlockingPool::new(exported, &owner))
        };
        let ended = || canceled("export memory over", self.shared().name.clone());
        let exported = self.run_blocking(register).await.ok_or_else(ended)??;
        Ok(ExportedMemory::new(exported.into_inner(), runtime.clone()))
    }

    /// Writes `buffer` to the peer's memory, and returns the buffer on completion.
    ///
    /// The buffer has its full length again. The bytes are written `offset` bytes after the beginning of `to`. The
    /// peer's program does not notice the write: a message that is posted afterwards notifies it. On InfiniBand and
    /// RoCE the bytes are in the peer's memory when the call returns; on iWARP they are written before any later
    /// message arrives.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_write`](Self::post_write):
    /// - [`ErrorKind::WorkRequestFailed`] or another [reason](Self#closing-and-failures) if the connection ends before
    ///   the write has completed. It ends if the peer's device refuses the access; siw does not report that as an error
    ///   of the write.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing is written. If it is dropped later, the write is in
    /// flight, as one that was [posted](Self::post_write). The buffer returns to the connection in both cases.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{RemoteMemory, task::Connection};
    ///
    /// /// Writes to memory that the peer has exported and described in a message.
    /// async fn store(connection: &Connection) -> rdmacm::Result<()> {
    ///     let Some(description) = connection.recv().await? else { return Ok(()) };
    ///     let memory = RemoteMemory::from_bytes(&description)?;
    ///     let mut buffer = connection.acquire_buffer().await?;
    ///     buffer.copy_from(b"a new value")?;
    ///     connection.write(buffer, &memory, 0).await?;
    ///     connection.post_bytes(b"written").await
    /// }
    /// ```
    #[doc(alias = "rdma_post_write")]
    pub async fn write(&self, buffer: Buffer, to: &RemoteMemory, offset: u64) -> Result<Buffer> {
        self.complete(self.blocking().start_write(buffer, to, offset)?).await
    }

    /// Posts a write of the bytes of `buffer` to the peer's memory, without waiting until it completes.
    ///
    /// The bytes are written `offset` bytes after the beginning of `to`, before any message that is posted later
    /// arrives. The buffer returns to the connection when the write has completed. If the write fails, the connection
    /// ends, and later calls return the reason; [`flush`](Self::flush) waits until it is known.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the bytes are not within `to`, with EACCES if `to` has no
    ///   [`RemoteAccess::WRITE`].
    pub fn post_write(&self, buffer: Buffer, to: &RemoteMemory, offset: u64) -> Result<()> {
        self.blocking().post_write(buffer, to, offset)
    }

    /// Reads `buffer.len()` bytes of the peer's memory into `buffer`, and returns the buffer.
    ///
    /// The bytes are read `offset` bytes after the beginning of `from`; [`Buffer::set_len`] sets their number. The
    /// peer's program does not notice the read. Reads in flight take effect in any order: to order two reads, wait for
    /// the first. See [`endpoint::Connection::start_read`] for details.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the bytes are not within `from`, with EACCES if `from` has no
    ///   [`RemoteAccess::READ`].
    /// - [`ErrorKind::InvalidInput`] if the two sides have negotiated no reads ([`ConnectionConfig::initiator_depth`]).
    /// - [`ErrorKind::WorkRequestFailed`] or another [reason](Self#closing-and-failures) if the connection ends before
    ///   the read has completed. It ends if the peer's device refuses the access; siw reports
    ///   [`ErrorKind::Disconnected`] then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing is read. If it is dropped later, the buffer returns to the
    /// connection when the read has completed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{RemoteMemory, task::Connection};
    ///
    /// # async fn f(connection: &Connection, memory: &RemoteMemory) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer().await?;
    /// buffer.set_len(64)?;
    /// let buffer = connection.read(buffer, memory, 128).await?;
    /// println!("the bytes 128 to 191: {:?}", &buffer[..]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_post_read")]
    pub async fn read(&self, buffer: Buffer, from: &RemoteMemory, offset: u64) -> Result<Buffer> {
        self.complete(self.blocking().start_read(buffer, from, offset)?).await
    }

    /// Stores `swap` in 8 bytes of the peer's memory if they equal `compare`; returns the old value.
    ///
    /// The operation is atomic. The number is in the byte order of the peer's machine. It begins `offset`
    /// bytes after the beginning of `at`, and its address is a multiple of 8. The call waits for a
    /// [buffer](Self::acquire_buffer), then for the answer.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`acquire_buffer`](Self::acquire_buffer):
    /// - [`ErrorKind::InvalidInput`] if the number is not within `at` or is not aligned, with EACCES if `at` has no
    ///   [`RemoteAccess::ATOMIC`].
    /// - [`ErrorKind::InvalidInput`] if the two sides have negotiated no atomics
    ///   ([`ConnectionConfig::initiator_depth`]).
    /// - [`ErrorKind::Unsupported`] if the device has no atomics (siw).
    /// - [`ErrorKind::WorkRequestFailed`] if the peer's device refuses the access, which ends the connection.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, or while it waits for a [buffer](Self::acquire_buffer), the number
    /// is not changed. If it is dropped later, the number may be changed, and the caller does not learn whether it was.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{RemoteMemory, task::Connection};
    ///
    /// /// Returns `true` if this side has taken a lock in the peer's memory, where 0 means that it is free.
    /// async fn try_lock(connection: &Connection, lock: &RemoteMemory) -> rdmacm::Result<bool> {
    ///     Ok(connection.compare_swap(lock, 0, 0, 1).await? == 0)
    /// }
    /// ```
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub async fn compare_swap(
        &self,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64> {
        self.run_atomic(at, offset, AtomicOperation::CompareSwap { compare, swap }).await
    }

    /// Adds `add` to a number in the peer's memory, wrapping around, and returns the previous value.
    ///
    /// The operation is atomic. The number has 8 bytes, in the byte order of the peer's machine. It begins `offset`
    /// bytes after the beginning of `at`, and its address is a multiple of 8. The call waits for a
    /// [buffer](Self::acquire_buffer), then for the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`compare_swap`](Self::compare_swap).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, or while it waits for a [buffer](Self::acquire_buffer), the number
    /// is not changed. If it is dropped later, the number may be changed, and the caller does not learn whether it was.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{RemoteMemory, task::Connection};
    ///
    /// /// Takes the next ticket of a counter in the peer's memory.
    /// async fn ticket(connection: &Connection, counter: &RemoteMemory) -> rdmacm::Result<u64> {
    ///     connection.fetch_add(counter, 0, 1).await
    /// }
    /// ```
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub async fn fetch_add(&self, at: &RemoteMemory, offset: u64, add: u64) -> Result<u64> {
        self.run_atomic(at, offset, AtomicOperation::FetchAdd { add }).await
    }

    async fn run_atomic(
        &self,
        at: &RemoteMemory,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64> {
        let operation = self.blocking().atomic(at, offset, operation)?;
        let buffer = self.acquire_buffer().await?;
        self.complete(self.blocking().post_atomic(buffer, operation)?).await
    }
}
