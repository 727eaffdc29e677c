//! One-sided operations: exporting memory, and accessing memory of the peer.
//!
//! Memory of the peer is read, written and changed.

use std::ops::Range;

use super::buffer::Buffer;
use super::connection::Connection;
#[cfg(doc)]
use super::connection_config::ConnectionConfig;
use super::exported_memory::{ExportedMemory, Exporting, RegisteredMemory};
use super::remote_memory::{Change, RemoteAccess, RemoteMemory, WORD};
use super::remote_operation::RemoteOperation;
use super::shared::Operation;
use super::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::verbs::MemoryRegion;
use crate::verbs::{DmaMemory, ProtectionDomain};

/// Exporting memory to the peer, and access to memory of the peer.
impl Connection {
    /// Lets the peer access all of `memory` with the given `rights`.
    ///
    /// The access lasts as long as the [`ExportedMemory`] and the connection. One memory may be exported to many peers.
    /// Each export registers it, which pins its pages and may take a while; [`RegisteredMemory`] is registered once.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has ended the connection.
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
    ///     let exported = connection.export(&memory, RemoteAccess::WRITE)?;
    ///     connection.post_bytes(&exported.to_bytes())?;
    ///     connection.recv()?;
    ///     exported.revoke()?;
    ///     Ok(memory)
    /// }
    /// ```
    ///
    /// # Driver notes
    ///
    /// iWARP has no atomics: a peer that tries one gets the error.
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn export(&self, memory: &DmaMemory, rights: RemoteAccess) -> Result<ExportedMemory> {
        self.export_part(memory, 0..memory.len(), rights)
    }

    /// Lets the peer access the bytes in `part` of `memory`, and no others, with the given `rights`.
    ///
    /// Registers and pins only the pages of these bytes. Otherwise as [`export`](Self::export).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`export`](Self::export):
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory.
    pub fn export_part(
        &self,
        memory: &DmaMemory,
        part: Range<usize>,
        rights: RemoteAccess,
    ) -> Result<ExportedMemory> {
        ExportedMemory::new(&self.shared.pd()?, memory, part, rights)
    }

    /// Grants the peer access to the bytes in `part` of `memory`, and waits until the access is possible.
    ///
    /// See [`start_export_window`](Self::start_export_window).
    ///
    /// # Errors
    ///
    /// The errors of [`acquire_buffer`](Self::acquire_buffer), [`start_export_window`](Self::start_export_window) and
    /// [`RemoteOperation::wait`], but never [`ErrorKind::WouldBlock`].
    pub fn export_window(
        &self,
        memory: &RegisteredMemory,
        part: Range<usize>,
        rights: RemoteAccess,
    ) -> Result<ExportedMemory> {
        self.bind(memory, part, rights, WaitMode::BLOCKING)?.wait()
    }

    /// Starts to grant the peer access to the bytes in `part` of `memory`, by a memory window.
    ///
    /// The window has type 2: only this connection has its key, with separate `rights`.
    ///
    /// The peer may invalidate the key with a message ([`Buffer::set_invalidated`]), and the export then
    /// [reports](ExportedMemory::is_invalidated) that. The call uses a send buffer until the operation completes.
    ///
    /// Kernel commands: `IB_USER_VERBS_CMD_ALLOC_MW`, and the doorbell of a bind request.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free.
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory, or if the memory is registered in another
    ///   protection domain.
    /// - EOPNOTSUPP if the device has no windows (siw).
    ///
    /// # Driver notes
    ///
    /// rxe (Linux 6.1 and 6.12 at least) does not limit the peer to the part: through a window the peer can access all
    /// of the memory, with the rights of the window. The kernel crashes if a peer invalidates one key twice. Do not
    /// export windows to untrusted peers.
    #[doc(alias = "ibv_bind_mw")]
    pub fn start_export_window(
        &self,
        memory: &RegisteredMemory,
        part: Range<usize>,
        rights: RemoteAccess,
    ) -> Result<RemoteOperation<ExportedMemory>> {
        self.bind(memory, part, rights, WaitMode::NonBlocking)
    }

    fn bind(
        &self,
        memory: &RegisteredMemory,
        part: Range<usize>,
        rights: RemoteAccess,
        mode: WaitMode,
    ) -> Result<RemoteOperation<ExportedMemory>> {
        let buffer = self.shared.take(mode)?;
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

    /// Writes the bytes of `buffer` to the peer's memory, waits for completion, and returns the buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`start_write`](Self::start_write) and [`RemoteOperation::wait`].
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
    ///     connection.write(buffer, &memory, 0)?;
    ///     // The peer's program does not notice the write: a message notifies it.
    ///     connection.post_bytes(b"written")
    /// }
    /// ```
    #[doc(alias = "rdma_post_write")]
    pub fn write(&self, buffer: Buffer, to: &RemoteMemory, offset: u64) -> Result<Buffer> {
        self.start_write(buffer, to, offset)?.wait()
    }

    /// Starts to write the bytes of `buffer` to the peer's memory.
    ///
    /// The peer's program is not notified. When the operation has completed on InfiniBand and RoCE, the bytes are in
    /// the peer's memory. On iWARP they are written before any later message arrives.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::InvalidInput`] if the bytes do not lie within `to`, with EACCES if `to` has no [`RemoteAccess::WRITE`].
    ///
    /// # Driver notes
    ///
    /// siw does not report that the peer's device refused the write: the connection ends, and errors of earlier
    /// writes are not reported.
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
    /// The write takes effect before any message that is posted later.
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

    /// Fills `buffer`, at its length, from the peer's memory, waits for completion, and returns it.
    ///
    /// # Errors
    ///
    /// The errors of [`start_read`](Self::start_read) and [`RemoteOperation::wait`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, RemoteMemory};
    ///
    /// # fn f(connection: &Connection, memory: &RemoteMemory) -> rdmacm::Result<()> {
    /// let mut buffer = connection.acquire_buffer()?;
    /// buffer.set_len(64)?;
    /// let buffer = connection.read(buffer, memory, 128)?;
    /// println!("the bytes 128 to 191: {:?}", &buffer[..]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_post_read")]
    pub fn read(&self, buffer: Buffer, from: &RemoteMemory, offset: u64) -> Result<Buffer> {
        self.start_read(buffer, from, offset)?.wait()
    }

    /// Starts to fill `buffer`, at its length, from the peer's memory.
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

    /// Compares a number of the peer with `compare`, stores `swap` if they are equal, and returns the old value.
    ///
    /// The call waits for a [buffer](Self::acquire_buffer), then for the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire_buffer`](Self::acquire_buffer), [`start_compare_swap`](Self::start_compare_swap) and
    /// [`RemoteOperation::wait`], but never [`ErrorKind::WouldBlock`].
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn compare_swap(
        &self,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64> {
        let change = Change::CompareSwap { compare, swap };
        self.start_change(at, offset, change, WaitMode::BLOCKING)?.wait()
    }

    /// Starts to compare a number of the peer with `compare`, and to store `swap` if they are equal.
    ///
    /// The operation is atomic. Its result is the previous value of the number at `offset`.
    ///
    /// A number has 8 bytes, at a multiple of 8, in the byte order of the peer's machine. The answer needs a
    /// [buffer](Self::try_acquire_buffer).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send`](Self::post_send):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free for the answer.
    /// - [`ErrorKind::InvalidInput`] if the number is not within `at` or is not aligned, with EACCES if `at` has no
    ///   [`RemoteAccess::ATOMIC`].
    /// - [`ErrorKind::InvalidInput`] if the two sides have negotiated no atomics
    ///   ([`ConnectionConfig::initiator_depth`]).
    /// - [`ErrorKind::Unsupported`] if the device has no atomics (siw).
    pub fn start_compare_swap(
        &self,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<RemoteOperation<u64>> {
        self.start_change(at, offset, Change::CompareSwap { compare, swap }, WaitMode::NonBlocking)
    }

    /// Adds `add` to a number of the peer's memory, wrapping around, and returns the previous value.
    ///
    /// The call waits for a [buffer](Self::acquire_buffer), then for the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`compare_swap`](Self::compare_swap).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, RemoteMemory};
    ///
    /// /// Takes the next ticket of a counter in the peer's memory.
    /// fn ticket(connection: &Connection, counter: &RemoteMemory) -> rdmacm::Result<u64> {
    ///     connection.fetch_add(counter, 0, 1)
    /// }
    /// ```
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn fetch_add(&self, at: &RemoteMemory, offset: u64, add: u64) -> Result<u64> {
        self.start_change(at, offset, Change::FetchAdd { add }, WaitMode::BLOCKING)?.wait()
    }

    /// Starts to add `add` to the number at `offset` of the peer's memory, wrapping around.
    ///
    /// The operation is atomic, and its result is the previous value. See
    /// [`start_compare_swap`](Self::start_compare_swap) for numbers and buffers.
    ///
    /// # Errors
    ///
    /// The errors of [`start_compare_swap`](Self::start_compare_swap).
    pub fn start_fetch_add(
        &self,
        at: &RemoteMemory,
        offset: u64,
        add: u64,
    ) -> Result<RemoteOperation<u64>> {
        self.start_change(at, offset, Change::FetchAdd { add }, WaitMode::NonBlocking)
    }

    /// Posts `change` with a buffer, for which it waits according to `mode`.
    fn start_change(
        &self,
        at: &RemoteMemory,
        offset: u64,
        change: Change,
        mode: WaitMode,
    ) -> Result<RemoteOperation<u64>> {
        self.check_depth(Operation::Change)?;
        let operation = at.changing(offset, change)?;
        let mut buffer = self.shared.take(mode)?;
        buffer.set_len(WORD)?;
        self.start(Operation::Change, buffer, operation, WORD, |answer| number(&answer))
    }

    /// Returns an error if both sides have agreed on no reads and atomics of this side.
    pub(super) fn check_depth(&self, what: Operation) -> Result<()> {
        if self.may_read() {
            return Ok(());
        }
        let reason = "reads and atomics need an initiator depth of the connection";
        Err(Error::invalid(what.name(), self.shared.name.clone(), reason))
    }
}

/// Returns the previous value of a number that an atomic operation has changed.
pub(super) fn number(answer: &[u8]) -> u64 {
    u64::from_ne_bytes(*answer.first_chunk().expect("the answer has at least 8 bytes"))
}
