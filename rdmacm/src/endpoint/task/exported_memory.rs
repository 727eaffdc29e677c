//! [`ExportedMemory`], memory of this side that the peer of a connection may reach, for tasks.

use std::ops::Deref;

use super::blocking_pool::run_blocking;
#[cfg(doc)]
use super::connection::Connection;
use super::failure::canceled;
use super::runtime::ProcessRuntime;
use crate::endpoint;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// Memory of this side that the peer of a connection may access, for tasks.
///
/// Created by [`Connection::export`]. It dereferences to an [`endpoint::ExportedMemory`], whose
/// [`remote_memory`](endpoint::ExportedMemory::remote_memory) returns the description that the peer needs.
///
/// Dropping it revokes the access by a command that the dropping thread sends: the peer has no access any more
/// afterwards. [`revoke`](Self::revoke) does that on another thread and waits for it.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::{DmaMemory, RemoteAccess, task::Connection};
///
/// /// Lets the peer read `memory` until the peer answers.
/// async fn lend(connection: &Connection, memory: &DmaMemory) -> rdmacm::Result<()> {
///     let exported = connection.export(memory, .., RemoteAccess::READ).await?;
///     connection.post_bytes(&exported.remote_memory().to_bytes()).await?;
///     connection.recv().await?;
///     exported.revoke().await
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it revokes the access of the peer"]
pub struct ExportedMemory {
    export: endpoint::ExportedMemory,
    runtime: ProcessRuntime,
}

impl ExportedMemory {
    pub(super) fn new(export: endpoint::ExportedMemory, runtime: ProcessRuntime) -> Self {
        Self { export, runtime }
    }

    /// Revokes the peer's access, and waits until it has ended.
    ///
    /// An access that the peer tries later fails, and ends the connection.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    /// - ECANCELED if the runtime ends. The access is revoked in this case too.
    /// - The other errors of [`endpoint::ExportedMemory::revoke`].
    ///
    /// # Cancel safety
    ///
    /// The access is revoked in any case, as if the export was dropped.
    #[doc(alias = "rdma_dereg_mr")]
    pub async fn revoke(self) -> Result<()> {
        let Self { export, runtime } = self;
        let revoked = run_blocking(&runtime, move || export.revoke()).await;
        revoked.ok_or_else(|| canceled("revoke", "exported memory"))?
    }
}

impl Deref for ExportedMemory {
    type Target = endpoint::ExportedMemory;

    fn deref(&self) -> &endpoint::ExportedMemory {
        &self.export
    }
}
