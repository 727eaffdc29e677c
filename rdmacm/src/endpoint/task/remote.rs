//! Memory of the peer, by tasks.

use super::Connection;
use super::off::{Slow, cancelled, off};
#[cfg(doc)]
use crate::endpoint;
use crate::endpoint::buffer::Buffer;
use crate::endpoint::remote::number;
use crate::endpoint::remote_memory::{Change, WORD};
use crate::endpoint::shared::Operation;
use crate::endpoint::{Export, Memory, Remote, Rights};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Connection {
    /// Lets the peer reach `memory`, as far as `rights` go: see [`endpoint::Connection::export`].
    ///
    /// Dropped before, it has exported nothing that stays. The [`Export`] is revoked by who drops
    /// it, which takes its time: [`revoke`](Self::revoke) is for tasks.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::export`]; ECANCELED where the runtime ends.
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub async fn export(&self, memory: &Memory, rights: Rights) -> Result<Export> {
        let (pd, memory) = (self.shared().pd()?, memory.same());
        let exported =
            off(move || Export::new(&pd, &memory, 0..memory.len(), rights).map(Slow::new)).await;
        let late = || cancelled("export memory over", self.shared().name.clone());
        exported.ok_or_else(late)?.map(Slow::into_inner)
    }

    /// Takes back what was exported, by whichever connection: see [`Export::revoke`].
    ///
    /// Dropped before it is polled, it is revoked by who drops it; later, that goes on.
    ///
    /// # Errors
    ///
    /// Those of [`Export::revoke`]; ECANCELED where the runtime ends, with which it is revoked too.
    #[doc(alias = "rdma_dereg_mr")]
    pub async fn revoke(export: Export) -> Result<()> {
        let revoked = off(move || export.revoke()).await;
        revoked.ok_or_else(|| cancelled("revoke", "exported memory"))?
    }

    /// Writes what is in `buffer` to the peer's memory, and gives the buffer back when that is done:
    /// see [`endpoint::Connection::write`].
    ///
    /// Dropped before it is polled, it writes nothing, and the buffer goes back to the connection;
    /// later, it is on its way, as with [`post_write`](Self::post_write).
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::write`].
    #[doc(alias = "rdma_post_write")]
    pub async fn write(&self, buffer: Buffer, to: &Remote, offset: u64) -> Result<Buffer> {
        let operation = to.writing(offset, buffer.len())?;
        self.carry_out(Operation::Write, buffer, operation).await
    }

    /// Writes what is in `buffer` to the peer's memory, without waiting until that is done:
    /// [`endpoint::Connection::post_write`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn post_write(&self, buffer: Buffer, to: &Remote, offset: u64) -> Result<()> {
        self.blocking().post_write(buffer, to, offset)
    }

    /// Fills `buffer`, as long as it is, from the peer's memory: see
    /// [`endpoint::Connection::read`].
    ///
    /// Dropped before it is polled, it reads nothing; later, it reads on, and the buffer goes back to
    /// the connection when that is done.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::read`].
    #[doc(alias = "rdma_post_read")]
    pub async fn read(&self, buffer: Buffer, from: &Remote, offset: u64) -> Result<Buffer> {
        let length = buffer.len();
        self.blocking().check_depth(Operation::Read)?;
        let operation = from.reading(offset, length)?;
        let mut buffer = self.carry_out(Operation::Read, buffer, operation).await?;
        buffer.set_len(length)?;
        Ok(buffer)
    }

    /// Compares a number of the peer's memory, and stores another one there if they are equal: see
    /// [`endpoint::Connection::compare_swap`].
    ///
    /// Dropped before it is polled, or while it waits for a [buffer](Self::buffer), it changes nothing;
    /// later, nobody knows whether it was done, and the buffer goes back to the connection when that
    /// is decided.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::compare_swap`].
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub async fn compare_swap(
        &self,
        at: &Remote,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64> {
        self.change(at, offset, Change::CompareSwap { compare, swap }).await
    }

    /// Adds to a number of the peer's memory: see [`endpoint::Connection::fetch_add`].
    ///
    /// Dropped before it is polled, or while it waits for a [buffer](Self::buffer), it changes nothing;
    /// later, nobody knows whether it was done, and the buffer goes back to the connection when that
    /// is decided.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Connection::fetch_add`].
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub async fn fetch_add(&self, at: &Remote, offset: u64, add: u64) -> Result<u64> {
        self.change(at, offset, Change::FetchAdd { add }).await
    }

    async fn change(&self, at: &Remote, offset: u64, change: Change) -> Result<u64> {
        self.blocking().check_depth(Operation::Change)?;
        let operation = at.changing(offset, change)?;
        let mut buffer = self.buffer().await?;
        buffer.set_len(WORD)?;
        self.carry_out(Operation::Change, buffer, operation).await.map(|answer| number(&answer))
    }
}
