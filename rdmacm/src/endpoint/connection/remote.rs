//! One-sided operations: exporting memory, and accessing memory of the peer.
//!
//! The operations read, write and atomically change memory of the peer.

use std::ops::RangeBounds;

use super::handle::Connection;
#[cfg(doc)]
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::memory::buffer::Buffer;
use crate::endpoint::memory::exported_memory::{
    ExportedMemory, Exporting, RegisteredMemory, bytes_within,
};
use crate::endpoint::memory::remote_memory::{AtomicOperation, RemoteAccess, RemoteMemory, WORD};
use crate::endpoint::operations::remote_operation::RemoteOperation;
use crate::endpoint::shared::Operation;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::verbs::MemoryRegion;
use crate::verbs::{DmaMemory, ProtectionDomain, SendOperation};

/// Exporting memory to the peer, and access to memory of the peer.
impl Connection {
    /// Lets the peer access the bytes in `part` of `memory` with the given `rights`.
    ///
    /// A `part` of `..` is all of the memory. Other bytes are not accessible, and the offset 0 of the peer's
    /// [`RemoteMemory`] is the first byte of the part. The access lasts as long as the [`ExportedMemory`] and the
    /// connection. One memory may be exported to many peers. Each export registers the part, which pins its pages and
    /// may take a while; [`RegisteredMemory`] is registered once.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has ended the connection.
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory.
    /// - The errors of [`MemoryRegion::register_shared`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, DmaMemory, RemoteAccess};
    ///
    /// /// Lets the peer write to 4096 bytes, and returns them when the peer has sent a message.
    /// fn receive(connection: &Connection) -> rdmacm::Result<DmaMemory> {
    ///     let memory = DmaMemory::new(4096)?;
    ///     let exported = connection.export(&memory, .., RemoteAccess::WRITE)?;
    ///     connection.post_bytes(&exported.remote_memory().to_bytes())?;
    ///     connection.recv()?;
    ///     exported.revoke()?;
    ///     Ok(memory)
    /// }
    /// ```
    ///
    /// # Driver notes
    ///
    /// iWARP has no atomics: [`start_fetch_add`](Self::start_fetch_add) of the peer fails with
    /// [`ErrorKind::Unsupported`].
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn export(
        &self,
        memory: &DmaMemory,
        part: impl RangeBounds<usize>,
        rights: RemoteAccess,
    ) -> Result<ExportedMemory> {
        let part = bytes_within(part, memory.len())?;
        ExportedMemory::new(&self.shared.pd()?, memory, part, rights)
    }

    /// Starts to grant the peer access to the bytes in `part` of `memory`, by a memory window.
    ///
    /// The window has type 2: only this connection has its key, with separate `rights`.
    ///
    /// The peer may invalidate the key with a message ([`Buffer::set_invalidated`]), and the export then
    /// [reports](ExportedMemory::is_invalidated) that. The request takes the place of `buffer` in the send queue.
    /// The bytes of `buffer` are not used. The buffer returns to the connection when the operation returns its result,
    /// or when the operation is dropped and completed.
    ///
    /// Kernel commands: `IB_USER_VERBS_CMD_ALLOC_MW`, and the doorbell of a bind request.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory, or if the memory is registered in
    ///   another protection domain.
    /// - EOPNOTSUPP if the device has no windows (siw).
    ///
    /// # Driver notes
    ///
    /// rxe (Linux 6.1 and 6.12 at least) does not limit the peer to the part. Through a window the peer can access all
    /// of the memory, with the rights of the window. The kernel crashes if a peer invalidates one key twice. Do not
    /// export windows to untrusted peers.
    #[doc(alias = "ibv_bind_mw")]
    pub fn start_export_window(
        &self,
        buffer: Buffer,
        memory: &RegisteredMemory,
        part: impl RangeBounds<usize>,
        rights: RemoteAccess,
    ) -> Result<RemoteOperation<ExportedMemory>> {
        Exporting::start(&self.shared, buffer, memory, part, rights).map(RemoteOperation::from)
    }

    /// Returns the protection domain of the connection.
    ///
    /// [`RegisteredMemory`] and [`ConnectionConfig::protection_domain`] use it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has ended the connection.
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        self.shared.pd()
    }

    /// Starts to write the bytes of `buffer` to the peer's memory.
    ///
    /// The bytes are written `offset` bytes after the beginning of `to`.
    ///
    /// The peer's program is not notified. When the operation has completed on InfiniBand and RoCE, the bytes are in
    /// the peer's memory. On iWARP they are written before any later message arrives.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the bytes do not lie within `to`, with EACCES if `to` has no
    ///   [`RemoteAccess::WRITE`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, RemoteMemory};
    ///
    /// /// Writes to memory that the peer has exported and described in a message.
    /// fn store(connection: &Connection) -> rdmacm::Result<()> {
    ///     let Some(description) = connection.recv()? else { return Ok(()) };
    ///     let memory = RemoteMemory::from_bytes(&description)?;
    ///     let mut buffer = connection.acquire_buffer()?;
    ///     buffer.copy_from(b"a new value")?;
    ///     connection.start_write(buffer, &memory, 0)?.wait()?;
    ///     // The peer's program does not notice the write: a message notifies it.
    ///     connection.post_bytes(b"written")
    /// }
    /// ```
    ///
    /// # Driver notes
    ///
    /// siw does not report that the peer's device refused the write: the connection ends, and errors of earlier
    /// writes are not reported.
    #[doc(alias = "rdma_post_write")]
    pub fn start_write(
        &self,
        buffer: Buffer,
        to: &RemoteMemory,
        offset: u64,
    ) -> Result<RemoteOperation<Buffer>> {
        let operation = to.writing(offset, buffer.len())?;
        let length = buffer.capacity();
        self.start(Operation::Write, buffer, operation, length, |buffer| buffer)
    }

    /// Posts a write of the bytes in `buffer` to the peer's memory without waiting until it completes.
    ///
    /// The bytes are written `offset` bytes after the beginning of `to`, before any message that is posted later
    /// arrives.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the bytes do not lie within `to`, with EACCES if `to` has no
    ///   [`RemoteAccess::WRITE`].
    pub fn post_write(&self, buffer: Buffer, to: &RemoteMemory, offset: u64) -> Result<()> {
        let operation = to.writing(offset, buffer.len())?;
        self.shared.start(Operation::Write, buffer, operation)
    }

    /// Starts to read `buffer.len()` bytes of the peer's memory into `buffer`.
    ///
    /// [`Buffer::set_len`] sets their number. The bytes are read `offset` bytes after the beginning of `from`.
    ///
    /// Reads in flight may take effect in any order relative to writes of the owner. To order two reads, wait for the
    /// first. The bytes of one read are not copied in any guaranteed order.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the bytes are not within `from`, with EACCES if `from` has no
    ///   [`RemoteAccess::READ`].
    /// - [`ErrorKind::InvalidInput`] if the two sides have negotiated no reads ([`ConnectionConfig::initiator_depth`]).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, RemoteMemory};
    ///
    /// # fn f(connection: &Connection, memory: &RemoteMemory) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer()?;
    /// buffer.set_len(64)?;
    /// let buffer = connection.start_read(buffer, memory, 128)?.wait()?;
    /// println!("the bytes 128 to 191: {:?}", &buffer[..]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_post_read")]
    pub fn start_read(
        &self,
        buffer: Buffer,
        from: &RemoteMemory,
        offset: u64,
    ) -> Result<RemoteOperation<Buffer>> {
        self.check_depth(Operation::Read)?;
        let length = buffer.len();
        let operation = from.reading(offset, length)?;
        self.start(Operation::Read, buffer, operation, length, |buffer| buffer)
    }

    /// Starts an atomic compare-and-swap of 8 bytes in the peer's memory.
    ///
    /// The device stores `swap` if the number there equals `compare`. The result is the previous value of the number,
    /// which begins `offset` bytes after the beginning of `at`.
    ///
    /// The number is in the byte order of the peer's machine, at an address that is a multiple of 8. The device
    /// writes the answer to `buffer`. The buffer returns to the connection when the operation returns its result, or
    /// when the operation is dropped and completed.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `buffer` has room for fewer than 8 bytes
    ///   ([`ConnectionConfig::send_buffer_size`]).
    /// - [`ErrorKind::InvalidInput`] if the number is not within `at` or is not aligned, with EACCES if `at` has no
    ///   [`RemoteAccess::ATOMIC`].
    /// - [`ErrorKind::InvalidInput`] if the two sides have negotiated no atomics
    ///   ([`ConnectionConfig::initiator_depth`]).
    /// - [`ErrorKind::Unsupported`] if the device has no atomics (siw). The connection is not affected.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn start_compare_swap(
        &self,
        buffer: Buffer,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<RemoteOperation<u64>> {
        self.start_atomic(buffer, at, offset, AtomicOperation::CompareSwap { compare, swap })
    }

    /// Starts an atomic fetch-and-add on 8 bytes in the peer's memory, wrapping around.
    ///
    /// The device adds `add` to the number, and the result is the previous value. See
    /// [`start_compare_swap`](Self::start_compare_swap) for numbers and buffers.
    ///
    /// # Errors
    ///
    /// The errors of [`start_compare_swap`](Self::start_compare_swap).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, RemoteMemory};
    ///
    /// /// Takes the next ticket of a counter in the peer's memory.
    /// fn ticket(connection: &Connection, counter: &RemoteMemory) -> rdmacm::Result<u64> {
    ///     let buffer = connection.acquire_buffer()?;
    ///     connection.start_fetch_add(buffer, counter, 0, 1)?.wait()
    /// }
    /// ```
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn start_fetch_add(
        &self,
        buffer: Buffer,
        at: &RemoteMemory,
        offset: u64,
        add: u64,
    ) -> Result<RemoteOperation<u64>> {
        self.start_atomic(buffer, at, offset, AtomicOperation::FetchAdd { add })
    }

    /// Posts `operation`, whose answer the device writes to `buffer`.
    fn start_atomic(
        &self,
        buffer: Buffer,
        at: &RemoteMemory,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<RemoteOperation<u64>> {
        self.post_atomic(buffer, self.atomic(at, offset, operation)?)
    }

    /// Returns the request of an atomic operation.
    pub(in crate::endpoint) fn atomic(
        &self,
        at: &RemoteMemory,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<SendOperation<'static>> {
        self.check_depth(Operation::Atomic)?;
        at.changing(offset, operation)
    }

    /// Posts an [atomic operation](Self::atomic), whose answer is stored in `buffer`.
    pub(in crate::endpoint) fn post_atomic(
        &self,
        mut buffer: Buffer,
        operation: SendOperation<'_>,
    ) -> Result<RemoteOperation<u64>> {
        let number = |answer: Buffer| {
            u64::from_ne_bytes(*answer.first_chunk().expect("the answer has at least 8 bytes"))
        };
        buffer.set_len(WORD)?;
        self.start(Operation::Atomic, buffer, operation, WORD, number)
    }

    /// Returns an error if both sides have agreed on no reads and atomics of this side.
    fn check_depth(&self, what: Operation) -> Result<()> {
        if self.allows_reads() {
            return Ok(());
        }
        let reason = "reads and atomics need an initiator depth of at least 1";
        Err(Error::invalid(what.name(), self.shared.name.clone(), reason))
    }
}
