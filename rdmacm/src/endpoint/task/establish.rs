//! Connecting and accepting.

use std::time::Duration;

use tokio::time;

use super::Connection;
use super::off::{Slow, cancelled, off, refused};
use crate::addr::Address;
use crate::cm::RejectReason;
use crate::endpoint::deadline::within;
use crate::endpoint::{self, Connecting, Connector, Incoming, Settings};
use crate::error::{ErrorKind, Result};
use crate::sys::reactor::Watched;

const WAIT_FOR: &str = "wait for";
const SUBJECT: &str = "a connection that comes about";

impl Connection {
    /// Connects to a listener at `server`: see [`Connector::connect`].
    ///
    /// Dropped before, the attempt ends, and leaves nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Connector::connect`], and of [`from_blocking`](Self::from_blocking).
    ///
    /// # Panics
    ///
    /// As [`from_blocking`](Self::from_blocking).
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_create_ep")]
    pub async fn connect(connector: &Connector, server: impl Into<Address>) -> Result<Self> {
        // It may wait for a thread first.
        let overall = connector.overall();
        let (connector, server) = (connector.clone(), server.into());
        establish(move || connector.start_by(server, overall)).await
    }

    /// Accepts a request, and waits for at most `timeout` until the connection stands: see
    /// [`Incoming::accept`].
    ///
    /// Dropped before, the attempt ends, and leaves nothing; where the peer was not accepted yet it
    /// is rejected.
    ///
    /// # Errors
    ///
    /// Those of [`Incoming::accept`], and of [`from_blocking`](Self::from_blocking).
    ///
    /// # Panics
    ///
    /// As [`from_blocking`](Self::from_blocking).
    #[doc(alias = "rdma_accept")]
    pub async fn accept(
        incoming: Incoming,
        settings: &Settings,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Self> {
        let until = within(timeout);
        let (settings, private_data) = (settings.clone(), private_data.to_vec());
        establish(move || incoming.start_by(&settings, &private_data, until)).await
    }

    /// Rejects a request, with a reason and bytes for the peer's program: see [`Incoming::reject`].
    ///
    /// Dropped before it is polled, the request is rejected by who drops it, without these; later,
    /// that goes on.
    ///
    /// # Errors
    ///
    /// Those of [`Incoming::reject`]; ECANCELED where the runtime ends, with which it is rejected
    /// too.
    #[doc(alias = "rdma_reject")]
    pub async fn reject(
        incoming: Incoming,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<()> {
        let private_data = private_data.to_vec();
        let rejected = off(move || incoming.reject(reason, &private_data)).await;
        rejected.ok_or_else(|| cancelled("reject", "a request"))?
    }
}

/// What has become of an attempt.
enum Step {
    Waits(Slow<Connecting>),
    Ended(Result<Slow<endpoint::Connection>>),
}

impl Step {
    fn of(mut connecting: Connecting) -> Self {
        match connecting.try_wait() {
            Err(error) if *error.kind() == ErrorKind::WouldBlock => {
                Self::Waits(Slow::new(connecting))
            }
            ended => Self::Ended(ended.map(Slow::new)),
        }
    }
}

/// Starts, and goes on until the connection stands. What that takes is done off the threads of
/// tasks, and what is dropped on the way is dropped there too.
async fn establish(
    start: impl FnOnce() -> Result<Connecting> + Send + 'static,
) -> Result<Connection> {
    let late = || cancelled(WAIT_FOR, SUBJECT);
    let failed = |error| refused(WAIT_FOR, SUBJECT, &error);
    let mut step = off(|| start().map(Step::of)).await.ok_or_else(late)??;
    let mut watched = None;
    loop {
        let connecting = match step {
            Step::Waits(connecting) => connecting,
            Step::Ended(ended) => return Connection::of(ended?, watched),
        };
        let watched = match &watched {
            Some(watched) => watched,
            None => watched.insert(Watched::new(connecting.epoll()).map_err(failed)?),
        };
        let readable = match connecting.deadline() {
            None => Some(watched.readable().await),
            // The next step says that it is too late.
            Some(deadline) => time::timeout_at(deadline.into(), watched.readable()).await.ok(),
        };
        // Nobody else waits here, and who looks next looks at all there is.
        if let Some(readable) = readable {
            readable.map_err(failed)?.used_up();
        }
        step = off(|| Step::of(connecting.into_inner())).await.ok_or_else(late)?;
    }
}
