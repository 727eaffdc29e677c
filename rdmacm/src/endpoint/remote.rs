//! One-sided operations: exporting memory of this side, and reading, writing and changing memory of the peer.

use std::ops::Range;

use super::buffer::Buffer;
use super::connection::Connection;
use super::export::{Export, Exporting, RegisteredMemory};
use super::remote_memory::{Change, Remote, Rights, WORD};
use super::remote_operation::RemoteOperation;
#[cfg(doc)]
use super::settings::Settings;
use super::shared::Operation;
use super::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::verbs::MemoryRegion;
use crate::verbs::{Memory, ProtectionDomain};

impl Connection {
    /// Lets the peer reach all of `memory`, as far as `rights` go.
    ///
    /// The right lasts as long as the [`Export`] and the connection. One memory may be exported to many peers; each
    /// export registers it, which pins its pages and may take a while: see [`RegisteredMemory`] for memory that is
    /// registered once.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has ended the connection.
    /// - The errors of [`MemoryRegion::share`].
    ///
    /// # Driver notes
    ///
    /// iWARP has no atomics: the peer that tries gets the error.
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn export(&self, memory: &Memory, rights: Rights) -> Result<Export> {
        self.export_part(memory, 0..memory.len(), rights)
    }

    /// Lets the peer reach the bytes in `part` of `memory`, and no others, as far as `rights` go: otherwise as
    /// [`export`](Self::export).
    ///
    /// Registers and pins the pages of these bytes alone.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`export`](Self::export):
    /// - [`ErrorKind::Invalid`] if `part` is empty or exceeds the memory.
    pub fn export_part(
        &self,
        memory: &Memory,
        part: Range<usize>,
        rights: Rights,
    ) -> Result<Export> {
        Export::new(&self.shared.pd()?, memory, part, rights)
    }

    /// Lets the peer of this connection reach the bytes in `part` of `memory`, and waits until it may: see
    /// [`start_export_window`](Self::start_export_window).
    ///
    /// # Errors
    ///
    /// The errors of [`buffer`](Self::buffer), [`start_export_window`](Self::start_export_window) and
    /// [`RemoteOperation::wait`], but never [`ErrorKind::WouldBlock`].
    pub fn export_window(
        &self,
        memory: &RegisteredMemory,
        part: Range<usize>,
        rights: Rights,
    ) -> Result<Export> {
        self.bind(memory, part, rights, WaitMode::BLOCKING)?.wait()
    }

    /// Starts to let the peer of this connection reach the bytes in `part` of `memory`, by a memory window of type 2:
    /// a key that only this connection has, with `rights` of its own.
    ///
    /// The peer may take the key back with a message that has it
    /// ([`Buffer::set_invalidated`]); the export
    /// [knows](Export::is_invalidated) that then. Uses a send buffer until the operation completes.
    ///
    /// Kernel commands: `IB_USER_VERBS_CMD_ALLOC_MW`, and the doorbell of a bind request.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post`](Self::post):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free.
    /// - [`ErrorKind::Invalid`] if `part` is empty or exceeds the memory, or if the memory is registered in another
    ///   protection domain.
    /// - EOPNOTSUPP if the device has no windows (siw).
    ///
    /// # Driver notes
    ///
    /// rxe (Linux 6.1 and 6.12 at least) does not limit the peer to the part: through a window the peer reaches all of
    /// the memory, with the rights of the window. Its kernel crashes if a peer takes one key back twice: do not export
    /// windows to peers that are not trusted.
    #[doc(alias = "ibv_bind_mw")]
    pub fn start_export_window(
        &self,
        memory: &RegisteredMemory,
        part: Range<usize>,
        rights: Rights,
    ) -> Result<RemoteOperation<Export>> {
        self.bind(memory, part, rights, WaitMode::NonBlocking)
    }

    fn bind(
        &self,
        memory: &RegisteredMemory,
        part: Range<usize>,
        rights: Rights,
        mode: WaitMode,
    ) -> Result<RemoteOperation<Export>> {
        let buffer = self.shared.take(mode)?;
        Exporting::start(&self.shared, buffer, memory, part, rights).map(RemoteOperation::from)
    }

    /// Returns the protection domain of the connection: [`RegisteredMemory`] and [`Settings::protection_domain`] take
    /// it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has ended the connection.
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        self.shared.pd()
    }

    /// Writes the bytes of `buffer` to the peer's memory, waits until they are written, and returns the buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`start_write`](Self::start_write) and [`RemoteOperation::wait`].
    #[doc(alias = "rdma_post_write")]
    pub fn write(&self, buffer: Buffer, to: &Remote, offset: u64) -> Result<Buffer> {
        self.start_write(buffer, to, offset)?.wait()
    }

    /// Starts to write the bytes of `buffer` to the peer's memory.
    ///
    /// The peer's program is not notified. When the operation has completed, the bytes are in the peer's memory on
    /// InfiniBand and RoCE; on iWARP they are there before any message that is sent later.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post`](Self::post):
    /// - [`ErrorKind::Invalid`] if the bytes do not lie within `to`, with EACCES if `to` has no [`Rights::WRITE`].
    ///
    /// # Driver notes
    ///
    /// siw does not report that the peer's device refused the write: the connection ends, and errors of earlier
    /// writes are not reported.
    pub fn start_write(
        &self,
        buffer: Buffer,
        to: &Remote,
        offset: u64,
    ) -> Result<RemoteOperation<Buffer>> {
        let operation = to.writing(offset, buffer.len())?;
        let length = buffer.capacity();
        self.start(Operation::Write, buffer, operation, length, |buffer| buffer)
    }

    /// Writes what is in `buffer` to the peer's memory, without waiting until that is done: as
    /// [`post`](Self::post), and before any message that is posted later.
    ///
    /// # Errors
    ///
    /// The errors of [`post`](Self::post); [`ErrorKind::Invalid`] as with [`write`](Self::write).
    pub fn post_write(&self, buffer: Buffer, to: &Remote, offset: u64) -> Result<()> {
        let operation = to.writing(offset, buffer.len())?;
        self.shared.start(Operation::Write, buffer, operation)
    }

    /// Fills `buffer`, at its length, from the peer's memory, waits until the bytes are there, and returns the buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`start_read`](Self::start_read) and [`RemoteOperation::wait`].
    #[doc(alias = "rdma_post_read")]
    pub fn read(&self, buffer: Buffer, from: &Remote, offset: u64) -> Result<Buffer> {
        self.start_read(buffer, from, offset)?.wait()
    }

    /// Starts to fill `buffer`, at its length, from the peer's memory.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post`](Self::post):
    /// - [`ErrorKind::Invalid`] if the bytes do not lie within `from`, with EACCES if `from` has no [`Rights::READ`];
    ///   and if the two sides have settled on no reads ([`Settings::initiator_depth`]).
    pub fn start_read(
        &self,
        buffer: Buffer,
        from: &Remote,
        offset: u64,
    ) -> Result<RemoteOperation<Buffer>> {
        self.check_depth(Operation::Read)?;
        let length = buffer.len();
        let operation = from.reading(offset, length)?;
        self.start(Operation::Read, buffer, operation, length, |buffer| buffer)
    }

    /// Compares a number of the peer's memory with `compare`, stores `swap` there if they are equal, and returns the
    /// previous value. Waits for a [buffer](Self::buffer), then for the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`buffer`](Self::buffer), [`start_compare_swap`](Self::start_compare_swap) and
    /// [`RemoteOperation::wait`], but never [`ErrorKind::WouldBlock`].
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn compare_swap(&self, at: &Remote, offset: u64, compare: u64, swap: u64) -> Result<u64> {
        let change = Change::CompareSwap { compare, swap };
        self.start_change(at, offset, change, WaitMode::BLOCKING)?.wait()
    }

    /// Starts to compare the number at `offset` of the peer's memory with `compare`, and to store `swap` there if they
    /// are equal, in one step. The result is the previous value.
    ///
    /// A number has 8 bytes, at a multiple of 8, in the byte order of the machine that it is on. The answer needs a
    /// [buffer](Self::try_buffer).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post`](Self::post):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free for the answer.
    /// - [`ErrorKind::Invalid`] if the number does not lie within `at` or is not aligned, with EACCES if `at` has no
    ///   [`Rights::ATOMIC`]; and if the two sides have settled on no atomics ([`Settings::initiator_depth`]).
    /// - [`ErrorKind::Unsupported`] if the device has no atomics (siw).
    pub fn start_compare_swap(
        &self,
        at: &Remote,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<RemoteOperation<u64>> {
        self.start_change(at, offset, Change::CompareSwap { compare, swap }, WaitMode::NonBlocking)
    }

    /// Adds `add` to a number of the peer's memory, wrapping around, and returns the previous value. Waits for a
    /// [buffer](Self::buffer), then for the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`compare_swap`](Self::compare_swap).
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn fetch_add(&self, at: &Remote, offset: u64, add: u64) -> Result<u64> {
        self.start_change(at, offset, Change::FetchAdd { add }, WaitMode::BLOCKING)?.wait()
    }

    /// Starts to add `add` to the number at `offset` of the peer's memory, wrapping around, in one step. The result is
    /// the previous value. See [`start_compare_swap`](Self::start_compare_swap) for numbers and buffers.
    ///
    /// # Errors
    ///
    /// The errors of [`start_compare_swap`](Self::start_compare_swap).
    pub fn start_fetch_add(
        &self,
        at: &Remote,
        offset: u64,
        add: u64,
    ) -> Result<RemoteOperation<u64>> {
        self.start_change(at, offset, Change::FetchAdd { add }, WaitMode::NonBlocking)
    }

    /// Posts `change` with a buffer, for which it waits as `mode` says.
    fn start_change(
        &self,
        at: &Remote,
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

    /// That this side may have reads and atomics outstanding.
    pub(super) fn check_depth(&self, what: Operation) -> Result<()> {
        if self.may_read() {
            return Ok(());
        }
        let reason = "reads and atomics need an initiator depth of the connection";
        Err(Error::invalid(what.name(), self.shared.name.clone(), reason))
    }
}

/// What was in the peer's memory before it was changed.
pub(super) fn number(answer: &[u8]) -> u64 {
    u64::from_ne_bytes(*answer.first_chunk().expect("it was long enough before"))
}
