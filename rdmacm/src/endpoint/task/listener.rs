//! A listener of tasks.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::off::{Slow, refused};
use crate::addr::Address;
use crate::endpoint::{self, Incoming};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;
use crate::sys::reactor::Watched;

/// Waits for peers that want to connect: for tasks.
///
/// In all but waiting it is as an [`endpoint::Listener`], which says more. `Send + Sync`: several
/// tasks may wait, and each request goes to one of them.
#[derive(Debug)]
pub struct Listener {
    // First: nobody watches what is closed.
    watched: Watched,
    listener: Slow<endpoint::Listener>,
    /// Of who looks: who does not find the turn free would take it that there is nothing.
    looking: Mutex<()>,
}

impl Listener {
    /// Listens on a local address: [`endpoint::Listener::bind`], which says all.
    ///
    /// # Errors
    ///
    /// Those of it, and of [`from_blocking`](Self::from_blocking).
    ///
    /// # Panics
    ///
    /// As [`from_blocking`](Self::from_blocking).
    #[doc(alias = "rdma_listen")]
    #[track_caller]
    pub fn bind(address: impl Into<Address>) -> Result<Self> {
        Self::from_blocking(endpoint::Listener::bind(address)?)
    }

    /// One of tasks of the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// EMFILE and ENFILE, as it needs one more descriptor; ENOMEM and ENOSPC where the runtime
    /// cannot watch as many.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and in one without I/O.
    #[track_caller]
    pub fn from_blocking(listener: endpoint::Listener) -> Result<Self> {
        const WATCH: (&str, &str) = ("watch", "a listener");
        let failed = |errno| Error::os(WATCH.0, WATCH.1, errno);
        let listener = Slow::new(listener);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        epoll.add(&*listener, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed)?;
        let watched = Watched::new(Arc::new(epoll));
        let watched = watched.map_err(|error| refused(WATCH.0, WATCH.1, &error))?;
        Ok(Self { watched, listener, looking: Mutex::default() })
    }

    /// One of threads.
    pub fn into_blocking(self) -> endpoint::Listener {
        self.listener.into_inner()
    }

    /// The address that it listens on; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next request: see [`endpoint::Listener::incoming`]. It is accepted by
    /// [`Connection::accept`](super::Connection::accept), or rejected by
    /// [`Connection::reject`](super::Connection::reject).
    ///
    /// Dropped before, it has taken none.
    ///
    /// # Errors
    ///
    /// Those of [`endpoint::Listener::incoming`].
    #[doc(alias = "rdma_get_request")]
    pub async fn incoming(&self) -> Result<Incoming> {
        // The event that told of it may be read, and there is nothing more.
        self.listener.check()?;
        loop {
            let readable = self.watched.readable().await;
            let failed = |error| refused("wait for", "a request", &error);
            let readable = readable.map_err(failed)?;
            let looking = unpoisoned(self.looking.lock());
            let found = self.listener.try_incoming();
            drop(looking);
            match found {
                Err(error) if *error.kind() == ErrorKind::WouldBlock => readable.used_up(),
                found => return found,
            }
        }
    }
}
