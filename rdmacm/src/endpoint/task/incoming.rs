//! [`Incoming`], a connection request, for tasks.

use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use super::blocking_pool::{DropOnBlockingPool, run_blocking};
use super::connection::Connection;
use super::establish::establish;
use super::failure::canceled;
#[cfg(doc)]
use super::listener::Listener;
use crate::cm::RejectReason;
use crate::endpoint::wait::deadline::deadline_after;
use crate::endpoint::{self, ConnectionConfig};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// The time for accepting a request that is awaited itself.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection request, which a program accepts or rejects, for tasks.
///
/// Created by [`Listener::accept`]. A request may be sent to another task, which accepts it while the listener's task
/// waits for the next one. It dereferences to an [`endpoint::Incoming`], which has the peer's address and its
/// proposed parameters. Dropping it rejects the request without waiting for that.
///
/// Awaiting it accepts the request with the default [`ConnectionConfig`], without private data, within 30 seconds.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use rdmacm::endpoint::task::Listener;
///
/// /// Accepts a client and returns its first message to it.
/// async fn echo(listener: &Listener) -> rdmacm::Result<()> {
///     let incoming = listener.accept().await?;
///     println!("a request by {:?}", incoming.peer_addr());
///     let connection = incoming.await?;
///     if let Some(message) = connection.recv().await? {
///         connection.post_bytes(&message).await?;
///     }
///     connection.close(Duration::from_secs(10)).await
/// }
/// ```
#[derive(Debug)]
pub struct Incoming(DropOnBlockingPool<endpoint::Incoming>);

impl Incoming {
    pub(super) fn new(incoming: DropOnBlockingPool<endpoint::Incoming>) -> Self {
        Self(incoming)
    }

    /// Accepts the request, and waits at most `timeout` until the connection is established.
    ///
    /// `config` sets the buffers of this side: a message of the peer must fit into one. `private_data` go to the peer's
    /// program: at most 196 bytes on InfiniBand and RoCE, 251 on iWARP. On iWARP this side must not send before it has
    /// received a message. The connection belongs to the runtime of the listener. After an error no object remains, and
    /// the peer is rejected if it was not accepted yet. See [`endpoint::Incoming::accept`] for the steps.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    /// - [`ErrorKind::Unreachable`], [`ErrorKind::Disconnected`], ECONNREFUSED and others if the peer does not complete
    ///   the connection.
    /// - EINVAL, on siw ECONNRESET, if the peer has ended its attempt.
    /// - [`ErrorKind::InvalidInput`] if `private_data` are too long, or if `config` has no buffer.
    /// - EINVAL or ENOMEM if `config` exceeds the limits of the device.
    /// - EMFILE if the process has too many descriptors.
    /// - The errors of [`Connection::from_blocking_with`].
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt ends and its objects are destroyed. A peer that was not accepted yet is
    /// rejected.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::endpoint::{ConnectionConfig, task::Incoming};
    ///
    /// # async fn f(incoming: Incoming) -> rdmacm::Result<()> {
    /// let config = ConnectionConfig::new().receive_buffers(64);
    /// let connection = incoming.accept(&config, b"welcome", Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_accept")]
    pub async fn accept(
        self,
        config: &ConnectionConfig,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Connection> {
        // The time begins here: the attempt may have to wait for a thread.
        let deadline = deadline_after(timeout);
        let runtime = self.0.runtime().clone();
        let (config, private_data) = (config.clone(), private_data.to_vec());
        let start =
            move || self.into_blocking().start_with_deadline(&config, &private_data, deadline);
        Connection::established(establish(&runtime, start).await?)
    }

    /// Rejects the request. The peer gets `reason` and `private_data` with [`ErrorKind::Rejected`].
    ///
    /// `private_data` are at most 148 bytes on InfiniBand and RoCE, 251 on iWARP. `reason` is
    /// [`RejectReason::CONSUMER_DEFINED`] or [`RejectReason::VENDOR_OPTION_NOT_SUPPORTED`]; the kernel uses the others
    /// itself. iWARP carries no reason: the peer gets an errno.
    ///
    /// # Errors
    ///
    /// The request is rejected in any case.
    /// - [`ErrorKind::InvalidInput`] if `reason` is another one, or if `private_data` are too long.
    /// - EINVAL if the peer has ended its attempt.
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// The request is rejected in any case. If the future is dropped before it is polled, the peer gets neither the
    /// reason nor the data.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{RejectReason, task::Incoming};
    ///
    /// # async fn f(incoming: Incoming) -> rdmacm::Result<()> {
    /// if !incoming.private_data().starts_with(b"sesame") {
    ///     return incoming.reject(RejectReason::CONSUMER_DEFINED, b"wrong password").await;
    /// }
    /// let connection = incoming.await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_reject")]
    pub async fn reject(self, reason: RejectReason, private_data: &[u8]) -> Result<()> {
        let runtime = self.0.runtime().clone();
        let private_data = private_data.to_vec();
        let reject = move || self.into_blocking().reject(reason, &private_data);
        let rejected = run_blocking(&runtime, reject).await;
        rejected.ok_or_else(|| canceled("reject", "a connection request"))?
    }

    /// Converts this into an [`endpoint::Incoming`].
    ///
    /// It is for a thread or a [poll group](endpoint::PollGroup::add).
    pub fn into_blocking(self) -> endpoint::Incoming {
        self.0.into_inner()
    }
}

impl Deref for Incoming {
    type Target = endpoint::Incoming;

    fn deref(&self) -> &endpoint::Incoming {
        &self.0
    }
}

impl IntoFuture for Incoming {
    type Output = Result<Connection>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.accept(&ConnectionConfig::default(), &[], TIMEOUT).await })
    }
}
