//! The one-sided operations of a connection, for tasks.

use std::sync::Arc;

use super::blocking_pool::DropOnBlockingPool;
use super::connection::Connection;
use super::exported_memory::ExportedMemory;
use super::failure::cancelled;
#[cfg(doc)]
use crate::endpoint;
use crate::endpoint::buffer::Buffer;
use crate::endpoint::remote::number;
use crate::endpoint::remote_memory::{Change, WORD};
use crate::endpoint::shared::Operation;
use crate::endpoint::{DmaMemory, ExportedMemory as Blocking, RemoteAccess, RemoteMemory};
use crate::error::Result;

/// Exporting memory to the peer, and access to memory of the peer.
impl Connection {
    /// Lets the peer reach all of `memory`, as far as `rights` go: see [`endpoint::Connection::export`].
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint::Connection::export`].
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the memory is not exported.
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub async fn export(&self, memory: &DmaMemory, rights: RemoteAccess) -> Result<ExportedMemory> {
        let (pd, memory) = (self.shared().pd()?, memory.clone_handle());
        let runtime = self.runtime();
        let owner = Arc::clone(runtime);
        let register = move || {
            let exported = Blocking::new(&pd, &memory, 0..memory.len(), rights);
            // If the call is dropped meanwhile, the export is dropped on this thread or another one that may block.
            exported.map(|exported| DropOnBlockingPool::new(exported, &owner))
        };
        let ended = || cancelled("export memory over", self.shared().name.clone());
        let exported = self.run_blocking(register).await.ok_or_else(ended)??;
        Ok(ExportedMemory::new(exported.into_inner(), Arc::clone(runtime)))
    }

    /// Writes the bytes of `buffer` to the peer's memory, waits for completion, and returns the buffer.
    ///
    /// See [`endpoint::Connection::write`].
    ///
    /// # Errors
    ///
    /// The errors of [`endpoint::Connection::write`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing is written. If it is dropped later, the write is in flight, as
    /// one that was [posted](Self::post_write). The buffer returns to the connection in both cases.
    #[doc(alias = "rdma_post_write")]
    pub async fn write(&self, buffer: Buffer, to: &RemoteMemory, offset: u64) -> Result<Buffer> {
        let operation = to.writing(offset, buffer.len())?;
        self.post_and_wait(Operation::Write, buffer, operation).await
    }

    /// Posts a write of the bytes of `buffer` to the peer's memory.
    ///
    /// See [`endpoint::Connection::post_write`].
    ///
    /// # Errors
    ///
    /// The errors of [`endpoint::Connection::post_write`].
    pub fn post_write(&self, buffer: Buffer, to: &RemoteMemory, offset: u64) -> Result<()> {
        self.blocking().post_write(buffer, to, offset)
    }

    /// Fills `buffer`, at its length, from the peer's memory, and returns it.
    ///
    /// See [`endpoint::Connection::read`].
    ///
    /// # Errors
    ///
    /// The errors of [`endpoint::Connection::read`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing is read. If it is dropped later, the buffer returns to the
    /// connection when the read has completed.
    #[doc(alias = "rdma_post_read")]
    pub async fn read(&self, buffer: Buffer, from: &RemoteMemory, offset: u64) -> Result<Buffer> {
        let length = buffer.len();
        self.blocking().check_depth(Operation::Read)?;
        let operation = from.reading(offset, length)?;
        let mut buffer = self.post_and_wait(Operation::Read, buffer, operation).await?;
        buffer.set_len(length)?;
        Ok(buffer)
    }

    /// Compares a number of the peer with `compare`, and stores `swap` if they are equal.
    ///
    /// See [`endpoint::Connection::compare_swap`].
    ///
    /// # Errors
    ///
    /// The errors of [`endpoint::Connection::compare_swap`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, or while it waits for a [buffer](Self::acquire_buffer), the number is not
    /// changed. If it is dropped later, the number may be changed, and the caller does not learn whether it was.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub async fn compare_swap(
        &self,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64> {
        self.change(at, offset, Change::CompareSwap { compare, swap }).await
    }

    /// Adds `add` to a number in the peer's memory: see [`endpoint::Connection::fetch_add`].
    ///
    /// # Errors
    ///
    /// The errors of [`endpoint::Connection::fetch_add`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, or while it waits for a [buffer](Self::acquire_buffer), the number is not
    /// changed. If it is dropped later, the number may be changed, and the caller does not learn whether it was.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub async fn fetch_add(&self, at: &RemoteMemory, offset: u64, add: u64) -> Result<u64> {
        self.change(at, offset, Change::FetchAdd { add }).await
    }

    async fn change(&self, at: &RemoteMemory, offset: u64, change: Change) -> Result<u64> {
        self.blocking().check_depth(Operation::Change)?;
        let operation = at.changing(offset, change)?;
        let mut buffer = self.acquire_buffer().await?;
        buffer.set_len(WORD)?;
        self.post_and_wait(Operation::Change, buffer, operation).await.map(|answer| number(&answer))
    }
}
