//! [`Connection::connect`]: the creation of connections for tasks.

use std::sync::Arc;

use super::connection::Connection;
use super::default_runtime::default_runtime;
use super::establish::establish;
use super::runtime::{ProcessRuntime, Runtime};
use crate::endpoint::Connector;
use crate::endpoint::to_addresses::ToAddresses;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// Connecting.
impl Connection {
    /// Connects to a listener at `server`, on the [default runtime](super#runtimes).
    ///
    /// `connector` has the options: timeouts, private data, and the configuration of the connection. If `server` names
    /// several addresses, they are tried in turn until one attempt succeeds. A name is looked up on a thread that may
    /// block. [`Connector::connect`] describes the steps, and the rules for iWARP.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Rejected`] if the peer's program or device rejects, with its reason and private data.
    /// - [`ErrorKind::TimedOut`] if one of the timeouts of `connector` elapses.
    /// - [`ErrorKind::Unreachable`] if the peer does not answer.
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    /// - The other errors of [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt ends and nothing is left of it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::ErrorKind;
    /// use rdmacm::endpoint::{Connector, task::Connection};
    ///
    /// # async fn f() -> rdmacm::Result<()> {
    /// let connector = Connector::new().private_data(b"who I am");
    /// match Connection::connect(&connector, "10.0.0.1:7471").await {
    ///     Ok(connection) => println!("connected to {:?}", connection.peer_addr()),
    ///     Err(error) if matches!(error.kind(), ErrorKind::Rejected(_)) => println!("{error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_create_ep")]
    pub async fn connect(connector: &Connector, server: impl ToAddresses) -> Result<Self> {
        Self::connect_with(connector, server, default_runtime()?).await
    }

    /// Connects to a listener at `server`, on `runtime`.
    ///
    /// Otherwise the call behaves like [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Rejected`] if the peer's program or device rejects, with its reason and private data.
    /// - [`ErrorKind::TimedOut`] if one of the timeouts of `connector` elapses.
    /// - [`ErrorKind::Unreachable`] if the peer does not answer.
    /// - The other errors of [`Connector::connect`].
    /// - The errors of [`from_blocking_with`](Self::from_blocking_with).
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt ends and nothing is left of it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use rdmacm::endpoint::Connector;
    /// use rdmacm::endpoint::task::{Connection, Runtime};
    ///
    /// /// Connects on a runtime that has no feature in this crate.
    /// async fn connect(runtime: Arc<dyn Runtime>) -> rdmacm::Result<Connection> {
    ///     Connection::connect_with(&Connector::new(), "10.0.0.1:7471", runtime).await
    /// }
    /// ```
    pub async fn connect_with(
        connector: &Connector,
        server: impl ToAddresses,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        // The time begins here: the attempt may have to wait for a thread.
        let total_deadline = connector.total_deadline();
        let (connector, target) = (connector.clone(), server.to_target());
        let start = move || connector.start_with_deadline(target.resolve()?, total_deadline);
        let established = establish(&ProcessRuntime::new(runtime), start).await;
        Self::established(established?)
    }
}
