//! [`Connection::connect`]: the creation of connections for tasks.

use std::sync::Arc;

use super::connection::Connection;
use super::default_runtime::default_runtime;
use super::establish::establish;
use super::runtime::Runtime;
use crate::endpoint::Connector;
use crate::endpoint::to_addresses::ToAddresses;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Connection {
    /// Connects to a listener at `server`, on the [default runtime](super#runtimes): see [`Connector::connect`].
    ///
    /// # Errors
    ///
    /// The errors of [`connect_with`](Self::connect_with), and:
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt ends and nothing is left of it.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_create_ep")]
    pub async fn connect(connector: &Connector, server: impl ToAddresses) -> Result<Self> {
        Self::connect_with(connector, server, default_runtime()?).await
    }

    /// Connects to a listener at `server`, on `runtime`: see [`Connector::connect`].
    ///
    /// # Errors
    ///
    /// - The errors of [`Connector::connect`].
    /// - The errors of [`from_blocking_with`](Self::from_blocking_with).
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt ends and nothing is left of it.
    pub async fn connect_with(
        connector: &Connector,
        server: impl ToAddresses,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        // The time begins here: the attempt may have to wait for a thread.
        let overall = connector.overall();
        let (connector, target) = (connector.clone(), server.to_target());
        let start = move || connector.start_by(target.resolve()?, overall);
        let established = establish(&runtime, start).await;
        Self::established(established?)
    }
}
